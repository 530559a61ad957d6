//! Where users are: the bindings of a registrar (RFC 3261 section 10), in memory.
//!
//! Whoever keeps them beyond that writes down each [`Change`]. Where several proxies share a store this is what was heard of it: a user's
//! bindings come and go all together, with their version there ([`Location::replace`]). Invariants: no user has more than
//! [`LocationLimits::contacts`] bindings by [`Location::apply`], and there are no more than [`LocationLimits::users`] users.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use base::Time;

use crate::transport::Hop;
use crate::uri::Uri;

/// Bounds on bindings.
#[derive(Clone, Copy, Debug)]
pub struct LocationLimits {
    /// Bindings of one user.
    pub contacts: usize,
    /// Users with bindings.
    pub users: usize,
}

impl Default for LocationLimits {
    fn default() -> LocationLimits {
        LocationLimits { contacts: 16, users: 1_000_000 }
    }
}

/// One place where a user is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The contact's URI, as it came.
    pub uri: Box<[u8]>,
    /// Until when.
    pub expires: Time,
    /// Call-ID of the REGISTER that made it.
    pub call_id: Box<[u8]>,
    /// CSeq of that.
    pub cseq: u32,
    /// Values of Path (RFC 3327), the first to visit first.
    pub path: Vec<Box<[u8]>>,
    /// `+sip.instance` with `reg-id` (RFC 5626), if given.
    pub instance: Option<Box<[u8]>>,
    /// How much it is preferred to others, in thousandths: 1000 where nothing is said.
    pub q: u16,
    /// Where the REGISTER came from. With `through` its listener and connection mean nothing.
    pub flow: Hop,
    /// A Route by which the proxy that was registered with leads to `flow`, where proxies share users.
    pub through: Option<Box<[u8]>>,
}

/// What became of a user's bindings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// This one is new, or changed.
    Put {
        /// The user's address-of-record.
        user: String,
        /// The binding.
        binding: Binding,
    },
    /// The one with this URI is gone.
    Remove {
        /// The user's address-of-record.
        user: String,
        /// The contact's URI.
        uri: Box<[u8]>,
    },
}

/// All bindings.
#[derive(Debug, Default)]
pub struct Location {
    limits: LocationLimits,
    users: BTreeMap<String, User>,
    /// How often all of a shared store was taken over.
    round: u32,
    contacts: usize,
    /// How many bindings were made from an address.
    sources: BTreeMap<IpAddr, usize>,
}

/// What is known of one user; there is at least one binding.
#[derive(Debug, Default)]
struct User {
    bindings: Vec<Binding>,
    /// Of the bindings in a shared store; 0 without one.
    version: u64,
    /// The round in which the store was heard to have this.
    round: u32,
}

/// Why there is no room for a binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    Contacts,
    Users,
}

impl Location {
    /// Without any.
    pub fn new(limits: LocationLimits) -> Location {
        Location { limits, ..Location::default() }
    }

    /// Other bounds, for bindings to come.
    pub(crate) fn set_limits(&mut self, limits: LocationLimits) {
        self.limits = limits;
    }

    /// A user's bindings that are still good.
    pub fn of(&self, user: &str, now: Time) -> impl Iterator<Item = &Binding> {
        self.known(user).iter().filter(move |binding| binding.expires > now)
    }

    /// Users with bindings, among them such as have expired and were not looked at since.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// Bindings, the same way.
    pub fn contacts(&self) -> usize {
        self.contacts
    }

    /// Whether a binding was made from this address.
    pub(crate) fn is_registered_from(&self, address: IpAddr) -> bool {
        self.sources.contains_key(&address)
    }

    /// All users with their bindings, in the users' order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Binding])> {
        self.after(None)
    }

    /// The same of those that follow a user.
    pub fn after(&self, user: Option<&str>) -> impl Iterator<Item = (&str, &[Binding])> {
        let from = user.map_or(Bound::Unbounded, Bound::Excluded);
        let users = self.users.range::<str, _>((from, Bound::Unbounded));
        users.map(|(name, user)| (name.as_str(), &user.bindings[..]))
    }

    fn known(&self, user: &str) -> &[Binding] {
        self.users.get(user).map_or(&[], |user| &user.bindings)
    }

    /// The version that a user's bindings have in a shared store; 0 if there are none.
    pub(crate) fn version_of(&self, user: &str) -> u64 {
        self.users.get(user).map_or(0, |user| user.version)
    }

    /// Takes over what a shared store has of a user. Without room for another user nothing is kept: the store is asked then.
    pub(crate) fn replace(&mut self, user: &str, version: u64, bindings: Vec<Binding>) {
        if let Some(old) = self.users.remove(user) {
            self.contacts -= old.bindings.len();
            old.bindings.iter().for_each(|binding| forget_source(&mut self.sources, binding));
        }
        if bindings.is_empty() || self.users.len() >= self.limits.users {
            return;
        }
        self.contacts += bindings.len();
        for binding in &bindings {
            *self.sources.entry(binding.flow.address.ip()).or_default() += 1;
        }
        self.users.insert(user.to_owned(), User { bindings, version, round: self.round });
    }

    /// The store is heard to have this user as it is known here.
    pub(crate) fn confirm(&mut self, user: &str) {
        if let Some(user) = self.users.get_mut(user) {
            user.round = self.round;
        }
    }

    /// All of a shared store will be taken over now.
    pub(crate) fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// All of it was: who was not heard of since [`Location::begin_round`] is not there any more.
    pub(crate) fn end_round(&mut self) {
        let is_old = |user: &User| user.round != self.round;
        let gone: Vec<String> =
            self.users.iter().filter(|(_, user)| is_old(user)).map(|(name, _)| name.clone()).collect();
        gone.iter().for_each(|user| self.replace(user, 0, Vec::new()));
    }

    /// Whether so many bindings of a user would be within the limits.
    pub(crate) fn has_room(&self, user: &str, contacts: usize) -> Result<(), Full> {
        if contacts > self.limits.contacts {
            return Err(Full::Contacts);
        }
        if self.users.len() >= self.limits.users && !self.users.contains_key(user) {
            return Err(Full::Users);
        }
        Ok(())
    }

    /// Takes a change over, be it new or from a store.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { user, binding } => {
                let bindings = &mut self.users.entry(user.clone()).or_default().bindings;
                *self.sources.entry(binding.flow.address.ip()).or_default() += 1;
                match bindings.iter_mut().find(|known| known.is_same(binding)) {
                    Some(known) => {
                        let old = std::mem::replace(known, binding.clone());
                        forget_source(&mut self.sources, &old);
                    }
                    None => {
                        bindings.push(binding.clone());
                        self.contacts += 1;
                    }
                }
            }
            Change::Remove { user, uri } => {
                let Some(bindings) = self.users.get_mut(user).map(|user| &mut user.bindings) else { return };
                let before = bindings.len();
                let sources = &mut self.sources;
                bindings.retain(|binding| {
                    let stays = binding.uri != *uri;
                    if !stays {
                        forget_source(sources, binding);
                    }
                    stays
                });
                self.contacts -= before - bindings.len();
                if bindings.is_empty() {
                    self.users.remove(user);
                }
            }
        }
    }

    /// Forgets a user's bindings that have expired; what was forgotten.
    pub(crate) fn expire(&mut self, user: &str, now: Time) -> Vec<Change> {
        let gone = |binding: &&Binding| binding.expires <= now;
        let uris = self.known(user).iter().filter(gone).map(|binding| binding.uri.clone());
        let changes: Vec<_> = uris.map(|uri| Change::Remove { user: user.to_owned(), uri }).collect();
        changes.iter().for_each(|change| self.apply(change));
        changes
    }

    /// Forgets all that have expired.
    pub(crate) fn expire_all(&mut self, now: Time) -> Vec<Change> {
        let is_old = |bindings: &[Binding]| bindings.iter().any(|binding| binding.expires <= now);
        let users: Vec<_> =
            self.iter().filter(|(_, bindings)| is_old(bindings)).map(|(user, _)| user.to_owned()).collect();
        users.iter().flat_map(|user| self.expire(user, now)).collect()
    }
}

fn forget_source(sources: &mut BTreeMap<IpAddr, usize>, binding: &Binding) {
    let address = binding.flow.address.ip();
    if let Some(count) = sources.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            sources.remove(&address);
        }
    }
}

impl Binding {
    /// Whether this replaces the other: the same instance and flow of it (RFC 5626 section 6), or the same contact.
    pub fn is_same(&self, other: &Binding) -> bool {
        match (&self.instance, &other.instance) {
            (Some(one), Some(two)) => one == two,
            _ => is_same_contact(&self.uri, &other.uri),
        }
    }
}

/// Whether two contacts are the same: user, host, port and transport (of RFC 3261 section 19.1.4 what tells registered
/// contacts apart; other parameters do not).
fn is_same_contact(one: &[u8], two: &[u8]) -> bool {
    if one == two {
        return true;
    }
    let (Ok(one), Ok(two)) = (Uri::parse(one), Uri::parse(two)) else { return false };
    let transport = |uri: &Uri<'_>| uri.transport().map(<[u8]>::to_ascii_lowercase);
    (one.scheme, one.user, one.port) == (two.scheme, two.user, two.port)
        && one.host.eq_ignore_ascii_case(two.host)
        && transport(&one) == transport(&two)
}

//! The location service: a registrar's bindings (RFC 3261 section 10), in memory.
//!
//! For persistence, the driver stores each [`Change`]. If several proxies share a store, this service is a cache of that store.
//! [`Location::replace`] then replaces all bindings of a user, and records the version that the user's record has in the store. The
//! registrar checks [`LocationLimits`] before it applies a change. [`Location::apply`] does not check them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use base::Time;

use crate::transport::Hop;
use crate::uri::Uri;

/// Limits on bindings.
#[derive(Clone, Copy, Debug)]
pub struct LocationLimits {
    /// Limit on the bindings of one user.
    pub contacts: usize,
    /// Limit on users with bindings.
    pub users: usize,
}

impl Default for LocationLimits {
    fn default() -> LocationLimits {
        LocationLimits { contacts: 16, users: 1_000_000 }
    }
}

/// A binding: one contact of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The contact's URI, as received.
    pub uri: Box<[u8]>,
    /// Expiry time.
    pub expires: Time,
    /// Call-ID of the REGISTER that made the binding.
    pub call_id: Box<[u8]>,
    /// CSeq number of the REGISTER that made the binding.
    pub cseq: u32,
    /// Values of Path (RFC 3327), in the order in which a request visits them.
    pub path: Vec<Box<[u8]>>,
    /// Values of `+sip.instance` and `reg-id` (RFC 5626), if both are present.
    pub instance: Option<Box<[u8]>>,
    /// Preference among the user's contacts: the parameter `q` in thousandths. If `q` is absent, the value is 1000.
    pub q: u16,
    /// Source of the REGISTER. If `through` is set, the listener and the connection in this hop are not valid. The token in `through`
    /// contains the valid listener and connection.
    pub flow: Hop,
    /// Route to `flow` through the proxy that accepted the REGISTER. `None` if proxies do not share users.
    pub through: Option<Box<[u8]>>,
}

/// A change to a user's bindings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A binding is new, or has changed.
    Put {
        /// The user's address-of-record.
        user: String,
        /// The binding.
        binding: Binding,
    },
    /// A binding was removed.
    Remove {
        /// The user's address-of-record.
        user: String,
        /// The contact's URI in the removed binding.
        uri: Box<[u8]>,
    },
}

/// All bindings.
#[derive(Debug, Default)]
pub struct Location {
    limits: LocationLimits,
    users: BTreeMap<String, User>,
    /// Number of full reloads from a shared store.
    round: u32,
    contacts: usize,
    /// Number of bindings by source address.
    sources: BTreeMap<IpAddr, usize>,
}

/// One user's entry, which has at least one binding.
#[derive(Debug, Default)]
struct User {
    bindings: Vec<Binding>,
    /// Version of the bindings in a shared store. The value is 0 without such a store.
    version: u64,
    /// Number of the reload in which the store last confirmed this entry.
    round: u32,
}

/// The limit that a new binding would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    Contacts,
    Users,
}

impl Location {
    /// Creates a location service without bindings.
    pub fn new(limits: LocationLimits) -> Location {
        Location { limits, ..Location::default() }
    }

    /// Sets the limits for future bindings.
    pub(crate) fn set_limits(&mut self, limits: LocationLimits) {
        self.limits = limits;
    }

    /// Returns a user's bindings that have not expired.
    pub fn of(&self, user: &str, now: Time) -> impl Iterator<Item = &Binding> {
        self.known(user).iter().filter(move |binding| binding.expires > now)
    }

    /// Returns the number of users with bindings. Users who have only expired bindings count until those bindings are removed.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// Returns the number of bindings. Expired bindings count until they are removed.
    pub fn contacts(&self) -> usize {
        self.contacts
    }

    /// Reports whether one of the bindings was made by a REGISTER from this address.
    pub(crate) fn is_registered_from(&self, address: IpAddr) -> bool {
        self.sources.contains_key(&address)
    }

    /// Iterates over all users with their bindings, ordered by user.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Binding])> {
        self.after(None)
    }

    /// Iterates over users with their bindings, ordered by user. If `user` is given, begins after that user.
    pub fn after(&self, user: Option<&str>) -> impl Iterator<Item = (&str, &[Binding])> {
        let from = user.map_or(Bound::Unbounded, Bound::Excluded);
        let users = self.users.range::<str, _>((from, Bound::Unbounded));
        users.map(|(name, user)| (name.as_str(), &user.bindings[..]))
    }

    fn known(&self, user: &str) -> &[Binding] {
        self.users.get(user).map_or(&[], |user| &user.bindings)
    }

    /// Returns the version of a user's bindings in a shared store, or 0 if the user has no bindings.
    pub(crate) fn version_of(&self, user: &str) -> u64 {
        self.users.get(user).map_or(0, |user| user.version)
    }

    /// Replaces a user's bindings with the bindings in a shared store. If the limit on users is reached, the new bindings are not kept.
    /// Requests for this user then query the store.
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

    /// Records that the reload contained this user, and that the local entry is up to date.
    pub(crate) fn confirm(&mut self, user: &str) {
        if let Some(user) = self.users.get_mut(user) {
            user.round = self.round;
        }
    }

    /// Begins a full reload from a shared store.
    pub(crate) fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Ends the reload. Removes users that were neither replaced nor confirmed since [`Location::begin_round`].
    pub(crate) fn end_round(&mut self) {
        let is_old = |user: &User| user.round != self.round;
        let gone: Vec<String> =
            self.users.iter().filter(|(_, user)| is_old(user)).map(|(name, _)| name.clone()).collect();
        gone.iter().for_each(|user| self.replace(user, 0, Vec::new()));
    }

    /// Checks that a user may have `contacts` bindings.
    pub(crate) fn has_room(&self, user: &str, contacts: usize) -> Result<(), Full> {
        if contacts > self.limits.contacts {
            return Err(Full::Contacts);
        }
        if self.users.len() >= self.limits.users && !self.users.contains_key(user) {
            return Err(Full::Users);
        }
        Ok(())
    }

    /// Applies a change. The change is the result of a REGISTER, or was read from a store.
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

    /// Removes a user's expired bindings, and returns them as changes.
    pub(crate) fn expire(&mut self, user: &str, now: Time) -> Vec<Change> {
        let gone = |binding: &&Binding| binding.expires <= now;
        let uris = self.known(user).iter().filter(gone).map(|binding| binding.uri.clone());
        let changes: Vec<_> = uris.map(|uri| Change::Remove { user: user.to_owned(), uri }).collect();
        changes.iter().for_each(|change| self.apply(change));
        changes
    }

    /// Removes all expired bindings, and returns them as changes.
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
    /// Reports whether this binding replaces `other`. If both bindings have an instance, the instance and the `reg-id` must be equal (RFC
    /// 5626 section 6). Otherwise the contacts must be equal.
    pub fn is_same(&self, other: &Binding) -> bool {
        match (&self.instance, &other.instance) {
            (Some(one), Some(two)) => one == two,
            _ => is_same_contact(&self.uri, &other.uri),
        }
    }
}

/// Reports whether two contacts have the same scheme, user, host, port and transport. RFC 3261 section 19.1.4 also compares other parts
/// of URIs. This function ignores those parts.
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

//! Creates and recognizes nonces, and detects replays by the nonce count (RFC 7616 section 3.3, `nc`).
//!
//! A nonce consists of its creation time, its number, and a keyed hash of both. The hash makes a nonce recognizable, so an unanswered
//! challenge needs no state. When a client uses a nonce with the right password, the count of this use is recorded until the nonce
//! expires. An observer of the traffic therefore cannot replay the credentials. A nonce expires [`NONCE_LIFETIME`] after its creation. Up
//! to [`NONCES_MAX`] nonces have a record. Beyond that limit, the oldest record is dropped. Its nonce, and all older nonces without a
//! record, are then stale.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Time;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::{Algorithm, Credentials, hex};
use crate::proxy::Proof;

/// Lifetime of a nonce.
pub const NONCE_LIFETIME: Duration = Duration::from_secs(300);

/// Limit on used nonces that are recorded.
pub const NONCES_MAX: usize = 200_000;

/// A nonce's creation time, in milliseconds, and its number.
type Stamp = (u64, u64);

/// The validity of a nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nonce {
    /// A valid nonce of ours.
    Good,
    /// A nonce of ours that is too old or already used. The client can try again without asking its user for the password.
    Stale,
    /// A nonce that is not ours.
    Foreign,
}

/// Creates, recognizes and judges nonces.
#[derive(Debug)]
pub struct Nonces {
    secret: [u8; 32],
    /// Time that the nonces' clock shows at this program's [`Time::ZERO`].
    origin: Duration,
    /// One less than the number of the first nonce.
    first: u64,
    /// The number of the last nonce.
    made: u64,
    /// The highest count used with each nonce.
    used: BTreeMap<Stamp, u32>,
    /// The newest nonce whose record was dropped because of [`NONCES_MAX`]. This nonce, and all older nonces without a record, count as
    /// used.
    forgotten: Option<Stamp>,
}

impl Nonces {
    /// Creates a source of nonces with a secret that no other proxy has.
    pub fn new(secret: [u8; 32]) -> Nonces {
        Nonces { secret, origin: Duration::ZERO, first: 0, made: 0, used: BTreeMap::new(), forgotten: None }
    }

    /// Creates a source of nonces with a secret that proxies share. The source also recognizes the nonces of the other proxies. `origin` is
    /// the time of the shared clock at [`Time::ZERO`]. The numbers of the nonces begin after `first`. No other proxy may use these numbers.
    pub fn shared(secret: [u8; 32], origin: Duration, first: u64) -> Nonces {
        Nonces { origin, first, made: first, ..Nonces::new(secret) }
    }

    /// Returns a new, unique nonce.
    pub fn make(&mut self, now: Time) -> String {
        self.made = self.made.wrapping_add(1);
        let stamp = format!("{:016x}{:016x}", (now + self.origin).as_millis(), self.made);
        let tag = self.tag(stamp.as_bytes());
        stamp + &tag
    }

    fn tag(&self, stamp: &[u8]) -> String {
        let hash =
            Sha256::new().chain_update(self.secret).chain_update(stamp).chain_update(self.secret).finalize();
        hex(&hash[..16])
    }

    fn stamp_of(&self, nonce: &[u8]) -> Option<Stamp> {
        let (stamp, tag) = nonce.split_at_checked(32)?;
        if !bool::from(self.tag(stamp).as_bytes().ct_eq(tag)) {
            return None;
        }
        let number = |hex: &[u8]| u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok();
        Some((number(&stamp[..16])?, number(&stamp[16..])?))
    }

    /// Judges the nonce of a client's credentials.
    pub fn judge(&self, now: Time, credentials: &Credentials<'_>) -> Nonce {
        let Some(stamp) = self.stamp_of(credentials.nonce) else { return Nonce::Foreign };
        let now = now + self.origin;
        let is_young = now.since(Time::from_millis(stamp.0)) <= NONCE_LIFETIME;
        let highest = match self.used.get(&stamp) {
            Some(highest) => *highest,
            None if self.forgotten.is_some_and(|forgotten| stamp <= forgotten) => return Nonce::Stale,
            None => 0,
        };
        // An equal or lower count is a replay (RFC 7616 section 3.3: "If the server detects a replay").
        if is_young && credentials.nonce_count() > highest { Nonce::Good } else { Nonce::Stale }
    }

    /// Records the nonce of credentials with the right password as used. From then on, the nonce is valid only with a higher nonce count
    /// than in these credentials.
    pub fn use_up(&mut self, now: Time, credentials: &Credentials<'_>) {
        let Some(stamp) = self.stamp_of(credentials.nonce) else { return };
        let now = now + self.origin;
        while let Some(oldest) = self.used.first_entry() {
            if now.since(Time::from_millis(oldest.key().0)) <= NONCE_LIFETIME {
                break;
            }
            oldest.remove();
        }
        self.used.insert(stamp, credentials.nonce_count());
        if self.used.len() > NONCES_MAX {
            self.forgotten = self.used.pop_first().map(|(stamp, _)| stamp).max(self.forgotten);
        }
    }

    /// Describes the use of one of our nonces, so other proxies with the same secret can reject a replay. Returns `None` for a nonce that
    /// is not ours.
    pub(crate) fn proof(&self, credentials: &Credentials<'_>) -> Option<Proof> {
        let (_, number) = self.stamp_of(credentials.nonce)?;
        let nonce = String::from_utf8_lossy(&credentials.nonce[..32]).into_owned();
        let is_own = number.wrapping_sub(self.first) <= self.made.wrapping_sub(self.first);
        Some(Proof { nonce, count: credentials.nonce_count(), is_own })
    }

    /// Returns a challenge: a value for WWW-Authenticate or Proxy-Authenticate.
    pub fn challenge(&mut self, now: Time, realm: &str, algorithm: Algorithm, is_stale: bool) -> String {
        let stale = if is_stale { ",stale=true" } else { "" };
        let (nonce, algorithm) = (self.make(now), algorithm.as_str());
        format!("Digest realm=\"{realm}\",nonce=\"{nonce}\",qop=\"auth\",algorithm={algorithm}{stale}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(nonce: &str, count: u32) -> String {
        format!(
            "Digest username=\"a\",realm=\"r\",nonce=\"{nonce}\",uri=\"sip:r\",response=\"00\",qop=auth,\
             cnonce=\"c\",nc={count:08x}"
        )
    }

    fn judge(nonces: &Nonces, now: Time, nonce: &str, count: u32) -> Nonce {
        nonces.judge(now, &Credentials::parse(value(nonce, count).as_bytes()).unwrap())
    }

    fn use_up(nonces: &mut Nonces, nonce: &str, count: u32) {
        nonces.use_up(Time::ZERO, &Credentials::parse(value(nonce, count).as_bytes()).unwrap());
    }

    #[test]
    fn only_our_own_nonces_are_valid_and_only_for_their_lifetime() {
        let mut nonces = Nonces::new([1; 32]);
        let nonce = nonces.make(Time::from_millis(5));
        let end = Time::from_millis(5) + NONCE_LIFETIME;
        assert_eq!(judge(&nonces, end, &nonce, 1), Nonce::Good);
        assert_eq!(judge(&nonces, end + Duration::from_millis(1), &nonce, 1), Nonce::Stale);
        assert_eq!(judge(&Nonces::new([2; 32]), end, &nonce, 1), Nonce::Foreign);
    }

    #[test]
    fn a_nonce_count_is_valid_only_if_it_exceeds_all_used_counts() {
        let mut nonces = Nonces::new([1; 32]);
        let (one, other) = (nonces.make(Time::ZERO), nonces.make(Time::ZERO));
        assert_eq!(judge(&nonces, Time::ZERO, &one, 0), Nonce::Stale);
        use_up(&mut nonces, &one, 2);
        for (count, verdict) in [(1, Nonce::Stale), (2, Nonce::Stale), (3, Nonce::Good)] {
            assert_eq!(judge(&nonces, Time::ZERO, &one, count), verdict, "{count}");
        }
        assert_eq!(judge(&nonces, Time::ZERO, &other, 1), Nonce::Good);
    }

    #[test]
    fn a_forgotten_nonce_is_stale() {
        let mut nonces = Nonces::new([1; 32]);
        let unused = nonces.make(Time::ZERO);
        let first = nonces.make(Time::ZERO);
        use_up(&mut nonces, &first, 1);
        for _ in 0..NONCES_MAX {
            let nonce = nonces.make(Time::ZERO);
            use_up(&mut nonces, &nonce, 1);
        }
        assert_eq!(nonces.used.len(), NONCES_MAX);
        assert_eq!(judge(&nonces, Time::ZERO, &first, 2), Nonce::Stale);
        assert_eq!(judge(&nonces, Time::ZERO, &unused, 1), Nonce::Stale);
        let young = nonces.make(Time::ZERO);
        assert_eq!(judge(&nonces, Time::ZERO, &young, 1), Nonce::Good);
    }
}

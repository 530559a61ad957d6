//! Cookies that have made an association already: each is good for one (RFC 5062 section 6, an old COOKIE ECHO sent again
//! and again).
//!
//! Kept only as long as the cookie would be good, and only so many: beyond, the oldest are forgotten first. Of cookies that a key by
//! direction protects none is forgotten: what was signed then could be sent again, data and all. Begin at [`SpentCookies::spend`].

use std::collections::{HashSet, VecDeque};

use base::Time;
use wire::VerificationTag;

use super::slots::KeyedHash;
use crate::cookie::Cookie;
use crate::extension::auth::AuthConfig;

/// The tags of both ends: a cookie's name.
type Name = (VerificationTag, VerificationTag);

pub(super) struct SpentCookies {
    signed: Spent,
    others: Spent,
}

impl SpentCookies {
    /// So many of each kind at most.
    pub(super) fn new(max: usize, key: u64) -> SpentCookies {
        SpentCookies { signed: Spent::new(max, key), others: Spent::new(max, key) }
    }

    /// Reports whether this one cannot be remembered: it must not make an association.
    pub(super) fn is_full_for(&self, cookie: &Cookie, auth: &AuthConfig, now: Time) -> bool {
        is_signed(cookie, auth) && self.signed.is_full(now)
    }

    /// `cookie` makes an association now.
    pub(super) fn spend(&mut self, cookie: &Cookie, auth: &AuthConfig, now: Time) {
        if is_signed(cookie, auth) { self.signed.spend(cookie, now) } else { self.others.spend(cookie, now) }
    }

    /// Reports whether it did.
    pub(super) fn has(&self, cookie: &Cookie) -> bool {
        self.signed.has(cookie) || self.others.has(cookie)
    }

    pub(super) fn check_invariants(&self) {
        self.signed.check_invariants();
        self.others.check_invariants();
    }
}

/// Reports whether nobody without a shared key can have sent the cookie back.
fn is_signed(cookie: &Cookie, auth: &AuthConfig) -> bool {
    auth.required && cookie.key_vectors.as_ref().is_some_and(|vectors| vectors.handshake.is_some())
}

struct Spent {
    names: HashSet<Name, KeyedHash>,
    order: VecDeque<(Time, Name)>,
    max: usize,
}

impl Spent {
    fn new(max: usize, key: u64) -> Spent {
        Spent { names: HashSet::with_hasher(KeyedHash(key)), order: VecDeque::new(), max }
    }

    /// Reports whether another one would have the oldest forgotten before it expires.
    fn is_full(&self, now: Time) -> bool {
        self.order.len() >= self.max.max(1) && self.order.front().is_some_and(|(expires, _)| *expires >= now)
    }

    fn spend(&mut self, cookie: &Cookie, now: Time) {
        while self.order.len() >= self.max.max(1) || self.order.front().is_some_and(|(t, _)| *t < now) {
            let Some((_, name)) = self.order.pop_front() else { break };
            self.names.remove(&name);
        }
        let name = (cookie.local_tag, cookie.peer_tag);
        if self.max > 0 && self.names.insert(name) {
            self.order.push_back((cookie.expires, name));
        }
    }

    fn has(&self, cookie: &Cookie) -> bool {
        self.names.contains(&(cookie.local_tag, cookie.peer_tag))
    }

    fn check_invariants(&self) {
        assert_eq!(self.names.len(), self.order.len(), "names of spent cookies");
        assert!(self.order.len() <= self.max, "more spent cookies than the limit");
    }
}

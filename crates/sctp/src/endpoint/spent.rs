//! Cookies that have made an association already: each is good for one (RFC 5062 section 6, an old COOKIE ECHO sent again
//! and again).
//!
//! Kept only as long as the cookie would be good, and only so many: beyond, the oldest are forgotten first. Begin at
//! [`SpentCookies::spend`].

use std::collections::{HashSet, VecDeque};

use base::Time;
use wire::VerificationTag;

use super::slots::KeyedHash;
use crate::cookie::Cookie;

/// The tags of both ends: a cookie's name.
type Name = (VerificationTag, VerificationTag);

pub(super) struct SpentCookies {
    names: HashSet<Name, KeyedHash>,
    order: VecDeque<(Time, Name)>,
    max: usize,
}

impl SpentCookies {
    pub(super) fn new(max: usize, key: u64) -> SpentCookies {
        SpentCookies { names: HashSet::with_hasher(KeyedHash(key)), order: VecDeque::new(), max }
    }

    /// `cookie` makes an association now.
    pub(super) fn spend(&mut self, cookie: &Cookie, now: Time) {
        while self.order.len() >= self.max.max(1) || self.order.front().is_some_and(|(t, _)| *t < now) {
            let Some((_, name)) = self.order.pop_front() else { break };
            self.names.remove(&name);
        }
        let name = (cookie.local_tag, cookie.peer_tag);
        if self.max > 0 && self.names.insert(name) {
            self.order.push_back((cookie.expires, name));
        }
    }

    /// Whether it did.
    pub(super) fn has(&self, cookie: &Cookie) -> bool {
        self.names.contains(&(cookie.local_tag, cookie.peer_tag))
    }

    pub(super) fn check_invariants(&self) {
        assert_eq!(self.names.len(), self.order.len(), "names of spent cookies");
        assert!(self.order.len() <= self.max, "more spent cookies than the limit");
    }
}

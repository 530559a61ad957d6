//! Cookies that have already begun an association. Each cookie is valid for one association. So an old COOKIE ECHO that is sent
//! again begins no second association (RFC 5062 section 6).
//!
//! A used cookie is remembered only until it expires. If the cookies reach the limit, the oldest cookies are forgotten first.
//! However, a cookie that a required key by direction protects is never forgotten before it expires. Otherwise an attacker
//! could replay the packets that were signed for the cookie's association, including data. Begin at [`SpentCookies::spend`].

use std::collections::{HashSet, VecDeque};

use base::Time;
use wire::VerificationTag;

use super::slots::KeyedHash;
use crate::cookie::Cookie;
use crate::extension::auth::AuthConfig;

/// Identity of a cookie: the tags of both ends.
type Name = (VerificationTag, VerificationTag);

pub(super) struct SpentCookies {
    signed: Spent,
    others: Spent,
}

impl SpentCookies {
    /// Creates an empty memory for up to `max` cookies of each kind.
    pub(super) fn new(max: usize, key: u64) -> SpentCookies {
        SpentCookies { signed: Spent::new(max, key), others: Spent::new(max, key) }
    }

    /// Reports whether no room is left to remember this cookie. The cookie must then not begin an association.
    pub(super) fn is_full_for(&self, cookie: &Cookie, auth: &AuthConfig, now: Time) -> bool {
        is_signed(cookie, auth) && self.signed.is_full(now)
    }

    /// Records that `cookie` begins an association now.
    pub(super) fn spend(&mut self, cookie: &Cookie, auth: &AuthConfig, now: Time) {
        if is_signed(cookie, auth) { self.signed.spend(cookie, now) } else { self.others.spend(cookie, now) }
    }

    /// Reports whether `cookie` has already begun an association.
    pub(super) fn has(&self, cookie: &Cookie) -> bool {
        self.signed.has(cookie) || self.others.has(cookie)
    }

    pub(super) fn check_invariants(&self) {
        self.signed.check_invariants();
        self.others.check_invariants();
    }
}

/// Reports whether only a holder of the shared key can have sent the COOKIE ECHO with this cookie.
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

    /// Reports whether the table is full, and its oldest cookie has not expired yet. Another cookie would then displace it.
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

//! Access control: lists of networks, and a rate limit per source.
//!
//! A source is an IPv4 address, or the first 64 bits of an IPv6 address. IPv6 addresses with the same first 64 bits are assumed to belong
//! to one subscriber. Requests beyond the rate limit get 503 with Retry-After. The rate of these rejections has the same limit, and all
//! further requests are dropped. A proxy that answered all requests could be used as a reflector.
//!
//! Invariant: no more than [`Access::sources`] sources are remembered. At the limit, the half of the sources that was silent longest is
//! forgotten.
//!
//! ACKs and responses are not checked, because the proxy does not answer them. Their requests were checked before.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use base::Time;

use crate::network::Network;

/// Access lists and the rate limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// Networks that may send requests. An empty list permits all networks.
    pub allow: Vec<Network>,
    /// Networks that may not send requests, even if `allow` contains them.
    pub deny: Vec<Network>,
    /// Networks that are exempt from the rate limit. Next hops are also exempt.
    pub unlimited: Vec<Network>,
    /// Limit on requests per second from one source. 0 means no limit.
    pub rate: u32,
    /// Number of requests that a source may send without delay after a silence. 0 counts as 1.
    pub burst: u32,
    /// Limit on remembered sources.
    pub sources: usize,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            allow: Vec::new(),
            deny: Vec::new(),
            unlimited: Vec::new(),
            rate: 0,
            burst: 100,
            sources: 65_536,
        }
    }
}

/// The decision on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// The request is processed further.
    Granted,
    /// The request is rejected with 403.
    Denied,
    /// The request is rejected with 503.
    Limited,
    /// The request is dropped.
    Ignored,
}

/// The state of a source: two theoretical arrival times of the generic cell rate algorithm (ITU-T I.371). One is for granted requests,
/// and one is for rejections.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    granted: Time,
    refused: Time,
}

/// The remembered sources. A new source enters `young`. When `young` has half of [`Access::sources`], `young` replaces `old`, and a new
/// `young` begins. A source in `old` that sends again moves to `young`.
#[derive(Debug, Default)]
pub(super) struct AccessControl {
    young: HashMap<u64, Source>,
    old: HashMap<u64, Source>,
}

impl AccessControl {
    /// Decides on a request.
    pub(super) fn judge(&mut self, now: Time, access: &Access, from: IpAddr) -> Admission {
        let is_in = |list: &[Network]| list.iter().any(|network| network.contains(from));
        if is_in(&access.deny) || !(access.allow.is_empty() || is_in(&access.allow)) {
            return Admission::Denied;
        }
        if access.rate == 0 || is_in(&access.unlimited) {
            return Admission::Granted;
        }
        let source = self.source(access, from);
        if take(&mut source.granted, now, access) {
            Admission::Granted
        } else if take(&mut source.refused, now, access) {
            Admission::Limited
        } else {
            Admission::Ignored
        }
    }

    fn source(&mut self, access: &Access, from: IpAddr) -> &mut Source {
        let key = key_of(from);
        if !self.young.contains_key(&key) {
            if self.young.len() >= (access.sources / 2).max(1) {
                self.old = std::mem::take(&mut self.young);
            }
            let known = self.old.remove(&key).unwrap_or_default();
            self.young.insert(key, known);
        }
        self.young.entry(key).or_default()
    }

    /// Returns the number of remembered sources.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// Reports whether one more request is within the rate. If so, counts the request.
fn take(taken: &mut Time, now: Time, access: &Access) -> bool {
    let interval = Duration::from_secs(1) / access.rate.max(1);
    let next = (*taken).max(now) + interval;
    let is_within = next.since(now) <= interval * access.burst.max(1);
    if is_within {
        *taken = next;
    }
    is_within
}

/// Returns the key of a source. The key of an IPv4 address begins with 32 one bits, which no IPv6 unicast address has. The keys of the
/// two families therefore differ.
fn key_of(from: IpAddr) -> u64 {
    match from.to_canonical() {
        IpAddr::V4(address) => 0xffff_ffff_0000_0000 | u64::from(address.to_bits()),
        IpAddr::V6(address) => first_half(address),
    }
}

fn first_half(address: Ipv6Addr) -> u64 {
    u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access { rate: 10, burst: 3, sources: 8, ..Access::default() }
    }

    fn judge(control: &mut AccessControl, ms: u64, from: &str) -> Admission {
        control.judge(Time::from_millis(ms), &access(), from.parse().unwrap())
    }

    #[test]
    fn requests_beyond_the_rate_limit_get_503_up_to_the_same_rate_and_then_nothing() {
        let mut control = AccessControl::default();
        let mut many =
            |ms| -> Vec<Admission> { (0..8).map(|_| judge(&mut control, ms, "192.0.2.1")).collect() };
        use Admission::{Granted as G, Ignored as I, Limited as L};
        assert_eq!(many(0), [G, G, G, L, L, L, I, I]);
        assert_eq!(many(100), [G, L, I, I, I, I, I, I]);
        assert_eq!(many(5000), [G, G, G, L, L, L, I, I]);
    }

    #[test]
    fn sources_do_not_share_a_rate_but_addresses_of_one_ipv6_network_do() {
        let mut control = AccessControl::default();
        let spent = |control: &mut AccessControl, first: &str, then: &str| {
            (0..3).for_each(|_| _ = judge(control, 0, first));
            judge(control, 0, then)
        };
        assert_eq!(spent(&mut control, "192.0.2.1", "192.0.2.2"), Admission::Granted);
        assert_eq!(spent(&mut control, "2001:db8::1", "2001:db8:0:1::1"), Admission::Granted);
        assert_eq!(spent(&mut control, "2001:db8:7::1", "2001:db8:7::2"), Admission::Limited);
    }

    #[test]
    fn access_lists_are_checked_before_the_rate_limit() {
        let network = |text: &str| vec![text.parse().unwrap()];
        let all = Access {
            allow: network("192.0.2.0/24"),
            deny: network("192.0.2.7"),
            unlimited: network("192.0.2.8"),
            ..access()
        };
        let mut control = AccessControl::default();
        let mut last = |from: &str| {
            (0..9).map(|_| control.judge(Time::ZERO, &all, from.parse().unwrap())).last().unwrap()
        };
        assert_eq!(last("192.0.2.7"), Admission::Denied);
        assert_eq!(last("198.51.100.1"), Admission::Denied);
        assert_eq!(last("192.0.2.8"), Admission::Granted);
        assert_eq!(last("192.0.2.9"), Admission::Ignored);
    }

    #[test]
    fn sources_are_remembered_up_to_a_limit_and_busy_sources_are_kept() {
        let mut control = AccessControl::default();
        (0..9).for_each(|_| _ = judge(&mut control, 0, "192.0.2.250"));
        for other in 0..100 {
            judge(&mut control, 0, &format!("192.0.2.{other}"));
            assert_eq!(judge(&mut control, 0, "192.0.2.250"), Admission::Ignored);
            assert!(control.len() <= 8);
        }
    }
}

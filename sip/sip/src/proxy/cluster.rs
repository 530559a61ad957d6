//! Liveness of the cluster members, which are proxies that share users. Each member sends a heartbeat every two seconds.
//!
//! A draining member announces its state. If a user can be reached only through a draining member, requests still go through that member.
//! A member that has announced its end counts as gone. Its flows are not used, so no request waits for a member that is gone.
//!
//! A silent member also counts as gone if heartbeats of other members, or our own heartbeats, arrive. If no heartbeats arrive at all, the
//! cause is our own broken subscription, so no member counts as gone. Invariant: silent members are forgotten, and no more than
//! [`MEMBERS_MAX`] members are known.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;

/// Silence after which a member counts as gone: three intervals between heartbeats, and one second for delivery.
const SILENCE_MAX: Duration = Duration::from_secs(7);
/// Limit on known members.
const MEMBERS_MAX: usize = 1000;

/// State that a proxy announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// The proxy is running.
    Here,
    /// The proxy drains. It accepts new requests only for users whom no other proxy can reach.
    Draining,
    /// The proxy is about to shut down, and accepts no requests.
    Gone,
}

/// The known cluster members, by the address of their first listener.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    heard: BTreeMap<SocketAddr, (Time, Presence)>,
    /// Start of the current period in which heartbeats arrive without a gap.
    since: Time,
}

impl Cluster {
    /// Records a heartbeat. Returns true if the member was unknown, or its state has changed.
    pub(super) fn note(&mut self, now: Time, address: SocketAddr, presence: Presence) -> bool {
        if !self.is_anybody_heard(now) {
            self.since = now;
        }
        self.heard.retain(|_, (at, _)| *at + SILENCE_MAX > now);
        let is_known = self.heard.contains_key(&address);
        let has_room = is_known || self.heard.len() < MEMBERS_MAX;
        let before = has_room.then(|| self.heard.insert(address, (now, presence))).flatten();
        has_room && before.is_none_or(|(_, before)| before != presence)
    }

    fn is_anybody_heard(&self, now: Time) -> bool {
        self.heard.values().any(|(at, _)| *at + SILENCE_MAX > now)
    }

    /// Returns the last announced state of a member, if the member is not silent.
    fn presence(&self, now: Time, address: SocketAddr) -> Option<Presence> {
        let (at, presence) = self.heard.get(&address)?;
        (*at + SILENCE_MAX > now).then_some(*presence)
    }

    /// Reports whether a member has announced its end, or is silent while other heartbeats arrive.
    pub(super) fn is_gone(&self, now: Time, address: SocketAddr) -> bool {
        match self.presence(now, address) {
            Some(presence) => presence == Presence::Gone,
            None => self.is_anybody_heard(now) && self.since + SILENCE_MAX <= now,
        }
    }

    /// Reports whether a member drains. New work should then go to other members.
    pub(super) fn is_draining(&self, now: Time, address: SocketAddr) -> bool {
        self.presence(now, address) == Some(Presence::Draining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(s: u64) -> Time {
        Time::from_millis(1000 * s)
    }

    fn here(cluster: &mut Cluster, s: u64, who: SocketAddr) {
        cluster.note(second(s), who, Presence::Here);
    }

    #[test]
    fn a_member_that_is_silent_while_others_speak_is_gone() {
        let (ours, other) = ("192.0.2.1:5060".parse().unwrap(), "192.0.2.2:5060".parse().unwrap());
        let mut cluster = Cluster::default();
        for s in 100..=106 {
            here(&mut cluster, s, ours);
            assert!(!cluster.is_gone(second(s), other), "it may have said nothing yet");
        }
        here(&mut cluster, 107, ours);
        assert!(cluster.is_gone(second(107), other));
        here(&mut cluster, 108, other);
        for s in 109..=114 {
            here(&mut cluster, s, ours);
            assert!(!cluster.is_gone(second(s), other), "{s}");
        }
        here(&mut cluster, 115, ours);
        assert!(cluster.is_gone(second(115), other) && !cluster.is_gone(second(115), ours));
        // If no heartbeat arrives, our own subscription must be broken. After heartbeats arrive again, each member has the full
        // [`SILENCE_MAX`] again.
        assert!(!cluster.is_gone(second(130), other));
        here(&mut cluster, 130, ours);
        assert!(!cluster.is_gone(second(130), other));
    }

    #[test]
    fn a_member_that_shuts_down_is_gone_until_it_is_heard_again() {
        let other = "192.0.2.2:5060".parse().unwrap();
        let mut cluster = Cluster::default();
        let mut note = |s, presence| {
            let is_new = cluster.note(second(s), other, presence);
            (is_new, cluster.is_draining(second(s), other), cluster.is_gone(second(s), other))
        };
        assert_eq!(note(100, Presence::Here), (true, false, false));
        assert_eq!(note(101, Presence::Draining), (true, true, false));
        assert_eq!(note(102, Presence::Draining), (false, true, false));
        assert_eq!(note(103, Presence::Gone), (true, false, true));
        assert_eq!(note(104, Presence::Here), (true, false, false));
    }
}

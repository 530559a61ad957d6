//! Holds incoming associations whose peer must prove a key before a local program learns of them.
//!
//! These associations are established, but neither a connection nor a channel uses them yet. At the limits of [`ByHost`], an
//! older association makes room for a new one. A peer that has the key proves it within a few round trips. The oldest
//! association therefore rarely belongs to a peer that has the key. Invariant: an entry is removed after the proof, at the
//! association's end, at a limit, or [`PROOF_LIMIT`] after its arrival. Begin at [`Unproven::add`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{Route, Time};
use relay::Peer;
use sctp::AssociationId;

use crate::by_host::ByHost;

/// Time limit for the proof. It is no shorter than the time for which a client waits for keys.
const PROOF_LIMIT: Duration = Duration::from_secs(10);

/// Time for which associations from a client address are refused at their start, after a program has repeatedly refused this
/// client's connections. The refused associations are not established, so the client's programs get plain TCP instead of a
/// reset.
const DECLINED_LIMIT: Duration = Duration::from_secs(30);
/// Time for which a refusal is remembered. One refusal may be accidental: a backlog may have been full for a moment.
const DECLINED_MEMORY: Duration = Duration::from_secs(600);
/// Time after a refusal within which further refusals count as the same event. Connections that a client opens at the same time
/// meet the same full backlog.
const DECLINED_APART: Duration = Duration::from_secs(1);
/// Limit on the remembered refusals. At the limit, expired refusals are removed. If none has expired, all refusals are removed.
const DECLINED_MAX: usize = 1024;

/// An incoming association that is meant for a connection to a local program.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) server: SocketAddr,
    pub(crate) client: SocketAddr,
    pub(crate) route: Route,
    pub(crate) peer: Peer,
}

/// Refusals of one client address by one program.
struct Declined {
    /// Time of the last refusal that counted as a new event.
    at: Time,
    is_repeated: bool,
}

/// The incoming associations without proof.
#[derive(Default)]
pub(crate) struct Unproven {
    /// The associations, oldest first, each with the end of its time limit.
    all: BTreeMap<AssociationId, (Time, Incoming)>,
    by_host: ByHost,
    /// True while a timer is set.
    is_timed: bool,
    /// Refusals of connections whose client had proven a key, by the program's address and the client's address. The map's key
    /// contains the client's full address, because other addresses of the client's /64 network may belong to other hosts.
    declined: BTreeMap<(SocketAddr, IpAddr), Declined>,
}

impl Unproven {
    /// If a limit is reached, removes and returns the association that must make room for another association of the client's
    /// host.
    pub(crate) fn make_room_for(&mut self, client: SocketAddr) -> Option<(AssociationId, Incoming)> {
        let oldest = self.by_host.giving_way(client.ip())?;
        self.take(oldest).map(|incoming| (oldest, incoming))
    }

    /// Adds an association that arrived at the time `now`. Callers must call [`make_room_for`](Self::make_room_for) first.
    pub(crate) fn add(&mut self, now: Time, association: AssociationId, incoming: Incoming) {
        self.all.insert(association, (now + PROOF_LIMIT, incoming));
        self.by_host.insert(association, incoming.client.ip());
    }

    /// Removes and returns an association. Its peer has proven a key, or the association has ended.
    pub(crate) fn take(&mut self, association: AssociationId) -> Option<Incoming> {
        let (_, incoming) = self.all.remove(&association)?;
        self.by_host.remove(association);
        Some(incoming)
    }

    /// Handles the timer. Removes and returns the associations whose time limit has passed.
    pub(crate) fn take_late(&mut self, now: Time) -> Vec<(AssociationId, Incoming)> {
        self.is_timed = false;
        let late =
            self.all.iter().filter(|(_, (until, _))| *until <= now).map(|(association, _)| *association);
        let late: Vec<AssociationId> = late.collect();
        late.into_iter().filter_map(|association| Some((association, self.take(association)?))).collect()
    }

    /// Removes and returns all associations.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = AssociationId> {
        self.by_host.clear();
        std::mem::take(&mut self.all).into_keys()
    }

    /// Records that a local program did not accept the connection of a client that had proven a key.
    pub(crate) fn note_declined(&mut self, now: Time, server: SocketAddr, client: SocketAddr) {
        let key = key_of(server, client);
        let is_recent = |last: &Declined| now < last.at + DECLINED_MEMORY;
        match self.declined.get_mut(&key).filter(|last| is_recent(last)) {
            Some(last) if now < last.at + DECLINED_APART => return,
            Some(last) => return *last = Declined { at: now, is_repeated: true },
            None => {}
        }
        if self.declined.len() >= DECLINED_MAX {
            self.declined.retain(|_, last| is_recent(last));
        }
        if self.declined.len() >= DECLINED_MAX {
            self.declined.clear();
        }
        self.declined.insert(key, Declined { at: now, is_repeated: false });
    }

    /// Forgets the program's refusals of this client, because the program has accepted a connection of the client.
    pub(crate) fn note_taken(&mut self, server: SocketAddr, client: SocketAddr) {
        self.declined.remove(&key_of(server, client));
    }

    /// Reports whether a program has repeatedly refused the connections of this client, and the last refusal is recent.
    pub(crate) fn is_declined(&self, now: Time, server: SocketAddr, client: SocketAddr) -> bool {
        let last = self.declined.get(&key_of(server, client));
        last.is_some_and(|last| last.is_repeated && now < last.at + DECLINED_LIMIT)
    }

    /// Returns the time for which the caller must set a timer. Returns `None` if a timer is already set, or no association
    /// waits for a proof.
    pub(crate) fn arm(&mut self) -> Option<Time> {
        if self.is_timed {
            return None;
        }
        let next = self.all.values().map(|(until, _)| *until).min()?;
        self.is_timed = true;
        Some(next)
    }
}

fn key_of(server: SocketAddr, client: SocketAddr) -> (SocketAddr, IpAddr) {
    (server, client.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use base::Carrier;
    use sctp::{AssociationConfig, Connect, Endpoint, EndpointConfig};

    use super::*;
    use crate::by_host::HOST_MAX;

    const SERVER: [u8; 4] = [10, 0, 0, 1];

    struct World {
        engine: Endpoint,
        unproven: Unproven,
    }

    impl World {
        fn new() -> World {
            let engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [0; 32]);
            World { engine, unproven: Unproven::default() }
        }

        /// Adds an association from a port of a host. Returns the association, and the association that had to make room, if
        /// any.
        fn add(&mut self, now: Time, host: u8, port: u16) -> (AssociationId, Option<AssociationId>) {
            let client = SocketAddr::from(([10, 0, 1, host], port));
            let server = SocketAddr::from((SERVER, 80));
            let route = Route { local: server.ip(), remote: client.ip(), carrier: Carrier::Ip };
            let connect = Connect {
                local_port: port,
                remote_port: 80,
                init_routes: vec![route],
                local_addresses: vec![server.ip()],
                config: AssociationConfig::default(),
            };
            let association = self.engine.connect(Time::ZERO, connect).unwrap();
            let gone = self.unproven.make_room_for(client).map(|(gone, _)| gone);
            self.unproven.add(now, association, Incoming { server, client, route, peer: Peer::Shim });
            (association, gone)
        }
    }

    #[test]
    fn an_evicted_unproven_association_is_removed_completely() {
        let mut world = World::new();
        let (oldest, _) = world.add(Time::ZERO, 1, 1);
        for port in 2..=u16::try_from(HOST_MAX).unwrap() {
            assert_eq!(world.add(Time::ZERO, 1, port).1, None);
        }
        assert_eq!(world.add(Time::ZERO, 1, 9000).1, Some(oldest));
        assert!(world.unproven.take(oldest).is_none());
        assert_eq!(world.unproven.take_all().count(), HOST_MAX);
        assert_eq!(world.add(Time::ZERO, 1, 9001).1, None);
    }

    #[test]
    fn a_second_refusal_declines_the_client_on_that_port_for_half_a_minute() {
        let mut unproven = Unproven::default();
        let [server, other] = [80, 81].map(|port| SocketAddr::from((SERVER, port)));
        let [client, again, others] =
            [(1, 1), (1, 2), (2, 1)].map(|(host, port)| SocketAddr::from(([10, 0, 1, host], port)));
        let second = Time::ZERO + (DECLINED_MEMORY - Duration::from_millis(1));
        unproven.note_declined(Time::ZERO, server, client);
        assert!(!unproven.is_declined(Time::ZERO, server, client));
        unproven.note_declined(second, server, again);
        let just_before = second + (DECLINED_LIMIT - Duration::from_millis(1));
        assert!(unproven.is_declined(just_before, server, client));
        assert!(!unproven.is_declined(just_before, server, others));
        assert!(!unproven.is_declined(just_before, other, client));
        assert!(!unproven.is_declined(second + DECLINED_LIMIT, server, client));
    }

    #[test]
    fn a_refusal_is_forgotten_after_a_connection_that_was_taken_and_after_ten_minutes() {
        let mut unproven = Unproven::default();
        let (server, client) = (SocketAddr::from((SERVER, 80)), SocketAddr::from(([10, 0, 1, 1], 1)));
        unproven.note_declined(Time::ZERO, server, client);
        unproven.note_taken(server, client);
        unproven.note_declined(Time::ZERO, server, client);
        assert!(!unproven.is_declined(Time::ZERO, server, client));
        let later = Time::ZERO + DECLINED_MEMORY;
        unproven.note_declined(later, server, client);
        assert!(!unproven.is_declined(later, server, client));
    }

    #[test]
    fn refusals_within_a_second_are_one_event() {
        let mut unproven = Unproven::default();
        let (server, client) = (SocketAddr::from((SERVER, 80)), SocketAddr::from(([10, 0, 1, 1], 1)));
        let just_before = Time::ZERO + (DECLINED_APART - Duration::from_millis(1));
        unproven.note_declined(Time::ZERO, server, client);
        unproven.note_declined(just_before, server, client);
        assert!(!unproven.is_declined(just_before, server, client));
        let apart = Time::ZERO + DECLINED_APART;
        unproven.note_declined(apart, server, client);
        assert!(unproven.is_declined(apart, server, client));
    }

    #[test]
    fn a_full_table_of_refusals_drops_expired_refusals_first() {
        let mut unproven = Unproven::default();
        let server = SocketAddr::from((SERVER, 80));
        let client = |n: u16| SocketAddr::from(([10, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]], 1));
        let old = 1..u16::try_from(DECLINED_MAX).unwrap();
        old.for_each(|n| unproven.note_declined(Time::ZERO, server, client(n)));
        let later = Time::ZERO + DECLINED_MEMORY;
        unproven.note_declined(later, server, client(5000));
        assert_eq!(unproven.declined.len(), DECLINED_MAX);
        unproven.note_declined(later, server, client(5001));
        assert_eq!(unproven.declined.len(), 2);
        unproven.note_declined(later + DECLINED_APART, server, client(5000));
        assert!(unproven.is_declined(later + DECLINED_APART, server, client(5000)));
    }

    #[test]
    fn an_unproven_association_is_late_after_the_proof_limit() {
        let mut world = World::new();
        let later = Time::ZERO + PROOF_LIMIT / 2;
        let (first, _) = world.add(Time::ZERO, 1, 1);
        let (second, _) = world.add(later, 1, 2);
        let late = |unproven: &mut Unproven, now| {
            unproven.take_late(now).into_iter().map(|(association, _)| association).collect::<Vec<_>>()
        };
        assert_eq!([world.unproven.arm(), world.unproven.arm()], [Some(Time::ZERO + PROOF_LIMIT), None]);
        assert_eq!(late(&mut world.unproven, Time::ZERO + (PROOF_LIMIT - Duration::from_millis(1))), []);
        assert_eq!(late(&mut world.unproven, Time::ZERO + PROOF_LIMIT), [first]);
        assert_eq!(world.unproven.arm(), Some(later + PROOF_LIMIT));
        assert_eq!(late(&mut world.unproven, later + PROOF_LIMIT), [second]);
        assert_eq!(world.unproven.arm(), None);
    }
}

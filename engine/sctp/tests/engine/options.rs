//! Tests of the options of single paths, and of the driver's notifications about its messages (RFC 6458).

use std::time::Duration;

use base::Time;
use sctp::{
    AbortCause, Event, Heartbeats, PathOptionError, PathOptions, PathState, Ppid, SendOptions, StreamId,
};
use sim::{Change, Conversation, Direction, InTheClear, LinkConfig, World};

use crate::support::{Two, a_route, drop_all, seconds, sent_by};

const FIRST: &str = "10.0.1.2";
const SECOND: &str = "10.0.2.2";

/// Creates two hosts with two links; all paths are confirmed.
fn two_links() -> Two {
    let mut world = World::new(1);
    let config = sctp::EndpointConfig::default();
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], config.clone());
    let b = world.add_host(&[FIRST, SECOND], config);
    let links = (1..=2)
        .map(|i| {
            let link = world.add_link(LinkConfig::default());
            world.join(link, &format!("10.0.{i}.1"), &format!("10.0.{i}.2"));
            link
        })
        .collect();
    let mut t = Two { world, a, b, links };
    t.connect(Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(5));
    t
}

impl Two {
    fn set_options(&mut self, remote: &str, options: PathOptions) -> Result<(), PathOptionError> {
        let (id, now) = (self.id(self.a), self.world.now());
        let endpoint = &mut self.world.host_mut(self.a).endpoint;
        endpoint.set_path_options(now, id, remote.parse().unwrap(), options)
    }

    /// Returns the number of packets sent on all paths to `remote`.
    fn sent_to(&self, remote: &str) -> u64 {
        let paths = self.info(self.a).paths;
        paths.iter().filter(|p| p.route.remote.to_string() == remote).map(|p| p.packets_sent).sum()
    }

    fn state_of(&self, remote: &str) -> PathState {
        let paths = self.info(self.a).paths;
        let to = paths.iter().filter(|p| p.route.remote.to_string() == remote);
        to.map(|p| p.state).min_by_key(|s| *s == PathState::Unconfirmed).unwrap()
    }

    /// Returns the number of HEARTBEATs that `a` sends from its second address to the peer's second address in `time` seconds.
    fn probes_in(&mut self, time: u64) -> usize {
        self.world.recording = true;
        let before = self.world.records.len();
        self.world.run_for(seconds(time));
        let probes = self.world.records[before..].iter().filter(|r| {
            r.route.local.to_string() == "10.0.2.1"
                && r.route.remote.to_string() == SECOND
                && sim::chunk_names(&r.packet) == "HEARTBEAT"
        });
        probes.count()
    }
}

#[test]
fn a_path_has_heartbeats_at_its_own_interval_or_none() {
    let mut t = two_links();
    let every = Heartbeats::Every(seconds(4));
    t.set_options(SECOND, PathOptions { heartbeats: every, ..PathOptions::default() }).unwrap();
    // The mean interval is 5 s: 4 s, plus the RTO of 1 s with jitter.
    assert!((70..=90).contains(&t.probes_in(400)));
    t.set_options(SECOND, PathOptions { heartbeats: Heartbeats::Off, ..PathOptions::default() }).unwrap();
    assert_eq!(t.probes_in(1000), 0);
    t.set_options(SECOND, PathOptions::default()).unwrap();
    assert!((8..=14).contains(&t.probes_in(400)));
    assert_eq!(t.info(t.a).paths[0].options, PathOptions::default());
}

//= rfc7829#3.2-13
#[test]
fn a_potentially_failed_path_whose_heartbeats_are_off_is_not_probed() {
    let mut t = two_links();
    let every = Heartbeats::Every(seconds(4));
    t.set_options(SECOND, PathOptions { heartbeats: every, ..PathOptions::default() }).unwrap();
    t.world.run_for(seconds(20));
    assert_eq!(t.state_of(SECOND), PathState::Active);
    let now = t.world.now();
    t.world.at(now, Change::Cut(t.links[1], Direction::Forward, true));
    let failed = (0..200).any(|_| {
        t.world.run_for(Duration::from_millis(100));
        t.state_of(SECOND) == PathState::PotentiallyFailed
    });
    assert!(failed, "{:?}", t.state_of(SECOND));
    t.set_options(SECOND, PathOptions { heartbeats: Heartbeats::Off, ..PathOptions::default() }).unwrap();
    assert_eq!(t.probes_in(300), 0);
}

#[test]
fn a_requested_heartbeat_leaves_at_once_even_if_heartbeats_are_off() {
    let mut t = two_links();
    t.set_options(SECOND, PathOptions { heartbeats: Heartbeats::Off, ..PathOptions::default() }).unwrap();
    let before = t.sent_to(SECOND);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.request_heartbeat(now, id, SECOND.parse().unwrap()).unwrap();
    assert!(t.probes_in(1) >= 1);
    assert!(t.sent_to(SECOND) > before);
    assert_eq!(t.probes_in(600), 0);
}

#[test]
fn a_peer_that_is_gone_is_noticed_by_data_even_where_there_are_no_heartbeats() {
    for heartbeats in [Heartbeats::Every(seconds(200)), Heartbeats::Off] {
        let mut t = two_links();
        for address in [FIRST, SECOND] {
            t.set_options(address, PathOptions { heartbeats, ..PathOptions::default() }).unwrap();
        }
        t.world.run_for(seconds(150));
        t.world.at(t.world.now(), sim::Change::Up(t.b, false));
        let (id, now) = (t.id(t.a), t.world.now());
        let (options, bytes) = (sctp::SendOptions::default(), bytes::Bytes::from_static(b"x"));
        t.world
            .host_mut(t.a)
            .endpoint
            .send(now, id, sctp::StreamId(0), sctp::Ppid(0), bytes, options)
            .unwrap();
        t.world.run_for(seconds(60));
        assert!(t.talk(t.a).closed.is_some(), "{heartbeats:?}");
    }
}

#[test]
fn a_path_fails_after_its_own_number_of_timeouts() {
    for (max_retrans, seconds_to_fail) in [(Some(0), 45), (None, 400)] {
        let mut t = two_links();
        let heartbeats = Heartbeats::Every(seconds(10));
        t.set_options(SECOND, PathOptions { heartbeats, max_retrans, ..PathOptions::default() }).unwrap();
        let now = t.world.now();
        t.world.at(now, Change::Cut(t.links[1], Direction::Forward, true));
        t.world.run_for(Duration::from_millis(11_400));
        t.world.run_for(Duration::from_millis(2200));
        let failed = t.state_of(SECOND) == PathState::Inactive;
        assert_eq!(failed, max_retrans == Some(0), "{max_retrans:?}: {:?}", t.state_of(SECOND));
        t.world.run_for(seconds(seconds_to_fail));
        assert_eq!(t.state_of(SECOND), PathState::Inactive, "{max_retrans:?}");
    }
}

//= rfc9260#6.4-1
#[test]
fn new_data_goes_by_the_path_that_the_driver_prefers() {
    let mut t = two_links();
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.set_primary(now, id, SECOND.parse().unwrap()).unwrap();
    let in_use = t.info(t.a).paths.iter().find(|p| p.in_use).unwrap().route;
    assert_eq!(in_use.remote.to_string(), SECOND);
    t.world.run_for(seconds(1));
    assert!(t.events(t.a).iter().any(|e| matches!(e, Event::PathSwitched { .. })));
}

#[test]
fn options_of_strange_addresses_and_associations_are_refused() {
    let mut t = two_links();
    let stranger = "192.0.2.1".parse().unwrap();
    let refused = t.set_options("192.0.2.1", PathOptions::default());
    assert_eq!(refused, Err(PathOptionError::Unknown(stranger)));
    let (id, now) = (t.id(t.a), t.world.now());
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    assert_eq!(endpoint.set_primary(now, id, stranger), Err(PathOptionError::Unknown(stranger)));
    endpoint.abort(now, id, AbortCause::default());
    assert_eq!(endpoint.request_heartbeat(now, id, stranger), Err(PathOptionError::Closed));
}

fn hand_over(t: &mut Two, count: usize) {
    let (id, now) = (t.id(t.a), t.world.now());
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    for n in 0..count {
        let message = vec![n as u8; 1000].into();
        endpoint.send(now, id, StreamId(0), Ppid(7), message, SendOptions::default()).unwrap();
    }
}

fn drys(t: &Two) -> usize {
    t.events(t.a).into_iter().filter(|e| matches!(e, Event::Dry)).count()
}

#[test]
fn the_dry_event_is_reported_once_when_all_data_is_acknowledged() {
    let mut t = two_links();
    hand_over(&mut t, 50);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.notify_when_dry(now, id);
    t.world.run_for(Duration::from_millis(1));
    assert_eq!(drys(&t), 0);
    t.world.run_for(seconds(5));
    assert_eq!(drys(&t), 1);
    hand_over(&mut t, 1);
    t.world.run_for(seconds(5));
    assert_eq!(drys(&t), 1);
    let now = t.world.now();
    t.world.host_mut(t.a).endpoint.notify_when_dry(now, id);
    t.world.run_for(seconds(1));
    assert_eq!(drys(&t), 2);
}

#[test]
fn after_the_end_messages_of_which_nothing_was_sent_are_given_back_in_order() {
    let _clear = InTheClear::begin();
    let mut t = two_links();
    drop_all(&mut t.world, |_, _| true);
    hand_over(&mut t, 60);
    t.world.run_for(Duration::from_millis(100));
    let (id, now) = (t.id(t.a), t.world.now());
    let sent = t.info(t.a).counters.data_sent;
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    assert_eq!(endpoint.take_unsent(now, id), None);
    endpoint.abort(now, id, AbortCause::default());
    let back: Vec<_> = std::iter::from_fn(|| endpoint.take_unsent(now, id)).collect();
    assert_eq!(back.len() as u64, 60 - sent);
    for (n, message) in (sent as u8..).zip(back) {
        assert_eq!((message.ppid, &message.into_bytes()[..]), (Ppid(7), &[n; 1000][..]));
    }
    assert!(now > Time::ZERO && sent < 50);
}

/// Returns the peer's address on the primary path.
fn primary_of(t: &Two) -> String {
    let paths = t.info(t.a).paths;
    paths.iter().find(|p| p.primary).expect("a primary path").route.remote.to_string()
}

#[test]
//= rfc7829#5-4 5-5 5-8
fn after_a_switchover_data_stays_where_it_went_and_without_one_it_goes_back() {
    for (switchover_max_retrans, last) in [(Some(1), SECOND), (None, FIRST)] {
        let mut t = two_links();
        t.set_options(FIRST, PathOptions { switchover_max_retrans, ..PathOptions::default() }).unwrap();
        let now = t.world.now();
        t.world.at(now, Change::CutBoth(t.links[0], true));
        let (id, a) = (t.id(t.a), t.a);
        let sent = t.world.host_mut(a).endpoint.send(
            now,
            id,
            StreamId(0),
            Ppid(0),
            vec![1; 100].into(),
            SendOptions::default(),
        );
        sent.unwrap();
        t.world.run_for(seconds(10));
        t.world.at(now + seconds(10), Change::CutBoth(t.links[0], false));
        t.world.run_for(seconds(60));
        assert_eq!(t.state_of(FIRST), PathState::Active);
        assert_eq!(primary_of(&t), last);
        assert!(t.info(a).paths.iter().any(|p| p.in_use && p.route.remote.to_string() == last));
    }
}

#[test]
//= rfc7829#5-1 5-3
fn a_switchover_before_the_path_is_potentially_failed_is_refused() {
    let mut t = two_links();
    let id = t.id(t.a);
    let timing = sctp::Timing { potentially_failed_max_retrans: Some(2), ..sctp::Timing::default() };
    let now = t.world.now();
    t.world.host_mut(t.a).endpoint.set_timing(now, id, timing);
    let options = |psmr| PathOptions { switchover_max_retrans: Some(psmr), ..PathOptions::default() };
    assert_eq!(t.set_options(FIRST, options(1)), Err(PathOptionError::SwitchoverTooSoon { least: 2 }));
    assert_eq!(t.set_options(FIRST, options(2)), Ok(()));
}

#[test]
fn a_heartbeat_travels_without_data_also_where_both_are_due() {
    let mut t = Two::established(1);
    let (now, id, peer) = (t.world.now(), t.id(t.a), a_route().remote);
    let engine = &mut t.world.host_mut(t.a).endpoint;
    engine.request_heartbeat(now, id, peer).unwrap();
    let message = bytes::Bytes::from_static(b"due as well");
    engine.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default()).unwrap();
    t.world.run_for(seconds(1));
    assert_eq!(sent_by(&t.world, 0, "10.0.1.1")[..2], ["HEARTBEAT", "DATA"]);
}

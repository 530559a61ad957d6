//! Tests of changes of the peer's UDP port during an association (RFC 6951): NATs that forget, and attackers who forge a change.

use std::net::IpAddr;
use std::time::Duration;

use base::{Carrier, Route};
use sctp::{AssociationConfig, EndpointConfig, Event, PathError, PathState, StateName, Timing, Unreachable};
use sim::{Change, Conversation, Fate, InTheClear, LinkConfig, chunk_names, packet};
use wire::{Chunk, Heartbeat};

use crate::support::{Two, UDP, b_route, describe, messages, seconds, sends, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Creates an association over UDP and a link with a round trip of 20 ms.
fn by_udp(config: &AssociationConfig, from_a: Conversation, from_b: Conversation) -> Two {
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template = from_b;
    t.world.connect(t.a, t.b, UDP, config.clone(), from_a);
    t.run_to_established();
    t
}

fn bulk() -> Conversation {
    Conversation { bulk: 1 << 40, keeps: false, ..Conversation::default() }
}

fn counted() -> Conversation {
    Conversation { keeps: false, ..Conversation::default() }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Makes the NAT before `a` assign another port now.
fn rebind(t: &mut Two, port: u16) {
    let now = t.world.now();
    t.world.at(now, Change::Rebind(address("10.0.1.1"), port));
    t.world.run_for(MS(1));
}

/// Makes `a` send a short message.
fn say_something(t: &mut Two) {
    let (a, id) = (t.a, t.id(t.a));
    let talk = t.world.host_mut(a).app.conversations.get_mut(&id).unwrap();
    talk.outgoing = sends(messages(1, 100, 1)).outgoing;
}

/// Returns the route of packets from this port of `a` as `b` sees it.
fn from_port(port: u16) -> Route {
    Route { carrier: Carrier::Udp { peer_port: port }, ..b_route() }
}

fn port_known_to_b(t: &Two) -> Carrier {
    t.info(t.b).paths[0].route.carrier
}

/// Returns the chunk names of each packet that `b` has sent to this port.
fn sent_to(t: &Two, port: u16) -> Vec<String> {
    let sent = t.world.records.iter().filter(|r| r.route == from_port(port));
    sent.map(|r| chunk_names(&r.packet)).collect()
}

#[test]
fn a_sender_whose_port_changes_goes_on_after_a_few_round_trips_and_without_a_timeout() {
    let mut t = by_udp(&AssociationConfig::default(), bulk(), counted());
    t.world.run_for(seconds(1));
    rebind(&mut t, 5000);
    t.world.run_for(seconds(1));
    assert_eq!(port_known_to_b(&t), Carrier::Udp { peer_port: 5000 });
    assert_eq!(t.info(t.b).counters.rebindings, 1);
    assert_eq!(t.info(t.a).counters.timeouts, 0, "{}", describe(&t.world));
    assert!(t.talk(t.b).longest_silence < MS(80), "{:?}", t.talk(t.b).longest_silence);
}

#[test]
fn until_a_port_is_proven_data_from_there_is_acknowledged_at_both_ports() {
    let mut t = by_udp(&AssociationConfig::default(), bulk(), counted());
    t.world.run_for(seconds(1));
    t.world.recording = true;
    rebind(&mut t, 5000);
    let (b, id, limit) = (t.b, t.id(t.b), t.world.now() + seconds(1));
    let is_proven =
        move |w: &sim::World| w.host(b).endpoint.info(id).is_some_and(|i| i.counters.rebindings > 0);
    assert!(t.world.run_until(limit, is_proven));
    let (new, old) = (sent_to(&t, 5000), sent_to(&t, 9899));
    assert!(new.iter().all(|it| it == "SACK" || it == "HEARTBEAT"), "{new:?}");
    let sacks = |all: &[String]| all.iter().filter(|it| *it == "SACK").count();
    assert!(sacks(&new) > 1 && sacks(&old) > 1, "{new:?}, {old:?}");
}

#[test]
fn a_receiver_whose_port_changes_gets_data_one_round_trip_after_it_was_heard_again() {
    let timing = Timing { heartbeat_interval: MS(400), ..Timing::default() };
    let config = AssociationConfig { timing, ..AssociationConfig::default() };
    let mut t = by_udp(&config, counted(), bulk());
    t.world.run_for(seconds(1));
    rebind(&mut t, 5000);
    let (a, b) = (t.a, t.b);
    let id = t.id(b);
    let rebound = t.world.now();
    let is_proven =
        move |w: &sim::World| w.host(b).endpoint.info(id).is_some_and(|i| i.counters.rebindings > 0);
    assert!(t.world.run_until(rebound + seconds(10), is_proven));
    let before = t.talk(a).received_bytes;
    t.world.run_for(MS(30));
    assert!(t.talk(a).received_bytes > before, "{}", describe(&t.world));
}

#[test]
fn no_data_goes_to_a_port_that_has_not_answered() {
    let _clear = InTheClear::begin();
    let mut t = by_udp(&AssociationConfig::default(), counted(), bulk());
    t.world.run_for(seconds(1));
    t.world.recording = true;
    let (tag, before) = (t.info(t.b).local_tag, t.talk(t.a).received_bytes);
    let forged = packet(40_000, 7, tag, &[Chunk::CookieAck]);
    t.world.inject(t.b, from_port(666), &forged);
    assert_eq!(port_known_to_b(&t), UDP);
    t.world.run_for(seconds(2));
    // The peer answers from its old port, so no further HEARTBEAT goes to the new one.
    assert_eq!(sent_to(&t, 666), ["HEARTBEAT"]);
    assert_eq!(port_known_to_b(&t), UDP);
    assert!(t.talk(t.a).received_bytes - before > 20_000_000, "the path suffers");
    assert_eq!(t.info(t.b).counters.timeouts, 0);
}

#[test]
fn packets_from_many_ports_are_answered_up_to_once_per_round_trip() {
    let _clear = InTheClear::begin();
    let mut t = by_udp(&AssociationConfig::default(), bulk(), counted());
    t.world.run_for(seconds(1));
    t.world.recording = true;
    let tag = t.info(t.b).local_tag;
    for n in 0..1000 {
        t.world.inject(t.b, from_port(10_000 + n), &packet(40_000, 7, tag, &[Chunk::CookieAck]));
        t.world.run_for(MS(1));
    }
    let strange = |r: &Route| !matches!(r.carrier, Carrier::Udp { peer_port: 9899 });
    let answers =
        t.world.records.iter().filter(|r| r.route.local == address("10.0.1.2") && strange(&r.route));
    let answers = answers.count();
    assert!((1..60).contains(&answers), "{answers} answers");
    assert_eq!(t.state(t.b), StateName::Established);
}

#[test]
fn a_port_that_cannot_be_sent_to_is_no_reason_to_leave_the_path() {
    let mut t = by_udp(&AssociationConfig::default(), counted(), bulk());
    t.world.run_for(seconds(1));
    t.world.recording = true;
    let (local, remote) = (t.info(t.b).local_tag, t.info(t.b).peer_tag);
    t.world.inject(t.b, from_port(0), &packet(40_000, 7, local, &[Chunk::CookieAck]));
    t.world.run_for(MS(1));
    assert!(sent_to(&t, 0).is_empty());
    t.world.inject(t.b, from_port(666), &packet(40_000, 7, local, &[Chunk::CookieAck]));
    let refused = packet(7, 40_000, remote, &[Chunk::Heartbeat(Heartbeat { info: &[1; 12] })]);
    t.world.inject_path_error(t.b, from_port(666), PathError::NoRoute, &refused);
    assert_eq!(t.info(t.b).paths[0].state, PathState::Active);
}

#[test]
fn a_heartbeat_from_a_new_port_is_answered_there() {
    let _clear = InTheClear::begin();
    let mut t = by_udp(&AssociationConfig::default(), counted(), counted());
    t.world.run_for(seconds(1));
    t.world.recording = true;
    let tag = t.info(t.b).local_tag;
    let asked = packet(40_000, 7, tag, &[Chunk::Heartbeat(Heartbeat { info: &[1; 12] })]);
    t.world.inject(t.b, from_port(5000), &asked);
    t.world.run_for(MS(1));
    assert_eq!(sent_to(&t, 5000), ["HEARTBEAT", "HEARTBEAT ACK"]);
}

#[test]
fn many_heartbeats_in_a_packet_from_a_new_port_get_one_answer() {
    let _clear = InTheClear::begin();
    let mut t = by_udp(&AssociationConfig::default(), counted(), counted());
    t.world.run_for(seconds(1));
    t.world.recording = true;
    let tag = t.info(t.b).local_tag;
    let asked = packet(40_000, 7, tag, &[Chunk::Heartbeat(Heartbeat { info: &[1; 4] }); 100]);
    t.world.inject(t.b, from_port(5000), &asked);
    t.world.run_for(MS(1));
    assert_eq!(sent_to(&t, 5000), ["HEARTBEAT", "HEARTBEAT ACK"]);
    t.world.inject(t.b, from_port(5000), &asked);
    t.world.run_for(MS(1));
    assert_eq!(sent_to(&t, 5000)[2..], ["HEARTBEAT ACK"], "the next packet gets its own");
}

#[test]
fn a_lost_heartbeat_to_the_new_port_is_sent_again() {
    let mut t = by_udp(&AssociationConfig::default(), counted(), counted());
    t.world.run_for(seconds(1));
    let mut left = 2;
    t.world.set_filter(move |r| {
        let is_lost = left > 0 && r.route == from_port(5000);
        left -= i32::from(is_lost);
        if is_lost { Fate::Drop } else { Fate::Pass }
    });
    rebind(&mut t, 5000);
    say_something(&mut t);
    t.world.run_for(seconds(4));
    assert_eq!(port_known_to_b(&t), Carrier::Udp { peer_port: 5000 });
}

#[test]
fn icmp_about_a_port_that_was_left_does_not_end_the_association() {
    let mut t = by_udp(&AssociationConfig::default(), counted(), counted());
    t.world.run_for(seconds(1));
    rebind(&mut t, 5000);
    say_something(&mut t);
    let quoted = packet(7, 40_000, t.info(t.b).peer_tag, &[]);
    let gone = PathError::Unreachable(Unreachable::Port);
    for _ in 0..10 {
        t.world.run_for(MS(12));
        t.world.inject_path_error(t.b, from_port(9899), gone, &quoted);
    }
    assert_eq!(t.state(t.b), StateName::Established);
    assert!(t.events(t.b).iter().any(|e| matches!(e, Event::PeerPort { .. })));
}

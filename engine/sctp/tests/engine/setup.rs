//! Tests of setup (RFC 9260 section 5): losses, duplicates, collisions, restarts, and refusals.

use std::time::Duration;

use base::{Carrier, Route};
use sctp::{AssociationConfig, CloseReason, Connect, EndpointConfig, Event, StateName, Unreachable};
use sim::{Accept, Change, Conversation, Fate, InTheClear, LinkConfig, Listen, chunk_names};
use wire::{Chunk, CookieEcho, Init, Parameter, Parameters, Tsn, VerificationTag};

use crate::support::{
    Two, a_route, at_seconds, b_route, lose, messages, seconds, sends, sends_then_closes, sent_by, two,
    two_with,
};

fn init<'a>(tag: u32, parameters: &'a [Parameter<'a>]) -> Chunk<'a> {
    Chunk::Init(Init {
        tag: VerificationTag(tag),
        a_rwnd: 100_000,
        outbound_streams: 10,
        inbound_streams: 10,
        initial_tsn: Tsn(1),
        parameters: Parameters::from(parameters),
    })
}

/// Opens and closes an association while the first `count` packets with the chunk `name` are lost. Returns the time from the start to the
/// end of the association.
fn opens_although_lost(name: &'static str, count: usize) -> Duration {
    let mut t = two(1);
    lose(&mut t.world, name, count);
    t.connect(sends_then_closes(messages(10, 100, 1)));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 10);
    t.world.now() - base::Time::ZERO
}

#[test]
//= rfc9260#3.3.2-4 5.1-4 5.1-5 5.1.4-1
fn set_up_without_losses_takes_two_round_trips() {
    let mut t = two(1);
    t.connect(Conversation::default());
    t.run_to_established();
    assert_eq!(t.world.now().as_millis(), 40);
}

#[test]
//= rfc9260#4-3 5.1-12
fn a_lost_init_is_sent_again_after_one_and_three_seconds() {
    assert!((3..4).contains(&opens_although_lost("INIT", 2).as_secs()));
}

#[test]
fn a_lost_init_ack_is_made_up_for_by_another_init() {
    assert!((3..4).contains(&opens_although_lost("INIT ACK", 2).as_secs()));
}

#[test]
//= rfc9260#5.1.4-2 5.1.4-3
fn a_lost_cookie_echo_is_sent_again() {
    let _clear = InTheClear::begin();
    assert!((3..4).contains(&opens_although_lost("COOKIE ECHO", 2).as_secs()));
}

#[test]
fn a_lost_cookie_ack_is_made_up_for_by_another_cookie_echo() {
    let _clear = InTheClear::begin();
    assert!((3..5).contains(&opens_although_lost("COOKIE ACK", 2).as_secs()));
}

#[test]
//= rfc9260#4-4 4-5
fn a_peer_that_never_answers_is_given_up_after_the_last_retransmission() {
    let mut t = two(1);
    t.world.host_mut(t.b).app.listen = Listen::Ignore;
    let config = AssociationConfig { max_init_retransmits: 2, ..AssociationConfig::default() };
    t.connect_with(config, Conversation::default());
    t.world.run_until(at_seconds(6), |_| false);
    assert_eq!(t.talk(t.a).closed, None);
    t.world.run_until(at_seconds(8), |_| false);
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::NoAnswer));
}

#[test]
fn duplicates_of_every_handshake_chunk_open_one_association() {
    for name in ["INIT", "INIT ACK", "COOKIE ECHO", "COOKIE ACK"] {
        let mut t = two(1);
        t.world.set_filter(move |record| {
            if chunk_names(&record.packet).contains(name) { Fate::Copies(3) } else { Fate::Pass }
        });
        t.connect(sends_then_closes(messages(20, 1000, 2)));
        assert_eq!(t.run_to_end(seconds(5)), (CloseReason::Graceful, CloseReason::Graceful), "{name}");
        assert_eq!(t.world.host(t.b).app.conversations.len(), 1, "{name}");
        assert_eq!(t.talk(t.b).received.len(), 20, "{name}");
    }
}

#[test]
//= rfc9260#5.2.4-3 5.2.4-8 5.2.4-9 5.2.3-1
fn late_handshake_packets_do_not_disturb_an_association_that_is_up() {
    let mut t = two(1);
    t.world.recording = true;
    t.connect(Conversation::default());
    t.run_to_established();
    let handshake: Vec<_> = t.world.records.clone();
    for record in handshake {
        let from_a = record.route.local == a_route().local;
        let (to, route) = if from_a { (t.b, b_route()) } else { (t.a, a_route()) };
        t.world.inject(to, route, &record.packet);
        t.world.run_for(seconds(1));
        assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
        assert_eq!(t.world.host(t.b).app.conversations.len(), 1);
    }
}

/// Creates two hosts with a round trip of 400 ms and this cookie lifetime.
fn with_cookie_life(milliseconds: u64) -> Two {
    let link = LinkConfig { delay: Duration::from_millis(200), ..LinkConfig::default() };
    let cookie_lifetime = Duration::from_millis(milliseconds);
    two_with(1, link, EndpointConfig { cookie_lifetime, ..EndpointConfig::default() })
}

#[test]
//= rfc9260#5.1.5-4 5.2.6-1
fn after_a_stale_cookie_a_longer_life_is_asked_for_and_serves() {
    let _clear = InTheClear::begin();
    let mut t = with_cookie_life(300);
    t.connect(Conversation::default());
    t.run_to_established();
    assert_eq!(t.world.host(t.b).endpoint.counters().stale_cookies, 1);
}

#[test]
fn a_cookie_that_is_stale_twice_ends_the_attempt() {
    let mut t = with_cookie_life(150);
    t.connect(Conversation::default());
    t.world.run_for(seconds(10));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::NoAnswer));
    assert!(t.world.host(t.b).app.conversations.is_empty());
}

fn open_between_fixed_ports(t: &mut Two) {
    for (host, route, local_port, remote_port) in [(t.a, a_route(), 5000, 6000), (t.b, b_route(), 6000, 5000)]
    {
        let host = t.world.host_mut(host);
        let connect = Connect {
            local_port,
            remote_port,
            init_routes: vec![route],
            local_addresses: host.addresses.clone(),
            config: AssociationConfig::default(),
        };
        let id = host.endpoint.connect(base::Time::ZERO, connect).unwrap();
        host.app.conversations.insert(id, sends(messages(20, 500, 2)));
    }
}

#[test]
//= rfc9260#1.3-1 5.2.4-7 5.2.4-10 5.2.4-11 5.2.1-12 5.1.5-8
fn two_hosts_that_open_at_once_get_one_association() {
    for lost in ["none", "INIT", "INIT ACK", "COOKIE ECHO", "COOKIE ACK"] {
        let mut t = two(1);
        lose(&mut t.world, lost, 1);
        open_between_fixed_ports(&mut t);
        t.run_to_established();
        t.world.run_for(seconds(5));
        for host in [t.a, t.b] {
            assert_eq!(t.world.host(host).app.conversations.len(), 1, "{lost} lost");
            assert_eq!(t.talk(host).received.len(), 20, "{lost} lost");
            let ups = t.events(host).into_iter().filter(|e| matches!(e, Event::Established { .. })).count();
            assert_eq!(ups, 1, "{lost} lost");
        }
        assert_eq!(t.info(t.a).local_tag, t.info(t.b).peer_tag);
        assert_eq!(t.info(t.b).local_tag, t.info(t.a).peer_tag);
    }
}

#[test]
//= rfc9260#5.2.4-4 5.2.2-5 5.2.2-7 5.3.1-3 7.2.5-1
fn a_host_that_restarts_and_opens_again_replaces_its_old_association() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    t.world.restart(t.a, EndpointConfig::default());
    t.connect(sends_then_closes(messages(10, 100, 1)));
    t.world.run_for(seconds(5));
    let closed: Vec<_> = t.world.host(t.b).app.conversations.values().map(|c| c.closed.clone()).collect();
    assert_eq!(closed, [Some(CloseReason::Restarted), Some(CloseReason::Graceful)]);
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::Graceful));
}

#[test]
fn a_listener_that_has_restarted_ends_associations_of_its_past_by_abort() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    t.connect(Conversation { bulk: 100_000_000, ..Conversation::default() });
    t.run_to_established();
    t.world.restart(t.b, EndpointConfig::default());
    t.world.run_for(seconds(2));
    assert!(matches!(t.talk(t.a).closed, Some(CloseReason::PeerAborted(_))));
}

#[test]
//= rfc9260#5.2.2-2 5.2.2-3 5.2.1-7 5.2.1-8 5.2.2-6
fn a_restart_that_adds_an_address_is_refused() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    let new = Parameter::Ipv4Address("192.0.2.9".parse().unwrap());
    let old = Parameter::Ipv4Address("10.0.1.1".parse().unwrap());
    t.inject_to_b(0, &[init(77, &[old, new])]);
    assert_eq!(sent_by(&t.world, 0, "10.0.1.2"), ["ABORT"]);
    t.world.run_for(seconds(1));
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
}

#[test]
//= rfc9260#5.1.2-4 5.1.2-9
fn a_peer_with_an_address_that_no_path_leads_to_may_restart() {
    let mut t = two(1);
    t.world.recording = true;
    let parameters = [
        Parameter::Ipv4Address("10.0.1.1".parse().unwrap()),
        Parameter::Ipv6Address("fd00::1".parse().unwrap()),
    ];
    for (tag, known) in [(77, 0), (78, 1)] {
        let before = t.world.records.len();
        t.inject_to_b(0, &[init(tag, &parameters)]);
        assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["INIT ACK"]);
        let answer = t.world.records[before].packet.clone();
        let parsed = wire::Packet::parse(&answer, wire::ChecksumMode::Verify).unwrap();
        let Some(Ok(Chunk::InitAck(ack))) = parsed.chunks().next() else { panic!("an INIT ACK") };
        let cookie = ack.parameters.iter().find_map(|p| match p {
            Ok(Parameter::StateCookie(cookie)) => Some(cookie),
            _ => None,
        });
        t.inject_to_b(ack.tag.0, &[Chunk::CookieEcho(CookieEcho { cookie: cookie.unwrap() })]);
        assert_eq!(t.world.host(t.b).app.conversations.len(), known + 1);
    }
}

#[test]
fn a_listener_that_refuses_answers_with_abort() {
    let mut t = two(1);
    t.world.host_mut(t.b).app.listen = Listen::Refuse;
    t.connect(Conversation::default());
    t.world.run_for(seconds(1));
    assert!(matches!(t.talk(t.a).closed, Some(CloseReason::PeerAborted(_))));
}

#[test]
fn a_driver_that_refuses_after_the_cookie_says_why() {
    let mut t = two(1);
    t.world.host_mut(t.b).app.accept = Accept::Refuse;
    t.connect(Conversation::default());
    let (a, b) = t.run_to_end(seconds(1));
    let CloseReason::PeerAborted(cause) = a else { panic!("{a:?}") };
    assert_eq!((cause.code, &cause.reason[..]), (12, &b"refused"[..]));
    assert!(matches!(b, CloseReason::Aborted(_)));
}

#[test]
//= rfc9260#5.1.5-6 3.3.12-1
fn an_association_that_waits_for_its_driver_is_up_only_when_accepted() {
    let mut t = two(1);
    t.world.host_mut(t.b).app.accept = Accept::Never;
    t.connect(sends(messages(3, 100, 1)));
    t.world.run_for(seconds(2));
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::CookieEchoed, StateName::Accepting));
    let (id, now) = (t.id(t.b), t.world.now());
    t.world.host_mut(t.b).endpoint.accept(now, id);
    t.world.run_for(seconds(1));
    assert_eq!(t.talk(t.b).received.len(), 3);
}

#[test]
fn a_host_without_sctp_is_known_unreachable_after_one_round_trip() {
    let mut t = two(1);
    t.world.at(base::Time::ZERO, Change::Up(t.b, false));
    t.connect(Conversation::default());
    t.world.run_for(Duration::from_millis(30));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::Unreachable(Unreachable::Port)));
}

#[test]
//= rfc9260#5.1.5-2 5.1-6
fn a_forged_cookie_makes_no_association_and_no_answer() {
    let mut t = two(1);
    t.world.recording = true;
    t.inject_to_b(5, &[Chunk::CookieEcho(CookieEcho { cookie: &[7; 200] })]);
    assert_eq!(t.world.host(t.b).endpoint.counters().bad_cookies, 1);
    assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
    assert!(t.world.records.is_empty());
}

#[test]
fn a_cookie_of_ours_whose_life_was_lengthened_by_the_peer_makes_no_association() {
    const EXPIRES: usize = 12 + 4 + 2;
    let mut t = two(1);
    t.world.set_filter(|record| {
        if !chunk_names(&record.packet).starts_with("COOKIE ECHO") {
            return Fate::Pass;
        }
        let mut packet = record.packet.clone();
        packet[EXPIRES + 2] ^= 1;
        packet[8..12].fill(0);
        let sum = wire::crc32c(&packet);
        packet[8..12].copy_from_slice(&sum.to_le_bytes());
        Fate::Replace(packet)
    });
    t.connect(Conversation::default());
    t.world.run_for(seconds(2));
    assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
    assert!(t.world.host(t.b).endpoint.counters().bad_cookies > 0, "the cookie came");
}

#[test]
//= rfc9260#3.3.2-7 3.3.2-12 5.1-15 5.1-17 5.1.2-3
fn an_init_with_a_tag_of_zero_is_dropped_and_one_without_streams_is_refused() {
    let mut t = two(1);
    t.world.recording = true;
    t.inject_to_b(0, &[init(0, &[])]);
    assert!(t.world.records.is_empty());
    let Chunk::Init(good) = init(9, &[]) else { panic!("an INIT") };
    t.inject_to_b(0, &[Chunk::Init(Init { outbound_streams: 0, ..good })]);
    assert_eq!(sent_by(&t.world, 0, "10.0.1.2"), ["ABORT"]);
}

#[test]
fn of_two_carriers_tried_at_once_the_one_that_works_is_used() {
    let mut t = two(1);
    t.world.set_filter(|record| if record.route.carrier == Carrier::Ip { Fate::Drop } else { Fate::Pass });
    let host = t.world.host_mut(t.a);
    let udp = Route { carrier: Carrier::Udp { peer_port: 9899 }, ..a_route() };
    let connect = Connect {
        local_port: 1,
        remote_port: 7,
        init_routes: vec![a_route(), udp],
        local_addresses: host.addresses.clone(),
        config: AssociationConfig::default(),
    };
    let id = host.endpoint.connect(base::Time::ZERO, connect).unwrap();
    host.app.conversations.insert(id, sends_then_closes(messages(5, 5000, 1)));
    assert_eq!(t.run_to_end(seconds(2)), (CloseReason::Graceful, CloseReason::Graceful));
    assert!(matches!(t.events(t.a)[0], Event::Established { route, .. } if *route == udp));
}

#[test]
//= rfc9260#5.1-12
fn inits_are_sent_again_at_the_same_pace_for_as_often_as_that_is_asked_for() {
    let mut t = two(1);
    t.world.host_mut(t.b).app.listen = Listen::Ignore;
    t.world.recording = true;
    let timing = sctp::Timing { rto_initial: Duration::from_millis(40), ..sctp::Timing::default() };
    let config = AssociationConfig { timing, steady_init_retransmits: 3, ..AssociationConfig::default() };
    t.connect_with(config, Conversation::default());
    t.world.run_for(seconds(1));
    let begin = t.world.records[0].at;
    let sent: Vec<u64> =
        t.world.records.iter().map(|record| (record.at - begin).as_millis() as u64).collect();
    assert_eq!(sent, [0, 40, 80, 120, 160, 240, 400, 720]);
}

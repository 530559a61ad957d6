//! Tests of the attacks of RFC 5062, packet by packet, and of blind attacks.

use std::time::Duration;

use base::{Carrier, Route};
use bytes::Bytes;
use sctp::{
    AssociationConfig, CloseReason, EndpointConfig, Event, PathState, Ppid, SendOptions, StateName, StreamId,
};
use sim::{Accept, Conversation, Fate, HostId, InTheClear, LinkConfig, Record, World, chunk_names, packet};
use wire::{Chunk, ChunkType, CookieEcho, Heartbeat, UnknownChunk};

use crate::reflection::dial;
use crate::states::{STATES, Subject};
use crate::stranger::{Stranger, address, init, names, read, sent_to};
use crate::support::{Two, a_route, drop_all, seconds, two, two_with};

const EVIL: &str = "192.0.2.66";
const VICTIM: &str = "10.0.1.1";

/// Creates the attacker, who has guessed the victim's port.
fn evil(t: &Two) -> Stranger {
    Stranger::new(t.b, "10.0.1.2", EVIL, 40_000)
}

fn closed_of(t: &Two, host: HostId) -> Vec<Option<CloseReason>> {
    t.world.host(host).app.conversations.values().map(|c| c.closed.clone()).collect()
}

// Section 2: camping.

#[test]
fn listing_an_address_does_not_keep_its_owner_out() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    // The owner announces a second address, so its INIT does not count as a restart of the attacker's association.
    t.world.host_mut(t.a).addresses.push("10.0.9.1".parse().unwrap());
    evil(&t).open(&mut t.world, &[EVIL, VICTIM]);
    t.connect(Conversation::default());
    t.world.run_for(seconds(1));
    assert_eq!(t.state(t.a), StateName::Established);
    assert_eq!(t.world.host(t.b).app.conversations.len(), 2);
    // From now on, packets from the owner's address belong to the owner's association, so the owner may restart.
    t.world.restart(t.a, EndpointConfig::default());
    t.connect(Conversation::default());
    t.world.run_for(seconds(1));
    assert_eq!(closed_of(&t, t.b)[1..], [Some(CloseReason::Restarted), None]);
}

#[test]
fn listing_an_address_does_not_keep_this_host_from_connecting_to_it() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    evil(&t).open(&mut t.world, &[EVIL, VICTIM]);
    let (now, victim) = (t.world.now(), VICTIM.parse().unwrap());
    let host = t.world.host_mut(t.b);
    let route = Route { local: "10.0.1.2".parse().unwrap(), remote: victim, carrier: Carrier::Ip };
    let connect = sctp::Connect {
        local_port: 7,
        remote_port: 40_000,
        init_routes: vec![route],
        local_addresses: host.addresses.clone(),
        config: AssociationConfig::default(),
    };
    assert!(host.endpoint.connect(now, connect).is_ok());
}

#[test]
fn an_attempt_ends_if_the_answering_host_lists_the_proved_address_of_another_association() {
    let _clear = InTheClear::begin();
    let mut world = World::new(1);
    let a = world.add_host(&["10.0.1.1"], EndpointConfig::default());
    let b = world.add_host(&["10.0.1.2", "10.0.9.2"], EndpointConfig::default());
    let link = world.add_link(LinkConfig::default());
    ["10.0.1.2", "10.0.9.2"].into_iter().for_each(|address| world.join(link, "10.0.1.1", address));
    let mut t = Two { world, a, b, links: vec![link] };
    // The HEARTBEATs to the second address are lost, so this host does not prove the address.
    t.world.set_filter(|record| {
        let is_to_second = record.route.remote.to_string() == "10.0.9.2";
        if is_to_second && chunk_names(&record.packet) == "HEARTBEAT" { Fate::Drop } else { Fate::Pass }
    });
    t.connect(Conversation::default());
    t.world.run_for(seconds(1));
    // The restarted peer accepts an INIT to any of its addresses.
    t.world.restart(t.b, EndpointConfig::default());
    let (id, ports, now) = (t.id(t.a), t.info(t.a), t.world.now());
    let host = t.world.host_mut(t.a);
    let connect = sctp::Connect {
        local_port: ports.local_port,
        remote_port: ports.remote_port,
        init_routes: vec![Route { remote: "10.0.9.2".parse().unwrap(), ..a_route() }],
        local_addresses: host.addresses.clone(),
        config: AssociationConfig::default(),
    };
    let second = host.endpoint.connect(now, connect).unwrap();
    t.world.run_for(Duration::from_millis(500));
    let ended = Event::Closed(CloseReason::SamePeer(id));
    assert!(t.world.host(t.a).app.log.iter().any(|(_, of, event)| (*of, event) == (second, &ended)));
    assert_eq!(t.world.host(t.a).endpoint.state(id), Some(StateName::Established));
    assert!(t.world.host(t.b).app.conversations.is_empty(), "no COOKIE ECHO");
}

#[test]
fn a_delayed_cookie_echo_does_not_take_an_address_from_its_owners_association() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    let answer = evil(&t).ask(&mut t.world, &[address(EVIL), address(VICTIM)]).unwrap();
    t.connect(Conversation::default());
    t.world.run_for(seconds(1));
    evil(&t).echo(&mut t.world, &answer);
    t.world.restart(t.a, EndpointConfig::default());
    t.connect(Conversation::default());
    t.world.run_for(seconds(1));
    assert_eq!(closed_of(&t, t.b), [Some(CloseReason::Restarted), None, None]);
    assert_eq!(t.state(t.a), StateName::Established);
}

#[test]
fn an_abort_from_a_falsely_listed_address_ends_the_attackers_association() {
    let mut t = two(1);
    evil(&t).open(&mut t.world, &[EVIL, VICTIM]);
    t.world.run_for(seconds(1));
    assert!(matches!(closed_of(&t, t.b)[..], [Some(CloseReason::PeerAborted(_))]));
}

#[test]
fn heartbeat_acks_that_were_never_asked_for_prove_no_address() {
    let mut t = two(1);
    drop_all(&mut t.world, |_, _| true);
    let (id, answer) = evil(&t).open(&mut t.world, &[EVIL, VICTIM]);
    let mut guess = [0; 12];
    guess[3] = 1;
    for last in 0..=255 {
        guess[11] = last;
        let chunk = Chunk::HeartbeatAck(Heartbeat { info: &guess });
        evil(&t).at(VICTIM).send(&mut t.world, answer.tag, &[chunk]);
    }
    let paths = t.world.host(t.b).endpoint.info(id).unwrap().paths;
    let path = paths.iter().find(|p| p.route.remote.to_string() == VICTIM).unwrap();
    assert_eq!(path.state, PathState::Unconfirmed);
}

// Section 3: hijacking through an address that once belonged to the peer.

#[test]
fn the_cookie_for_a_restart_does_not_show_the_tags_of_the_association() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    let new_owner = Stranger::new(t.b, "10.0.1.2", VICTIM, 40_000);
    let answer = new_owner.ask(&mut t.world, &[]).unwrap();
    let info = t.info(t.b);
    for tag in [info.local_tag, info.peer_tag] {
        assert_ne!(answer.tag, tag);
        assert!(!answer.cookie.windows(4).any(|w| w == tag.to_be_bytes()), "a tag is in the cookie");
    }
}

#[test]
fn an_init_that_lists_the_peer_does_not_learn_the_tag_of_an_opening_association() {
    let mut t = two(1);
    drop_all(&mut t.world, |_, _| true);
    t.connect(Conversation::default());
    let peer = packet(7, 40_000, 0, &[init(77, &[])]);
    let stranger = Stranger::new(t.a, "10.0.1.1", EVIL, 7);
    let naming = packet(7, 40_000, 0, &[init(77, &[address("10.0.1.2")])]);
    assert_eq!(names(&stranger.send_raw(&mut t.world, &naming)), [""; 0]);
    assert_eq!(names(&stranger.at("10.0.1.2").send_raw(&mut t.world, &peer)), ["INIT ACK"]);
}

// Section 4: hijacking by restart.

#[test]
fn a_restart_ends_the_old_association_before_the_driver_accepts_the_new_one() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    t.world.host_mut(t.b).app.accept = Accept::Never;
    let old = t.id(t.b);
    let (new, _) = Stranger::new(t.b, "10.0.1.2", VICTIM, 40_000).open(&mut t.world, &[]);
    assert_ne!(old, new);
    assert_eq!(t.talk(t.b).closed, Some(CloseReason::Restarted));
    assert!(matches!(t.events(t.b).last(), Some(Event::Incoming { .. })), "the driver is asked anew");
    let now = t.world.now();
    let endpoint = &mut t.world.host_mut(t.b).endpoint;
    let sent =
        endpoint.send(now, old, StreamId(0), Ppid(0), Bytes::from_static(b"secret"), SendOptions::default());
    assert!(sent.is_err());
}

// Section 5: bombing by failover.

#[test]
fn nothing_but_heartbeats_goes_to_an_address_that_never_answered_one() {
    let mut t = two(1);
    drop_all(&mut t.world, |_, _| true);
    t.world.host_mut(t.b).app.template = Conversation { bulk: 1 << 30, ..Conversation::default() };
    let (_, answer) = evil(&t).open(&mut t.world, &[EVIL, VICTIM]);
    // The attacker falls silent, so its own address fails.
    t.world.run_for(seconds(100));
    // The attacker also provokes answers in the victim's name: an ERROR, and a repeated COOKIE ACK.
    let unknown = Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(0xff), flags: 0, value: &[] });
    evil(&t).at(VICTIM).send(&mut t.world, answer.tag, &[unknown]);
    evil(&t).at(VICTIM).echo(&mut t.world, &answer);
    let (sent, _) = sent_to(&t.world, 0, VICTIM);
    assert!(sent.len() > 1 && sent.iter().all(|names| names == "HEARTBEAT"), "{sent:?}");
    assert!(sent_to(&t.world, 0, EVIL).0.iter().any(|names| names.contains("DATA")));
}

// Section 6: bombing through an INIT with many addresses, and through a cookie sent again and again.

fn listed() -> Vec<String> {
    (1..=15).map(|n| format!("198.51.100.{n}")).collect()
}

//= rfc9260#5.4-1
#[test]
fn listed_addresses_get_single_heartbeats_of_up_to_three_times_the_attackers_bytes() {
    let mut t = two(1);
    drop_all(&mut t.world, |_, _| true);
    let listed = listed();
    let list: Vec<&str> = listed.iter().map(String::as_str).collect();
    let (_, answer) = evil(&t).open(&mut t.world, &list);
    let echo = packet(40_000, 7, answer.tag, &[Chunk::CookieEcho(CookieEcho { cookie: &answer.cookie })]);
    let sent = |t: &Two| {
        listed.iter().map(|a| sent_to(&t.world, 0, a)).fold((0, 0), |n, s| (n.0 + s.0.len(), n.1 + s.1))
    };
    assert_eq!(sent(&t).0, 1, "at once");
    t.world.run_for(Duration::from_millis(2900));
    assert_eq!(sent(&t).0, 3, "one each RTO");
    t.world.run_for(seconds(3600));
    assert!(sent(&t).1 <= 3 * echo.len(), "{} bytes for {}", sent(&t).1, echo.len());
    assert!(sent(&t).0 >= 10);
}

#[test]
fn a_cookie_opens_one_association_and_is_answered_by_abort_after_its_end() {
    let mut t = two(1);
    let (id, answer) = evil(&t).open(&mut t.world, &[]);
    let now = t.world.now();
    t.world.host_mut(t.b).endpoint.release(now, id);
    t.world.run_for(Duration::from_millis(1));
    for _ in 0..3 {
        let answers = evil(&t).echo(&mut t.world, &answer);
        assert_eq!(answers.iter().filter(|(_, p)| chunk_names(p) == "ABORT(T)").count(), 1);
        assert!(answers.iter().all(|(_, p)| p.len() <= 16));
    }
    assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
    assert_eq!(t.world.host(t.b).endpoint.counters().spent_cookies, 3);
}

#[test]
fn a_cookie_is_remembered_as_spent_for_as_long_as_it_is_good() {
    let mut t = two(1);
    let (id, answer) = evil(&t).open(&mut t.world, &[]);
    let now = t.world.now();
    t.world.host_mut(t.b).endpoint.release(now, id);
    t.world.run_for(seconds(59));
    // Other associations come and go in the meantime.
    for port in 1000..1100 {
        Stranger { port, ..evil(&t) }.open(&mut t.world, &[]);
    }
    evil(&t).echo(&mut t.world, &answer);
    assert_eq!(t.world.host(t.b).endpoint.counters().spent_cookies, 1);
    t.world.run_for(seconds(2));
    evil(&t).echo(&mut t.world, &answer);
    assert_eq!(t.world.host(t.b).endpoint.counters().stale_cookies, 1);
}

#[test]
fn a_cookie_of_a_simultaneous_open_is_spent_and_opens_no_second_association() {
    let mut t = two(3);
    t.world.recording = true;
    let hosts = [t.a, t.b].map(|host| (host, dial(&mut t, host, AssociationConfig::default())));
    t.world.run_for(seconds(2));
    for (host, id) in hosts {
        let now = t.world.now();
        assert_eq!(t.world.host(host).endpoint.state(id), Some(StateName::Established));
        t.world.host_mut(host).endpoint.release(now, id);
    }
    let is_echo = |r: &&Record| chunk_names(&r.packet).contains("COOKIE ECHO");
    let echoes: Vec<Record> = t.world.records.iter().filter(is_echo).cloned().collect();
    assert_eq!(echoes.len(), 2);
    for Record { route, packet, .. } in echoes {
        let to = if route.remote == a_route().local { t.a } else { t.b };
        t.world.inject(to, Route { local: route.remote, remote: route.local, ..route }, &packet);
        assert_eq!(t.world.host(to).endpoint.associations().count(), 0);
        assert_eq!(t.world.host(to).endpoint.counters().spent_cookies, 1);
    }
}

// Section 7: redirection. A cookie is valid only for the ports, tag and address that it was made for.

#[test]
fn a_cookie_is_good_for_no_other_port_and_no_other_tag() {
    let mut t = two(1);
    let answer = evil(&t).ask(&mut t.world, &[]).unwrap();
    let echo = Chunk::CookieEcho(CookieEcho { cookie: &answer.cookie });
    let wrong = [
        packet(40_001, 7, answer.tag, &[echo]),
        packet(40_000, 8, answer.tag, &[echo]),
        packet(40_000, 7, answer.tag ^ 1, &[echo]),
    ];
    for packet in wrong {
        assert!(evil(&t).send_raw(&mut t.world, &packet).is_empty());
    }
    assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
    assert_eq!(t.world.host(t.b).endpoint.counters().bad_cookies, 3);
}

#[test]
fn a_cookie_with_any_bit_altered_is_good_for_nothing() {
    let mut t = two(1);
    let answer = evil(&t).ask(&mut t.world, &[]).unwrap();
    for bit in 0..answer.cookie.len() * 8 {
        let mut altered = answer.clone();
        altered.cookie[bit / 8] ^= 1 << (bit % 8);
        assert!(evil(&t).echo(&mut t.world, &altered).is_empty(), "bit {bit}");
    }
    assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
}

#[test]
fn a_cookie_echo_from_another_address_is_answered_only_at_the_address_of_the_init() {
    let mut t = two(1);
    let answer = evil(&t).ask(&mut t.world, &[]).unwrap();
    let answers = evil(&t).at(VICTIM).echo(&mut t.world, &answer);
    assert_eq!(names(&answers), ["COOKIE ACK"]);
    assert!(answers.iter().all(|(route, _)| route.remote.to_string() == EVIL));
    t.world.run_for(seconds(300));
    assert_eq!(sent_to(&t.world, 0, VICTIM).0, [""; 0]);
}

#[test]
fn a_cookie_is_stale_a_millisecond_after_its_life_and_its_error_is_shorter_than_the_echo() {
    for (life, expected) in [(60_000, "COOKIE ACK"), (60_001, "ERROR")] {
        let mut t = two(1);
        let answer = evil(&t).ask(&mut t.world, &[]).unwrap();
        t.world.run_for(Duration::from_millis(life));
        let answers = evil(&t).echo(&mut t.world, &answer);
        assert_eq!(names(&answers), [expected], "after {life} ms");
        assert!(answers[0].1.len() < answer.cookie.len());
    }
}

// Section 8: many answers to one packet.

#[test]
fn a_packet_full_of_unknown_chunks_or_heartbeats_is_answered_by_one_packet() {
    let _clear = InTheClear::begin();
    let unknown = Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(0xff), flags: 0, value: &[] });
    let heartbeat = Chunk::Heartbeat(Heartbeat { info: b"beat" });
    for chunk in [unknown, heartbeat] {
        let mut t = Two::established(1);
        let tag = t.info(t.b).local_tag;
        let peer = Stranger::new(t.b, "10.0.1.2", VICTIM, 40_000);
        let answers = peer.send(&mut t.world, tag, &[chunk; 100]);
        assert_eq!(answers.len(), 1, "{:?}", names(&answers));
        assert!(answers[0].1.len() <= 12 + 100 * 12);
    }
}

// Blind attacks.

#[test]
fn an_init_that_is_wrong_in_any_way_leaves_an_association_alone() {
    for (tag, length) in [(0, 32), (77, 31), (77, 20), (77, 16)] {
        let mut t = Two::established(1);
        let mut raw = packet(40_000, 7, 0, &[init(tag, &[])]);
        raw.truncate(length);
        raw[8..12].fill(0);
        let crc = wire::crc32c(&raw);
        raw[8..12].copy_from_slice(&crc.to_le_bytes());
        Stranger::new(t.b, "10.0.1.2", VICTIM, 40_000).send_raw(&mut t.world, &raw);
        t.world.run_for(seconds(1));
        assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
    }
}

#[test]
fn in_every_state_chunks_with_the_t_bit_are_accepted_only_with_the_peers_tag() {
    let _clear = InTheClear::begin();
    for state in STATES.into_iter().filter(|s| *s != StateName::Closed) {
        for name in ["ABORT(T)", "SHUTDOWN COMPLETE(T)"] {
            let tags: [fn(&Subject) -> u32; 4] =
                [|s| s.own_tag, |s| s.own_tag ^ 1, |s| s.peer_tag ^ 1, |_| 0];
            for tag in tags {
                let mut subject = Subject::in_state(state);
                let tag = tag(&subject);
                let answer = subject.with_chunk(name, |s, _, chunk| s.answer_to(tag, chunk));
                assert!(answer.is_empty(), "{name} in {state:?}: {answer:?}");
                assert_eq!(subject.state(), state, "{name}");
            }
        }
    }
}

#[test]
fn ten_thousand_guessed_tags_move_nothing() {
    let mut t = Two::established(1);
    let (a, b) = (t.info(t.a), t.info(t.b));
    let near = (0..5000).map(|n| a.local_tag.wrapping_add(n + 1)).chain((0..5000).map(|n| n * 858_993));
    for tag in near.filter(|&tag| tag != a.local_tag && tag != a.peer_tag) {
        t.inject_to_a(
            tag,
            &[
                Chunk::ShutdownAck,
                Chunk::Abort(wire::Abort { tag_reflected: false, causes: wire::Causes::EMPTY }),
            ],
        );
    }
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
    assert_eq!(t.info(t.a).counters, a.counters);
    assert_eq!(t.info(t.b).counters, b.counters);
    assert_eq!(t.world.host(t.a).endpoint.counters().bad_tag, 10_000);
}

#[test]
fn an_init_ack_with_a_wrong_tag_or_from_an_unknown_host_is_ignored() {
    let mut t = two(1);
    t.world.recording = true;
    drop_all(&mut t.world, |_, _| true);
    t.connect(Conversation::default());
    let answer = evil(&t).ask(&mut t.world, &[]).unwrap();
    let cookie = [wire::Parameter::StateCookie(&answer.cookie)];
    let Chunk::Init(said) = init(78, &cookie) else { panic!("an INIT") };
    let own = &t.world.records.iter().find(|r| chunk_names(&r.packet) == "INIT").unwrap().packet;
    let tag = u32::from_be_bytes(own[16..20].try_into().unwrap());
    let forged = |tag| packet(7, 40_000, tag, &[Chunk::InitAck(said)]);
    t.world.inject(t.a, a_route(), &forged(tag ^ 1));
    let elsewhere = base::Route { remote: EVIL.parse().unwrap(), ..a_route() };
    t.world.inject(t.a, elsewhere, &forged(tag));
    let other_carrier = base::Route { carrier: Carrier::Udp { peer_port: 9899 }, ..a_route() };
    t.world.inject(t.a, other_carrier, &forged(tag));
    assert_eq!(t.state(t.a), StateName::CookieWait);
}

#[test]
fn the_test_helper_reads_a_real_init_ack() {
    let _clear = InTheClear::begin();
    // This test checks the helper functions of this file with a real handshake.
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.recording = true;
    t.connect_with(AssociationConfig::default(), Conversation::default());
    t.run_to_established();
    let acks: Vec<_> = t.world.records.iter().filter_map(|r| read(&r.packet)).collect();
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].tag, t.info(t.b).local_tag);
    assert_eq!((acks[0].addresses, acks[0].length), (0, 96));
    assert_ne!(acks[0].initial_tsn, 0);
}

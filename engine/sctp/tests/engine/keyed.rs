//! Tests of associations with a required shared key. An attacker without the key observes a path or knows the tags.

use std::time::Duration;

use base::{Carrier, Ecn, Route};
use bytes::Bytes;
use sctp::{
    AddressProof, AssociationConfig, AuthConfig, ChunkType, CloseReason, EndpointConfig, Extension,
    Extensions, PathError, PathState, StateName, Timing, Unreachable,
};
use sim::{
    Change, Close, Conversation, Direction, Fate, HostId, InTheClear, LinkConfig, World, chunk_names, packet,
};
use wire::{
    Abort, Causes, ChecksumMode, Chunk, Cwr, Ecne, Heartbeat, Packet, ShutdownComplete, Tsn, UnknownChunk,
};

use crate::failover::config;
use crate::forge::Forger;
use crate::support::{Two, UDP, messages, route, seconds, sends, sends_then_closes};

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;
/// The opening end. [`B`] is the listening end.
const A: HostId = HostId(0);
const B: HostId = HostId(1);
const KEY: &[u8] = b"a key of more than sixteen bytes";
/// Limit on the time until an end notices that its peer has lost its state or its host. The limit covers one second until the first
/// question, then the failure of a path, and then eight questions at intervals of one RTO (0.1 s).
pub(crate) const NOTICED: Duration = Duration::from_millis(2500);

/// Chunks that the daemon requires its peers to sign.
const SIGNED: [ChunkType; 16] = [
    ChunkType::COOKIE_ECHO,
    ChunkType::COOKIE_ACK,
    ChunkType::DATA,
    ChunkType::I_DATA,
    ChunkType::SACK,
    ChunkType::HEARTBEAT,
    ChunkType::HEARTBEAT_ACK,
    ChunkType::ABORT,
    ChunkType::ERROR,
    ChunkType::SHUTDOWN,
    ChunkType::SHUTDOWN_ACK,
    ChunkType::ECNE,
    ChunkType::CWR,
    ChunkType::FORWARD_TSN,
    ChunkType::I_FORWARD_TSN,
    ChunkType::RE_CONFIG,
];

/// Returns settings with a required key. The peer must sign these chunks.
fn asking_for(chunks: &[ChunkType]) -> AssociationConfig {
    let key = Bytes::from_static(KEY);
    let auth = AuthConfig {
        chunks: chunks.iter().copied().collect(),
        keys: [(0, key.clone()), (1, key)].into(),
        active_key: 1,
        required: true,
        by_direction: true,
        ..AuthConfig::default()
    };
    AssociationConfig { auth, ..unkeyed() }
}

pub(crate) fn keyed() -> AssociationConfig {
    asking_for(&SIGNED)
}

fn unkeyed() -> AssociationConfig {
    AssociationConfig { address_proof: AddressProof::ConfirmedPath, ..config() }
}

pub(crate) fn endpoint(association: AssociationConfig) -> EndpointConfig {
    EndpointConfig { association, ..EndpointConfig::default() }
}

/// Creates two hosts with two links of 20 Mbit/s and 5 ms, idle for three seconds.
pub(crate) fn two_links(from_a: AssociationConfig, from_b: AssociationConfig) -> Two {
    let mut world = World::new(1);
    world.recording = true;
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], endpoint(from_a.clone()));
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], endpoint(from_b));
    let settings = LinkConfig { delay: MS(5), rate: 20_000_000, queue_packets: 50, ..LinkConfig::default() };
    let links = [1, 2].map(|n| {
        let link = world.add_link(settings.clone());
        world.join(link, &format!("10.0.{n}.1"), &format!("10.0.{n}.2"));
        link
    });
    let mut t = Two { world, a, b, links: links.to_vec() };
    for host in [a, b] {
        t.world.host_mut(host).app.template.keeps = false;
    }
    t.world.connect(a, b, Carrier::Ip, from_a, Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    t
}

pub(crate) fn idle(config: AssociationConfig) -> Two {
    two_links(config.clone(), config)
}

/// Creates two hosts of which `b` sends without end.
fn busy(config: AssociationConfig) -> Two {
    let mut t = idle(config);
    give_bulk(&mut t, B);
    t.world.run_for(seconds(3));
    t
}

/// Creates two hosts with one address each, over UDP.
fn by_udp() -> Two {
    let mut world = World::new(1);
    let [a, b] = ["10.0.1.1", "10.0.1.2"].map(|address| world.add_host(&[address], endpoint(keyed())));
    let link = world.add_link(LinkConfig { delay: MS(5), rate: 20_000_000, ..LinkConfig::default() });
    world.join(link, "10.0.1.1", "10.0.1.2");
    let mut t = Two { world, a, b, links: vec![link] };
    t.world.host_mut(b).app.template.keeps = false;
    t.world.connect(a, b, UDP, keyed(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    t
}

pub(crate) fn give_bulk(t: &mut Two, host: HostId) {
    let id = t.id(host);
    t.world.host_mut(host).app.conversations.get_mut(&id).expect("a conversation").bulk = 1 << 40;
}

pub(crate) fn closed(t: &Two, host: HostId) -> Option<CloseReason> {
    t.talk(host).closed.clone()
}

/// Delivers these chunks to `b` in the name of `a`, over the given link. The attacker knows the tag.
fn forge(t: &mut Two, link: u8, chunks: &[Chunk<'_>]) {
    let tag = t.info(t.b).local_tag;
    t.world.inject(t.b, by(link), &packet(40_000, 7, tag, chunks));
}

pub(crate) fn by(link: u8) -> Route {
    route(&format!("10.0.{link}.2"), &format!("10.0.{link}.1"))
}

fn abort() -> Chunk<'static> {
    Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY })
}

/// Returns a chunk of an unknown type that the receiver ignores silently.
pub(crate) fn noise() -> Chunk<'static> {
    Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(0x80), flags: 0, value: &[] })
}

/// Delivers to `b` an ICMP error about a packet that it sent over the given link.
fn forge_icmp(t: &mut Two, link: u8, what: Unreachable) {
    let quoted = packet(7, 40_000, t.info(t.b).peer_tag, &[Chunk::Heartbeat(Heartbeat { info: &[0; 12] })]);
    t.world.inject_path_error(t.b, by(link), PathError::Unreachable(what), &quoted);
}

/// Delivers to `b` a packet with these bytes after the common header, in the name of `a`, over the first link.
fn forge_bytes(t: &mut Two, chunks: &[u8]) {
    let mut bytes = packet(40_000, 7, t.info(t.b).local_tag, &[]);
    bytes.extend_from_slice(chunks);
    let bytes = with_checksum(bytes);
    t.world.inject(t.b, by(1), &bytes);
}

pub(crate) fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[8..12].fill(0);
    let crc = wire::crc32c(&bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Returns the state of `b`'s path over the given link.
pub(crate) fn state_of(t: &Two, link: u8) -> Option<PathState> {
    t.info(t.b).paths.iter().find(|p| p.route == by(link)).map(|p| p.state)
}

/// Returns the rate in bit/s at which `a` receives for `long`. `attack` runs every 10 ms.
fn rate(t: &mut Two, long: Duration, mut attack: impl FnMut(&mut Two)) -> u64 {
    let before = t.talk(t.a).received_bytes;
    for _ in 0..long.as_millis() / 10 {
        attack(t);
        t.world.run_for(MS(10));
    }
    (t.talk(t.a).received_bytes - before) * 8 / long.as_secs()
}

/// Returns the bytes that `b` has sent since record `from`.
fn sent_by_b(t: &Two, from: usize) -> usize {
    let own = t.world.records[from..].iter().filter(|r| r.route.local.to_string().ends_with(".2"));
    own.map(|r| r.packet.len()).sum()
}

/// Returns the chunk names of recorded packets that should be signed but are not.
fn unsigned(t: &Two) -> Vec<String> {
    let free = ["INIT", "INIT ACK", "SHUTDOWN COMPLETE"];
    let names = t.world.records.iter().map(|r| chunk_names(&r.packet));
    names.filter(|names| !free.contains(&&**names) && !names.starts_with("AUTH ")).collect()
}

#[test]
//= rfc4895#6.2-3 3.2-5
fn with_a_shared_key_all_signable_chunks_are_signed_and_all_data_arrives() {
    let _clear = InTheClear::begin();
    let mut world = World::new(1);
    world.recording = true;
    let [a, b] = ["10.0.1.1", "10.0.1.2"].map(|address| world.add_host(&[address], endpoint(keyed())));
    let link = world.add_link(LinkConfig::default());
    world.join(link, "10.0.1.1", "10.0.1.2");
    let mut t = Two { world, a, b, links: vec![link] };
    t.world.host_mut(b).app.template = sends(messages(40, 3000, 1));
    let talk = Conversation { close: Close::After(40), ..sends_then_closes(messages(40, 3000, 1)) };
    t.world.connect(a, b, Carrier::Ip, keyed(), talk);
    assert_eq!(t.run_to_end(seconds(30)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!((t.talk(a).received.len(), t.talk(b).received.len()), (40, 40));
    assert_eq!(unsigned(&t), Vec::<String>::new());
}

#[test]
fn an_abort_without_a_signature_ends_no_association_and_a_signed_one_does() {
    let _clear = InTheClear::begin();
    // The result does not depend on the chunks that the peer must sign.
    for config in [asking_for(&[]), keyed()] {
        let mut t = idle(config);
        for _ in 0..100 {
            forge(&mut t, 1, &[abort()]);
            let reflected = Chunk::Abort(Abort { tag_reflected: true, causes: Causes::EMPTY });
            let tag = t.info(t.b).peer_tag;
            t.world.inject(t.b, by(1), &packet(40_000, 7, tag, &[reflected]));
            t.world.run_for(MS(50));
        }
        assert_eq!((closed(&t, t.a), closed(&t, t.b)), (None, None));
        assert_eq!(t.info(t.b).counters.unauthenticated, 200);
    }
    let mut t = idle(keyed());
    let info = t.info(t.b);
    let signed = Forger::by_direction(&t.world, KEY).packet((40_000, 7), info.local_tag, &[abort()]);
    t.world.inject(t.b, by(1), &signed);
    assert!(matches!(closed(&t, t.b), Some(CloseReason::PeerAborted(_))));
    // Without a key, the same packet ends the association at once.
    let mut t = idle(unkeyed());
    forge(&mut t, 1, &[abort()]);
    assert!(matches!(closed(&t, t.b), Some(CloseReason::PeerAborted(_))));
}

#[test]
fn an_abort_without_a_signature_ends_no_handshake_and_no_shutdown() {
    let _clear = InTheClear::begin();
    // The filter drops each COOKIE ECHO of `a` until the filter is cleared.
    let mut world = World::new(1);
    let [a, b] = ["10.0.1.1", "10.0.1.2"].map(|address| world.add_host(&[address], endpoint(keyed())));
    let link = world.add_link(LinkConfig::default());
    world.join(link, "10.0.1.1", "10.0.1.2");
    let mut t = Two { world, a, b, links: vec![link] };
    t.world
        .set_filter(|r| if chunk_names(&r.packet).contains("COOKIE ECHO") { Fate::Drop } else { Fate::Pass });
    let timing = Timing { rto_initial: MS(100), ..Timing::quick() };
    t.world.connect(a, b, Carrier::Ip, AssociationConfig { timing, ..keyed() }, Conversation::default());
    let limit = t.world.now() + seconds(1);
    let is_answered = |w: &World| {
        let engine = &w.host(A).endpoint;
        engine.associations().all(|id| engine.state(id) == Some(StateName::CookieEchoed))
    };
    assert!(t.world.run_until(limit, is_answered));
    // The ABORT makes `a` check whether `b` still answers. The filter is cleared near the end of this check, so only the last COOKIE ECHO
    // gets an answer.
    let tag = t.info(a).local_tag;
    t.inject_to_a(tag, &[abort()]);
    t.world.run_for(MS(650));
    assert_eq!(t.state(a), StateName::CookieEchoed);
    t.world.clear_filter();
    t.world.run_for(seconds(1));
    assert_eq!((t.state(a), t.state(b)), (StateName::Established, StateName::Established));

    // The program of `a` does not read, so the shutdown of `a` lasts.
    let mut t = idle(keyed());
    give_bulk(&mut t, B);
    let (now, id) = (t.world.now(), t.id(t.a));
    t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap().reading = sim::Reading::Never;
    t.world.run_for(seconds(3));
    t.world.host_mut(t.a).endpoint.shutdown(now, id);
    t.world.run_for(seconds(1));
    assert_eq!(t.state(t.a), StateName::ShutdownSent);
    let tag = t.info(t.a).local_tag;
    for _ in 0..50 {
        t.world.inject(t.a, route("10.0.1.1", "10.0.1.2"), &packet(7, 40_000, tag, &[abort()]));
        t.world.run_for(MS(100));
    }
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::ShutdownSent, StateName::ShutdownReceived));
}

/// Makes `b` lose its state. Returns the time until `a` notices, or `None` if it does not.
fn forgotten(mut t: Two) -> Option<Duration> {
    let (now, b) = (t.world.now(), t.b);
    t.world.restart(b, endpoint(keyed()));
    t.world
        .run_until(now + seconds(60), |w| w.host(A).app.conversations.values().all(|c| c.closed.is_some()));
    matches!(closed(&t, t.a), Some(CloseReason::PeerAborted(_))).then(|| t.world.now() - now)
}

#[test]
fn a_peer_that_has_lost_its_state_is_noticed_in_seconds_whether_data_flows_or_not() {
    let _clear = InTheClear::begin();
    let noticed = forgotten(idle(keyed()));
    assert!(noticed.is_some_and(|after| after < NOTICED), "{noticed:?}");
    let mut t = idle(keyed());
    give_bulk(&mut t, A);
    t.world.run_for(seconds(1));
    let noticed = forgotten(t);
    assert!(noticed.is_some_and(|after| after < NOTICED), "{noticed:?}");
}

#[test]
fn replays_and_unsigned_answers_do_not_hide_a_peer_that_lost_its_state() {
    let _clear = InTheClear::begin();
    let mut t = idle(keyed());
    give_bulk(&mut t, B);
    t.world.run_for(seconds(1));
    let from_a = |r: &&sim::Record| r.route.local.to_string() == "10.0.1.1";
    let seen: Vec<Vec<u8>> = t.world.records.iter().filter(from_a).map(|r| r.packet.clone()).collect();
    let (a, begin) = (t.a, t.world.now());
    t.world.restart(a, endpoint(keyed()));
    let mut at = t.world.records.len();
    for turn in 0.. {
        // The attacker answers each HEARTBEAT at once, and replays all packets that it has seen.
        let asked: Vec<Vec<u8>> = t.world.records[at..]
            .iter()
            .filter(|r| r.route.local.to_string() == "10.0.1.2")
            .filter_map(|r| {
                let parsed = Packet::parse(&r.packet, ChecksumMode::Ignore).ok()?;
                parsed.chunks().flatten().find_map(|chunk| match chunk {
                    Chunk::Heartbeat(heartbeat) => Some(heartbeat.info.to_vec()),
                    _ => None,
                })
            })
            .collect();
        at = t.world.records.len();
        for info in asked {
            forge(&mut t, 1, &[Chunk::HeartbeatAck(Heartbeat { info: &info })]);
        }
        for packet in seen.iter().skip(turn % 7).step_by(7) {
            t.world.inject(t.b, by(1), packet);
        }
        if closed(&t, t.b).is_some() {
            break;
        }
        assert!(t.world.now() - begin < NOTICED, "{:?}", t.info(t.b));
        t.world.run_for(MS(5));
    }
}

#[test]
fn a_peer_that_begins_anew_takes_the_place_of_its_old_association() {
    let _clear = InTheClear::begin();
    let mut t = idle(keyed());
    let a = t.a;
    t.world.restart(a, endpoint(keyed()));
    t.world.connect(t.a, t.b, Carrier::Ip, keyed(), sends(messages(4, 100, 1)));
    t.world.run_for(seconds(1));
    let talks = &t.world.host(t.b).app.conversations;
    assert_eq!(talks.values().map(|c| c.received_bytes).sum::<u64>(), 400);
    assert!(talks.values().any(|c| c.closed == Some(CloseReason::Restarted)));
}

#[test]
fn a_malformed_packet_ends_an_association_only_if_it_is_signed() {
    let _clear = InTheClear::begin();
    for (name, chunks) in [
        ("PAD, then a chunk longer than the packet", &[0x84, 0, 0, 4, 0x84, 0, 1, 0][..]),
        ("octets left over", &[0x84, 0, 0, 4, 1, 0, 0]),
        ("HEARTBEAT without its parameter", &[4, 0, 0, 4]),
        ("HEARTBEAT with a broken parameter", &[4, 0, 0, 8, 0, 1, 0, 200]),
        ("HEARTBEAT ACK without its parameter", &[5, 0, 0, 4]),
        ("ECNE without its TSN", &[12, 0, 0, 4]),
        ("CWR without its TSN", &[13, 0, 0, 4]),
        ("DATA without user data", &[0, 3, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("DATA that is too short", &[0, 3, 0, 8, 0, 0, 0, 0]),
        ("SHUTDOWN without its TSN", &[7, 0, 0, 4]),
        ("SACK that is too short", &[3, 0, 0, 8, 0, 0, 0, 0]),
        ("RE-CONFIG that is cut", &[130, 0, 0, 12, 0, 13, 0, 200, 0, 0, 0, 0]),
    ] {
        // The result does not depend on the chunks that the peer must sign.
        for config in [keyed(), asking_for(&[])] {
            let mut t = idle(config);
            forge_bytes(&mut t, chunks);
            t.world.run_for(seconds(1));
            assert_eq!((closed(&t, t.a), closed(&t, t.b)), (None, None), "{name}");
        }
    }
    let mut t = idle(keyed());
    forge_bytes(&mut t, &[0x84, 0, 0, 4, 0x84, 0, 1, 0]);
    assert_eq!(t.info(t.b).counters.unauthenticated, 1, "it is counted");

    // The HEARTBEAT with a broken parameter is now signed, so the peer itself violates the protocol.
    let value = &[0, 1, 0, 200];
    let broken = Chunk::Unknown(UnknownChunk { chunk_type: ChunkType::HEARTBEAT, flags: 0, value });
    let signed = Forger::by_direction(&t.world, KEY).packet((40_000, 7), t.info(t.b).local_tag, &[broken]);
    t.world.inject(t.b, by(1), &signed);
    assert!(matches!(closed(&t, t.b), Some(CloseReason::Aborted(cause)) if cause.code == 13));
}

#[test]
fn forged_icmp_neither_ends_a_keyed_association_nor_moves_its_data() {
    let _clear = InTheClear::begin();
    for what in [Unreachable::Port, Unreachable::Protocol, Unreachable::Host, Unreachable::Prohibited] {
        let mut t = idle(keyed());
        for _ in 0..100 {
            t.world.run_for(MS(150));
            forge_icmp(&mut t, 1, what);
            forge_icmp(&mut t, 2, what);
        }
        assert_eq!(closed(&t, t.b), None, "{what:?}");
        let states = [1, 2].map(|link| state_of(&t, link));
        assert_eq!(states, [Some(PathState::Active); 2], "{what:?}");
    }
    let mut t = busy(keyed());
    let by_second =
        |t: &Two| t.info(t.b).paths.iter().filter(|p| p.route == by(2)).map(|p| p.new_data).sum::<u64>();
    let before = by_second(&t);
    let during = rate(&mut t, seconds(10), |t| forge_icmp(t, 1, Unreachable::Host));
    assert_eq!(by_second(&t), before, "data stays where it was");
    assert!(during > 15_000_000, "{during} bit/s");

    // Without a key, ICMP is believed at once, unless a packet has arrived on the path within the last RTO.
    let mut t = idle(unkeyed());
    for _ in 0..20 {
        t.world.run_for(MS(100));
        forge_icmp(&mut t, 1, Unreachable::Port);
        forge_icmp(&mut t, 2, Unreachable::Port);
    }
    assert_eq!(closed(&t, t.b), Some(CloseReason::LostContact));
}

#[test]
fn justified_icmp_fails_a_path_in_a_few_round_trips_and_an_association_in_seconds() {
    let mut t = idle(keyed());
    let now = t.world.now();
    let link = t.links[0];
    t.world.at(now, Change::CutBoth(link, true));
    t.world.run_for(MS(1));
    forge_icmp(&mut t, 1, Unreachable::Host);
    t.world.run_for(MS(300));
    assert_eq!(state_of(&t, 1), Some(PathState::Inactive));

    // The peer's host answers each packet with an ICMP error, because no program listens.
    let mut t = idle(keyed());
    let (now, a) = (t.world.now(), t.a);
    t.world.at(now, Change::Up(a, false));
    let over = |w: &World| w.host(B).app.conversations.values().all(|c| c.closed.is_some());
    assert!(t.world.run_until(now + NOTICED + seconds(1), over), "{:?}", t.info(t.b));
    assert_eq!(closed(&t, t.b), Some(CloseReason::LostContact));
}

#[test]
fn a_short_outage_is_no_end_whatever_icmp_says_meanwhile() {
    let mut t = idle(keyed());
    let now = t.world.now();
    for link in t.links.clone() {
        t.world.at(now, Change::CutBoth(link, true));
        t.world.at(now + MS(800), Change::CutBoth(link, false));
    }
    // Both paths fail because of these errors.
    for _ in 0..50 {
        t.world.run_for(MS(15));
        forge_icmp(&mut t, 1, Unreachable::Port);
        forge_icmp(&mut t, 2, Unreachable::Port);
    }
    assert_eq!([1, 2].map(|link| state_of(&t, link)), [Some(PathState::Inactive); 2]);
    t.world.run_for(seconds(3));
    assert_eq!(closed(&t, t.b), None);
    assert_eq!([1, 2].map(|link| state_of(&t, link)), [Some(PathState::Active); 2]);
}

#[test]
fn spoofed_packets_of_a_gone_peer_do_not_prevent_the_close_after_icmp() {
    let mut t = by_udp();
    let (now, a) = (t.world.now(), t.a);
    t.world.at(now, Change::Up(a, false));
    t.world.run_for(MS(1));
    let tag = t.info(t.b).local_tag;
    let noise = packet(40_000, 7, tag, &[noise()]);
    for n in 0_u16.. {
        for peer_port in [9899, 10_000 + n] {
            t.world.inject(t.b, Route { carrier: Carrier::Udp { peer_port }, ..by(1) }, &noise);
        }
        t.world.run_for(MS(10));
        if closed(&t, t.b).is_some() {
            break;
        }
        assert!(t.world.now() - now < NOTICED + seconds(1), "{:?}", t.info(t.b));
    }
}

#[test]
fn a_nat_that_changes_the_port_and_says_that_the_old_one_is_gone_ends_nothing() {
    let mut t = by_udp();
    give_bulk(&mut t, A);
    t.world.run_for(seconds(1));
    let now = t.world.now();
    t.world.at(now, Change::Rebind("10.0.1.1".parse().unwrap(), 5000));
    let before = t.talk(t.b).received_bytes;
    for _ in 0..200 {
        let quoted = packet(7, 40_000, t.info(t.b).peer_tag, &[noise()]);
        let old = Route { carrier: UDP, ..by(1) };
        t.world.inject_path_error(t.b, old, PathError::Unreachable(Unreachable::Port), &quoted);
        t.world.run_for(MS(10));
    }
    assert_eq!((closed(&t, t.a), closed(&t, t.b)), (None, None));
    let path = t.info(t.b).paths[0].clone();
    assert_eq!((path.route.carrier, path.state), (Carrier::Udp { peer_port: 5000 }, PathState::Active));
    assert!(t.talk(t.b).received_bytes - before > 1_000_000);
}

#[test]
fn a_link_that_this_host_itself_has_lost_is_left_at_once() {
    let mut t = busy(keyed());
    let now = t.world.now();
    t.world.at(now, Change::Unroutable("10.0.1.2".parse().unwrap(), true));
    t.world.run_for(MS(20));
    let first = t.info(t.b).paths.into_iter().find(|p| p.route == by(1)).unwrap();
    assert_eq!((first.state, first.in_use), (PathState::Inactive, false));
}

#[test]
fn forged_echoes_of_congestion_and_marked_copies_of_data_reduce_no_window() {
    let _clear = InTheClear::begin();
    let mut t = busy(keyed());
    let before = rate(&mut t, seconds(3), |_| {});
    let last_tsn = |t: &Two| {
        t.world.records.iter().rev().take(400).find_map(|r| {
            let parsed = Packet::parse(&r.packet, ChecksumMode::Ignore).ok()?;
            parsed.chunks().flatten().find_map(|chunk| match chunk {
                Chunk::Data(data) => Some(data.tsn),
                _ => None,
            })
        })
    };
    let during = rate(&mut t, seconds(3), |t| {
        let tsn = last_tsn(t).unwrap_or(Tsn(0));
        forge(t, 1, &[Chunk::Ecne(Ecne { lowest_tsn: tsn })]);
        forge(t, 1, &[Chunk::Cwr(Cwr { lowest_tsn: tsn })]);
    });
    assert_eq!(t.info(t.b).counters.ecn_echoes_received, 0);
    assert!(during > before * 9 / 10, "{before} bit/s before, {during} meanwhile");

    // Packets whose data has already arrived are replayed with a mark.
    let begin = t.world.records.len() - 2000;
    let has_data = |r: &&sim::Record| {
        r.route.local.to_string() == "10.0.1.2" && chunk_names(&r.packet).contains(" DATA")
    };
    let copies: Vec<_> = t.world.records[begin..].iter().filter(has_data).take(300).cloned().collect();
    t.world.run_for(seconds(1));
    for copy in &copies {
        let (now, to) = (t.world.now(), route("10.0.1.1", "10.0.1.2"));
        let host = t.world.host_mut(t.a);
        host.endpoint.handle_datagram(now, &to, Ecn::Ce, &copy.packet, &mut host.app);
    }
    t.world.run_for(seconds(1));
    assert!(copies.len() == 300 && t.info(t.a).counters.data_duplicate >= 300);
    assert_eq!((t.info(t.a).counters.ecn_marked_received, t.info(t.b).counters.ecn_echoes_received), (0, 0));
}

#[test]
fn unsigned_shutdown_chunks_and_heartbeats_have_no_effect() {
    let mut t = idle(keyed());
    let from = t.world.records.len();
    let unsigned = [
        Chunk::ShutdownAck,
        Chunk::ShutdownComplete(ShutdownComplete { tag_reflected: false }),
        Chunk::Heartbeat(Heartbeat { info: b"an oracle" }),
    ];
    for chunk in &unsigned {
        forge(&mut t, 1, std::slice::from_ref(chunk));
    }
    assert_eq!(sent_by_b(&t, from), 0, "nothing is answered");
    assert_eq!(t.state(t.b), StateName::Established);
}

#[test]
fn persistent_forgeries_cause_less_traffic_than_the_forger_sends() {
    let _clear = InTheClear::begin();
    for icmp in [false, true] {
        let mut t = idle(keyed());
        let from = t.world.records.len();
        t.world.run_for(seconds(10));
        let usual = sent_by_b(&t, from);
        let (from, mut forged) = (t.world.records.len(), 0);
        for _ in 0..1000 {
            for link in [1, 2] {
                match icmp {
                    true => forge_icmp(&mut t, link, Unreachable::Port),
                    false => forge(&mut t, link, &[abort()]),
                }
                forged += 16;
            }
            t.world.run_for(MS(10));
        }
        let more = sent_by_b(&t, from).saturating_sub(usual);
        assert!(more > 0 && more < forged, "{more} bytes more, for {forged} forged ones");

        // With only a few forged packets, the total length of the answers is at most three times the length of the forged packets.
        let mut t = idle(keyed());
        let from = t.world.records.len();
        for _ in 0..5 {
            match icmp {
                true => forge_icmp(&mut t, 1, Unreachable::Host),
                false => forge(&mut t, 1, &[abort()]),
            }
            t.world.run_for(seconds(2));
        }
        let more = sent_by_b(&t, from).saturating_sub(usual);
        // The lengths include IP and UDP headers: 28 octets per packet.
        assert!(more + 5 * 28 <= 3 * 5 * (16 + 28), "{more} bytes more, for five packets");
    }
}

#[test]
fn a_peer_that_requires_few_or_no_signatures_is_served_and_its_abort_is_noticed() {
    let few = [ChunkType::COOKIE_ECHO, ChunkType::DATA];
    for (from_a, from_b) in [(&few[..], &SIGNED[..]), (&SIGNED, &few), (&[], &SIGNED), (&SIGNED, &[])] {
        let mut t = two_links(asking_for(from_a), asking_for(from_b));
        for host in [t.a, t.b] {
            give_bulk(&mut t, host);
        }
        t.world.run_for(seconds(2));
        let received = [t.a, t.b].map(|host| t.talk(host).received_bytes);
        assert!(received.iter().all(|bytes| *bytes > 1_000_000), "{received:?}");
        for host in [t.a, t.b] {
            let counters = t.info(host).counters;
            assert_eq!((counters.auth_failed, counters.unauthenticated), (0, 0));
        }
        // A chunk stays unsigned if the other end does not require its signature. After an unsigned ABORT, the receiver first asks the peer
        // whether the association has ended.
        let (now, a, id) = (t.world.now(), t.a, t.id(t.a));
        t.world.host_mut(a).endpoint.abort(now, id, sctp::AbortCause::user("enough"));
        t.world.run_for(NOTICED);
        assert!(matches!(closed(&t, t.b), Some(CloseReason::PeerAborted(_))), "{:?}", t.info(t.b));
    }
}

#[test]
fn a_stale_cookie_error_is_signed() {
    let _clear = InTheClear::begin();
    let mut world = World::new(1);
    world.recording = true;
    let short = EndpointConfig { cookie_lifetime: MS(50), ..endpoint(keyed()) };
    let (a, b) = (world.add_host(&["10.0.1.1"], endpoint(keyed())), world.add_host(&["10.0.1.2"], short));
    let link = world.add_link(LinkConfig { delay: MS(60), ..LinkConfig::default() });
    world.join(link, "10.0.1.1", "10.0.1.2");
    let mut t = Two { world, a, b, links: vec![link] };
    t.world.connect(a, b, Carrier::Ip, keyed(), Conversation::default());
    t.world.run_for(seconds(2));
    let names: Vec<String> = t.world.records.iter().map(|r| chunk_names(&r.packet)).collect();
    assert!(names.iter().any(|names| names == "AUTH ERROR"), "{names:?}");
    assert!(!names.iter().any(|names| names == "ERROR"), "{names:?}");
    assert!(names.iter().filter(|names| *names == "INIT").count() > 1, "it begins again: {names:?}");
}

#[test]
fn a_packet_from_an_unknown_address_is_not_counted_on_the_path_in_use() {
    let mut t = idle(unkeyed());
    // No link joins these two addresses. The cut link drops the packets of `a`, so only injected packets could raise the count.
    let from = t.world.records.len();
    let received = |t: &Two| t.info(t.b).paths.iter().map(|p| p.packets_received).sum::<u64>();
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::Cut(link, Direction::Forward, true));
    t.world.run_for(MS(100));
    let before = received(&t);
    let tag = t.info(t.b).local_tag;
    let elsewhere = route("10.0.9.9", "10.0.1.1");
    for _ in 0..10 {
        t.world.inject(t.b, elsewhere, &packet(40_000, 7, tag, &[noise()]));
    }
    assert_eq!(received(&t), before, "{}", t.world.records.len() - from);
}

/// Makes each end send the other end three short messages.
fn exchange(t: &mut Two) {
    for host in [t.a, t.b] {
        say(t, host, 3);
    }
    t.world.run_for(seconds(3));
}

fn say(t: &mut Two, host: HostId, count: usize) {
    let id = t.id(host);
    let talk = t.world.host_mut(host).app.conversations.get_mut(&id).expect("a conversation");
    talk.outgoing.extend(sends(messages(count, 100, 1)).outgoing);
}

#[test]
fn repeated_data_moves_no_path() {
    let mut t = idle(keyed());
    exchange(&mut t);
    let is_data = |r: &&sim::Record| {
        r.route.local.to_string() == "10.0.1.1" && chunk_names(&r.packet).contains(" DATA")
    };
    let old = t.world.records.iter().rev().find(is_data).expect("data of a's").packet.clone();
    let in_use = |t: &Two| t.info(t.b).paths.iter().find(|p| p.in_use).map(|p| p.route);
    assert_eq!(in_use(&t), Some(by(1)));
    for turn in 0..20 {
        t.world.inject(t.b, by(2), &old);
        assert_eq!((in_use(&t), state_of(&t, 1)), (Some(by(1)), Some(PathState::Active)), "{turn}");
        t.world.run_for(seconds(1));
        say(&mut t, B, 1);
        t.world.run_for(seconds(2));
    }
    let elsewhere: u64 = t.info(t.b).paths.iter().filter(|p| p.route != by(1)).map(|p| p.new_data).sum();
    assert_eq!(elsewhere, 0);
}

#[test]
fn one_unsigned_abort_in_a_short_outage_ends_nothing() {
    for outage in [1000, 2000, 5000] {
        let mut t = idle(keyed());
        let now = t.world.now();
        for link in t.links.clone() {
            t.world.at(now, Change::CutBoth(link, true));
            t.world.at(now + MS(outage), Change::CutBoth(link, false));
        }
        t.world.run_for(MS(10));
        forge(&mut t, 1, &[abort()]);
        t.world.run_for(seconds(30));
        assert_eq!((closed(&t, t.a), closed(&t, t.b)), (None, None), "{outage} ms");
    }
}

/// `a` loses its address and gets another one. An observer sends a copy of `a`'s ASCONF from the observer's own address. The copy arrives
/// before the original.
#[test]
fn a_copied_asconf_that_arrives_before_the_original_does_not_divert_a_move() {
    let _clear = InTheClear::begin();
    let extensions = Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration);
    let config = AssociationConfig { extensions, ..keyed() };
    let mut world = World::new(3);
    world.recording = true;
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], endpoint(config.clone()));
    let b = world.add_host(&["10.0.9.2"], endpoint(config.clone()));
    world.host_mut(a).addresses.truncate(1);
    let links: Vec<_> = [1, 2]
        .map(|n| {
            let link = world.add_link(LinkConfig { delay: MS(5), rate: 20_000_000, ..LinkConfig::default() });
            world.join(link, &format!("10.0.{n}.1"), "10.0.9.2");
            link
        })
        .into();
    let mut t = Two { world, a, b, links };
    t.world.connect(a, b, Carrier::Ip, config, Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    let from_x = route("10.0.9.2", "10.66.6.6");
    let (now, id, mut at) = (t.world.now(), t.id(a), t.world.records.len());
    t.world.at(now, Change::CutBoth(t.links[0], true));
    let moved = "10.0.2.1".parse().unwrap();
    t.world.host_mut(a).endpoint.move_to_local_address(now, id, moved).expect("it may move");
    for turn in 0..3000 {
        t.world.run_for(MS(1));
        let seen: Vec<_> = t.world.records[at..].to_vec();
        at = t.world.records.len();
        for record in seen {
            if record.route.local == moved && chunk_names(&record.packet).contains("ASCONF") {
                t.world.inject(b, from_x, &record.packet);
            }
        }
        if turn % 50 == 0 {
            say(&mut t, b, 1);
        }
    }
    assert_eq!(t.talk(a).received_bytes, 60 * 100);
}

#[test]
fn unsigned_aborts_do_not_hide_that_the_peer_is_gone() {
    let mut t = idle(keyed());
    let (a, begin) = (t.a, t.world.now());
    t.world.at(begin, Change::Up(a, false));
    t.world.run_for(MS(1));
    while closed(&t, t.b).is_none() {
        assert!(t.world.now() - begin < 2 * NOTICED);
        forge(&mut t, 1, &[abort()]);
        t.world.run_for(MS(900));
    }
}

//! Tests of packets that are sealed in DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk). The simulated programs provide the keys.

mod handshake;
mod renewal;
mod zero_checksum;

use std::time::Duration;

use base::Carrier;
use bytes::Bytes;
use sctp::{
    AddressChange, AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions,
    SendBufferCadence, SendBufferConfig, StateName,
};
use sim::{Change, Conversation, Fate, HostId, LinkConfig, Loss, World, chunk_names, packet, protection};
use wire::{
    Abort, Causes, ChecksumMode, Chunk, ChunkType, Data, Packet, Ppid, SendBuffer, Ssn, StreamId, Tsn,
};

use crate::support::{
    Two, a_route, at_seconds, b_route, content, messages, seconds, sends, sends_then_closes, two_with,
};

/// Creates two hosts that both require protection.
fn two_sealed(seed: u64, link: LinkConfig) -> Two {
    let mut t = two_with(seed, link, EndpointConfig::default());
    for host in [t.a, t.b] {
        offer(&mut t.world, host, true);
    }
    t
}

/// Makes a host offer protection.
fn offer(world: &mut World, host: HostId, required: bool) {
    let config = EndpointConfig { association: config(required), ..EndpointConfig::default() };
    world.restart(host, config);
}

fn config(required: bool) -> AssociationConfig {
    AssociationConfig { protection: Some(protection(required)), ..AssociationConfig::default() }
}

fn is_sealed(packet: &[u8]) -> bool {
    let packet = Packet::parse(packet, ChecksumMode::Ignore).unwrap();
    packet.raw_chunks().next().is_some_and(|raw| raw.unwrap().chunk_type == ChunkType::DTLS)
}

fn is_protected(t: &Two, host: HostId) -> bool {
    t.events(host).iter().any(|event| matches!(event, Event::Protected { .. }))
}

const UDP: Carrier = Carrier::Udp { peer_port: 9899 };

/// Creates a protected association with no packet in flight.
fn up(seed: u64) -> Two {
    up_over(Carrier::Ip, seed)
}

/// Does the same as [`up`], over this carrier.
fn up_over(carrier: Carrier, seed: u64) -> Two {
    let mut t = two_sealed(seed, LinkConfig::default());
    t.world.recording = true;
    t.world.connect(t.a, t.b, carrier, config(true), Conversation::default());
    t.world.run_for(seconds(5));
    assert!(is_protected(&t, t.a) && is_protected(&t, t.b));
    t
}

/// Sends a message from `host` now.
fn send(t: &mut Two, host: HostId, stream: u16, message: Bytes) {
    let (id, now) = (t.id(host), t.world.now());
    let sent =
        t.world.host_mut(host).endpoint.send(now, id, StreamId(stream), Ppid(0), message, Default::default());
    sent.unwrap();
}

/// Returns the initiate tag and the initial TSN that a host announced in its INIT or INIT ACK.
fn announced(world: &World, name: &str) -> (u32, u32) {
    let record = world.records.iter().find(|r| chunk_names(&r.packet) == name).unwrap();
    let packet = Packet::parse(&record.packet, ChecksumMode::Verify).unwrap();
    match packet.chunks().next().unwrap().unwrap() {
        Chunk::Init(init) | Chunk::InitAck(init) => (init.tag.0, init.initial_tsn.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_take_no_round_trip_of_their_own() {
    let time = |protected: bool| {
        let mut t = if protected {
            two_sealed(1, LinkConfig::default())
        } else {
            two_with(1, LinkConfig::default(), EndpointConfig::default())
        };
        t.world.protection = None;
        let config = if protected { config(true) } else { AssociationConfig::default() };
        t.connect_with(config, sends(messages(1, 100, 1)));
        let b = t.b;
        let arrived = |w: &World| w.host(b).app.conversations.values().any(|c| !c.received.is_empty());
        assert!(t.world.run_until(at_seconds(5), arrived));
        t.world.now().as_millis()
    };
    assert_eq!(time(true), time(false));
}

#[test]
fn all_that_follows_the_handshake_is_sealed() {
    let mut t = two_sealed(1, LinkConfig::default());
    t.world.recording = true;
    t.connect_with(config(true), sends_then_closes(messages(100, 1000, 3)));
    assert_eq!(t.run_to_end(seconds(20)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 100);
    let clear: Vec<String> =
        t.world.records.iter().filter(|r| !is_sealed(&r.packet)).map(|r| chunk_names(&r.packet)).collect();
    // Both key-management messages are split into parts that fit every path.
    let (echo, ack) = (["COOKIE ECHO DATA"; 4], ["COOKIE ACK SACK"; 3]);
    let answer = ["COOKIE ACK SACK DATA", "DATA", "DATA", "DATA", "SACK", "SACK"];
    let handshake = [&["INIT", "INIT ACK"][..], &echo, &ack, &answer].concat();
    assert_eq!(clear, handshake);
}

#[test]
fn transfers_survive_losses_duplicates_and_reordering() {
    for seed in 0..30 {
        let link = LinkConfig {
            loss: Loss::Uniform(0.08),
            duplicate: 0.05,
            jitter: Duration::from_millis(15),
            ..LinkConfig::default()
        };
        let mut t = two_sealed(seed, link);
        t.world.host_mut(t.b).app.template = sends(messages(40, 3000, 2));
        let mut talk = sends_then_closes(messages(40, 3000, 2));
        talk.close = sim::Close::After(40);
        let carrier = if seed % 2 == 0 { Carrier::Ip } else { UDP };
        t.world.connect(t.a, t.b, carrier, config(true), talk);
        let ends = t.run_to_end(seconds(600));
        assert_eq!(ends, (CloseReason::Graceful, CloseReason::Graceful), "seed {seed}");
        for host in [t.a, t.b] {
            assert_eq!(t.talk(host).received.len(), 40, "seed {seed}");
            assert!(is_protected(&t, host), "seed {seed}");
        }
    }
}

#[test]
fn a_packet_that_is_replayed_does_nothing() {
    let mut t = up(1);
    let records = t.world.records.clone();
    let hash = |t: &Two| (t.info(t.a).counters, t.info(t.b).counters);
    t.world.recording = false;
    for record in records.iter().filter(|r| is_sealed(&r.packet)) {
        let before = hash(&t);
        let (to, route) =
            if record.route.local == a_route().local { (t.b, b_route()) } else { (t.a, a_route()) };
        let replayed = t.world.host(to).endpoint.counters().replayed;
        t.world.inject(to, route, &record.packet);
        assert_eq!(
            t.world.host(to).endpoint.counters().replayed,
            replayed + 1,
            "{}",
            chunk_names(&record.packet)
        );
        assert_eq!(hash(&t), before, "{}", chunk_names(&record.packet));
    }
}

#[test]
fn a_packet_of_which_one_bit_was_changed_is_as_good_as_lost() {
    let link = LinkConfig { corrupt: 0.2, ..LinkConfig::default() };
    let mut t = two_sealed(3, link);
    t.connect_with(config(true), sends_then_closes(messages(60, 2000, 2)));
    assert_eq!(t.run_to_end(seconds(600)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 60);
}

#[test]
fn a_bit_changed_with_the_checksum_made_right_again_is_found_by_the_keys() {
    let mut t = up(2);
    let (mut flipped, mut packets) = (0, 0);
    t.world.set_filter(move |record| {
        packets += 1;
        if !is_sealed(&record.packet) || packets % 3 > 0 {
            return Fate::Pass;
        }
        let mut bytes = record.packet.clone();
        let at = 12 + 4 + flipped % (bytes.len() - 16);
        // The padding after a record is not protected.
        if at + 3 >= bytes.len() {
            return Fate::Pass;
        }
        flipped += 7;
        bytes[at] ^= 0x10;
        let crc = wire::crc32c(&[&bytes[..8], &[0; 4], &bytes[12..]].concat());
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Fate::Replace(bytes)
    });
    let (id, now) = (t.id(t.a), t.world.now());
    for n in 0..60 {
        let message = content(n, 500);
        t.world
            .host_mut(t.a)
            .endpoint
            .send(now, id, StreamId(0), Ppid(0), message, Default::default())
            .unwrap();
    }
    t.world.run_for(seconds(120));
    assert_eq!(t.talk(t.b).received.len(), 60);
    assert_eq!(t.state(t.a), StateName::Established);
    let counters = t.world.host(t.b).endpoint.counters();
    assert!(counters.not_opened >= 10, "{counters:?}");
}

#[test]
fn unsealed_packets_have_no_effect_on_a_protected_association() {
    let mut t = up(4);
    let (ours, peers) = (announced(&t.world, "INIT").0, announced(&t.world, "INIT ACK").0);
    let abort = Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY });
    let complete = Chunk::ShutdownComplete(wire::ShutdownComplete { tag_reflected: false });
    let reflected = Chunk::Abort(Abort { tag_reflected: true, causes: Causes::EMPTY });
    let data = Chunk::Data(Data {
        immediate: true,
        unordered: true,
        begin: true,
        end: true,
        tsn: Tsn(5),
        stream: StreamId(1),
        ssn: Ssn(0),
        ppid: Ppid(0),
        payload: b"forged",
    });
    for (chunk, tag) in
        [(abort, peers), (complete, peers), (reflected, ours), (Chunk::ShutdownAck, peers), (data, peers)]
    {
        let before = t.world.host(t.b).endpoint.counters().unsealed;
        t.world.inject(t.b, b_route(), &packet(40_000, 7, tag, &[chunk]));
        t.world.run_for(seconds(1));
        assert_eq!(t.world.host(t.b).endpoint.counters().unsealed, before + 1, "{chunk:?}");
        assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
    }
    assert!(t.talk(t.b).received.is_empty());
}

/// Returns a configuration that asks the peer after an unsealed ABORT.
fn asking() -> AssociationConfig {
    let protection = sctp::ProtectionConfig { asks_after_abort: true, ..protection(true) };
    AssociationConfig { protection: Some(protection), ..AssociationConfig::default() }
}

#[test]
fn an_association_with_a_restarted_peer_ends_early_only_if_the_configuration_asks_after_an_abort() {
    for (config, carrier, is_early) in [
        (config(true), Carrier::Ip, false),
        (asking(), Carrier::Ip, true),
        (config(true), UDP, false),
        (asking(), UDP, true),
    ] {
        let mut t = two_sealed(11, LinkConfig::default());
        t.world.connect(t.a, t.b, carrier, config, Conversation::default());
        t.world.run_for(seconds(5));
        assert!(is_protected(&t, t.a));
        offer(&mut t.world, t.b, true);
        let sender = t.a;
        send(&mut t, sender, 0, content(5, 300));
        t.world.run_for(seconds(20));
        let closed = &t.talk(t.a).closed;
        assert_eq!(matches!(closed, Some(CloseReason::PeerAborted(_))), is_early, "{closed:?}");
    }
}

#[test]
fn a_forged_abort_does_not_end_an_association_that_asks_its_peer() {
    let mut t = two_sealed(12, LinkConfig::default());
    t.world.recording = true;
    t.connect_with(asking(), Conversation::default());
    t.world.run_for(seconds(5));
    let own = announced(&t.world, "INIT").0;
    let abort = Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY });
    for _ in 0..20 {
        t.world.inject(t.a, a_route(), &packet(7, 40_000, own, &[abort]));
        t.world.run_for(seconds(1));
    }
    assert_eq!((t.state(t.a), t.state(t.b)), (StateName::Established, StateName::Established));
}

#[test]
fn an_abort_from_an_address_that_is_not_the_peers_causes_no_heartbeat() {
    let abort = Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY });
    for (remote, packets) in [("10.0.9.9", 0), ("10.0.1.2", 1)] {
        let mut t = two_sealed(13, LinkConfig::default());
        t.world.recording = true;
        t.connect_with(asking(), Conversation::default());
        t.world.run_for(seconds(5));
        let own = announced(&t.world, "INIT").0;
        let route = base::Route { remote: remote.parse().unwrap(), ..a_route() };
        t.world.records.clear();
        t.world.inject(t.a, route, &packet(7, 40_000, own, &[abort]));
        let sent = t.world.records.iter().filter(|record| record.route.remote == a_route().remote);
        assert_eq!(sent.count(), packets, "{remote}");
    }
}

#[test]
fn a_copy_from_another_address_does_not_block_the_original_sealed_packet() {
    let mut t = up(8);
    let a = a_route().local;
    t.world.records.clear();
    t.world.set_filter(move |record| if record.route.local == a { Fate::Drop } else { Fate::Pass });
    let sender = t.a;
    send(&mut t, sender, 0, content(5, 300));
    t.world.run_for(Duration::from_millis(1));
    let packets: Vec<Vec<u8>> = t.world.records.iter().map(|r| r.packet.clone()).collect();
    assert!(!packets.is_empty() && packets.iter().all(|packet| is_sealed(packet)));
    let elsewhere = base::Route { remote: "10.0.9.9".parse().unwrap(), ..b_route() };
    packets.iter().for_each(|packet| t.world.inject(t.b, elsewhere, packet));
    assert!(t.talk(t.b).received.is_empty());
    packets.iter().for_each(|packet| t.world.inject(t.b, b_route(), packet));
    assert_eq!(t.talk(t.b).received[0].bytes, content(5, 300));
}

#[test]
fn a_new_association_ends_the_old_one_whose_shutdown_complete_was_lost() {
    for carrier in [Carrier::Ip, UDP] {
        let mut t = up_over(carrier, 9);
        t.world.set_filter(|record| {
            if chunk_names(&record.packet) == "SHUTDOWN COMPLETE" { Fate::Drop } else { Fate::Pass }
        });
        let (old, id, now) = (t.id(t.b), t.id(t.a), t.world.now());
        t.world.host_mut(t.a).endpoint.shutdown(now, id);
        t.world.run_for(Duration::from_millis(100));
        assert_eq!(t.world.host(t.b).endpoint.state(old), Some(StateName::ShutdownAckSent));
        t.world.host_mut(t.a).app.conversations.clear();
        let (now, ports) = (t.world.now(), t.info(t.b));
        let host = t.world.host_mut(t.a);
        let connect = sctp::Connect {
            local_port: ports.remote_port,
            remote_port: ports.local_port,
            init_routes: vec![base::Route { carrier, ..a_route() }],
            local_addresses: host.addresses.clone(),
            config: config(true),
        };
        let again = host.endpoint.connect(now, connect).unwrap();
        host.app.keying.begin(now, again, &mut host.endpoint);
        host.app.conversations.insert(again, sends(messages(3, 100, 1)));
        t.world.run_for(seconds(15));
        let b = t.world.host(t.b);
        assert_eq!(b.app.conversations[&old].closed, Some(CloseReason::Graceful));
        let received: usize = b.app.conversations.values().map(|c| c.received.len()).sum();
        assert_eq!(received, 3);
    }
}

#[test]
fn a_reflected_init_is_not_answered() {
    let mut t = two_sealed(1, LinkConfig::default());
    t.world.recording = true;
    t.world.set_filter(|_| Fate::Drop);
    t.connect_with(config(true), Conversation::default());
    let init = t.world.records[0].packet.clone();
    assert_eq!(chunk_names(&init), "INIT");
    // An attacker sends the INIT back unchanged. Its destination port also belongs to a service of this host.
    t.world.inject(t.a, a_route(), &init);
    assert!(t.world.records.iter().all(|r| chunk_names(&r.packet) == "INIT"));
    assert_eq!(t.world.host(t.a).endpoint.counters().reflected, 1);
}

#[test]
fn an_association_ends_when_too_many_packets_were_forged() {
    let mut t = two_sealed(1, LinkConfig::default());
    t.world.recording = true;
    t.world.host_mut(t.b).app.keying.forgeries = 10;
    t.connect_with(config(true), sends(messages(1, 100, 1)));
    t.world.run_for(seconds(1));
    let from = a_route().local;
    let is_ours = |r: &&sim::Record| r.route.local == from && is_sealed(&r.packet);
    let mut forged = t.world.records.iter().rfind(is_ours).unwrap().packet.clone();
    // The changed octet gives a record number that has not arrived yet. The mask of the record number stays the same, because
    // the ciphertext is unchanged. The authentication tag no longer matches.
    forged[18] ^= 0x40;
    let crc = wire::crc32c(&[&forged[..8], &[0; 4], &forged[12..]].concat());
    forged[8..12].copy_from_slice(&crc.to_le_bytes());
    for n in 0..10 {
        assert_eq!(t.state(t.b), StateName::Established, "{n}");
        t.world.inject(t.b, b_route(), &forged);
    }
    t.world.run_for(Duration::from_millis(1));
    let closed = t.talk(t.b).closed.clone();
    assert!(
        matches!(closed, Some(CloseReason::Aborted(ref cause)) if cause.reason.starts_with(b"too many")),
        "{closed:?}"
    );
}

#[test]
fn addresses_change_under_protection_without_auth() {
    let extensions = Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration);
    let endpoint = EndpointConfig {
        association: AssociationConfig { extensions, ..config(true) },
        ..EndpointConfig::default()
    };
    let mut world = World::new(3);
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], endpoint.clone());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], endpoint.clone());
    let links = vec![world.add_link(LinkConfig::default()), world.add_link(LinkConfig::default())];
    world.join(links[0], "10.0.1.1", "10.0.1.2");
    world.join(links[1], "10.0.2.1", "10.0.2.2");
    let mut t = Two { world, a, b, links };
    t.world.host_mut(a).addresses.truncate(1);
    t.world.connect(a, b, Carrier::Ip, endpoint.association.clone(), Conversation::default());
    t.world.run_for(seconds(3));
    assert!(is_protected(&t, a) && is_protected(&t, b));
    let (id, now) = (t.id(a), t.world.now());
    t.world.host_mut(a).endpoint.add_local_address(now, id, "10.0.2.1".parse().unwrap()).unwrap();
    t.world.run_for(seconds(5));
    assert!(
        t.events(b).iter().any(|e| matches!(e, Event::PeerAddressChange(AddressChange::Add(_)))),
        "{:?}",
        t.events(b)
    );
    assert!(
        !t.info(a).extensions.has(Extension::Auth)
            && t.info(a).extensions.has(Extension::AddressReconfiguration)
    );
    // The new path carries data when the first one fails.
    t.world.at(t.world.now(), Change::CutBoth(t.links[0], true));
    let now = t.world.now();
    t.world
        .host_mut(a)
        .endpoint
        .send(now, id, StreamId(0), Ppid(0), content(1, 500), Default::default())
        .unwrap();
    t.world.run_for(seconds(90));
    assert_eq!(t.talk(b).received.len(), 1);
}

#[test]
fn two_paths_share_one_count_of_records() {
    let endpoint = EndpointConfig { association: config(true), ..EndpointConfig::default() };
    let mut world = World::new(9);
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], endpoint.clone());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], endpoint.clone());
    let slow = LinkConfig { delay: Duration::from_millis(120), ..LinkConfig::default() };
    let links = vec![world.add_link(LinkConfig::default()), world.add_link(slow)];
    world.join(links[0], "10.0.1.1", "10.0.1.2");
    world.join(links[1], "10.0.2.1", "10.0.2.2");
    let mut t = Two { world, a, b, links };
    let multipath = sctp::Multipath::Concurrent { scheduler: sctp::PathScheduler::LowestRtt };
    let config = AssociationConfig { multipath, ..config(true) };
    t.world.connect(a, b, Carrier::Ip, config, sends_then_closes(messages(3000, 1200, 2)));
    assert_eq!(t.run_to_end(seconds(600)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(b).received.len(), 3000);
    let counters = t.world.host(b).endpoint.counters();
    assert_eq!((counters.not_opened, counters.replayed), (0, 0));
}

/// Returns the types of a packet's chunks as an observer sees them.
fn in_the_clear(packet: &[u8]) -> Vec<ChunkType> {
    let packet = Packet::parse(packet, ChecksumMode::Ignore).unwrap();
    packet.raw_chunks().map(|raw| raw.unwrap().chunk_type).collect()
}

#[test]
fn advertisements_stay_in_the_clear_before_the_dtls_chunk() {
    for (advertised, lossy) in [
        (SendBufferConfig { cadence: SendBufferCadence::EveryPacket, ..SendBufferConfig::default() }, false),
        (SendBufferConfig::backlog_every(Duration::from_millis(200)), false),
        (SendBufferConfig::default(), true),
    ] {
        let settings = AssociationConfig { advertisement: Some(advertised), ..config(true) };
        let loss = if lossy { Loss::Uniform(0.05) } else { Loss::None };
        let link = LinkConfig { rate: 10_000_000, loss, ..LinkConfig::default() };
        let mut t = two_sealed(5, link);
        let (a, b) = (t.a, t.b);
        t.world.restart(b, EndpointConfig { association: settings.clone(), ..EndpointConfig::default() });
        t.world.recording = true;
        let words = messages(100, 3000, 2);
        t.connect_with(settings, sends(words.clone()));
        t.world.run_for(seconds(30));
        assert_eq!(t.talk(b).received.len(), 100);
        let said = t.info(a).counters.advertisements_sent;
        assert!(said > 20, "{said}");
        let sealed = t.world.records.iter().filter(|r| in_the_clear(&r.packet).contains(&ChunkType::DTLS));
        let mut before = 0;
        for record in sealed {
            assert!(record.packet.len() + 20 <= 1500);
            match in_the_clear(&record.packet)[..] {
                [ChunkType::DTLS] => {}
                [SendBuffer::TYPE, ChunkType::DTLS] => before += 1,
                ref other => panic!("{other:?}"),
            }
        }
        assert!(before + 20 > said && before > 20, "{before} of {said}");
        let heard = t.events(b).iter().any(|event| matches!(event, Event::PeerSendBuffer(_)));
        assert!(heard, "the peer takes it from before the record");
        assert_eq!(t.world.host(b).endpoint.counters().not_opened, 0);
    }
}

#[test]
fn chunks_before_or_behind_a_record_have_no_effect() {
    let mut t = up(5);
    let (a, b) = (t.a, t.b);
    t.world.records.clear();
    send(&mut t, a, 0, content(1, 100));
    t.world.run_for(seconds(1));
    let arrived = t.talk(b).received.len();
    let sealed = t.world.records.iter().find(|r| r.route.local == a_route().local && is_sealed(&r.packet));
    let (header, record) = sealed.unwrap().packet.split_at(12);
    let (header, record) = (header.to_vec(), record.to_vec());
    let heartbeat = [4, 0, 0, 12, 0, 1, 0, 8, 7, 7, 7, 7];
    let unknown = [0xbf, 0, 0, 4];
    let cases = [
        [&heartbeat[..], &record].concat(),
        [&record[..], &heartbeat].concat(),
        [&unknown[..], &unknown, &record].concat(),
        [&unknown[..], &record, &heartbeat].concat(),
    ];
    t.world.records.clear();
    for chunks in cases {
        let mut packet = [&header[..8], &[0; 4], &chunks].concat();
        let crc = wire::crc32c(&packet);
        packet[8..12].copy_from_slice(&crc.to_le_bytes());
        t.world.inject(b, b_route(), &packet);
        t.world.run_for(seconds(1));
    }
    assert_eq!(t.talk(b).received.len(), arrived);
    let answers = t.world.records.iter().filter(|r| !is_sealed(&r.packet));
    assert_eq!(answers.count(), 0, "nothing in the clear is answered");
}

//! Packets that are sealed in DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk), with the keys of worlds.

use std::time::Duration;

use base::Carrier;
use sctp::{
    AddressChange, AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions, KeyRole,
    StateName,
};
use sim::{
    Change, Conversation, Fate, HostId, LinkConfig, Loss, World, chunk_names, opened, packet, protection,
};
use wire::{Abort, Causes, ChecksumMode, Chunk, ChunkType, Data, Packet, Ppid, Ssn, StreamId, Tsn};

use crate::support::{
    Two, a_route, at_seconds, b_route, content, messages, seconds, sends, sends_then_closes, two_with,
};

/// Two hosts that require protection of each other.
fn two_sealed(seed: u64, link: LinkConfig) -> Two {
    let mut t = two_with(seed, link, EndpointConfig::default());
    for host in [t.a, t.b] {
        offer(&mut t.world, host, true);
    }
    t
}

/// Makes a host offer protection.
fn offer(world: &mut World, host: HostId, required: bool) {
    let mut config = EndpointConfig::default();
    config.association.protection = Some(protection(required));
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

/// An association that is up and protected, with nothing under way.
fn up(seed: u64) -> Two {
    let mut t = two_sealed(seed, LinkConfig::default());
    t.world.recording = true;
    t.connect_with(config(true), Conversation::default());
    t.world.run_for(seconds(5));
    assert!(is_protected(&t, t.a) && is_protected(&t, t.b));
    t
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
    let handshake = [
        "INIT",
        "INIT ACK",
        "COOKIE ECHO DATA",
        "COOKIE ECHO DATA",
        "COOKIE ACK SACK",
        "COOKIE ACK SACK DATA",
    ];
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
        t.connect_with(config(true), talk);
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
        // The padding behind a record is nobody's.
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
fn what_is_not_sealed_does_nothing_once_the_association_is_protected() {
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

#[test]
fn data_that_is_slipped_in_before_the_keys_is_not_delivered() {
    let mut t = two_sealed(5, LinkConfig::default());
    t.world.recording = true;
    t.connect_with(config(true), sends(messages(5, 100, 1)));
    let b = t.b;
    let is_up = |w: &World| {
        w.host(b)
            .endpoint
            .associations()
            .any(|id| w.host(b).endpoint.state(id) == Some(StateName::Established))
    };
    assert!(t.world.run_until(at_seconds(5), is_up));
    assert!(!is_protected(&t, b));
    let (peers, first_tsn) = (announced(&t.world, "INIT ACK").0, announced(&t.world, "INIT").1);
    // Whoever sees the handshake knows tag and TSNs. A message of another stream, behind those about keys.
    for ahead in 0..40 {
        let data = Chunk::Data(Data {
            immediate: true,
            unordered: false,
            begin: true,
            end: true,
            tsn: Tsn(first_tsn.wrapping_add(ahead)),
            stream: StreamId(9),
            ssn: Ssn(0),
            ppid: Ppid(0),
            payload: b"forged",
        });
        t.world.inject(b, b_route(), &packet(40_000, 7, peers, &[data]));
    }
    t.world.run_for(seconds(60));
    assert!(t.talk(b).received.iter().all(|message| message.stream != 9));
}

/// The initiate tag and the first TSN that a host announced in its INIT or INIT ACK.
fn announced(world: &World, name: &str) -> (u32, u32) {
    let record = world.records.iter().find(|r| chunk_names(&r.packet) == name).unwrap();
    let packet = Packet::parse(&record.packet, ChecksumMode::Verify).unwrap();
    match packet.chunks().next().unwrap().unwrap() {
        Chunk::Init(init) | Chunk::InitAck(init) => (init.tag.0, init.initial_tsn.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_are_renewed_under_load_without_a_pause() {
    for seed in 0..6 {
        let link = LinkConfig {
            loss: Loss::Uniform(0.02),
            jitter: Duration::from_millis(4),
            ..LinkConfig::default()
        };
        let mut t = two_sealed(seed, link);
        for host in [t.a, t.b] {
            t.world.host_mut(host).app.keying.records = 6000;
        }
        t.connect_with(config(true), sends_then_closes(messages(12_000, 1200, 3)));
        assert_eq!(t.run_to_end(seconds(900)), (CloseReason::Graceful, CloseReason::Graceful), "seed {seed}");
        assert_eq!(t.talk(t.b).received.len(), 12_000);
        let worn = t.events(t.a).iter().filter(|event| matches!(event, Event::KeysWorn)).count();
        assert!(worn >= 5, "seed {seed}: {worn}");
    }
}

#[test]
fn an_association_ends_rather_than_seal_more_than_its_keys_may() {
    let mut t = two_sealed(1, LinkConfig::default());
    t.world.host_mut(t.a).app.keying.records = 40;
    // The peer never answers a wish for new keys.
    t.world.set_filter(|record| {
        let plain = opened(&record.packet);
        let is_renewal = is_sealed(&record.packet) && plain.windows(4).any(|w| w == 4242u32.to_be_bytes());
        if is_renewal && plain.len() > 1000 { Fate::Drop } else { Fate::Pass }
    });
    t.connect_with(config(true), sends(messages(2000, 100, 1)));
    t.world.run_for(seconds(100));
    let closed = t.talk(t.a).closed.clone();
    assert!(
        matches!(closed, Some(CloseReason::Aborted(ref cause)) if cause.reason.starts_with(b"the keys")),
        "{closed:?}"
    );
}

#[test]
fn an_init_or_init_ack_that_somebody_changed_makes_other_keys() {
    for name in ["INIT", "INIT ACK"] {
        let mut t = two_sealed(1, LinkConfig::default());
        t.world.set_filter(move |record| {
            if chunk_names(&record.packet) != name {
                return Fate::Pass;
            }
            // The number of outbound streams.
            let mut bytes = record.packet.clone();
            bytes[25] ^= 1;
            let crc = wire::crc32c(&[&bytes[..8], &[0; 4], &bytes[12..]].concat());
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            Fate::Replace(bytes)
        });
        t.connect_with(config(true), sends(messages(3, 100, 1)));
        t.world.run_for(seconds(60));
        assert!(!is_protected(&t, t.b), "{name}");
        assert!(t.world.host(t.b).app.conversations.values().all(|c| c.received.is_empty()), "{name}");
    }
}

#[test]
fn an_association_without_keys_ends_in_time() {
    for name in ["COOKIE ACK SACK DATA", "DATA"] {
        let mut t = two_sealed(1, LinkConfig::default());
        let b = b_route().local;
        // The server's answer, or all about keys of both ends, never arrives.
        t.world.set_filter(move |record| {
            let names = chunk_names(&record.packet);
            let is_lost = names.contains(name) || record.route.local == b && names.contains("DATA");
            if is_lost { Fate::Drop } else { Fate::Pass }
        });
        t.connect_with(config(true), sends(messages(3, 100, 1)));
        t.world.run_for(seconds(40));
        for host in [t.a, t.b] {
            let open = t.world.host(host).app.conversations.values().any(|c| c.closed.is_none());
            assert!(!open && !is_protected(&t, host), "{name}");
        }
    }
}

#[test]
fn where_protection_is_required_a_peer_without_it_is_refused() {
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.protection = None;
    t.world.restart(t.b, EndpointConfig::default());
    t.connect_with(config(true), sends(messages(1, 100, 1)));
    t.world.run_for(seconds(5));
    let closed = t.talk(t.a).closed.clone();
    assert!(matches!(closed, Some(CloseReason::Aborted(ref cause)) if cause.code == 100), "{closed:?}");
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.protection = None;
    offer(&mut t.world, t.b, true);
    t.connect_with(AssociationConfig::default(), sends(messages(1, 100, 1)));
    t.world.run_for(seconds(5));
    let closed = t.talk(t.a).closed.clone();
    assert!(matches!(closed, Some(CloseReason::PeerAborted(ref cause)) if cause.code == 100), "{closed:?}");
}

#[test]
fn where_it_is_only_offered_a_peer_without_it_is_served_in_the_clear() {
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.protection = None;
    t.world.restart(t.b, EndpointConfig::default());
    t.world.recording = true;
    t.connect_with(config(false), sends_then_closes(messages(5, 100, 1)));
    assert_eq!(t.run_to_end(seconds(20)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 5);
    // Nothing about keys is sent to a peer that knows nothing of them.
    assert!(t.world.records.iter().all(|r| !r.packet.windows(4).any(|w| w == 4242u32.to_be_bytes())));
}

#[test]
fn a_handshake_that_meets_another_makes_one_protected_association() {
    for seed in 0..20 {
        let mut t = two_sealed(seed, LinkConfig::default());
        for (host, route, ports) in [(t.a, a_route(), (5000, 6000)), (t.b, b_route(), (6000, 5000))] {
            let host = t.world.host_mut(host);
            let connect = sctp::Connect {
                local_port: ports.0,
                remote_port: ports.1,
                init_routes: vec![route],
                local_addresses: host.addresses.clone(),
                config: config(true),
            };
            let id = host.endpoint.connect(base::Time::ZERO, connect).unwrap();
            host.app.keying.begin(base::Time::ZERO, id, &mut host.endpoint);
            host.app.conversations.insert(id, sends(messages(20, 500, 2)));
        }
        t.world.run_for(seconds(60));
        for host in [t.a, t.b] {
            assert_eq!(t.world.host(host).app.conversations.len(), 1, "seed {seed}");
            assert_eq!(t.talk(host).received.len(), 20, "seed {seed}");
            assert!(is_protected(&t, host), "seed {seed}");
        }
        let roles = [t.a, t.b].map(|host| t.world.host(host).endpoint.protection(t.id(host)).unwrap().role);
        assert!(roles.contains(&KeyRole::Client) && roles.contains(&KeyRole::Server), "seed {seed}");
    }
}

#[test]
fn nobody_begins_a_protected_association_anew_without_its_keys() {
    let mut t = up(6);
    let old = t.id(t.b);
    let mut fresh = EndpointConfig::default();
    fresh.association.protection = Some(protection(true));
    // Another program at the peer's address: same ports, no keys.
    t.world.restart(t.a, fresh);
    t.connect_with(config(true), sends(messages(1, 100, 1)));
    t.world.run_for(Duration::from_millis(900));
    assert_eq!(t.world.host(t.b).endpoint.state(old), Some(StateName::Established));
    assert_eq!(t.world.host(t.b).app.conversations.len(), 1);
}

#[test]
fn addresses_change_under_protection_without_auth() {
    let extensions = Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration);
    let mut endpoint = EndpointConfig::default();
    endpoint.association = AssociationConfig { extensions, ..config(true) };
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
    // The new path carries data when the first dies.
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
    let mut endpoint = EndpointConfig::default();
    endpoint.association = config(true);
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

#[test]
fn a_first_message_of_the_program_waits_for_the_keys() {
    let mut t = two_sealed(1, LinkConfig::default());
    t.world.recording = true;
    let host = t.world.host_mut(t.a);
    let connect = sctp::Connect {
        local_port: 5000,
        remote_port: 7,
        init_routes: vec![a_route()],
        local_addresses: host.addresses.clone(),
        config: config(true),
    };
    let secret = content(77, 200);
    let id = host.endpoint.connect_and_send(base::Time::ZERO, connect, Ppid(0), secret.clone()).unwrap();
    host.app.keying.begin(base::Time::ZERO, id, &mut host.endpoint);
    host.app.conversations.insert(id, Conversation::default());
    t.world.run_for(seconds(5));
    assert_eq!(t.talk(t.b).received[0].bytes, secret);
    let has_it = |r: &&sim::Record| r.packet.windows(secret.len()).any(|w| w == secret);
    assert!(t.world.records.iter().filter(has_it).all(|r| is_sealed(&r.packet)));
}

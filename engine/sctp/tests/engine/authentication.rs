//! Tests of authenticated chunks (RFC 4895) between two hosts.

use bytes::Bytes;
use sctp::{
    AssociationConfig, AuthConfig, AuthKeyError, ChunkType, CloseReason, EndpointConfig, Event, Extension,
    Extensions, HmacAlgorithm, StateName,
};
use sim::{Close, Conversation, InTheClear, LinkConfig, Loss, chunk_names, packet};
use wire::{
    Auth, Chunk, Data, Heartbeat, Init, List, Parameter, Parameters, Ppid, Ssn, StreamId, Tsn,
    VerificationTag,
};

use crate::support::{Two, b_route, messages, seconds, sends, sent_by, two_with};

fn asking_for(chunks: &[ChunkType], key: &'static [u8]) -> AssociationConfig {
    AssociationConfig {
        extensions: Extensions::NONE.with(Extension::Auth),
        auth: AuthConfig {
            chunks: chunks.iter().copied().collect(),
            keys: [(1, Bytes::from_static(key))].into(),
            active_key: 1,
            ..AuthConfig::default()
        },
        ..AssociationConfig::default()
    }
}

/// Creates two hosts; `b` accepts associations with this configuration.
fn world(seed: u64, link: LinkConfig, b: AssociationConfig) -> Two {
    let mut t = two_with(seed, link, EndpointConfig { association: b, ..EndpointConfig::default() });
    t.world.recording = true;
    t
}

/// Creates an association whose ends both require authenticated DATA.
fn established(seed: u64) -> Two {
    let config = asking_for(&[ChunkType::DATA], b"key");
    let mut t = world(seed, LinkConfig::default(), config.clone());
    t.connect_with(config, Conversation::default());
    t.run_to_established();
    t
}

fn data(tsn: u32) -> Chunk<'static> {
    Chunk::Data(Data {
        immediate: true,
        unordered: false,
        begin: true,
        end: true,
        tsn: Tsn(tsn),
        stream: StreamId(0),
        ssn: Ssn(0),
        ppid: Ppid(0),
        payload: b"forged",
    })
}

#[test]
//= rfc4895#6.2-1 6.2-3 6.1-5
fn everything_arrives_over_a_bad_link_and_every_data_chunk_is_behind_auth() {
    let _clear = InTheClear::begin();
    let link =
        LinkConfig { loss: Loss::Uniform(0.03), corrupt: 0.01, reorder: 0.05, ..LinkConfig::default() };
    let mut b = asking_for(&[ChunkType::DATA, ChunkType::SACK], b"key");
    b.auth.hmac = HmacAlgorithm::Sha1;
    let mut t = world(1, link, b);
    t.world.host_mut(t.b).app.template = sends(messages(60, 2000, 3));
    let talk = Conversation { close: Close::After(60), ..sends(messages(80, 3000, 4)) };
    t.connect_with(asking_for(&[ChunkType::DATA, ChunkType::HEARTBEAT], b"key"), talk);
    assert_eq!(t.run_to_end(seconds(100)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!((t.talk(t.a).received.len(), t.talk(t.b).received.len()), (60, 80));
    for record in &t.world.records {
        let names = chunk_names(&record.packet);
        assert!(names.contains("AUTH") || !names.contains("DATA"), "{names}");
        assert!(record.packet.len() <= 1480);
    }
    for host in [t.a, t.b] {
        let counters = t.info(host).counters;
        assert!(counters.auth_verified > 30);
        assert_eq!((counters.auth_failed, counters.unauthenticated), (0, 0));
    }
    let algorithms = |sender: &str| {
        let sender: std::net::IpAddr = sender.parse().unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for record in t.world.records.iter().filter(|r| r.route.local == sender) {
            let parsed = wire::Packet::parse(&record.packet, wire::ChecksumMode::Ignore).unwrap();
            ids.extend(parsed.chunks().filter_map(|c| match c {
                Ok(Chunk::Auth(auth)) => Some(auth.hmac_id),
                _ => None,
            }));
        }
        ids.into_iter().collect::<Vec<_>>()
    };
    // Each end signs with the algorithm that the other end prefers.
    assert_eq!((algorithms("10.0.1.1"), algorithms("10.0.1.2")), (vec![1], vec![3]));
}

#[test]
//= rfc4895#6.3-1
fn unauthenticated_data_is_dropped_in_silence() {
    let _clear = InTheClear::begin();
    let mut t = established(2);
    let from = t.world.records.len();
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[data(1)]);
    t.world.run_for(seconds(1));
    let info = t.info(t.b);
    assert_eq!((info.counters.unauthenticated, info.counters.data_received), (1, 0));
    assert_eq!(info.state, StateName::Established);
    assert!(sent_by(&t.world, from, "10.0.1.2").is_empty());
}

#[test]
//= rfc4895#6.3-6 6.3-7 6.3-5
fn a_wrong_or_empty_hmac_and_an_unknown_key_drop_what_follows() {
    let _clear = InTheClear::begin();
    for (key, hmac) in [(1, &[0; 32][..]), (7, &[0; 32]), (0, &[0; 32]), (1, &[]), (1, &[0; 20])] {
        let mut t = established(3);
        let from = t.world.records.len();
        let tag = t.info(t.b).local_tag;
        let auth = Chunk::Auth(Auth { shared_key: key, hmac_id: 3, hmac });
        t.inject_to_b(tag, &[auth, data(1), Chunk::Heartbeat(Heartbeat { info: b"x" })]);
        t.world.run_for(seconds(1));
        assert_eq!((t.info(t.b).counters.auth_failed, t.info(t.b).counters.data_received), (1, 0));
        assert!(sent_by(&t.world, from, "10.0.1.2").is_empty(), "key {key}");
    }
}

#[test]
//= rfc4895#6.3-3 4.1-1
fn an_algorithm_that_was_not_offered_is_reported() {
    let _clear = InTheClear::begin();
    let mut t = established(4);
    let from = t.world.records.len();
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[Chunk::Auth(Auth { shared_key: 1, hmac_id: 2, hmac: &[0; 16] }), data(1)]);
    t.world.run_for(seconds(1));
    assert_eq!(sent_by(&t.world, from, "10.0.1.2"), ["ERROR"]);
    assert_eq!(t.info(t.b).counters.data_received, 0);
}

#[test]
fn with_different_keys_nothing_is_delivered() {
    let _clear = InTheClear::begin();
    let mut t = world(5, LinkConfig::default(), asking_for(&[ChunkType::DATA], b"one"));
    t.connect_with(asking_for(&[ChunkType::DATA], b"other"), sends(messages(3, 100, 1)));
    t.world.run_for(seconds(20));
    assert!(t.talk(t.b).received.is_empty());
    assert!(t.info(t.b).counters.auth_failed > 3);
}

#[test]
//= rfc4895#6.3-8 6.3-9
fn a_cookie_echo_that_must_be_signed_follows_auth_and_a_wrong_key_is_refused() {
    let _clear = InTheClear::begin();
    let config = asking_for(&[ChunkType::COOKIE_ECHO, ChunkType::COOKIE_ACK, ChunkType::DATA], b"key");
    let mut t = world(6, LinkConfig::default(), config.clone());
    let talk = Conversation { close: Close::After(0), ..sends(messages(5, 100, 1)) };
    t.connect_with(config.clone(), talk);
    t.run_to_end(seconds(10));
    assert_eq!(t.talk(t.b).received.len(), 5);
    let sent = sent_by(&t.world, 0, "10.0.1.1");
    assert!(sent.iter().any(|n| n.starts_with("AUTH COOKIE ECHO")), "{sent:?}");

    // A peer with another key gets no association.
    let mut t = world(6, LinkConfig::default(), config);
    t.connect_with(asking_for(&[], b"wrong"), Conversation::default());
    t.world.run_for(seconds(10));
    assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
    assert!(t.world.host(t.b).endpoint.counters().unauthenticated_cookies > 0);
}

#[test]
fn where_a_key_is_required_a_peer_that_offers_no_authentication_is_refused_by_either_end() {
    let _clear = InTheClear::begin();
    let mut keyed = asking_for(&[ChunkType::COOKIE_ECHO, ChunkType::COOKIE_ACK], b"key");
    keyed.auth.required = true;
    for (a, b) in [(AssociationConfig::default(), keyed.clone()), (keyed, AssociationConfig::default())] {
        let mut t = world(6, LinkConfig::default(), b);
        t.connect_with(a, Conversation::default());
        t.world.run_for(seconds(1));
        let closed = t.events(t.a).into_iter().find_map(|event| match event {
            Event::Closed(reason) => Some(format!("{reason:?}")),
            _ => None,
        });
        assert!(closed.as_ref().is_some_and(|reason| reason.contains("a key is required")), "{closed:?}");
        assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
    }
}

#[test]
fn if_abort_must_be_authenticated_only_a_signed_abort_ends_the_association() {
    let _clear = InTheClear::begin();
    let config = asking_for(&[ChunkType::ABORT], b"key");
    let mut t = world(7, LinkConfig::default(), config.clone());
    let id = t.connect_with(config, Conversation::default());
    t.run_to_established();
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[Chunk::Abort(wire::Abort { tag_reflected: false, causes: wire::Causes::EMPTY })]);
    assert_eq!(t.state(t.b), StateName::Established, "a forged one is not believed");
    let now = t.world.now();
    t.world.host_mut(t.a).endpoint.abort(now, id, sctp::AbortCause::user("enough"));
    t.world.run_for(seconds(1));
    assert!(matches!(t.events(t.b).last(), Some(Event::Closed(CloseReason::PeerAborted(_)))));
}

#[test]
//= rfc4895#6.2-2 6.3-5
fn keys_change_while_data_flows() {
    let _clear = InTheClear::begin();
    let mut t = established(8);
    let (a, b) = (t.id(t.a), t.id(t.b));
    let now = t.world.now();
    for (host, id) in [(t.a, a), (t.b, b)] {
        let endpoint = &mut t.world.host_mut(host).endpoint;
        endpoint.set_auth_key(now, id, 2, b"fresh").unwrap();
        endpoint.activate_auth_key(now, id, 2).unwrap();
        assert_eq!(endpoint.delete_auth_key(now, id, 2), Err(AuthKeyError::Active(2)));
        endpoint.deactivate_auth_key(now, id, 1).unwrap();
        endpoint.delete_auth_key(now, id, 1).unwrap();
    }
    let talk = t.world.host_mut(t.a).app.conversations.get_mut(&a).unwrap();
    talk.outgoing = messages(20, 1000, 2).into();
    t.world.run_for(seconds(5));
    assert_eq!(t.talk(t.b).received.len(), 20);
    assert_eq!(t.info(t.b).counters.auth_failed, 0);
}

#[test]
fn without_negotiated_auth_keys_are_refused_and_an_auth_chunk_stops_its_packet() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(9);
    let (now, id) = (t.world.now(), t.id(t.b));
    let refused = t.world.host_mut(t.b).endpoint.set_auth_key(now, id, 1, b"key");
    assert_eq!(refused, Err(AuthKeyError::NotNegotiated));
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[Chunk::Auth(Auth { shared_key: 0, hmac_id: 3, hmac: &[0; 32] }), data(1)]);
    assert_eq!(t.info(t.b).counters.data_received, 0);
}

#[test]
//= rfc4895#6.1-3 6.1-7
fn offers_that_break_the_rules_are_refused() {
    let sha1 = [1_u16];
    let sha256 = [3_u16];
    let cases: [&[Parameter<'_>]; 2] = [
        &[Parameter::Random(&[7; 31]), Parameter::RequestedHmac(List::from(&sha1[..]))],
        &[Parameter::Random(&[7; 32]), Parameter::RequestedHmac(List::from(&sha256[..]))],
    ];
    for parameters in cases {
        let mut t = world(10, LinkConfig::default(), asking_for(&[], b"key"));
        let init = Init {
            tag: VerificationTag(9),
            a_rwnd: 100_000,
            outbound_streams: 1,
            inbound_streams: 1,
            initial_tsn: Tsn(1),
            parameters: Parameters::from(parameters),
        };
        t.world.inject(t.b, b_route(), &packet(40_000, 7, 0, &[Chunk::Init(init)]));
        t.world.run_for(seconds(1));
        assert_eq!(sent_by(&t.world, 0, "10.0.1.2"), ["ABORT"]);
    }
}

#[test]
//= rfc4895#6.3-8
fn a_restarted_peer_is_authenticated_by_its_new_random_number() {
    let _clear = InTheClear::begin();
    let config = asking_for(&[ChunkType::DATA, ChunkType::COOKIE_ECHO], b"key");
    let mut t = world(11, LinkConfig::default(), config.clone());
    t.connect_with(config.clone(), Conversation::default());
    t.run_to_established();
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let a = t.a;
    t.world.restart(a, endpoint);
    t.connect_with(config, sends(messages(4, 100, 1)));
    t.world.run_for(seconds(5));
    let talks = &t.world.host(t.b).app.conversations;
    assert_eq!(talks.values().map(|c| c.received.len()).sum::<usize>(), 4);
}

#[test]
fn a_replayed_packet_under_another_association_is_not_believed() {
    let _clear = InTheClear::begin();
    let mut t = established(12);
    let id = t.id(t.a);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap().outgoing = messages(1, 50, 1).into();
    t.world.run_for(seconds(1));
    let names = |p: &Vec<u8>| chunk_names(p).starts_with("AUTH DATA");
    let signed = t.world.records.iter().map(|r| r.packet.clone()).find(names).expect("signed data");
    let mut other = established(13);
    let tag = other.info(other.b).local_tag;
    let replay = retagged(&signed, tag);
    other.world.inject(other.b, b_route(), &replay);
    assert_eq!(other.info(other.b).counters.auth_failed, 1);
    assert_eq!(other.info(other.b).counters.data_received, 0);
}

/// Returns the packet with another tag and a correct checksum.
fn retagged(bytes: &[u8], tag: u32) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    copy[4..8].copy_from_slice(&tag.to_be_bytes());
    copy[8..12].fill(0);
    let crc = wire::crc32c(&copy);
    copy[8..12].copy_from_slice(&crc.to_le_bytes());
    copy
}

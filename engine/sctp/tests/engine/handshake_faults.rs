//! Tests of INITs, INIT ACKs and cookies that are wrong, unusual, or bundled with other chunks (RFC 9260 sections 3.2.2, 3.3.2, 3.3.3 and
//! 5).

use sctp::{CloseReason, ConnectError, EndpointConfig, StateName};
use sim::{Conversation, HostId, InTheClear};
use wire::{
    Cause, Causes, ChecksumMode, Chunk, ChunkType, CommonHeader, CookieEcho, Data, ErrorChunk, Init, Packet,
    PacketWriter, Parameter, Parameters, Ppid, ShutdownComplete, Ssn, StreamId, Tsn, UnknownChunk,
    VerificationTag,
};

use crate::states::Subject;
use crate::support::{Two, a_route, b_route, drop_all, messages, route, seconds, sends, sent_by, two};

fn init<'a>(parameters: &'a [Parameter<'a>]) -> Init<'a> {
    Init {
        tag: VerificationTag(77),
        a_rwnd: 100_000,
        outbound_streams: 10,
        inbound_streams: 10,
        initial_tsn: Tsn(1),
        parameters: Parameters::from(parameters),
    }
}

const COOKIE: Parameter<'_> = Parameter::StateCookie(&[1; 64]);

fn data(tsn: u32) -> Chunk<'static> {
    Chunk::Data(Data {
        immediate: false,
        unordered: false,
        begin: true,
        end: true,
        tsn: Tsn(tsn),
        stream: StreamId(0),
        ssn: Ssn(0),
        ppid: Ppid(0),
        payload: b"data",
    })
}

fn unknown(kind: u8, value: &[u8]) -> Chunk<'_> {
    Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(kind), flags: 0, value })
}

/// Returns the answer of a listening host to this INIT: the chunk names, and the packet.
fn answer_to_init(init: Init<'_>) -> (Vec<String>, Vec<u8>) {
    let mut t = two(1);
    t.world.recording = true;
    t.inject_to_b(0, &[Chunk::Init(init)]);
    let packet = t.world.records.last().map(|r| r.packet.clone()).unwrap_or_default();
    (sent_by(&t.world, 0, "10.0.1.2"), packet)
}

/// Returns the answer of a host in COOKIE-WAIT to this INIT ACK, and that host.
fn answer_to_init_ack(init: Init<'_>) -> (Vec<String>, Subject) {
    let mut subject = Subject::in_state(StateName::CookieWait);
    let tag = subject.own_tag;
    let answer = subject.answer_to(tag, &Chunk::InitAck(init));
    (answer, subject)
}

fn first_chunk<R>(packet: &[u8], read: impl FnOnce(u32, Chunk<'_>) -> R) -> R {
    let packet = Packet::parse(packet, ChecksumMode::Verify).unwrap();
    read(packet.header.tag.0, packet.chunks().next().unwrap().unwrap())
}

/// Returns the tag and the first cause of an ABORT.
fn abort_in(packet: &[u8]) -> (u32, Option<u16>) {
    first_chunk(packet, |tag, chunk| match chunk {
        Chunk::Abort(abort) => (tag, abort.causes.iter().find_map(Result::ok).map(|c| c.code())),
        other => panic!("an ABORT, not {other:?}"),
    })
}

//= rfc9260#3.3.2-9 5.1-16 5.1-17
#[test]
fn an_init_with_a_window_below_1500_bytes_is_refused() {
    for (a_rwnd, answer) in [(0, "ABORT"), (1499, "ABORT"), (1500, "INIT ACK")] {
        let (names, packet) = answer_to_init(Init { a_rwnd, ..init(&[]) });
        assert_eq!(names, [answer], "a_rwnd {a_rwnd}");
        if answer == "ABORT" {
            assert_eq!(abort_in(&packet), (77, Some(7)));
        }
    }
}

//= rfc9260#3.3.3-9
#[test]
fn an_init_ack_with_a_window_below_1500_bytes_is_refused_and_the_attempt_continues() {
    let (names, subject) = answer_to_init_ack(Init { a_rwnd: 1499, ..init(&[COOKIE]) });
    assert_eq!((names, subject.state()), (vec!["ABORT".to_owned()], StateName::CookieWait));
}

//= rfc9260#3.3.2-8
#[test]
fn a_small_receive_buffer_is_announced_as_1500_bytes() {
    let mut config = EndpointConfig::default();
    config.association.receive_buffer = 10;
    let mut t = crate::support::two_with(1, sim::LinkConfig::default(), config.clone());
    t.world.recording = true;
    t.connect_with(config.association, sends(messages(3, 1000, 1)));
    t.run_to_established();
    for name in ["INIT", "INIT ACK"] {
        let record = t.world.records.iter().find(|r| sim::chunk_names(&r.packet) == name).unwrap();
        first_chunk(&record.packet, |_, chunk| match chunk {
            Chunk::Init(init) | Chunk::InitAck(init) => assert_eq!(init.a_rwnd, 1500, "{name}"),
            other => panic!("{other:?}"),
        });
    }
    t.world.run_for(seconds(5));
    assert_eq!(t.talk(t.b).received.len(), 3);
}

//= rfc9260#3.3.3-6
#[test]
fn an_init_ack_with_tag_zero_ends_the_attempt_with_a_reflected_abort() {
    let (names, subject) = answer_to_init_ack(Init { tag: VerificationTag(0), ..init(&[COOKIE]) });
    assert_eq!((names, subject.state()), (vec!["ABORT(T)".to_owned()], StateName::Closed));
    assert_eq!(abort_in(&subject.last_packet()).0, subject.own_tag);
}

//= rfc9260#3.3.3-12 5.1-15 5.1-16
#[test]
fn an_init_ack_without_streams_or_cookie_ends_the_attempt_and_says_why() {
    let good = [COOKIE];
    let faults = [
        (Init { outbound_streams: 0, ..init(&good) }, 7),
        (Init { inbound_streams: 0, ..init(&good) }, 7),
        (init(&[]), 2),
    ];
    for (fault, cause) in faults {
        let (names, subject) = answer_to_init_ack(fault);
        assert_eq!((names, subject.state()), (vec!["ABORT".to_owned()], StateName::Closed), "{fault:?}");
        assert_eq!(abort_in(&subject.last_packet()), (77, Some(cause)));
        assert!(matches!(subject.closed(), Some(CloseReason::Aborted(c)) if c.code == cause));
    }
}

//= rfc9260#5.1.2-2 5.1.2-3
#[test]
fn a_host_name_is_refused_in_init_and_in_init_ack() {
    let named = [COOKIE, Parameter::HostName(b"host\0")];
    let (names, packet) = answer_to_init(init(&named[1..]));
    assert_eq!(names, ["ABORT"]);
    assert_eq!(abort_in(&packet), (77, Some(5)));
    let (names, subject) = answer_to_init_ack(init(&named));
    assert_eq!((names, subject.state()), (vec!["ABORT".to_owned()], StateName::Closed));
}

//= rfc9260#5.1.2-10 5.1.2-11 3.3.2.1.5-1
#[test]
fn supported_address_types_are_no_reason_to_refuse() {
    for types in [&[5][..], &[6], &[11], &[5, 6, 11]] {
        let listed = [Parameter::SupportedAddressTypes(types.into())];
        assert_eq!(answer_to_init(init(&listed)).0, ["INIT ACK"], "{types:?}");
    }
}

/// Sends an INIT with a parameter of an unknown type. Returns the parameters that the answer quotes.
fn after_unknown_parameter(kind: u16) -> Vec<Vec<u8>> {
    let mut raw = vec![0, 0, 0, 77, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1];
    raw.extend([kind.to_be_bytes(), [0, 5], [9, 0], [0, 0]].concat());
    quoted_parameters(&raw)
}

/// Returns the parameters that the answer to an INIT with this value quotes.
fn quoted_parameters(value: &[u8]) -> Vec<Vec<u8>> {
    let mut t = two(1);
    t.world.recording = true;
    t.inject_to_b(0, &[unknown(ChunkType::INIT.0, value)]);
    first_chunk(&t.world.records[0].packet, |_, chunk| match chunk {
        Chunk::InitAck(ack) => ack
            .parameters
            .iter()
            .filter_map(|p| match p {
                Ok(Parameter::UnrecognizedParameter(quoted)) => Some(quoted.to_vec()),
                _ => None,
            })
            .collect(),
        other => panic!("an INIT ACK, not {other:?}"),
    })
}

//= rfc9260#3.2.2-1
#[test]
fn unknown_parameters_of_an_init_are_quoted_in_the_init_ack_if_their_type_asks_for_it() {
    for (kind, reported) in [(0x3fff, false), (0x7fff, true), (0xbfff, false), (0xffff, true)] {
        let quoted = after_unknown_parameter(kind);
        let whole = [&kind.to_be_bytes()[..], &[0, 5, 9]].concat();
        assert_eq!(quoted, if reported { vec![whole] } else { Vec::new() }, "{kind:#x}");
    }
}

//= rfc9260#3.2.2-2 3.2.2-3
#[test]
fn unknown_parameters_of_an_init_ack_are_reported_behind_the_cookie_echo() {
    let mut raw = vec![0, 0, 0, 77, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1];
    raw.extend([0xff, 0xff, 0, 8, 1, 2, 3, 4, 0, 7, 0, 8, 5, 6, 7, 8]);
    let mut subject = Subject::in_state(StateName::CookieWait);
    let tag = subject.own_tag;
    assert_eq!(subject.answer_to(tag, &unknown(ChunkType::INIT_ACK.0, &raw)), ["COOKIE ECHO ERROR"]);
    assert_eq!(subject.state(), StateName::CookieEchoed);
}

//= rfc9260#3-1 12.3-2 8.5.1-2 8.5.1-3
#[test]
fn a_bundled_init_and_other_packets_with_tag_zero_are_dropped() {
    let mut t = two(1);
    t.world.recording = true;
    t.inject_to_b(0, &[Chunk::Init(init(&[])), data(1)]);
    t.inject_to_b(0, &[data(1)]);
    t.inject_to_b(0, &[Chunk::ShutdownAck]);
    assert!(t.world.records.is_empty());
    assert_eq!(t.world.host(t.b).endpoint.counters().bad_tag, 3);
}

//= rfc9260#3-1
#[test]
fn a_bundled_init_ack_is_dropped_and_a_single_init_ack_is_accepted() {
    let mut subject = Subject::in_state(StateName::CookieWait);
    let (tag, parameters) = (subject.own_tag, [COOKIE]);
    let init_ack = Chunk::InitAck(init(&parameters));
    assert!(subject.answer_to_all(tag, &[init_ack, data(1)]).is_empty());
    assert!(subject.answer_to_all(tag, &[data(1), init_ack]).is_empty());
    assert_eq!(subject.state(), StateName::CookieWait);
    assert_eq!(subject.answer_to(tag, &init_ack), ["COOKIE ECHO"]);
}

//= rfc9260#3-1
#[test]
fn a_bundled_shutdown_complete_is_ignored_and_a_single_one_ends_the_association() {
    let _clear = InTheClear::begin();
    let mut subject = Subject::in_state(StateName::ShutdownAckSent);
    let (tag, tsn) = (subject.own_tag, subject.peer_tsn().0);
    let complete = Chunk::ShutdownComplete(ShutdownComplete { tag_reflected: false });
    assert!(subject.answer_to_all(tag, &[complete, data(tsn)]).is_empty());
    subject.answer_to_all(tag, &[data(tsn), complete]);
    assert_eq!(subject.state(), StateName::ShutdownAckSent);
    subject.answer_to(tag, &complete);
    assert_eq!(subject.closed(), Some(CloseReason::Graceful));
}

#[test]
fn data_bundled_with_shutdown_ack_does_not_prevent_the_shutdown() {
    let _clear = InTheClear::begin();
    let mut subject = Subject::in_state(StateName::ShutdownSent);
    let (tag, tsn) = (subject.own_tag, subject.peer_tsn().0);
    assert_eq!(subject.answer_to_all(tag, &[Chunk::ShutdownAck, data(tsn)]), ["SHUTDOWN COMPLETE"]);
    assert_eq!(subject.closed(), Some(CloseReason::Graceful));
}

/// Returns the tag and the cookie of an INIT ACK.
fn tag_and_cookie(init_ack: &[u8]) -> (u32, Vec<u8>) {
    first_chunk(init_ack, |_, chunk| match chunk {
        Chunk::InitAck(ack) => {
            let cookie = ack.parameters.iter().find_map(|p| match p {
                Ok(Parameter::StateCookie(cookie)) => Some(cookie.to_vec()),
                _ => None,
            });
            (ack.tag.0, cookie.unwrap())
        }
        other => panic!("an INIT ACK, not {other:?}"),
    })
}

/// Returns a host that waits for the COOKIE ECHO of its INIT ACK, the host's tag, and the cookie.
fn awaiting_cookie() -> (Two, u32, Vec<u8>) {
    let mut t = two(1);
    t.world.recording = true;
    t.inject_to_b(0, &[Chunk::Init(init(&[]))]);
    let (tag, cookie) = tag_and_cookie(&t.world.records[0].packet);
    (t, tag, cookie)
}

#[test]
fn data_beside_cookie_echo_is_taken() {
    let (mut t, tag, cookie) = awaiting_cookie();
    let tsn = init(&[]).initial_tsn.0;
    t.inject_to_b(tag, &[Chunk::CookieEcho(CookieEcho { cookie: &cookie }), data(tsn)]);
    assert_eq!(sent_by(&t.world, 1, "10.0.1.2"), ["COOKIE ACK SACK"]);
    assert_eq!(t.talk(t.b).received.len(), 1);
}

#[test]
fn an_error_beside_cookie_echo_does_not_keep_the_association_from_coming_up() {
    let (mut t, tag, cookie) = awaiting_cookie();
    let causes = [Cause::UnrecognizedParameters(&[0xff, 0xff, 0, 4])];
    let error = Chunk::Error(ErrorChunk { causes: Causes::from(&causes[..]) });
    t.inject_to_b(tag, &[Chunk::CookieEcho(CookieEcho { cookie: &cookie }), error]);
    assert_eq!(sent_by(&t.world, 1, "10.0.1.2"), ["COOKIE ACK"]);
    assert_eq!(t.talk(t.b).closed, None);
}

//= rfc9260#3.2.2-1
#[test]
fn a_set_primary_parameter_with_a_host_name_is_ignored_and_reported() {
    let primary =
        [0xc0, 4, 0, 21, 0, 0, 0, 1, 0, 11, 0, 13, b'h', b'o', b's', b't', b'.', b't', b'e', b's', b't'];
    let mut raw = vec![0, 0, 0, 77, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1];
    raw.extend(primary.iter().chain(&[0, 0, 0]));
    assert_eq!(quoted_parameters(&raw), [primary]);
}

#[test]
fn an_init_that_is_too_short_is_dropped() {
    let mut t = two(1);
    t.world.recording = true;
    t.inject_to_b(0, &[unknown(ChunkType::INIT.0, &[0; 12])]);
    assert!(t.world.records.is_empty());
    let mut subject = Subject::in_state(StateName::CookieWait);
    let tag = subject.own_tag;
    assert!(subject.answer_to(tag, &unknown(ChunkType::INIT_ACK.0, &[1; 12])).is_empty());
    assert_eq!(subject.state(), StateName::CookieWait);
}

//= rfc9260#3.1-1 3.1-2
#[test]
fn port_zero_is_neither_opened_nor_answered() {
    let mut t = two(1);
    t.world.recording = true;
    for (local_port, remote_port) in [(0, 7), (7, 0)] {
        let connect = sctp::Connect {
            local_port,
            remote_port,
            init_routes: vec![a_route()],
            local_addresses: Vec::new(),
            config: sctp::AssociationConfig::default(),
        };
        let endpoint = &mut t.world.host_mut(t.a).endpoint;
        assert_eq!(endpoint.connect(base::Time::ZERO, connect), Err(ConnectError::NoPort));
        let packet = sim::packet(local_port, remote_port, 0, &[Chunk::Init(init(&[]))]);
        t.world.inject(t.b, b_route(), &packet);
    }
    assert!(t.world.records.is_empty());
}

//= rfc9260#8.4-1
#[test]
fn a_packet_to_or_from_an_address_that_is_not_unicast_is_dropped() {
    let mut t = two(1);
    t.world.recording = true;
    for (local, remote) in [("10.0.1.2", "224.0.0.1"), ("224.0.0.1", "10.0.1.1"), ("10.0.1.2", "0.0.0.0")] {
        let cookie = Chunk::CookieEcho(CookieEcho { cookie: &[1; 64] });
        for (tag, chunk) in [(0, Chunk::Init(init(&[]))), (5, cookie), (5, data(1))] {
            let packet = sim::packet(40_000, 7, tag, &[chunk]);
            t.world.inject(t.b, route(local, remote), &packet);
        }
    }
    assert!(t.world.records.is_empty());
}

/// Returns the outbound and inbound streams of both ends after a setup with these requests.
fn streams(ours: (u16, u16), theirs: (u16, u16)) -> [(u16, u16); 2] {
    let with = |(outbound_streams, inbound_streams)| sctp::AssociationConfig {
        outbound_streams,
        inbound_streams,
        ..sctp::AssociationConfig::default()
    };
    let config = EndpointConfig { association: with(theirs), ..EndpointConfig::default() };
    let mut t = crate::support::two_with(1, sim::LinkConfig::default(), config);
    t.connect_with(with(ours), Conversation::default());
    t.run_to_established();
    [t.a, t.b].map(|host: HostId| {
        let up = t.events(host).into_iter().find_map(|e| match e {
            sctp::Event::Established { outbound_streams, inbound_streams, .. } => {
                Some((*outbound_streams, *inbound_streams))
            }
            _ => None,
        });
        up.unwrap()
    })
}

//= rfc9260#5.1.1-1 5.1.1-2 3.3.3-11
#[test]
fn each_side_uses_no_more_streams_than_the_other_allows() {
    assert_eq!(streams((10, 3), (5, 4)), [(4, 3), (3, 4)]);
    assert_eq!(streams((2, 30), (5, 40)), [(2, 5), (5, 2)]);
}

//= rfc9260#5.3.1-1 3.3.2-15
#[test]
fn tags_and_initial_tsns_differ_from_one_association_to_the_next() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..6 {
        let mut t = two(seed);
        t.connect(Conversation::default());
        t.run_to_established();
        let info = t.info(t.a);
        assert!(info.local_tag != 0 && info.peer_tag != 0);
        assert!(seen.insert(info.local_tag) && seen.insert(info.peer_tag));
    }
}

//= rfc9260#3.1-3 3.1-4 3-1 5.1-1 5.1-3 5.1-7 3.3.11-1 6.10-3
#[test]
fn setup_packets_have_the_right_order_and_tags_and_no_sack_follows_data_in_a_packet() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    t.world.recording = true;
    t.connect(sends(messages(3, 100, 1)));
    t.run_to_established();
    t.world.run_for(seconds(1));
    let (a, b) = (t.info(t.a).local_tag, t.info(t.b).local_tag);
    let names: Vec<_> = t.world.records.iter().map(|r| sim::chunk_names(&r.packet)).collect();
    assert_eq!(names[..4], ["INIT", "INIT ACK", "COOKIE ECHO", "COOKIE ACK"]);
    for (n, record) in t.world.records.iter().enumerate() {
        let from_a = record.route.local == a_route().local;
        let tag = first_chunk(&record.packet, |tag, _| tag);
        assert_eq!(
            tag,
            if n == 0 {
                0
            } else if from_a {
                b
            } else {
                a
            },
            "packet {n}: {}",
            names[n]
        );
        let control_after_data = names[n].split_once("DATA").is_some_and(|(_, rest)| rest.contains("SACK"));
        assert!(!control_after_data, "{}", names[n]);
    }
}

//= rfc9260#4-7
#[test]
fn a_cookie_echo_that_is_never_answered_is_given_up() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    drop_all(&mut t.world, |names, _| names.contains("COOKIE ACK"));
    let config = sctp::AssociationConfig { max_init_retransmits: 2, ..sctp::AssociationConfig::default() };
    t.world.recording = true;
    t.connect_with(config, Conversation::default());
    t.world.run_for(seconds(8));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::NoAnswer));
    let sent = sent_by(&t.world, 0, "10.0.1.1");
    assert_eq!(sent.iter().filter(|names| names.contains("COOKIE ECHO")).count(), 3);
}

//= rfc9260#3.3.3-18 3.3.11-2
#[test]
fn a_cookie_longer_than_a_packet_comes_back_whole() {
    let mut subject = Subject::in_state(StateName::CookieWait);
    let tag = subject.own_tag;
    let cookie = [7; 3000];
    let mut packet = vec![0; 4000];
    let header = CommonHeader { source_port: 7, destination_port: 40_000, tag: VerificationTag(tag) };
    let mut writer = PacketWriter::new(&mut packet, header);
    writer.push(&Chunk::InitAck(init(&[Parameter::StateCookie(&cookie)]))).unwrap();
    let length = writer.finish();
    let t = subject.world();
    let a = t.a;
    t.world.inject(a, a_route(), &packet[..length]);
    assert_eq!(subject.state(), StateName::CookieEchoed);
    first_chunk(&subject.last_packet(), |_, chunk| match chunk {
        Chunk::CookieEcho(echo) => assert_eq!(echo.cookie, cookie),
        other => panic!("a COOKIE ECHO, not {other:?}"),
    });
}

//= rfc9260#5.2.1-3 5.2.1-4 5.2.1-5
#[test]
fn while_our_init_is_out_an_init_ack_goes_only_to_where_our_init_went() {
    let mut subject = Subject::in_state(StateName::CookieWait);
    let listed = [Parameter::Ipv4Address("10.0.1.2".parse().unwrap())];
    let t = subject.world();
    let before = t.world.records.len();
    let elsewhere = route("10.0.1.1", "192.0.2.9");
    let a = t.a;
    let packet = sim::packet(7, 40_000, 0, &[Chunk::Init(init(&listed))]);
    t.world.inject(a, elsewhere, &packet);
    assert!(t.world.records[before..].iter().all(|r| r.route.remote.to_string() == "10.0.1.2"));
}

//= rfc9260#5.2.6-3
#[test]
fn a_stale_cookie_asks_for_no_more_than_the_round_trip_and_a_second() {
    let mut subject = Subject::in_state(StateName::CookieEchoed);
    let tag = subject.own_tag;
    let causes = [Cause::StaleCookie { staleness: 50_000_000 }];
    let error = wire::ErrorChunk { causes: wire::Causes::from(&causes[..]) };
    assert_eq!(subject.answer_to(tag, &Chunk::Error(error)), ["INIT"]);
    first_chunk(&subject.last_packet(), |_, chunk| match chunk {
        Chunk::Init(init) => {
            let asked = init.parameters.iter().find_map(|p| match p {
                Ok(Parameter::CookiePreservative(ms)) => Some(ms),
                _ => None,
            });
            // The round trip that the subject measured is up to 0.5 s.
            assert!(asked.is_some_and(|ms| (1000..=1500).contains(&ms)), "{asked:?}");
        }
        other => panic!("an INIT, not {other:?}"),
    });
}

//= rfc9260#5.2.4-6 9.2-22
#[test]
fn a_peer_that_restarts_while_the_end_is_under_way_gets_shutdown_ack_and_an_error() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    let b_tag = t.info(t.b).local_tag;
    t.inject_to_b(0, &[Chunk::Init(init(&[]))]);
    let (tag, cookie) = tag_and_cookie(&t.world.records.last().unwrap().packet);
    drop_all(&mut t.world, |_, _| true);
    let nothing = t.info(t.b);
    assert_eq!(nothing.state, StateName::Established);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.clear_filter();
    drop_all(&mut t.world, |names, _| names.contains("SHUTDOWN ACK"));
    t.world.host_mut(t.a).endpoint.shutdown(now, id);
    t.world.run_for(std::time::Duration::from_millis(100));
    assert_eq!(t.state(t.b), StateName::ShutdownAckSent);
    let before = t.world.records.len();
    t.inject_to_b(tag, &[Chunk::CookieEcho(CookieEcho { cookie: &cookie })]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["ERROR", "SHUTDOWN ACK"]);
    assert_eq!((t.state(t.b), t.info(t.b).local_tag), (StateName::ShutdownAckSent, b_tag));
}

#[test]
fn data_beside_cookie_ack_is_taken() {
    let _clear = InTheClear::begin();
    let mut subject = Subject::in_state(StateName::CookieEchoed);
    let tag = subject.own_tag;
    let tsn = {
        let t = subject.world();
        let record = t.world.records.iter().find(|r| sim::chunk_names(&r.packet) == "INIT ACK").unwrap();
        first_chunk(&record.packet, |_, chunk| match chunk {
            Chunk::InitAck(ack) => ack.initial_tsn.0,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(subject.answer_to_all(tag, &[Chunk::CookieAck, data(tsn)]), ["SACK"]);
    let t = subject.world();
    assert_eq!(t.talk(t.a).received.len(), 1);
}

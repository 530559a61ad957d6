//! Tests of requirements of RFC 9260 sections 6 to 9 that no other scenario covers.

use std::time::Duration;

use sctp::{CloseReason, PathState, SendError, StateName};
use sim::{Change, Conversation, Fate, InTheClear, Reading, chunk_names};
use wire::{ChecksumMode, Chunk, ChunkType, Data, Packet, Ppid, Sack, Ssn, StreamId, Tsn, UnknownChunk};

use crate::states::Subject;
use crate::support::{Two, at_seconds, drop_all, messages, seconds, sends, sent_by, two};

fn data(tsn: Tsn, payload: &[u8]) -> Chunk<'_> {
    Chunk::Data(Data {
        immediate: false,
        unordered: true,
        begin: true,
        end: true,
        tsn,
        stream: StreamId(0),
        ssn: Ssn(0),
        ppid: Ppid(0),
        payload,
    })
}

/// Creates an association that is recorded from its INIT on. Returns it and the opener's initial TSN.
fn recorded() -> (Two, Tsn) {
    let mut t = two(1);
    t.world.recording = true;
    t.connect(Conversation::default());
    t.run_to_established();
    let packet = t.world.records[0].packet.clone();
    let first = Packet::parse(&packet, ChecksumMode::Verify).unwrap().chunks().next();
    match first {
        Some(Ok(Chunk::Init(init))) => (t, init.initial_tsn),
        other => panic!("an INIT, not {other:?}"),
    }
}

fn last_sack<R>(t: &Two, read: impl FnOnce(Sack<'_>) -> R) -> R {
    let packet = t.world.records.last().unwrap().packet.clone();
    let chunks = Packet::parse(&packet, ChecksumMode::Verify).unwrap().chunks();
    match chunks.map_while(Result::ok).last() {
        Some(Chunk::Sack(sack)) => read(sack),
        other => panic!("a SACK, not {other:?}"),
    }
}

//= rfc9260#5.1-18 6.2-1 6.2-15 6.2-25 3.3.4-1
#[test]
fn the_first_data_is_acknowledged_at_once_and_the_next_packet_is_not() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded();
    let (tag, before) = (t.info(t.b).local_tag, t.world.records.len());
    t.inject_to_b(tag, &[data(tsn, b"first")]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["SACK"]);
    let buffer = sctp::AssociationConfig::default().receive_buffer as u32;
    last_sack(&t, |sack| {
        assert_eq!((sack.cumulative_tsn, sack.gaps().count()), (tsn, 0));
        assert!((1000..=buffer).contains(&sack.a_rwnd));
    });
    t.inject_to_b(tag, &[data(tsn.next(), b"second")]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.2").len(), 1);
}

//= rfc9260#6.2-20 6.2-21 6.2-10
#[test]
fn a_packet_of_duplicates_is_acknowledged_at_once_and_each_is_reported_in_one_sack() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded();
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[data(tsn, b"x")]);
    let before = t.world.records.len();
    t.inject_to_b(tag, &[data(tsn, b"x"), data(tsn, b"x")]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["SACK"]);
    last_sack(&t, |sack| assert_eq!(sack.duplicates().collect::<Vec<_>>(), [tsn, tsn]));
    let before = t.world.records.len();
    t.inject_to_b(tag, &[data(tsn, b"x")]);
    last_sack(&t, |sack| assert_eq!(sack.duplicates().count(), 1));
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["SACK"]);
}

//= rfc9260#7.2.4-1 6.7-1
#[test]
fn while_there_is_a_gap_every_packet_is_acknowledged_at_once() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded();
    let (tag, before) = (t.info(t.b).local_tag, t.world.records.len());
    for n in 1..6 {
        t.inject_to_b(tag, &[data(tsn.plus(n), b"x")]);
    }
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["SACK"; 5]);
}

//= rfc9260#6.2-2 6.2-23 6.2-28 6.2-29 6.2-11 6.2-12
#[test]
fn a_full_receive_buffer_drops_data_and_an_emptied_buffer_sends_few_window_updates() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded();
    let id = t.id(t.b);
    t.world.host_mut(t.b).app.conversations.get_mut(&id).unwrap().reading = Reading::Never;
    let (tag, payload) = (t.info(t.b).local_tag, [0; 1400]);
    let mut sent = 0;
    while t.info(t.b).counters.data_dropped == 0 {
        t.inject_to_b(tag, &[data(tsn.plus(sent), &payload)]);
        sent += 1;
        assert!(sent < 2000, "the buffer never fills");
    }
    let taken = t.info(t.b).counters.data_received;
    last_sack(&t, |sack| {
        assert_eq!((sack.a_rwnd, sack.cumulative_tsn), (0, tsn.plus(sent - 2)));
        assert_eq!(sack.gaps().count(), 0);
    });
    t.inject_to_b(tag, &[data(tsn.plus(sent), &payload)]);
    assert_eq!(t.info(t.b).counters.data_received, taken);
    let before = t.world.records.len();
    t.world.host_mut(t.b).app.conversations.get_mut(&id).unwrap().reading = Reading::AtOnce;
    t.world.run_for(seconds(1));
    let b = t.b;
    let now = t.world.now();
    while t.world.host_mut(b).endpoint.recv(now, id).is_some() {}
    t.world.run_for(seconds(1));
    let updates = sent_by(&t.world, before, "10.0.1.2").iter().filter(|n| n.contains("SACK")).count();
    assert!((1..=8).contains(&updates), "{updates} window updates");
}

//= rfc9260#8.3-8 6.4-2
#[test]
fn a_heartbeat_comes_back_with_all_its_parameters() {
    let _clear = InTheClear::begin();
    let mut subject = Subject::in_state(StateName::Established);
    let tag = subject.own_tag;
    let value = [0, 1, 0, 8, 1, 2, 3, 4, 0xc0, 0x77, 0, 6, 9, 9, 0, 0];
    let heartbeat = UnknownChunk { chunk_type: ChunkType::HEARTBEAT, flags: 0, value: &value };
    assert_eq!(subject.answer_to(tag, &Chunk::Unknown(heartbeat)), ["HEARTBEAT ACK"]);
    let packet = subject.last_packet();
    let raw = Packet::parse(&packet, ChecksumMode::Verify).unwrap().raw_chunks().next();
    assert_eq!(raw.unwrap().unwrap().value, value);
}

/// Such HEARTBEATs come from pion at times, and Linux answers them.
#[test]
fn a_heartbeat_without_information_is_answered() {
    let _clear = InTheClear::begin();
    let mut subject = Subject::in_state(StateName::Established);
    let tag = subject.own_tag;
    let heartbeat = UnknownChunk { chunk_type: ChunkType::HEARTBEAT, flags: 0, value: &[] };
    assert_eq!(subject.answer_to(tag, &Chunk::Unknown(heartbeat)), ["HEARTBEAT ACK"]);
    let packet = subject.last_packet();
    let raw = Packet::parse(&packet, ChecksumMode::Verify).unwrap().raw_chunks().next();
    assert_eq!(raw.unwrap().unwrap().value, [0, 1, 0, 4], "the parameter, empty");
    let answer = UnknownChunk { chunk_type: ChunkType::HEARTBEAT_ACK, flags: 0, value: &[] };
    assert!(subject.answer_to(tag, &Chunk::Unknown(answer)).is_empty());
    assert_eq!(subject.state(), StateName::Established);
}

//= rfc9260#3.3.7-3 3.3.7-4
#[test]
fn an_abort_with_a_format_error_is_dropped_in_silence() {
    let mut subject = Subject::in_state(StateName::Established);
    let tag = subject.own_tag;
    let t = subject.world();
    let mut packet = sim::packet(7, 40_000, tag, &[Chunk::CookieAck, Chunk::CookieAck]);
    packet[16..20].copy_from_slice(&[6, 0, 0, 99]);
    packet[8..12].fill(0);
    let crc = wire::crc32c(&packet);
    packet[8..12].copy_from_slice(&crc.to_le_bytes());
    let (a, before) = (t.a, t.world.records.len());
    t.world.inject(a, crate::support::a_route(), &packet);
    assert!(sent_by(&t.world, before, "10.0.1.1").is_empty());
    assert_eq!(subject.state(), StateName::Established);
}

//= rfc9260#9.2-21
#[test]
fn in_all_shutdown_states_a_send_is_refused() {
    let _clear = InTheClear::begin();
    let states = [
        StateName::ShutdownPending,
        StateName::ShutdownSent,
        StateName::ShutdownReceived,
        StateName::ShutdownAckSent,
    ];
    for state in states {
        assert_eq!(Subject::in_state(state).send(), Err(SendError::Closed), "{state:?}");
    }
}

//= rfc9260#9.2-3
#[test]
fn a_peer_that_is_heard_but_does_not_hear_is_told_of_the_shutdown_again() {
    let mut subject = Subject::in_state(StateName::ShutdownSent);
    let tag = subject.own_tag;
    let t = subject.world();
    let (rto, before) = (t.info(t.a).paths[0].rto, t.world.records.len());
    for _ in 0..6 {
        subject.world().world.run_for(rto / 2);
        subject.answer_to(tag, &Chunk::Heartbeat(wire::Heartbeat { info: b"abcd" }));
    }
    let sent = sent_by(&subject.world().world, before, "10.0.1.1");
    let shutdowns = sent.iter().filter(|names| names.contains("SHUTDOWN")).count();
    assert!((2..=3).contains(&shutdowns), "{sent:?}");
}

//= rfc9260#9.2-4 9.2-14
#[test]
fn a_shutdown_ack_that_is_never_answered_is_given_up() {
    let mut t = Two::established(1);
    drop_all(&mut t.world, |names, _| names.contains("SHUTDOWN ACK"));
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.shutdown(now, id);
    t.world.run_for(Duration::from_millis(500));
    assert_eq!(t.state(t.b), StateName::ShutdownAckSent);
    drop_all(&mut t.world, |_, _| true);
    let before = t.world.records.len();
    t.world.run_until(at_seconds(2000), |_| false);
    assert!(matches!(t.talk(t.b).closed, Some(CloseReason::LostContact | CloseReason::Aborted(_))));
    let sent = sent_by(&t.world, before, "10.0.1.2");
    assert!((5..=11).contains(&sent.iter().filter(|n| n.contains("SHUTDOWN ACK")).count()), "{sent:?}");
}

//= rfc9260#8.3-5 8.2-1 8.3-3
#[test]
fn a_failed_path_is_probed_further_but_its_errors_are_counted_no_more() {
    let mut world = sim::World::new(1);
    let config = sctp::EndpointConfig::default();
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], config.clone());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], config);
    let links: Vec<_> = (1..=2)
        .map(|i| {
            let link = world.add_link(sim::LinkConfig::default());
            world.join(link, &format!("10.0.{i}.1"), &format!("10.0.{i}.2"));
            link
        })
        .collect();
    let mut t = Two { world, a, b, links };
    t.connect(Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(5));
    let now = t.world.now();
    t.world.at(now, Change::CutBoth(t.links[1], true));
    t.world.run_for(seconds(3000));
    let second = |t: &Two| {
        let path = |p: &&sctp::PathInfo| {
            p.route.local.to_string() == "10.0.2.1" && p.route.remote.to_string() == "10.0.2.2"
        };
        t.info(t.a).paths.iter().find(path).cloned().unwrap()
    };
    let failed = second(&t);
    assert_eq!((failed.state, failed.errors), (PathState::Inactive, 6));
    t.world.run_for(seconds(300));
    let later = second(&t);
    assert_eq!(later.errors, 6);
    assert!(later.packets_sent > failed.packets_sent);
}

//= rfc9260#6.1-13 6.10-4
#[test]
fn lost_data_goes_before_new_data() {
    let mut t = two(1);
    t.world.recording = true;
    let mut lost = None;
    t.world.set_filter(move |record| {
        let is_data = chunk_names(&record.packet).contains("DATA");
        if is_data && lost.is_none() {
            lost = Some(());
            return Fate::Drop;
        }
        Fate::Pass
    });
    t.connect(Conversation { bulk: 200_000, ..sends(Vec::new()) });
    t.world.run_for(seconds(5));
    let tsns: Vec<u32> = t
        .world
        .records
        .iter()
        .filter_map(|r| {
            let packet = Packet::parse(&r.packet, ChecksumMode::Verify).ok()?;
            packet.chunks().find_map(|c| match c {
                Ok(Chunk::Data(data)) => Some(data.tsn.0),
                _ => None,
            })
        })
        .collect();
    let first = tsns[0];
    let again = tsns.iter().skip(1).position(|&n| n == first).expect("sent again") + 1;
    let newest_before = tsns[..again].iter().map(|n| n.wrapping_sub(first)).max().unwrap();
    let after = tsns[again + 1].wrapping_sub(first);
    assert!(after > newest_before, "new data follows the retransmission");
    assert_eq!(t.talk(t.b).received_bytes, 200_000);
}

//= rfc9260#8.1-5
#[test]
fn acknowledged_data_begins_the_count_of_errors_anew() {
    let mut t = two(1);
    t.connect(Conversation { bulk: 1 << 40, ..sends(Vec::new()) });
    t.world.host_mut(t.b).app.template.keeps = false;
    t.world.checks = false;
    t.run_to_established();
    // The total number of timeouts exceeds Association.Max.Retrans. The number of timeouts in a row never exceeds it.
    for n in 0..8 {
        let now = t.world.now();
        t.world.at(now + seconds(2), Change::CutBoth(t.links[0], true));
        t.world.at(now + seconds(8), Change::CutBoth(t.links[0], false));
        t.world.run_for(seconds(20));
        assert_eq!(t.talk(t.a).closed, None, "outage {n}");
    }
    assert!(t.info(t.a).counters.timeouts > 10, "{}", t.info(t.a).counters.timeouts);
}

//= rfc9260#3.3.1-5 6.5-1 5.1.1-4
#[test]
fn empty_and_overlong_messages_and_streams_that_do_not_exist_are_refused() {
    let mut t = Two::established(1);
    let (id, now) = (t.id(t.a), t.world.now());
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    let mut send = |stream, message: Vec<u8>| {
        endpoint.send(now, id, StreamId(stream), Ppid(0), message.into(), sctp::SendOptions::default())
    };
    assert_eq!(send(0, Vec::new()), Err(SendError::Empty));
    assert_eq!(send(16, vec![1]), Err(SendError::NoSuchStream { stream: 16, streams: 16 }));
    let max = 1 << 20;
    assert_eq!(send(0, vec![1; max + 1]), Err(SendError::TooLong { length: max + 1, max }));
    assert_eq!(send(15, vec![1]), Ok(()));
}

//= rfc9260#6.1-16
#[test]
fn a_sack_that_waits_is_bundled_with_data() {
    let mut t = two(1);
    t.world.recording = true;
    t.connect(sends(messages(1, 100, 1)));
    t.run_to_established();
    t.world.run_for(seconds(1));
    let before = t.world.records.len();
    for host in [t.a, t.b] {
        let (id, now) = (t.id(host), t.world.now());
        let endpoint = &mut t.world.host_mut(host).endpoint;
        let options = sctp::SendOptions::default();
        endpoint.send(now, id, StreamId(0), Ppid(0), "text".into(), options).unwrap();
        t.world.run_for(Duration::from_millis(50));
    }
    assert_eq!(sent_by(&t.world, before, "10.0.1.2")[0], "SACK DATA");
}

//! Tests of partial reliability (RFC 3758, RFC 7496), with DATA and with I-DATA.

use std::time::Duration;

use base::Time;
use sctp::{
    AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions, Reliability, SendOptions,
};
use sim::{Change, Close, Conversation, Fate, InTheClear, LinkConfig, Loss, Outgoing, Reading, chunk_names};
use wire::{
    ChecksumMode, Chunk, ChunkType, ForwardTsn, ForwardTsnStream, IForwardTsn, IForwardTsnStream, List, Mid,
    Packet, Ppid, Ssn, StreamId, Tsn,
};

use crate::support::{
    Two, at_seconds, content, describe, is_chosen, lose, messages, seconds, seeds, sends, two_with, without,
};

const PARTIAL: Extensions = Extensions::NONE.with(Extension::PartialReliability);
const INTERLEAVED: Extensions = PARTIAL.with(Extension::Interleaving);

fn config(extensions: Extensions) -> AssociationConfig {
    AssociationConfig { extensions, ..AssociationConfig::default() }
}

fn start(seed: u64, link: LinkConfig, config: &AssociationConfig, talk: Conversation) -> Two {
    let mut t =
        two_with(seed, link, EndpointConfig { association: config.clone(), ..EndpointConfig::default() });
    t.world.recording = true;
    t.connect_with(config.clone(), talk);
    t
}

fn limited(reliability: Reliability, outgoing: Vec<Outgoing>) -> Conversation {
    Conversation { reliability, close: Close::After(0), ..sends(outgoing) }
}

/// Returns the numbers of messages that the opener abandoned: before any part was sent, and afterwards.
fn abandoned(t: &Two) -> (u64, u64) {
    t.events(t.a).iter().fold((0, 0), |sum, event| match event {
        Event::Abandoned { unsent, sent } => (sum.0 + unsent, sum.1 + sent),
        _ => sum,
    })
}

fn names(t: &Two) -> Vec<String> {
    t.world.records.iter().map(|r| chunk_names(&r.packet)).collect()
}

/// Asserts that the received messages are a part of the sent ones, in the order of each stream. Returns their number.
fn assert_partly_delivered(t: &Two, sent: &[Outgoing]) -> usize {
    let received = &t.talk(t.b).received;
    for stream in 0..u16::MAX {
        let mut sent = sent.iter().filter(|m| m.stream == stream && !m.unordered).peekable();
        if sent.peek().is_none() && stream > 100 {
            break;
        }
        for got in received.iter().filter(|m| m.stream == stream && !m.unordered) {
            assert!(sent.any(|m| m.bytes == got.bytes), "stream {stream}: not sent, or out of order");
        }
    }
    for got in received.iter().filter(|m| m.unordered) {
        assert!(sent.iter().any(|m| m.unordered && m.bytes == got.bytes), "never sent");
    }
    received.len()
}

#[test]
//= rfc3758#3.5-2 3.5-7 3.6-7 3.5-8 3.6-2
fn a_lost_message_without_retransmissions_is_given_up_and_the_next_one_arrives() {
    let _clear = InTheClear::begin();
    for (extensions, data, forward) in
        [(PARTIAL, "DATA", "FORWARD TSN"), (INTERLEAVED, "I-DATA", "I-FORWARD-TSN")]
    {
        let sent = messages(5, 1000, 1);
        let talk = limited(Reliability::Retransmissions(0), sent.clone());
        let mut t = start(1, LinkConfig::default(), &config(extensions), talk);
        lose(&mut t.world, data, 1);
        assert_eq!(t.run_to_end(seconds(20)), (CloseReason::Graceful, CloseReason::Graceful));
        let received = assert_partly_delivered(&t, &sent);
        let (unsent, given_up) = abandoned(&t);
        assert!(received < 5 && given_up >= 1, "{received} received, {given_up} given up");
        assert_eq!((unsent, received as u64 + given_up), (0, 5));
        assert!(names(&t).iter().any(|n| n.starts_with(forward)), "{:?}", names(&t));
    }
}

#[test]
//= rfc3758#3.5-13
fn a_lost_forward_tsn_is_sent_again() {
    let _clear = InTheClear::begin();
    let mut t = start(
        1,
        LinkConfig::default(),
        &config(PARTIAL),
        limited(Reliability::Retransmissions(0), messages(1, 1000, 1)),
    );
    let mut lost = 0;
    t.world.set_filter(move |record| {
        let names = chunk_names(&record.packet);
        let drop = names.contains("DATA") || names.contains("FORWARD TSN") && lost < 3;
        lost += usize::from(names.contains("FORWARD TSN"));
        if drop { Fate::Drop } else { Fate::Pass }
    });
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(abandoned(&t), (0, 1));
    assert_eq!(names(&t).iter().filter(|n| n.contains("FORWARD TSN")).count(), 4);
}

#[test]
fn a_message_given_up_while_a_part_of_it_is_sent_again_leaves_no_timer() {
    let _clear = InTheClear::begin();
    // The first message measures the round trip. The second fragment of the second message is sent again as a probe. When a timeout would
    // make the first fragment of this message leave again, the message is abandoned.
    let outgoing = [messages(1, 100, 1), messages(1, 2000, 1)].concat();
    let talk = limited(Reliability::Retransmissions(1), outgoing);
    let mut t = start(1, LinkConfig::default(), &config(PARTIAL), talk);
    let mut first = true;
    t.world.set_filter(move |record| {
        let passes = first || !chunk_names(&record.packet).contains("DATA");
        first &= !chunk_names(&record.packet).contains("DATA");
        if passes { Fate::Pass } else { without(ChunkType::DATA, &record.packet) }
    });
    t.run_to_end(seconds(60));
    assert_eq!(abandoned(&t), (0, 1));
    let counters = t.info(t.a).counters;
    assert_eq!((counters.timeouts, counters.tail_probes), (1, 1));
}

#[test]
fn a_message_may_be_sent_again_just_as_often_as_it_says() {
    let _clear = InTheClear::begin();
    let mut t = start(
        1,
        LinkConfig::default(),
        &config(PARTIAL),
        limited(Reliability::Retransmissions(2), messages(1, 1000, 1)),
    );
    t.world.set_filter(|record| without(ChunkType::DATA, &record.packet));
    t.run_to_end(seconds(60));
    assert_eq!(names(&t).iter().filter(|n| n.contains("DATA")).count(), 3);
    assert_eq!(abandoned(&t), (0, 1));
}

#[test]
//= rfc3758#3.3.2-4
fn without_negotiation_messages_are_delivered_whatever_their_limit() {
    for (ours, theirs) in [(PARTIAL, Extensions::NONE), (Extensions::NONE, PARTIAL)] {
        let endpoint = EndpointConfig { association: config(theirs), ..EndpointConfig::default() };
        let mut t = two_with(1, LinkConfig { loss: Loss::Uniform(0.1), ..LinkConfig::default() }, endpoint);
        t.connect_with(config(ours), limited(Reliability::Retransmissions(0), messages(100, 1000, 2)));
        assert_eq!(t.run_to_end(seconds(100)), (CloseReason::Graceful, CloseReason::Graceful));
        assert_eq!((t.talk(t.b).received.len(), abandoned(&t)), (100, (0, 0)));
    }
}

#[test]
//= rfc3758#4.1-4 4.1-6
fn messages_that_expire_behind_a_cut_link_are_reported_and_free_the_send_buffer() {
    let small = AssociationConfig { send_buffer: 20_000, ..config(PARTIAL) };
    let talk = Conversation {
        reliability: Reliability::Lifetime(Duration::from_millis(300)),
        ..sends(messages(200, 1000, 1))
    };
    let mut t = start(1, LinkConfig::default(), &small, talk);
    let link = t.links[0];
    t.world.at(Time::from_millis(45), Change::CutBoth(link, true));
    t.world.at(Time::from_millis(4000), Change::CutBoth(link, false));
    assert!(t.world.run_until(at_seconds(100), |w| {
        let host = &w.host(t.a);
        let talk = host.app.conversations.values().next().unwrap();
        let info = host.endpoint.associations().find_map(|id| host.endpoint.info(id));
        talk.outgoing.is_empty() && info.is_some_and(|i| i.send_buffered == 0)
    }));
    t.world.run_for(seconds(3));
    let (unsent, sent) = abandoned(&t);
    assert!(unsent >= 20 && sent >= 1, "unsent {unsent}, sent {sent}");
    let received = assert_partly_delivered(&t, &messages(200, 1000, 1));
    assert!(received as u64 + unsent + sent >= 200);
    let counters = t.info(t.a).counters;
    assert_eq!((counters.abandoned_unsent, counters.abandoned_sent), (unsent, sent));
}

#[test]
fn an_important_message_takes_the_room_of_unimportant_ones() {
    let _clear = InTheClear::begin();
    let small = AssociationConfig { send_buffer: 10_000, ..config(PARTIAL) };
    let mut t = start(1, LinkConfig::default(), &small, Conversation::default());
    t.run_to_established();
    let (id, now) = (t.id(t.a), t.world.now());
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    let mut send = |priority, n| {
        let options = SendOptions { reliability: Reliability::Priority(priority), ..SendOptions::default() };
        endpoint.send(now, id, StreamId(0), Ppid(0), content(n, 2000), options)
    };
    for n in 0..5 {
        send(5 + u32::from(n == 2), n).unwrap();
    }
    assert!(send(6, 90).is_err(), "no room among equals");
    send(1, 91).unwrap();
    send(1, 92).unwrap();
    t.world.run_for(seconds(2));
    let first_bytes: Vec<_> = t.talk(t.b).received.iter().map(|m| m.bytes[3]).collect();
    assert_eq!(first_bytes, [1, 3, 4, 91, 92]);
    assert_eq!(abandoned(&t), (2, 0));
}

#[test]
//= rfc3758#3.5-4 4.1-6
fn the_rest_of_a_message_that_has_begun_is_not_sent_once_its_time_is_over() {
    for extensions in [PARTIAL, INTERLEAVED] {
        let slow = LinkConfig { rate: 1_000_000, ..LinkConfig::default() };
        let mut talk = Conversation {
            reliability: Reliability::Lifetime(Duration::from_millis(500)),
            ..sends(messages(1, 200_000, 1))
        };
        talk.close = Close::After(0);
        let mut t = start(1, slow, &config(extensions), talk);
        assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
        assert_eq!((abandoned(&t), t.talk(t.b).received.len()), ((0, 1), 0));
        assert!(t.info(t.b).receive_buffered == 0, "{}", describe(&t.world));
        assert!(t.info(t.b).counters.bytes_received < 150_000);
    }
}

#[test]
//= rfc3758#3.6-11
fn a_reader_of_a_partial_message_is_notified_when_the_rest_is_abandoned() {
    for extensions in [PARTIAL, INTERLEAVED] {
        let small = AssociationConfig { receive_buffer: 20_000, ..config(extensions) };
        let slow = LinkConfig { rate: 1_000_000, ..LinkConfig::default() };
        let talk = limited(Reliability::Lifetime(Duration::from_millis(500)), messages(1, 200_000, 1));
        let mut t = start(1, slow, &small, talk);
        t.run_to_end(seconds(60));
        assert_eq!((t.talk(t.b).received.len(), t.talk(t.b).received_aborted), (0, 1));
    }
}

#[test]
fn an_association_whose_every_message_is_given_up_lives_on() {
    let _clear = InTheClear::begin();
    let mut t = start(
        1,
        LinkConfig::default(),
        &config(PARTIAL),
        limited(Reliability::Retransmissions(0), messages(30, 1000, 3)),
    );
    t.world.set_filter(|record| without(ChunkType::DATA, &record.packet));
    assert_eq!(t.run_to_end(seconds(300)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!((t.talk(t.b).received.len(), abandoned(&t).1), (0, 30));
}

/// Returns the tag that packets to `b` must have, and the opener's initial TSN.
fn tag_and_tsn(t: &Two) -> (u32, Tsn) {
    let init = Packet::parse(&t.world.records[0].packet, ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Init(init))) = init.chunks().next() else { panic!("an INIT") };
    (t.info(t.b).local_tag, init.initial_tsn)
}

/// Sends `b` a FORWARD TSN for `jump` TSNs, and returns its cumulative TSN as an offset from the initial TSN.
fn jump(extensions: Extensions, jump: u32) -> Option<u32> {
    let mut t = start(1, LinkConfig::default(), &config(extensions), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(1));
    let (tag, initial) = tag_and_tsn(&t);
    let from = t.world.records.len();
    let new_cumulative_tsn = initial.prev().plus(jump);
    if extensions.has(Extension::Interleaving) {
        let streams = [IForwardTsnStream { stream: StreamId(3), unordered: false, mid: Mid(jump) }];
        let streams = List::from(&streams[..]);
        t.inject_to_b(tag, &[Chunk::IForwardTsn(IForwardTsn { new_cumulative_tsn, streams })]);
    } else {
        let streams = [ForwardTsnStream { stream: StreamId(3), ssn: Ssn(jump as u16) }; 300];
        let streams = List::from(&streams[..]);
        t.inject_to_b(tag, &[Chunk::ForwardTsn(ForwardTsn { new_cumulative_tsn, streams })]);
    }
    t.world.run_for(seconds(1));
    t.world.records[from..].iter().find_map(|r| {
        let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
        packet.chunks().find_map(|c| match c {
            Ok(Chunk::Sack(sack)) => Some(initial.prev().distance_to(sack.cumulative_tsn)),
            _ => None,
        })
    })
}

#[test]
//= rfc3758#3.6-4
fn forward_tsn_accepts_jumps_of_any_width_ahead_and_ignores_jumps_behind() {
    let _clear = InTheClear::begin();
    for extensions in [PARTIAL, INTERLEAVED] {
        assert_eq!(jump(extensions, 1), Some(1));
        assert_eq!(jump(extensions, (1 << 31) - 1), Some((1 << 31) - 1));
        for behind in [0, 1 << 31, u32::MAX] {
            assert_eq!(jump(extensions, behind), Some(0), "{behind} is out of date");
        }
    }
}

#[test]
//= rfc8260#2.3.1-6 2.3.1-1 2-2
fn forward_tsn_of_the_wrong_kind_ends_an_interleaving_association() {
    let _clear = InTheClear::begin();
    let mut t = start(1, LinkConfig::default(), &config(INTERLEAVED), Conversation::default());
    t.run_to_established();
    let (tag, initial) = tag_and_tsn(&t);
    let chunk = ForwardTsn { new_cumulative_tsn: initial, streams: List::EMPTY };
    t.inject_to_b(tag, &[Chunk::ForwardTsn(chunk)]);
    t.world.run_for(seconds(1));
    assert!(matches!(t.talk(t.b).closed, Some(CloseReason::Aborted(_))));
}

#[test]
//= rfc3758#3.5-12 3.5-10 3.5-11
fn a_skip_of_more_streams_than_fit_a_packet_is_sent_in_several_forward_tsns() {
    let _clear = InTheClear::begin();
    let sent: Vec<_> = messages(600, 20, 600);
    let many = AssociationConfig { outbound_streams: 600, ..config(PARTIAL) };
    let talk = Conversation { reliability: Reliability::Retransmissions(0), ..sends(sent) };
    let mut t = start(1, LinkConfig::default(), &many, talk);
    t.world.set_filter(|record| without(ChunkType::DATA, &record.packet));
    t.world.run_until(at_seconds(200), |w| {
        let host = w.host(t.a);
        host.endpoint
            .associations()
            .filter_map(|id| host.endpoint.info(id))
            .any(|i| i.counters.abandoned_sent == 600)
    });
    t.world.run_for(seconds(10));
    assert_eq!(t.info(t.a).send_buffered, 0);
    // Every stream continues with the right number.
    t.world.clear_filter();
    let (id, now) = (t.id(t.a), t.world.now());
    for stream in [0, 1, 300, 599] {
        let options = SendOptions::default();
        let bytes = content(stream.into(), 50);
        t.world.host_mut(t.a).endpoint.send(now, id, StreamId(stream), Ppid(0), bytes, options).unwrap();
    }
    t.world.run_for(seconds(5));
    let streams: Vec<_> = t.talk(t.b).received.iter().map(|m| m.stream).collect();
    assert_eq!(streams, [0, 1, 300, 599], "{}", describe(&t.world));
}

#[test]
fn bad_links_deliver_a_part_in_order_and_both_sides_end_well() {
    let policies = [
        Reliability::Lifetime(Duration::from_millis(150)),
        Reliability::Retransmissions(0),
        Reliability::Retransmissions(1),
        Reliability::Priority(3),
    ];
    let (mut lost, mut forwards) = (0, 0);
    for seed in seeds(300, [11_012_471, 12_033_049]) {
        let link = LinkConfig {
            rate: 5_000_000,
            loss: if seed % 2 == 0 { Loss::Uniform(0.08) } else { Loss::Bursts { begin: 0.05, end: 0.7 } },
            reorder: 0.05,
            reorder_by: Duration::from_millis(40),
            duplicate: 0.03,
            ..LinkConfig::default()
        };
        let settings = AssociationConfig {
            send_buffer: 120_000,
            receive_buffer: 60_000,
            ..config(if seed % 3 == 0 { INTERLEAVED } else { PARTIAL })
        };
        let mut sent = messages(150, 900, 5);
        sent.extend(messages(20, 9000, 3));
        sent.extend(messages(1, 100_000, 1));
        for (n, message) in sent.iter_mut().enumerate() {
            message.bytes = content(n, message.bytes.len());
            message.unordered = n % 7 == 3;
        }
        let talk = limited(policies[seed as usize % 4], sent.clone());
        let mut t = start(seed, link, &settings, talk);
        if seed % 5 == 0 {
            t.world.host_mut(t.b).app.template.reading = Reading::Every(Duration::from_millis(3));
        }
        eprintln!("seed {seed}");
        if !t.comes_up(&settings) {
            continue;
        }
        let end = t.run_to_end(seconds(600));
        assert_eq!(end, (CloseReason::Graceful, CloseReason::Graceful), "seed {seed}");
        let received = assert_partly_delivered(&t, &sent);
        let (unsent, given_up) = abandoned(&t);
        assert!(received as u64 + unsent + given_up >= sent.len() as u64, "seed {seed}: messages vanished");
        lost += sent.len() - received;
        forwards += t.info(t.b).counters.forward_tsns_received;
    }
    assert!(
        is_chosen() || lost > 100 && forwards > 100,
        "{lost} lost, {forwards} forwards: the links were too good"
    );
}

//! Tests of stream schedulers and of interleaved messages (RFC 8260).

use std::num::NonZeroU16;
use std::time::Duration;

use base::Time;
use sctp::{
    AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions, Scheduler, StreamError,
    StreamId,
};
use sim::{Close, Conversation, InTheClear, LinkConfig, Loss, Outgoing, Reading, chunk_names};
use wire::{ChecksumMode, Chunk, Data, Fragment, Fsn, IData, Mid, Packet, Ppid, Ssn, Tsn};

use crate::support::{Two, at_seconds, content, describe, messages, seconds, sends, two_with};

const INTERLEAVED: Extensions = Extensions::NONE.with(Extension::Interleaving);

const SCHEDULERS: [Scheduler; 6] = [
    Scheduler::FirstCome,
    Scheduler::RoundRobin,
    Scheduler::RoundRobinPerPacket,
    Scheduler::Priority,
    Scheduler::FairBandwidth,
    Scheduler::WeightedFair,
];

fn config(extensions: Extensions, scheduler: Scheduler) -> AssociationConfig {
    // The buffer takes all messages at once, so the scheduler alone decides their order.
    AssociationConfig { extensions, scheduler, buffer_start: 1 << 20, ..AssociationConfig::default() }
}

/// Creates an association that is up over `link`.
fn up(config: &AssociationConfig, link: LinkConfig) -> Two {
    let mut t =
        two_with(1, link, EndpointConfig { association: config.clone(), ..EndpointConfig::default() });
    t.world.recording = true;
    t.connect_with(config.clone(), Conversation::default());
    t.run_to_established();
    t
}

fn slow() -> LinkConfig {
    LinkConfig { rate: 10_000_000, ..LinkConfig::default() }
}

/// Queues all these messages at once.
fn talk(t: &mut Two, outgoing: Vec<Outgoing>) {
    let id = t.id(t.a);
    let conversation = t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap();
    conversation.outgoing.extend(outgoing);
    t.world.run_for(Duration::from_nanos(1));
}

fn one(stream: u16, n: usize, length: usize) -> Outgoing {
    Outgoing { stream, unordered: false, bytes: content(n, length) }
}

/// Returns the streams of the received messages in order.
fn arrivals(t: &Two) -> Vec<u16> {
    t.talk(t.b).received.iter().map(|m| m.stream).collect()
}

/// Returns the streams of the DATA or I-DATA chunks in each packet.
fn sent_streams(t: &Two) -> Vec<Vec<u16>> {
    let packets = t.world.records.iter().map(|r| {
        let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
        let streams = packet.chunks().filter_map(|c| match c {
            Ok(Chunk::Data(d)) => Some(d.stream.0),
            Ok(Chunk::IData(d)) => Some(d.stream.0),
            _ => None,
        });
        streams.collect::<Vec<_>>()
    });
    packets.filter(|p| !p.is_empty()).collect()
}

#[test]
fn a_long_message_delays_a_more_important_one_only_where_messages_cannot_interleave() {
    for (extensions, first) in [(Extensions::NONE, 1), (INTERLEAVED, 2)] {
        let mut t = up(&config(extensions, Scheduler::Priority), slow());
        let (now, id) = (t.world.now(), t.id(t.a));
        t.world.host_mut(t.a).endpoint.set_stream_priority(now, id, StreamId(1), 9).unwrap();
        talk(&mut t, vec![one(1, 0, 500_000)]);
        t.world.run_for(Duration::from_millis(100));
        talk(&mut t, vec![one(2, 1, 5000)]);
        t.world.run_for(seconds(5));
        assert_eq!(arrivals(&t)[0], first);
        assert_eq!(arrivals(&t).len(), 2);
    }
}

#[test]
//= rfc8260#2.2.1-1 2.2.1-2 2.2.1-3 2-1
fn with_i_data_no_data_chunk_leaves_and_without_it_no_i_data() {
    for (extensions, wanted, unwanted) in
        [(INTERLEAVED, "I-DATA", "DATA"), (Extensions::NONE, "DATA", "I-DATA")]
    {
        let mut t = up(&config(extensions, Scheduler::FirstCome), slow());
        talk(&mut t, vec![one(1, 0, 5000)]);
        t.world.run_for(seconds(1));
        let names: Vec<_> = t.world.records.iter().map(|r| chunk_names(&r.packet)).collect();
        assert!(names.iter().any(|n| n.split(' ').any(|n| n == wanted)), "{names:?}");
        assert!(!names.iter().any(|n| n.split(' ').any(|n| n == unwanted)), "{names:?}");
    }
}

#[test]
//= rfc8260#2.2.2-1 2.2.2-2 2.2.2-3
fn the_second_fragment_of_a_message_has_number_one() {
    let _clear = InTheClear::begin();
    let mut t = up(&config(INTERLEAVED, Scheduler::FirstCome), slow());
    talk(&mut t, vec![one(1, 0, 4000)]);
    t.world.run_for(seconds(1));
    let numbers = t.world.records.iter().flat_map(|r| {
        let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
        let fragments = packet.chunks().filter_map(|c| match c {
            Ok(Chunk::IData(d)) => Some((d.fragment, d.end)),
            _ => None,
        });
        fragments.collect::<Vec<_>>()
    });
    let expected = [
        (Fragment::First(Ppid(0)), false),
        (Fragment::Later(Fsn(1)), false),
        (Fragment::Later(Fsn(2)), true),
    ];
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
}

#[test]
fn packets_hold_chunks_of_one_stream_under_round_robin_per_packet() {
    let _clear = InTheClear::begin();
    for extensions in [Extensions::NONE, INTERLEAVED] {
        let mut t = up(&config(extensions, Scheduler::RoundRobinPerPacket), slow());
        talk(&mut t, messages(300, 200, 3));
        t.world.run_for(seconds(2));
        let packets = sent_streams(&t);
        assert!(packets.iter().all(|p| p.iter().all(|s| *s == p[0])), "{packets:?}");
        assert!(packets.iter().any(|p| p.len() > 4), "chunks are bundled");
        let changes = packets.windows(2).filter(|w| w[0][0] != w[1][0]).count();
        assert!(changes * 2 > packets.len(), "streams take turns: {packets:?}");
        assert_eq!(arrivals(&t).len(), 300);
    }
}

#[test]
//= rfc8260#3-1
fn stream_weights_divide_the_sent_messages() {
    for extensions in [Extensions::NONE, INTERLEAVED] {
        let mut t = up(&config(extensions, Scheduler::WeightedFair), slow());
        let (now, id) = (t.world.now(), t.id(t.a));
        let endpoint = &mut t.world.host_mut(t.a).endpoint;
        endpoint.set_stream_weight(now, id, StreamId(1), NonZeroU16::new(4).unwrap()).unwrap();
        talk(&mut t, (0..200).flat_map(|n| [one(1, n, 2000), one(2, n + 1000, 2000)]).collect());
        t.world.run_for(seconds(5));
        let first = arrivals(&t)[..100].iter().filter(|s| **s == 1).count();
        assert!((76..=84).contains(&first), "stream 1 had {first} of the first 100 messages");
    }
}

#[test]
fn every_scheduler_delivers_everything_in_order_over_bad_links_while_it_is_changed() {
    for (n, scheduler) in SCHEDULERS.into_iter().cycle().take(24).enumerate() {
        let extensions = if n % 4 < 2 { INTERLEAVED } else { Extensions::NONE };
        let link = LinkConfig {
            loss: Loss::Uniform(0.03),
            reorder: 0.1,
            reorder_by: Duration::from_millis(20),
            duplicate: 0.03,
            ..slow()
        };
        let settings = AssociationConfig { receive_buffer: 50_000, ..config(extensions, scheduler) };
        let endpoint = EndpointConfig { association: settings.clone(), ..EndpointConfig::default() };
        let mut t = two_with(n as u64, link, endpoint);
        let mut sent = messages(200, 700, 9);
        sent.extend((0..12).map(|n| one(n % 4, 1000 + usize::from(n), 30_000)));
        sent.push(one(8, 2000, 200_000));
        if n % 3 == 0 {
            t.world.host_mut(t.b).app.template.reading = Reading::Every(Duration::from_millis(2));
        }
        t.connect_with(settings, Conversation { close: Close::After(0), ..sends(sent.clone()) });
        t.run_to_established();
        for (step, next) in SCHEDULERS.into_iter().enumerate() {
            t.world.run_for(Duration::from_millis(60));
            let (now, id) = (t.world.now(), t.id(t.a));
            let endpoint = &mut t.world.host_mut(t.a).endpoint;
            endpoint.set_scheduler(now, id, next);
            let stream = StreamId(step as u16);
            endpoint.set_stream_priority(now, id, stream, (7 * step % 4) as u16).unwrap();
            endpoint.set_stream_weight(now, id, stream, NonZeroU16::new(step as u16 + 1).unwrap()).unwrap();
        }
        assert_eq!(
            t.run_to_end(seconds(200)),
            (CloseReason::Graceful, CloseReason::Graceful),
            "{scheduler:?}"
        );
        for stream in 0..9 {
            let of: Vec<_> = sent.iter().filter(|m| m.stream == stream).map(|m| &m.bytes).collect();
            let got: Vec<_> =
                t.talk(t.b).received.iter().filter(|m| m.stream == stream).map(|m| &m.bytes).collect();
            assert!(of == got, "{scheduler:?} then others, stream {stream}: {}", describe(&t.world));
        }
    }
}

#[test]
//= rfc8260#2.2.2-6
fn two_messages_longer_than_the_receive_buffer_arrive_in_parts_side_by_side() {
    let _clear = InTheClear::begin();
    let settings = AssociationConfig { receive_buffer: 40_000, ..config(INTERLEAVED, Scheduler::RoundRobin) };
    let mut t = up(&settings, slow());
    let sent = vec![one(1, 0, 300_000), one(2, 1, 300_000)];
    talk(&mut t, sent.clone());
    t.world.run_for(seconds(10));
    let received = &t.talk(t.b).received;
    assert_eq!(received.len(), 2, "{}", describe(&t.world));
    for (got, sent) in received.iter().zip(&sent) {
        assert!(got.parts > 1 && got.bytes == sent.bytes);
    }
    let ends: Vec<_> = sent_streams(&t).concat().into_iter().rev().take(10).collect();
    assert!(ends.contains(&1) && ends.contains(&2), "the fragments alternated to the end: {ends:?}");
}

#[test]
fn thousands_of_streams_share_the_association() {
    for scheduler in SCHEDULERS {
        let settings = AssociationConfig {
            outbound_streams: 4000,
            inbound_streams: 4000,
            ..config(INTERLEAVED, scheduler)
        };
        let mut t = up(&settings, LinkConfig::default());
        t.world.checks = false;
        talk(&mut t, messages(8000, 100, 4000));
        assert!(
            t.world.run_until(at_seconds(30), |w| {
                w.host(t.b).app.conversations.values().all(|c| c.received.len() == 8000)
            }),
            "{scheduler:?}"
        );
    }
}

#[test]
fn a_stream_that_does_not_exist_has_no_settings() {
    let mut t = up(&config(Extensions::NONE, Scheduler::Priority), slow());
    let (now, id) = (t.world.now(), t.id(t.a));
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    let error = StreamError::NoSuchStream { stream: 16, streams: 16 };
    assert_eq!(endpoint.set_stream_priority(now, id, StreamId(16), 1), Err(error.clone()));
    assert_eq!(endpoint.set_stream_weight(now, id, StreamId(16), NonZeroU16::MIN), Err(error));
    assert_eq!(endpoint.set_stream_priority(now, id, StreamId(15), 1), Ok(()));
}

/// Returns the tag of packets to `b`, and the opener's initial TSN.
fn tag_and_tsn(t: &Two) -> (u32, Tsn) {
    let init = Packet::parse(&t.world.records[0].packet, ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Init(init))) = init.chunks().next() else { panic!("an INIT") };
    (t.info(t.b).local_tag, init.initial_tsn)
}

fn i_data(tsn: Tsn, mid: u32, fragment: Fragment, end: bool) -> Chunk<'static> {
    Chunk::IData(IData {
        immediate: true,
        unordered: false,
        end,
        tsn,
        stream: StreamId(1),
        mid: Mid(mid),
        fragment,
        payload: b"crafted",
    })
}

#[test]
//= rfc8260#2.2.3-3
fn data_where_i_data_was_negotiated_ends_the_association() {
    let _clear = InTheClear::begin();
    let mut t = up(&config(INTERLEAVED, Scheduler::FirstCome), slow());
    let (tag, tsn) = tag_and_tsn(&t);
    let data = Data {
        immediate: false,
        unordered: false,
        begin: true,
        end: true,
        tsn,
        stream: StreamId(0),
        ssn: Ssn(0),
        ppid: Ppid(0),
        payload: b"x",
    };
    t.inject_to_b(tag, &[Chunk::Data(data)]);
    t.world.run_for(seconds(1));
    assert!(matches!(t.talk(t.b).closed, Some(CloseReason::Aborted(_))));
}

#[test]
fn i_data_that_was_not_negotiated_ends_the_association() {
    let _clear = InTheClear::begin();
    let mut t = up(&config(Extensions::NONE, Scheduler::FirstCome), slow());
    let (tag, tsn) = tag_and_tsn(&t);
    t.inject_to_b(tag, &[i_data(tsn, 0, Fragment::First(Ppid(0)), true)]);
    t.world.run_for(seconds(1));
    assert!(matches!(t.talk(t.b).closed, Some(CloseReason::Aborted(_))));
}

#[test]
fn crafted_fragment_numbers_take_limited_memory_and_keep_the_association_up() {
    let mut t = up(&config(INTERLEAVED, Scheduler::FirstCome), slow());
    let (tag, tsn) = tag_and_tsn(&t);
    let later = |n: u32| Fragment::Later(Fsn(n));
    let crafted = [
        (u32::MAX, Fragment::First(Ppid(0)), true),
        (1 << 31, Fragment::First(Ppid(0)), true),
        ((1 << 31) - 1, later(7), false),
        (0, later(u32::MAX), true),
        (0, later(0), true),
        (0, later(1 << 31), false),
        (0, later((1 << 31) - 1), false),
        (0, later(2), true),
        (0, later(1), true),
    ];
    for (n, (mid, fragment, end)) in (0..).zip(crafted) {
        t.inject_to_b(tag, &[i_data(tsn.plus(n), mid, fragment, end)]);
        t.world.run_for(Duration::from_millis(1));
    }
    assert!(t.talk(t.b).received.is_empty() && t.talk(t.b).closed.is_none());
    assert!(t.info(t.b).receive_buffered < 9 * (7 + 64) + 1);
    t.inject_to_b(tag, &[i_data(tsn.plus(9), 0, Fragment::First(Ppid(0)), false)]);
    t.world.run_for(Duration::from_millis(1));
    assert!(t.talk(t.b).received.is_empty());
    assert!(t.events(t.b).iter().all(|e| !matches!(e, Event::Closed(_))));
    assert!(t.world.now() < Time::ZERO + seconds(5));
}

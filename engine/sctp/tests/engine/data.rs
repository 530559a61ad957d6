//! Tests of data transfer (RFC 9260 section 6): order, fragments, windows, losses, and impossible SACKs.

use std::time::Duration;

use sctp::{
    AssociationConfig, CloseReason, Endpoint, EndpointConfig, LimitedBy, PathError, SendOptions, StateName,
};
use sim::{Conversation, Fate, InTheClear, LinkConfig, Loss, Outgoing, Reading, World, chunk_names};
use wire::{ChecksumMode, Chunk, Data, GapBlock, Heartbeat, Packet, Ppid, Sack, Ssn, StreamId, Tsn};

use crate::states::Subject;
use crate::support::{
    Two, a_route, at_seconds, content, describe, drop_all, messages, seconds, sends, sends_then_closes,
    sent_by, two, two_with,
};

fn small_buffers(send_buffer: usize, receive_buffer: usize) -> EndpointConfig {
    let association = AssociationConfig { send_buffer, receive_buffer, ..AssociationConfig::default() };
    EndpointConfig { association, ..EndpointConfig::default() }
}

fn data(tsn: u32, ssn: u16, payload: &[u8]) -> Chunk<'_> {
    Chunk::Data(Data {
        immediate: false,
        unordered: false,
        begin: true,
        end: true,
        tsn: Tsn(tsn),
        stream: StreamId(0),
        ssn: Ssn(ssn),
        ppid: Ppid(0),
        payload,
    })
}

/// Returns the initial TSN of the opening host, taken from its INIT.
fn initial_tsn(world: &World) -> u32 {
    let packet = Packet::parse(&world.records[0].packet, ChecksumMode::Verify).unwrap();
    match packet.chunks().next() {
        Some(Ok(Chunk::Init(init))) => init.initial_tsn.0,
        other => panic!("an INIT, not {other:?}"),
    }
}

/// Creates an association that is recorded from its INIT on. Returns it and the opener's initial TSN.
fn recorded(seed: u64, config: EndpointConfig) -> (Two, u32) {
    let mut t = two_with(seed, LinkConfig::default(), config);
    t.world.recording = true;
    t.connect(Conversation::default());
    t.run_to_established();
    let tsn = initial_tsn(&t.world);
    (t, tsn)
}

#[test]
//= rfc9260#6.6-1 6.6-2
fn many_streams_each_keep_their_own_order_over_a_bad_link() {
    let link = LinkConfig {
        loss: Loss::Uniform(0.05),
        reorder: 0.2,
        reorder_by: Duration::from_millis(30),
        duplicate: 0.05,
        corrupt: 0.02,
        ..LinkConfig::default()
    };
    let mut t = two_with(3, link, EndpointConfig::default());
    let sent = messages(400, 900, 16);
    t.connect(sends_then_closes(sent.clone()));
    assert_eq!(t.run_to_end(seconds(200)), (CloseReason::Graceful, CloseReason::Graceful));
    for stream in 0..16 {
        let of = |s: &u16| *s == stream;
        let sent: Vec<_> = sent.iter().filter(|m| of(&m.stream)).map(|m| &m.bytes).collect();
        let got: Vec<_> = t.talk(t.b).received.iter().filter(|m| of(&m.stream)).map(|m| &m.bytes).collect();
        assert_eq!(sent, got, "stream {stream}");
    }
}

#[test]
//= rfc9260#3.3.1-3
fn an_unordered_message_overtakes_a_lost_ordered_one() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    crate::support::lose(&mut t.world, "DATA", 1);
    let late = Outgoing { stream: 0, unordered: false, bytes: content(0, 1400) };
    let quick = Outgoing { stream: 0, unordered: true, bytes: content(1, 1400) };
    t.connect(sends(vec![late.clone(), quick.clone()]));
    t.world.run_for(seconds(5));
    let order: Vec<_> = t.talk(t.b).received.iter().map(|m| m.bytes.clone()).collect();
    assert_eq!(order, [quick.bytes, late.bytes]);
}

#[test]
//= rfc9260#6.9-15 6-8
fn a_1_mib_message_is_delivered_in_parts_through_a_64_kib_receive_buffer() {
    let mut t = two_with(1, LinkConfig::default(), small_buffers(2 << 20, 64 << 10));
    let message = Outgoing { stream: 3, unordered: false, bytes: content(1, 1 << 20) };
    t.world.host_mut(t.b).app.template.reading = Reading::Every(Duration::from_millis(1));
    let config = small_buffers(2 << 20, 64 << 10).association;
    t.connect_with(config, sends_then_closes(vec![message.clone()]));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    let received = &t.talk(t.b).received;
    assert!(received.len() == 1 && received[0].bytes == message.bytes);
    assert!(received[0].parts > 10, "{} parts", received[0].parts);
}

#[test]
//= rfc9260#6-11
fn small_messages_share_packets() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    t.world.recording = true;
    t.connect(sends_then_closes(messages(100, 20, 1)));
    t.run_to_end(seconds(5));
    let packets = sent_by(&t.world, 0, "10.0.1.1").iter().filter(|names| names.contains("DATA")).count();
    assert!(packets <= 5, "{packets} packets for 100 messages of 20 bytes");
}

/// Finds a seed for an endpoint whose first association begins less than 1,000 TSNs before the wrap.
fn seed_near_the_wrap() -> [u8; 32] {
    // An earlier run of this search found `WRAP_SEED`. If a change of the engine gives this seed another TSN, the search continues from
    // this seed.
    let begin = WRAP_SEED;
    for n in begin..begin + 100_000_000 {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&n.to_be_bytes());
        if tsn_of_seed(seed) > u32::MAX - 1000 {
            return seed;
        }
    }
    panic!("no seed near the wrap");
}

const WRAP_SEED: u64 = 2_223_774;

fn tsn_of_seed(seed: [u8; 32]) -> u32 {
    let mut endpoint = Endpoint::new(base::Time::ZERO, EndpointConfig::default(), seed);
    let connect = sctp::Connect {
        local_port: 1,
        remote_port: 2,
        init_routes: vec![a_route()],
        local_addresses: Vec::new(),
        config: AssociationConfig::default(),
    };
    endpoint.connect(base::Time::ZERO, connect).unwrap();
    let mut buf = [0; 1500];
    let sent = endpoint.poll_transmit(base::Time::ZERO, &mut buf).unwrap();
    let packet = Packet::parse(&buf[..sent.len], ChecksumMode::Ignore).unwrap();
    match packet.chunks().next() {
        Some(Ok(Chunk::Init(init))) => init.initial_tsn.0,
        other => panic!("an INIT, not {other:?}"),
    }
}

#[test]
//= rfc9260#1.6-1 1.6-2 1.6-4 3.3.1-12 3.3.1-13
fn tsns_pass_their_wrap_under_loss() {
    let link = LinkConfig { loss: Loss::Uniform(0.02), ..LinkConfig::default() };
    let mut t = two_with(1, link, EndpointConfig::default());
    let seed = seed_near_the_wrap();
    t.world.host_mut(t.a).endpoint = Endpoint::new(base::Time::ZERO, EndpointConfig::default(), seed);
    t.connect(sends_then_closes(messages(3000, 1400, 4)));
    assert_eq!(t.run_to_end(seconds(300)), (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), 3000);
}

#[test]
//= rfc9260#1.6-5 6.5-4 6.5-5
fn ssns_pass_their_wrap() {
    let mut t = two(1);
    t.world.checks = false;
    t.connect(sends_then_closes(messages(70_000, 4, 1)));
    assert_eq!(t.run_to_end(seconds(60)), (CloseReason::Graceful, CloseReason::Graceful));
    let received = &t.talk(t.b).received;
    assert!(received.iter().enumerate().all(|(n, m)| m.bytes == content(n, 4)) && received.len() == 70_000);
}

/// Runs a bulk transfer whose reader begins only at `second`.
fn reader_that_begins_at(second: u64) -> Two {
    let link = LinkConfig { queue_bytes: 10 << 20, queue_packets: 10_000, ..LinkConfig::default() };
    let mut t = two_with(1, link, EndpointConfig::default());
    t.world.host_mut(t.b).app.template.reading = Reading::Never;
    t.connect(Conversation { bulk: 4_000_000, ..sends(Vec::new()) });
    t.world.run_until(at_seconds(second), |_| false);
    let id = t.id(t.b);
    t.world.host_mut(t.b).app.conversations.get_mut(&id).unwrap().reading = Reading::AtOnce;
    t
}

#[test]
fn the_cause_that_limits_a_sender_is_reported() {
    let _clear = InTheClear::begin();
    let limit = |t: &Two| (t.info(t.a).limited_by, t.info(t.a).send_waiting > 0);
    let mut t = reader_that_begins_at(30);
    assert_eq!(limit(&t), (LimitedBy::Receiver, true), "nobody has read");
    t.world.run_for(seconds(60));
    assert_eq!(limit(&t), (LimitedBy::Driver, false), "all is sent");
    let link = LinkConfig { rate: 1_000_000, ..LinkConfig::default() };
    let mut t = two_with(1, link, EndpointConfig::default());
    t.connect(sends(messages(200, 4000, 1)));
    t.world.run_for(seconds(2));
    assert_eq!(limit(&t), (LimitedBy::Network, true), "the link is slow");
}

#[test]
//= rfc9260#6.1-2 6.1-5 6.1-6 6.2-11 6.2.1-1
fn a_window_closed_for_ten_minutes_fails_no_path_and_loses_nothing() {
    let mut t = reader_that_begins_at(600);
    assert_eq!(t.info(t.a).paths[0].state, sctp::PathState::Active);
    assert!(t.info(t.b).receive_buffered <= 1 << 20 | 1 << 17);
    let changes = t.events(t.a).into_iter().filter(|e| matches!(e, sctp::Event::PathChanged { .. })).count();
    assert_eq!(changes, 0, "{}", describe(&t.world));
    // The window update arrives within half a round trip. The next window probe is due seconds later, so it is needless.
    t.world.run_for(Duration::from_millis(100));
    assert!(t.info(t.a).peer_rwnd > 0, "{}", describe(&t.world));
    t.world.run_for(seconds(2));
    assert_eq!(t.talk(t.b).received_bytes, 4_000_000, "{}", describe(&t.world));
}

#[test]
//= rfc9260#6.1-5 6.1-6
fn a_zero_window_before_the_first_chunk_is_probed_with_backoff_and_fails_no_path() {
    let _clear = InTheClear::begin();
    let mut subject = Subject::in_state(StateName::Established);
    subject.send().unwrap();
    let (tag, nothing) = (subject.own_tag, subject.own_tsn().prev());
    let (gaps, duplicates) = ((&[][..]).into(), (&[][..]).into());
    let sack = Chunk::Sack(Sack { cumulative_tsn: nothing, a_rwnd: 0, gaps, duplicates });
    let (mut seen, mut probes) = (0, 0);
    for _ in 0..3000 {
        subject.world().world.run_for(Duration::from_millis(100));
        let records = &subject.world().world.records;
        let sent: Vec<_> = records[seen..].iter().map(|r| r.packet.clone()).collect();
        seen = records.len();
        for packet in sent {
            let names = sim::chunk_names(&packet);
            if names.contains("DATA") {
                probes += 1;
                subject.answer_to(tag, &sack);
            } else if names == "HEARTBEAT" {
                let info = packet[20..].to_vec();
                subject.answer_to(tag, &Chunk::HeartbeatAck(Heartbeat { info: &info }));
            }
        }
    }
    let t = subject.world();
    let changes = t.events(t.a).into_iter().filter(|e| matches!(e, sctp::Event::PathChanged { .. })).count();
    assert_eq!(changes, 0, "{}", describe(&t.world));
    assert!((10..80).contains(&probes), "{probes} probes in 300 s");
}

#[test]
//= rfc9260#6.1-5
fn a_lost_window_update_is_made_up_for_by_the_next_probe() {
    let mut t = reader_that_begins_at(10);
    crate::support::lose(&mut t.world, "SACK", 1);
    t.world.run_for(seconds(30));
    assert_eq!(t.talk(t.b).received_bytes, 4_000_000, "{}", describe(&t.world));
}

#[test]
//= rfc9260#6.1-2 6.1-9 6.2-6 6.2-24
fn a_slow_reader_holds_a_bounded_amount_of_data_and_few_chunks_are_dropped() {
    for length in [100, 1452, 50_000] {
        let mut t = two_with(1, LinkConfig::default(), small_buffers(1 << 20, 100_000));
        t.world.host_mut(t.b).app.template.reading = Reading::Every(Duration::from_millis(5));
        t.connect(sends_then_closes(messages(400_000 / length, length, 1)));
        let b = t.b;
        t.world.run_until(at_seconds(100), |w| {
            let endpoint = &w.host(b).endpoint;
            let info = endpoint.associations().find_map(|id| endpoint.info(id));
            let held = info.map_or(0, |i| i.receive_buffered);
            assert!(held <= 210_000, "{held} bytes held of messages of {length}");
            false
        });
        assert_eq!(t.talk(t.b).received.len(), 400_000 / length, "{}", describe(&t.world));
        if length > 1000 {
            let dropped = t.info(t.b).counters.data_dropped;
            assert!(dropped < 20, "{dropped} chunks of {length} dropped");
        }
    }
}

#[test]
//= rfc9260#6.2-21 6.2-26
fn a_duplicate_chunk_is_delivered_once() {
    let _clear = InTheClear::begin();
    let link = LinkConfig { duplicate: 1.0, ..LinkConfig::default() };
    let mut t = two_with(1, link, EndpointConfig::default());
    t.connect(sends_then_closes(messages(100, 1000, 2)));
    t.run_to_end(seconds(10));
    assert_eq!(t.talk(t.b).received.len(), 100);
    assert!(t.info(t.b).counters.data_duplicate >= 90);
}

#[test]
fn a_gap_is_reported_at_once() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded(1, EndpointConfig::default());
    let (tag, before) = (t.info(t.b).local_tag, t.world.records.len());
    t.inject_to_b(tag, &[data(tsn.wrapping_add(1), 1, b"second")]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["SACK"]);
}

#[test]
fn a_duplicate_chunk_is_acknowledged_at_once() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded(1, EndpointConfig::default());
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[data(tsn, 0, b"first")]);
    let before = t.world.records.len();
    t.inject_to_b(tag, &[data(tsn, 0, b"first")]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["SACK"]);
}

#[test]
//= rfc9260#6.4-5 6.7-4 7.2.4-5
fn a_single_loss_is_repaired_without_a_timeout() {
    let mut t = two(1);
    let mut seen = 0;
    t.world.set_filter(move |record| {
        seen += usize::from(chunk_names(&record.packet).contains("DATA"));
        if seen == 20 {
            seen += 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    t.connect(sends_then_closes(messages(200, 1400, 1)));
    t.run_to_end(seconds(10));
    let counters = t.info(t.a).counters;
    assert_eq!((counters.timeouts, counters.fast_recoveries, counters.data_retransmitted), (0, 1, 1));
}

#[test]
//= rfc9260#6.1-18 6.3.3-2
fn a_chunk_lost_twice_needs_no_timeout_and_a_chunk_lost_for_seconds_needs_one() {
    let _clear = InTheClear::begin();
    for (losses, timeouts) in [(2, 0), (200, 1)] {
        let t = after_losses_of_one_chunk(losses);
        assert_eq!(t.talk(t.b).received.len(), 200);
        assert_eq!(t.info(t.a).counters.timeouts.min(1), timeouts, "{losses} losses");
    }
}

/// Transfers 200 messages. During the first two seconds, one chunk is dropped up to `most` times.
fn after_losses_of_one_chunk(most: usize) -> Two {
    let mut t = two(1);
    let mut victim = None;
    let mut losses = 0;
    t.world.set_filter(move |record| {
        let packet = Packet::parse(&record.packet, ChecksumMode::Verify).unwrap();
        let Some(Ok(Chunk::Data(data))) = packet.chunks().next() else { return Fate::Pass };
        let victim = *victim.get_or_insert(data.tsn.plus(20));
        if data.tsn == victim && losses < most && record.at < at_seconds(2) {
            losses += 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    t.connect(sends_then_closes(messages(200, 1400, 1)));
    t.run_to_end(seconds(10));
    t
}

/// Returns an established sender that has received a SACK with `gaps`. The SACK cumulatively acknowledges `ahead` TSNs that the sender
/// never sent.
fn after_sack(ahead: u32, gaps: &[GapBlock]) -> Two {
    let (mut t, tsn) = recorded(1, EndpointConfig::default());
    let sack = Sack {
        cumulative_tsn: Tsn(tsn).prev().plus(ahead),
        a_rwnd: 100_000,
        gaps: gaps.into(),
        duplicates: (&[][..]).into(),
    };
    let tag = t.info(t.a).local_tag;
    t.inject_to_a(tag, &[Chunk::Sack(sack)]);
    t
}

#[test]
//= rfc9260#12.4-4
fn a_sack_of_what_was_never_sent_ends_the_association() {
    let _clear = InTheClear::begin();
    let t = after_sack(1, &[]);
    assert!(matches!(&t.talk(t.a).closed, Some(CloseReason::Aborted(cause)) if cause.code == 13));
}

/// Sends five messages and delivers a SACK of the first one with these gap blocks. Returns the user bytes still in flight.
fn in_flight_after(gaps: &[(u16, u16)]) -> usize {
    let (mut t, tsn) = recorded(1, EndpointConfig::default());
    drop_all(&mut t.world, |_, _| true);
    for n in 0..5 {
        let (now, id) = (t.world.now(), t.id(t.a));
        let endpoint = &mut t.world.host_mut(t.a).endpoint;
        endpoint.send(now, id, StreamId(0), Ppid(0), content(n, 100), SendOptions::default()).unwrap();
    }
    t.world.run_for(Duration::from_millis(1));
    let gaps: Vec<_> = gaps.iter().map(|&(start, end)| GapBlock { start, end }).collect();
    let sack = Sack {
        cumulative_tsn: Tsn(tsn),
        a_rwnd: 100_000,
        gaps: (&gaps[..]).into(),
        duplicates: (&[][..]).into(),
    };
    let tag = t.info(t.a).local_tag;
    t.inject_to_a(tag, &[Chunk::Sack(sack)]);
    assert_eq!(t.talk(t.a).closed, None, "{gaps:?}");
    t.info(t.a).paths.iter().map(|path| path.flight).sum()
}

#[test]
fn gap_blocks_are_accepted_in_any_order_and_impossible_blocks_are_ignored() {
    let _clear = InTheClear::begin();
    // The SACK acknowledges the first of five messages, and each message that a valid block covers.
    for nothing in [&[][..], &[(0, 0)], &[(1, 1)], &[(3, 2)], &[(1, 4)]] {
        assert_eq!(in_flight_after(nothing), in_flight_after(&[]), "{nothing:?}");
    }
    for all in
        [&[(2, 4)][..], &[(4, 4), (2, 3)], &[(2, 3), (3, 4)], &[(2, 2), (2, 4), (2, 2)], &[(0, 0), (2, 4)]]
    {
        assert_eq!(in_flight_after(all), in_flight_after(&[(2, 4)]), "{all:?}");
    }
    assert_ne!(in_flight_after(&[(2, 4)]), in_flight_after(&[]));
}

#[test]
fn a_sack_without_new_information_does_not_end_the_association() {
    let t = after_sack(0, &[]);
    assert_eq!(t.talk(t.a).closed, None);
}

#[test]
//= rfc9260#6.2-31
fn data_without_user_data_ends_the_association() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded(1, EndpointConfig::default());
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[data(tsn, 0, b"")]);
    assert!(matches!(&t.talk(t.b).closed, Some(CloseReason::Aborted(cause)) if cause.code == 9));
}

#[test]
//= rfc9260#6.5-2
fn data_on_a_stream_that_does_not_exist_is_acknowledged_and_reported() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded(1, EndpointConfig::default());
    let tag = t.info(t.b).local_tag;
    let before = t.world.records.len();
    let Chunk::Data(good) = data(tsn, 0, b"x") else { panic!("DATA") };
    t.inject_to_b(tag, &[Chunk::Data(Data { stream: StreamId(9999), ..good })]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["ERROR SACK"]);
}

#[test]
//= rfc9260#6.2-4 6.2-5 6.2-17 6.2-27 6.7-1 6.7-7
fn gaps_beyond_256_are_neither_kept_nor_reported() {
    let _clear = InTheClear::begin();
    let (mut t, tsn) = recorded(1, EndpointConfig::default());
    let tag = t.info(t.b).local_tag;
    for n in 1..1000 {
        t.inject_to_b(tag, &[data(tsn.wrapping_add(2 * n), 0, b"x")]);
    }
    let last = t.world.records.last().unwrap().packet.clone();
    let packet = Packet::parse(&last, ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Sack(sack))) = packet.chunks().next() else { panic!("a SACK") };
    assert_eq!(sack.gaps().count(), 256);
    assert!(t.info(t.b).counters.data_dropped >= 999 - 256);
}

#[test]
fn a_peer_that_skips_an_ssn_cannot_fill_the_memory() {
    let (mut t, tsn) = recorded(1, small_buffers(1 << 20, 50_000));
    let tag = t.info(t.b).local_tag;
    let payload = [0; 1000];
    for n in 0..2000 {
        t.inject_to_b(tag, &[data(tsn.wrapping_add(n), n as u16 + 1, &payload)]);
    }
    let held = t.info(t.b).receive_buffered;
    assert!(held <= 3 * 50_000 + 1064, "{held} bytes held");
}

#[test]
fn parts_of_unordered_messages_never_mix() {
    let link = LinkConfig { reorder: 0.3, reorder_by: Duration::from_millis(40), ..LinkConfig::default() };
    let mut t = two_with(1, link, small_buffers(1 << 20, 20_000));
    let long = |n| Outgoing { stream: 1, unordered: true, bytes: content(n, 15_000) };
    let short = |n| Outgoing { stream: 1, unordered: true, bytes: content(n, 100) };
    t.connect(sends_then_closes((0..40).flat_map(|n| [long(2 * n), short(2 * n + 1)]).collect()));
    assert_eq!(t.run_to_end(seconds(100)), (CloseReason::Graceful, CloseReason::Graceful));
    let received = &t.talk(t.b).received;
    assert!(received.iter().any(|m| m.parts > 1), "no partial delivery was seen");
    for n in 0..80 {
        let length = if n % 2 == 0 { 15_000 } else { 100 };
        assert_eq!(received.iter().filter(|m| m.bytes == content(n, length)).count(), 1);
    }
}

#[test]
//= rfc9260#6.8-4
fn damaged_packets_are_dropped_by_their_checksum() {
    let link = LinkConfig { corrupt: 0.3, ..LinkConfig::default() };
    let mut t = two_with(1, link, EndpointConfig::default());
    t.connect(sends_then_closes(messages(100, 1000, 1)));
    assert_eq!(t.run_to_end(seconds(500)), (CloseReason::Graceful, CloseReason::Graceful));
    assert!(t.talk(t.b).received.iter().enumerate().all(|(n, m)| m.bytes == content(n, 1000)));
    assert!(t.world.host(t.b).endpoint.counters().malformed > 10);
}

#[test]
//= rfc9260#6.9-6 7.3-1
fn chunks_on_their_way_when_the_mtu_falls_are_sent_again_in_fragments_of_ip() {
    let mut t = two(1);
    t.connect(Conversation { bulk: 3_000_000, ..Conversation::default() });
    t.run_to_established();
    t.world.run_for(Duration::from_millis(100));
    t.world.link_mut(t.links[0]).config.mtu = 1280;
    t.world.run_for(seconds(10));
    assert_eq!(t.talk(t.b).received_bytes, 3_000_000, "{}", describe(&t.world));
    assert_eq!(t.info(t.a).paths[0].mtu, 1280);
}

#[test]
//= rfc9260#6-9 6.10-1 7.3-1 10-6 6.9-7 7.3-2
//= rfc8899#3-1 3-20
fn after_icmp_reports_a_smaller_mtu_the_path_gets_shorter_packets() {
    let (mut t, _) = recorded(1, EndpointConfig::default());
    let quoted = sim::packet(40_000, 7, t.info(t.a).peer_tag, &[Chunk::CookieAck]);
    t.world.inject_path_error(t.a, a_route(), PathError::TooBig { mtu: 1280 }, &quoted);
    t.world.link_mut(t.links[0]).config.mtu = 1280;
    let id = t.id(t.a);
    t.world.host_mut(t.a).app.conversations.get_mut(&id).unwrap().bulk = 1_000_000;
    t.world.run_for(seconds(5));
    assert_eq!(t.talk(t.b).received_bytes, 1_000_000);
}

#[test]
fn a_lost_burst_ahead_of_more_tiny_messages_than_the_limit_is_still_repaired() {
    const COUNT: usize = 150_000;
    let config = small_buffers(8 << 20, 8 << 20);
    let link = LinkConfig {
        rate: 1_000_000_000,
        delay: Duration::from_millis(10),
        queue_bytes: 8 << 20,
        queue_packets: usize::MAX,
        ..LinkConfig::default()
    };
    let mut t = two_with(1, link, config.clone());
    t.world.checks = false;
    let (mut sent, mut is_first) = (0, true);
    t.world.set_filter(move |record| {
        let has_data = is_first && record.route.local.to_string() == "10.0.1.1" && record.packet.len() > 1000;
        sent += usize::from(has_data);
        if (3000..3400).contains(&sent) && has_data {
            return Fate::Drop;
        }
        is_first &= sent < 3400;
        Fate::Pass
    });
    t.connect_with(config.association, sends_then_closes(messages(COUNT, 64, 1)));
    let reasons = t.run_to_end(seconds(20));
    assert_eq!(reasons, (CloseReason::Graceful, CloseReason::Graceful));
    assert_eq!(t.talk(t.b).received.len(), COUNT);
}

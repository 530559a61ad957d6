//! Tests of resets of streams and of the association, and of added streams, while data flows (RFC 6525).

use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use sctp::{
    AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions, ReconfigError,
    ReconfigOutcome, ReconfigPolicy, StateName, StreamDirection, StreamId,
};
use sim::{
    Change, Close, Conversation, Fate, HostId, InTheClear, LinkConfig, Loss, Outgoing, World, chunk_names,
};
use wire::{
    ChecksumMode, Chunk, ForwardTsn, List, Packet, Parameter, Parameters, ReConfig, ReconfigResult,
    RequestSn, Tsn,
};

use crate::states::{STATES, Subject};
use crate::support::{Two, content, describe, drop_all, lose, messages, seconds, seeds, sends, two_with};

const PLAIN: Extensions = Extensions::NONE.with(Extension::StreamReconfiguration);
const INTERLEAVED: Extensions = PLAIN.with(Extension::Interleaving);
const DONE: ReconfigOutcome = ReconfigOutcome::Done;

fn config(extensions: Extensions) -> AssociationConfig {
    let reconfig = ReconfigPolicy::default().everything();
    AssociationConfig { extensions, reconfig, ..AssociationConfig::default() }
}

fn up_with(seed: u64, link: LinkConfig, a: AssociationConfig, b: AssociationConfig) -> Two {
    let mut t = two_with(seed, link, EndpointConfig { association: b, ..EndpointConfig::default() });
    t.world.recording = true;
    t.connect_with(a, Conversation::default());
    t.run_to_established();
    t
}

fn up(extensions: Extensions) -> Two {
    up_with(1, LinkConfig::default(), config(extensions), config(extensions))
}

fn say(t: &mut Two, host: HostId, outgoing: Vec<Outgoing>) {
    let id = t.id(host);
    t.world.host_mut(host).app.conversations.get_mut(&id).unwrap().outgoing.extend(outgoing);
    t.world.run_for(Duration::from_nanos(1));
}

fn reset(
    t: &mut Two,
    host: HostId,
    direction: StreamDirection,
    streams: &[u16],
) -> Result<(), ReconfigError> {
    let (now, id) = (t.world.now(), t.id(host));
    let streams: Vec<_> = streams.iter().map(|s| StreamId(*s)).collect();
    t.world.host_mut(host).endpoint.reset_streams(now, id, direction, &streams)
}

fn reset_all(t: &mut Two, host: HostId) -> Result<(), ReconfigError> {
    let (now, id) = (t.world.now(), t.id(host));
    t.world.host_mut(host).endpoint.reset_association(now, id)
}

fn add(t: &mut Two, host: HostId, outgoing: u16, incoming: u16) -> Result<(), ReconfigError> {
    let (now, id) = (t.world.now(), t.id(host));
    t.world.host_mut(host).endpoint.add_streams(now, id, outgoing, incoming)
}

/// Returns a host's events about streams.
fn heard(t: &Two, host: HostId) -> Vec<Event> {
    let of_streams = |e: &Event| {
        matches!(e, Event::StreamReset { .. } | Event::AssociationReset { .. } | Event::StreamsChanged { .. })
    };
    t.events(host).into_iter().filter(|e| of_streams(e)).cloned().collect()
}

fn was_reset(direction: StreamDirection, streams: &[u16], outcome: ReconfigOutcome) -> Event {
    let streams = streams.iter().map(|s| StreamId(*s)).collect();
    Event::StreamReset { direction, streams, outcome }
}

fn changed(outbound_streams: u16, inbound_streams: u16, outcome: ReconfigOutcome) -> Event {
    Event::StreamsChanged { outbound_streams, inbound_streams, outcome }
}

/// Returns the stream, the SSN or MID, and the TSN of the first fragment of each message that a host sent.
fn numbers(t: &Two, sender: HostId) -> Vec<(u16, u32, Tsn)> {
    let sender = t.world.host(sender).addresses[0];
    let own = t.world.records.iter().filter(|r| r.route.local == sender);
    let chunks = own.flat_map(|r| {
        let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
        let chunks = packet.chunks().filter_map(|c| match c {
            Ok(Chunk::Data(d)) if d.begin => Some((d.stream.0, d.ssn.0.into(), d.tsn)),
            Ok(Chunk::IData(d)) if matches!(d.fragment, wire::Fragment::First(_)) => {
                Some((d.stream.0, d.mid.0, d.tsn))
            }
            _ => None,
        });
        chunks.collect::<Vec<_>>()
    });
    chunks.collect()
}

fn arrived(t: &Two, host: HostId, sent: &[Outgoing]) -> bool {
    let got: Vec<_> = t.talk(host).received.iter().map(|r| &r.bytes).collect();
    got == sent.iter().map(|m| &m.bytes).collect::<Vec<_>>()
}

/// Returns the results of all answers that a host has sent since record `from`.
fn results(t: &Two, from: usize, sender: &str) -> Vec<ReconfigResult> {
    let own = t.world.records[from..]
        .iter()
        .filter(|r| r.route.local == sender.parse::<std::net::IpAddr>().unwrap());
    let results = own.flat_map(|r| {
        let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
        let of = |c: Chunk<'_>| match c {
            Chunk::ReConfig(r) => {
                r.parameters.iter().map(Result::unwrap).filter_map(|p| result_of(&p)).collect()
            }
            _ => Vec::new(),
        };
        packet.chunks().map(Result::unwrap).flat_map(of).collect::<Vec<_>>()
    });
    results.collect()
}

fn result_of(parameter: &Parameter<'_>) -> Option<ReconfigResult> {
    match parameter {
        Parameter::ReconfigResponse { result, .. } => Some(*result),
        _ => None,
    }
}

#[test]
//= rfc6525#5.1.2-1 5.1.2-9 5.2.2-7 5.2.2-9 5.2.7-4
fn a_reset_stream_begins_again_with_zero_behind_what_was_handed_over_before() {
    let _clear = InTheClear::begin();
    for extensions in [PLAIN, INTERLEAVED] {
        let mut t = up(extensions);
        let sent = messages(60, 3000, 3);
        say(&mut t, HostId(0), sent[..30].to_vec());
        reset(&mut t, HostId(0), StreamDirection::Outgoing, &[1]).unwrap();
        say(&mut t, HostId(0), sent[30..].to_vec());
        t.world.run_for(seconds(2));
        for stream in 0..3 {
            let of: Vec<_> = sent.iter().filter(|m| m.stream == stream).map(|m| &m.bytes).collect();
            let got = t.talk(t.b).received.iter().filter(|m| m.stream == stream).map(|m| &m.bytes);
            assert_eq!(got.collect::<Vec<_>>(), of);
            let zeros = numbers(&t, t.a).iter().filter(|n| n.0 == stream && n.1 == 0).count();
            assert_eq!(zeros, if stream == 1 { 2 } else { 1 }, "stream {stream}");
        }
        assert_eq!(heard(&t, t.a), [was_reset(StreamDirection::Outgoing, &[1], DONE)]);
        assert_eq!(heard(&t, t.b), [was_reset(StreamDirection::Incoming, &[1], DONE)]);
        assert!(t.talk(t.b).received[..30].iter().all(|m| m.bytes.len() == 3000));
    }
}

#[test]
//= rfc6525#5.2.3-1 5.1.2-5 5.1.2-6 5.2.2-1
fn incoming_streams_are_reset_by_the_peer_that_sends_on_them() {
    let _clear = InTheClear::begin();
    for streams in [&[2][..], &[]] {
        let mut t = up(PLAIN);
        let sent = messages(20, 500, 4);
        say(&mut t, HostId(1), sent[..10].to_vec());
        t.world.run_for(seconds(1));
        reset(&mut t, HostId(0), StreamDirection::Incoming, streams).unwrap();
        t.world.run_for(seconds(1));
        say(&mut t, HostId(1), sent[10..].to_vec());
        t.world.run_for(seconds(1));
        assert!(arrived(&t, t.a, &sent));
        assert_eq!(heard(&t, t.a), [was_reset(StreamDirection::Incoming, streams, DONE)]);
        assert_eq!(heard(&t, t.b), [was_reset(StreamDirection::Outgoing, streams, DONE)]);
        let zeros = numbers(&t, t.b).iter().filter(|n| n.1 == 0).count();
        assert_eq!(zeros, if streams.is_empty() { 8 } else { 5 });
        // The peer answers with its own Outgoing SSN Reset Request, and sends no Re-configuration Response.
        assert_eq!(results(&t, 0, "10.0.1.2"), []);
    }
}

#[test]
//= rfc6525#5.2.3-5
fn streams_that_are_at_zero_need_no_reset() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    reset(&mut t, HostId(0), StreamDirection::Incoming, &[3]).unwrap();
    t.world.run_for(seconds(1));
    assert_eq!(heard(&t, t.a), [was_reset(StreamDirection::Incoming, &[3], ReconfigOutcome::NothingToDo)]);
    assert!(heard(&t, t.b).is_empty());
}

#[test]
//= rfc6525#5.2.4-1 5.2.4-2 5.2.4-4 5.2.4-5 5.2.4-6 5.1.7-3 5.1.7-5 5.2.7-5 5.2.7-6 5.1.4-3
fn a_reset_association_begins_all_streams_and_tsns_anew_and_loses_nothing() {
    let _clear = InTheClear::begin();
    for extensions in [PLAIN, INTERLEAVED] {
        let mut t = up_with(
            2,
            LinkConfig { rate: 10_000_000, ..LinkConfig::default() },
            config(extensions),
            config(extensions),
        );
        let (to_b, to_a) = (messages(60, 2000, 1), messages(450, 1000, 1));
        say(&mut t, HostId(0), to_b[..30].to_vec());
        say(&mut t, HostId(1), to_a[..400].to_vec());
        reset_all(&mut t, HostId(0)).unwrap();
        say(&mut t, HostId(0), to_b[30..].to_vec());
        t.world.run_for(Duration::from_millis(30));
        say(&mut t, HostId(1), to_a[400..].to_vec());
        t.world.run_for(seconds(20));
        assert!(arrived(&t, t.b, &to_b) && arrived(&t, t.a, &to_a), "{}", describe(&t.world));
        for (host, count) in [(t.a, 60), (t.b, 450)] {
            let numbers = numbers(&t, host);
            assert_eq!(numbers.len(), count);
            assert_eq!(numbers.iter().filter(|n| n.1 == 0).count(), 2);
        }
        let from_a = numbers(&t, t.a);
        assert!(from_a[29].2.distance_to(from_a[30].2) > 1 << 31, "the TSN jumps");
        let (a, b) = (heard(&t, t.a), heard(&t, t.b));
        let [Event::AssociationReset { local_tsn, remote_tsn, outcome: DONE }] = a[..] else {
            panic!("{a:?}")
        };
        assert_eq!(
            b,
            [Event::AssociationReset { local_tsn: remote_tsn, remote_tsn: local_tsn, outcome: DONE }]
        );
        assert_eq!(local_tsn, from_a[30].2.0);
    }
}

#[test]
//= rfc6525#5.1.4-7
fn an_association_is_not_reset_twice_in_thirty_seconds() {
    let mut t = up(PLAIN);
    reset_all(&mut t, HostId(0)).unwrap();
    t.world.run_for(Duration::from_millis(29_999));
    assert_eq!(reset_all(&mut t, HostId(0)), Err(ReconfigError::TooSoon));
    t.world.run_for(Duration::from_millis(1));
    assert_eq!(reset_all(&mut t, HostId(0)), Ok(()));
    t.world.run_for(seconds(1));
    assert_eq!(heard(&t, t.b).len(), 2);
}

#[test]
//= rfc6525#5.1.5-1 5.1.5-2 5.2.5-2 5.2.6-1 5.2.7-7
fn added_streams_carry_messages_in_both_directions() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    add(&mut t, HostId(0), 4, 3).unwrap();
    t.world.run_for(seconds(1));
    assert_eq!(heard(&t, t.a), [changed(20, 16, DONE), changed(20, 19, DONE)]);
    assert_eq!(heard(&t, t.b), [changed(16, 20, DONE), changed(19, 20, DONE)]);
    let info = (t.info(t.a), t.info(t.b));
    assert_eq!((info.0.outbound_streams, info.0.inbound_streams), (20, 19));
    assert_eq!((info.1.outbound_streams, info.1.inbound_streams), (19, 20));
    let on = |stream, n| vec![Outgoing { stream, unordered: false, bytes: content(n, 100) }];
    say(&mut t, HostId(0), on(19, 1));
    say(&mut t, HostId(1), on(18, 2));
    t.world.run_for(seconds(1));
    assert!(arrived(&t, t.b, &on(19, 1)) && arrived(&t, t.a, &on(18, 2)));
}

#[test]
//= rfc6525#5.2.1-5
fn by_default_all_reconfiguration_requests_of_the_peer_are_denied() {
    let plain = AssociationConfig { extensions: PLAIN, ..AssociationConfig::default() };
    let mut t = up_with(3, LinkConfig::default(), config(PLAIN), plain);
    let sent = messages(4, 100, 2);
    say(&mut t, HostId(0), sent[..2].to_vec());
    say(&mut t, HostId(1), sent[..2].to_vec());
    t.world.run_for(seconds(1));
    reset(&mut t, HostId(0), StreamDirection::Outgoing, &[0]).unwrap();
    reset(&mut t, HostId(0), StreamDirection::Incoming, &[]).unwrap();
    add(&mut t, HostId(0), 1, 1).unwrap();
    reset_all(&mut t, HostId(0)).unwrap();
    t.world.run_for(seconds(5));
    let denied = ReconfigOutcome::Denied;
    let events = heard(&t, t.a);
    let expected = [
        was_reset(StreamDirection::Outgoing, &[0], denied),
        was_reset(StreamDirection::Incoming, &[], denied),
        changed(16, 16, denied),
        changed(16, 16, denied),
    ];
    assert_eq!(events[..4], expected);
    assert!(matches!(events[4], Event::AssociationReset { outcome: ReconfigOutcome::Denied, .. }));
    assert!(heard(&t, t.b).is_empty());
    say(&mut t, HostId(0), sent[2..].to_vec());
    t.world.run_for(seconds(1));
    assert!(arrived(&t, t.b, &sent), "everything goes on under the old numbers");
}

#[test]
//= rfc6525#5.2.5-3 5.2.6-2
fn the_policy_can_be_changed_and_limits_the_number_of_streams() {
    let plain = AssociationConfig { extensions: PLAIN, ..AssociationConfig::default() };
    let mut t = up_with(4, LinkConfig::default(), config(PLAIN), plain);
    let policy = ReconfigPolicy {
        add_streams: true,
        inbound_streams_max: 17,
        outbound_streams_max: 18,
        ..ReconfigPolicy::default()
    };
    let (now, id) = (t.world.now(), t.id(t.b));
    t.world.host_mut(t.b).endpoint.set_reconfig_policy(now, id, policy);
    for (outgoing, incoming) in [(2, 0), (1, 0), (0, 3), (0, 2), (1, 0)] {
        add(&mut t, HostId(0), outgoing, incoming).unwrap();
        t.world.run_for(seconds(1));
    }
    let denied = ReconfigOutcome::Denied;
    let expected = [
        changed(16, 16, denied),
        changed(17, 16, DONE),
        changed(17, 16, denied),
        changed(17, 18, DONE),
        changed(17, 18, denied),
    ];
    assert_eq!(heard(&t, t.a), expected);
}

#[test]
//= rfc6525#5.1.1-8 5.2.1-4 5.1.1-6
fn lost_requests_and_answers_are_made_good_and_done_once() {
    for (name, count) in [("RE-CONFIG", 1), ("RE-CONFIG", 2), ("RE-CONFIG SACK", 1), ("RE-CONFIG SACK", 3)] {
        let mut t = up(PLAIN);
        let sent = messages(8, 100, 1);
        say(&mut t, HostId(0), sent[..4].to_vec());
        say(&mut t, HostId(1), sent[..4].to_vec());
        t.world.run_for(seconds(1));
        let mut left = count;
        t.world.set_filter(move |record| {
            let lost = left > 0 && chunk_names(&record.packet) == name;
            left -= usize::from(lost);
            if lost { Fate::Drop } else { Fate::Pass }
        });
        reset(&mut t, HostId(0), StreamDirection::Outgoing, &[0]).unwrap();
        reset(&mut t, HostId(0), StreamDirection::Incoming, &[0]).unwrap();
        add(&mut t, HostId(0), 1, 1).unwrap();
        reset_all(&mut t, HostId(0)).unwrap();
        say(&mut t, HostId(0), sent[4..].to_vec());
        t.world.run_for(seconds(60));
        say(&mut t, HostId(1), sent[4..].to_vec());
        t.world.run_for(seconds(1));
        assert!(arrived(&t, t.a, &sent) && arrived(&t, t.b, &sent), "{name}: {}", describe(&t.world));
        for host in [t.a, t.b] {
            let heard = heard(&t, host);
            assert_eq!(heard.len(), 5, "{name}: {heard:?}");
        }
        let info = t.info(t.a);
        assert_eq!((info.outbound_streams, info.inbound_streams), (17, 17));
    }
}

#[test]
//= rfc6525#5.2.2-3 5.2.2-4 5.2.2-5 5.2.2-8
fn a_request_that_overtakes_data_waits_for_it_and_is_answered_without_being_asked_again() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    lose(&mut t.world, "DATA", 1);
    say(&mut t, HostId(0), messages(6, 1400, 1));
    let from = t.world.records.len();
    reset(&mut t, HostId(0), StreamDirection::Outgoing, &[]).unwrap();
    t.world.run_for(Duration::from_millis(900));
    assert_eq!(results(&t, from, "10.0.1.2"), [ReconfigResult::InProgress, ReconfigResult::Performed]);
    assert_eq!(t.info(t.a).counters.reconfigs_sent, 1);
    assert_eq!(heard(&t, t.a), [was_reset(StreamDirection::Outgoing, &[], DONE)]);
}

#[test]
//= rfc6525#5.2.7-3
fn while_the_peer_answers_in_progress_requests_are_repeated_without_errors() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    say(&mut t, HostId(1), messages(2, 100, 2));
    t.world.run_for(seconds(1));
    // The peer's own reset waits for data that is dropped on the way.
    drop_all(&mut t.world, |names, from| names.contains("DATA") && from.to_string() == "10.0.1.2");
    say(&mut t, HostId(1), messages(1, 100, 1));
    reset(&mut t, HostId(1), StreamDirection::Outgoing, &[0]).unwrap();
    t.world.run_for(Duration::from_millis(100));
    let from = t.world.records.len();
    reset(&mut t, HostId(0), StreamDirection::Incoming, &[1]).unwrap();
    t.world.run_for(Duration::from_millis(4500));
    let answers = results(&t, from, "10.0.1.2");
    assert!(answers.len() >= 4 && answers.iter().all(|r| *r == ReconfigResult::InProgress), "{answers:?}");
    let path = &t.info(t.a).paths[0];
    assert_eq!((path.errors, path.rto), (0, seconds(1)));
    t.world.set_filter(|_| Fate::Pass);
    t.world.run_for(seconds(30));
    let both = |direction| [was_reset(direction, &[0], DONE), was_reset(direction, &[1], DONE)];
    assert_eq!(heard(&t, t.a), both(StreamDirection::Incoming));
    assert_eq!(heard(&t, t.b), both(StreamDirection::Outgoing));
}

#[test]
fn requests_for_incoming_streams_that_cross_fail_and_nothing_waits_forever() {
    let mut t = up(PLAIN);
    let sent = messages(2, 100, 1);
    say(&mut t, HostId(0), sent.clone());
    say(&mut t, HostId(1), sent.clone());
    t.world.run_for(seconds(1));
    reset(&mut t, HostId(0), StreamDirection::Incoming, &[]).unwrap();
    reset(&mut t, HostId(1), StreamDirection::Incoming, &[]).unwrap();
    t.world.run_for(seconds(1));
    for host in [t.a, t.b] {
        assert_eq!(heard(&t, host), [was_reset(StreamDirection::Incoming, &[], ReconfigOutcome::Failed(4))]);
    }
}

#[test]
fn a_request_for_incoming_streams_waits_for_an_outgoing_reset_of_others() {
    let mut t = up(PLAIN);
    let sent = messages(2, 100, 2);
    say(&mut t, HostId(1), sent);
    t.world.run_for(seconds(1));
    reset(&mut t, HostId(1), StreamDirection::Outgoing, &[0]).unwrap();
    reset(&mut t, HostId(0), StreamDirection::Incoming, &[1]).unwrap();
    t.world.run_for(seconds(5));
    let both = |direction| [was_reset(direction, &[0], DONE), was_reset(direction, &[1], DONE)];
    assert_eq!(heard(&t, t.a), both(StreamDirection::Incoming));
    assert_eq!(heard(&t, t.b), both(StreamDirection::Outgoing));
}

#[test]
//= rfc6525#5.1.1-3
fn commands_that_make_no_sense_are_refused_with_a_reason() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    let wrong = ReconfigError::NoSuchStream { stream: 16, streams: 16 };
    assert_eq!(reset(&mut t, HostId(0), StreamDirection::Outgoing, &[1, 16]), Err(wrong));
    assert_eq!(add(&mut t, HostId(0), 0, 0), Err(ReconfigError::NoStreams));
    assert_eq!(add(&mut t, HostId(0), 0, 65_520), Err(ReconfigError::TooManyStreams));
    for _ in 0..17 {
        assert_eq!(add(&mut t, HostId(0), 1, 0), Ok(()));
    }
    assert_eq!(add(&mut t, HostId(0), 1, 0), Err(ReconfigError::TooMany));
    let mut plain = Two::established(1);
    assert_eq!(add(&mut plain, HostId(0), 1, 0), Err(ReconfigError::NotNegotiated));
    let (now, id) = (t.world.now(), t.id(t.a));
    t.world.host_mut(t.a).endpoint.shutdown(now, id);
    assert_eq!(reset(&mut t, HostId(0), StreamDirection::Outgoing, &[]), Err(ReconfigError::Closed));
}

#[test]
//= rfc6525#5.1.1-9
fn a_reconfiguration_request_that_is_never_answered_ends_the_association() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    let (now, link) = (t.world.now(), t.links[0]);
    t.world.at(now, Change::CutBoth(link, true));
    add(&mut t, HostId(0), 1, 0).unwrap();
    t.world.run_for(seconds(1000));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::LostContact));
}

#[test]
fn an_association_shuts_down_while_streams_are_reset() {
    let _clear = InTheClear::begin();
    for wish in 0..3 {
        let mut t = up(PLAIN);
        let sent = messages(20, 2000, 2);
        say(&mut t, HostId(0), sent[..10].to_vec());
        match wish {
            0 => reset(&mut t, HostId(0), StreamDirection::Outgoing, &[]),
            1 => reset_all(&mut t, HostId(0)),
            _ => reset(&mut t, HostId(1), StreamDirection::Incoming, &[]),
        }
        .unwrap();
        say(&mut t, HostId(0), sent[10..].to_vec());
        for host in [t.a, t.b] {
            let (now, id) = (t.world.now(), t.id(host));
            t.world.host_mut(host).endpoint.shutdown(now, id);
        }
        assert_eq!(t.run_to_end(seconds(100)), (CloseReason::Graceful, CloseReason::Graceful));
        assert_eq!(t.talk(t.b).received.len(), 20, "wish {wish}");
    }
}

#[test]
fn data_received_during_a_reset_is_read_before_either_side_shuts_down() {
    let _clear = InTheClear::begin();
    for (name, ends) in [("the one that asked", HostId(0)), ("the one that was asked", HostId(1))] {
        let mut t = up(PLAIN);
        let mut left = 2;
        t.world.set_filter(move |record| {
            let names = chunk_names(&record.packet);
            let lost =
                left > 0 && names.contains("RE-CONFIG") && record.route.local.to_string() == "10.0.1.2";
            left -= usize::from(lost);
            if lost { Fate::Drop } else { Fate::Pass }
        });
        let sent = messages(6, 700, 2);
        say(&mut t, HostId(1), sent.clone());
        reset_all(&mut t, HostId(0)).unwrap();
        let (now, id) = (t.world.now(), t.id(ends));
        t.world.host_mut(ends).endpoint.shutdown(now, id);
        assert_eq!(t.run_to_end(seconds(100)), (CloseReason::Graceful, CloseReason::Graceful), "{name}");
        assert!(arrived(&t, t.a, &sent), "{name} ends: {} messages", t.talk(t.a).received.len());
    }
}

#[test]
fn a_forward_tsn_from_before_a_reset_of_the_association_is_late_and_skips_nothing() {
    let mut t = up(PLAIN.with(Extension::PartialReliability));
    let first = Tsn(opener_tsn(&t));
    let sent = messages(6, 100, 1);
    say(&mut t, HostId(0), sent[..3].to_vec());
    t.world.run_for(seconds(1));
    reset_all(&mut t, HostId(0)).unwrap();
    t.world.run_for(seconds(1));
    let late = ForwardTsn { new_cumulative_tsn: first.plus(1), streams: List::EMPTY };
    let tag = t.info(t.b).local_tag;
    t.inject_to_b(tag, &[Chunk::ForwardTsn(late)]);
    say(&mut t, HostId(0), sent[3..].to_vec());
    t.world.run_for(seconds(1));
    assert!(arrived(&t, t.b, &sent), "{} messages", t.talk(t.b).received.len());
    assert_eq!(t.info(t.b).counters.forward_tsns_received, 0);
}

#[test]
fn many_tiny_messages_in_flight_towards_a_small_buffer_do_not_stop_a_reset_of_the_association() {
    let b = config(PLAIN);
    let a = AssociationConfig { receive_buffer: 3000, ..config(PLAIN) };
    let link = LinkConfig { delay: Duration::from_millis(50), ..LinkConfig::default() };
    let mut t = up_with(1, link, a, b);
    let sent = messages(3000, 4, 1);
    say(&mut t, HostId(1), sent.clone());
    for _ in 0..3 {
        t.world.run_for(Duration::from_millis(70));
        let _ = reset_all(&mut t, HostId(0));
    }
    t.world.run_for(seconds(60));
    assert_eq!(heard(&t, t.a).len(), 1, "{}", describe(&t.world));
    assert!(arrived(&t, t.a, &sent), "{} messages", t.talk(t.a).received.len());
}

/// Returns the initial TSN of the opening host.
fn opener_tsn(t: &Two) -> u32 {
    let init = Packet::parse(&t.world.records[0].packet, ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Init(init))) = init.chunks().next() else { panic!("an INIT") };
    init.initial_tsn.0
}

/// Returns the answers of `b` to these parameters.
fn answers_to(t: &mut Two, parameters: &[Parameter<'_>]) -> Vec<ReconfigResult> {
    let (tag, from) = (t.info(t.b).local_tag, t.world.records.len());
    t.inject_to_b(tag, &[Chunk::ReConfig(ReConfig { parameters: Parameters::from(parameters) })]);
    t.world.run_for(Duration::from_micros(1));
    results(t, from, "10.0.1.2")
}

#[test]
//= rfc6525#5.1.7-1 5.1.7-2 5.2.1-5
fn each_reconfiguration_result_is_given_for_its_kind_of_request() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    let first = opener_tsn(&t);
    let n = |n: u32| RequestSn(first.wrapping_add(n));
    let last_tsn = Tsn(first.wrapping_sub(1));
    let wrong = [StreamId(99)];
    let outgoing = |request, last_tsn, streams| Parameter::OutgoingSsnReset {
        request,
        response: RequestSn(0),
        last_tsn,
        streams,
    };
    use ReconfigResult as R;
    assert_eq!(
        answers_to(&mut t, &[Parameter::AddIncomingStreams { request: n(0), new_streams: 0 }]),
        [R::NothingToDo]
    );
    assert_eq!(answers_to(&mut t, &[outgoing(n(1), last_tsn, List::EMPTY)]), [R::Performed]);
    assert_eq!(
        answers_to(&mut t, &[Parameter::AddOutgoingStreams { request: n(2), new_streams: 65_535 }]),
        [R::Denied]
    );
    assert_eq!(answers_to(&mut t, &[outgoing(n(3), last_tsn, List::from(&wrong[..]))]), [R::WrongSsn]);
    assert_eq!(answers_to(&mut t, &[outgoing(n(9), last_tsn, List::EMPTY)]), [R::BadSequenceNumber]);
    assert_eq!(answers_to(&mut t, &[outgoing(n(1), last_tsn, List::EMPTY)]), [R::BadSequenceNumber]);
    assert_eq!(answers_to(&mut t, &[outgoing(n(3), last_tsn, List::EMPTY)]), [R::WrongSsn], "from memory");
    assert_eq!(answers_to(&mut t, &[outgoing(n(4), last_tsn.plus(7), List::EMPTY)]), [R::InProgress]);
    assert_eq!(answers_to(&mut t, &[outgoing(n(5), last_tsn, List::EMPTY)]), [R::RequestInProgress]);
    let both = [
        Parameter::AddOutgoingStreams { request: n(6), new_streams: 1 },
        Parameter::AddIncomingStreams { request: n(7), new_streams: 0 },
    ];
    assert_eq!(answers_to(&mut t, &both), [R::Performed, R::NothingToDo]);
    assert_eq!(answers_to(&mut t, &both), [R::Performed, R::NothingToDo], "from memory");
    assert_eq!(t.info(t.b).inbound_streams, 17);
}

#[test]
//= rfc6525#3.1-1
fn parameters_that_do_not_belong_together_are_an_error_and_nothing_is_done() {
    let _clear = InTheClear::begin();
    let mut t = up(PLAIN);
    let request = RequestSn(opener_tsn(&t));
    let pair = [
        Parameter::SsnTsnReset { request },
        Parameter::AddOutgoingStreams { request: request.next(), new_streams: 1 },
    ];
    let from = t.world.records.len();
    assert_eq!(answers_to(&mut t, &pair), []);
    assert_eq!(chunk_names(&t.world.records[from].packet), "ERROR");
    assert_eq!(answers_to(&mut t, &pair[1..]), [ReconfigResult::BadSequenceNumber]);
    assert_eq!(t.state(t.b), StateName::Established);
}

#[test]
fn requests_are_answered_from_established_until_the_end_of_data_and_in_no_other_state() {
    let _clear = InTheClear::begin();
    for state in STATES {
        let mut subject = Subject::in_state_with(state, &config(PLAIN));
        let request = RequestSn(subject.peer_tsn().0);
        let parameters = [Parameter::AddOutgoingStreams { request, new_streams: 1 }];
        let chunk = Chunk::ReConfig(ReConfig { parameters: Parameters::from(&parameters[..]) });
        let answer = subject.answer_to(subject.own_tag, &chunk).join(", ");
        let expected = match state {
            StateName::Established | StateName::ShutdownPending => "RE-CONFIG SACK",
            StateName::ShutdownSent | StateName::ShutdownReceived => "RE-CONFIG",
            StateName::Closed => "ABORT(T)",
            StateName::CookieWait
            | StateName::CookieEchoed
            | StateName::Accepting
            | StateName::ShutdownAckSent => "",
        };
        assert_eq!(answer, expected, "{state:?}");
    }
}

#[test]
fn streams_are_reset_and_added_at_random_over_bad_links_and_everything_arrives_in_order() {
    seeds(400, []).into_iter().for_each(shuffle);
}

fn shuffle(seed: u64) {
    let mut r = ChaCha12Rng::seed_from_u64(seed);
    let link = LinkConfig {
        rate: 5_000_000,
        loss: Loss::Uniform(r.random_range(0.0..0.05)),
        reorder: r.random_range(0.0..0.2),
        reorder_by: Duration::from_millis(20),
        duplicate: r.random_range(0.0..0.1),
        ..LinkConfig::default()
    };
    let settings = AssociationConfig {
        receive_buffer: r.random_range(20_000..200_000),
        ..config(if r.random_range(0..2) == 0 { PLAIN } else { INTERLEAVED })
    };
    let mut t = up_with(seed, link, settings.clone(), settings);
    let mut sent: [Vec<Outgoing>; 2] = Default::default();
    let mut next_reset = t.world.now();
    for step in 0..r.random_range(10..40) {
        for host in [t.a, t.b] {
            let new: Vec<_> = (0..r.random_range(0..8))
                .map(|n| Outgoing {
                    stream: r.random_range(0..4),
                    unordered: false,
                    bytes: content(step * 100 + n, r.random_range(4..5000)),
                })
                .collect();
            sent[host.0].extend(new.clone());
            say(&mut t, host, new);
        }
        let host = HostId(r.random_range(0..2));
        let streams: &[u16] = [&[][..], &[0], &[1, 2], &[3]][r.random_range(0..4)];
        // A command that makes no sense is refused.
        let _ = match r.random_range(0..8) {
            0 | 1 => reset(&mut t, host, StreamDirection::Outgoing, streams),
            2 | 3 => reset(&mut t, host, StreamDirection::Incoming, streams),
            4 => add(&mut t, host, r.random_range(0..3), r.random_range(0..3)),
            5 if t.world.now() >= next_reset => {
                next_reset = t.world.now() + seconds(40);
                reset_all(&mut t, host)
            }
            _ => Ok(()),
        };
        t.world.run_for(Duration::from_millis(r.random_range(0..3000)));
    }
    for host in [t.a, t.b] {
        let id = t.id(host);
        let close = Close::After(sent[1 - host.0].len());
        t.world.host_mut(host).app.conversations.get_mut(&id).unwrap().close = close;
    }
    let limit = t.world.now() + seconds(1000);
    let (a, b) = (t.a, t.b);
    let over = |w: &World, h: HostId| w.host(h).app.conversations.values().all(|c| c.closed.is_some());
    let rerun = format!("SIM_SEED={seed} cargo test -p sctp-engine --test engine reset_and_added_at_random");
    assert!(t.world.run_until(limit, |w| over(w, a) && over(w, b)), "{rerun}: {}", describe(&t.world));
    for (host, sent) in [(t.b, &sent[0]), (t.a, &sent[1])] {
        assert_eq!(t.talk(host).closed, Some(CloseReason::Graceful), "{rerun}");
        for stream in 0..4 {
            let of: Vec<_> = sent.iter().filter(|m| m.stream == stream).map(|m| &m.bytes).collect();
            let got = t.talk(host).received.iter().filter(|m| m.stream == stream).map(|m| &m.bytes);
            assert!(got.collect::<Vec<_>>() == of, "{rerun}, stream {stream}");
        }
    }
}

#[test]
fn a_conversation_goes_on_after_both_sides_have_reset_everything() {
    let mut t = up(INTERLEAVED);
    t.world.host_mut(HostId(1)).app.template = sends(Vec::new());
    for round in 0..3 {
        let sent = messages(6, 700, 2);
        say(&mut t, HostId(0), sent.clone());
        say(&mut t, HostId(1), sent);
        let host = HostId(round % 2);
        reset_all(&mut t, host).unwrap();
        t.world.run_for(seconds(31));
    }
    assert_eq!((t.talk(t.a).received.len(), t.talk(t.b).received.len()), (18, 18));
    let done = |e: &Event| matches!(e, Event::AssociationReset { outcome: DONE, .. });
    assert!(heard(&t, t.a).iter().all(done) && heard(&t, t.b).len() == 3);
}

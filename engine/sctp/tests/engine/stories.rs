//! Tests of late packets, of limits on error reports, and of the last packets of an association.

use std::time::Duration;

use bytes::Bytes;
use sctp::{
    AbortCause, AssociationConfig, CloseReason, EndpointConfig, Event, Extension, Extensions, ReconfigPolicy,
    Reliability, SendOptions, StateName, StreamDirection,
};
use sim::{Conversation, HostId, InTheClear, LinkConfig, chunk_names};
use wire::{
    Abort, Causes, ChecksumMode, Chunk, ChunkType, Data, Heartbeat, IForwardTsn, IForwardTsnStream, List,
    Mid, Packet, Parameter, Ppid, Ssn, StreamId, Tsn, UnknownChunk,
};

use crate::stranger::Stranger;
use crate::support::{Two, content, describe, lose, messages, seconds, sends, sent_by, two_with, without};

/// Creates two hosts of which `a` has ended the association and forgotten it. `b` waits for the SHUTDOWN COMPLETE that was lost.
fn complete_was_lost() -> Two {
    let mut t = Two::established(1);
    lose(&mut t.world, "SHUTDOWN COMPLETE", 1);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.shutdown(now, id);
    t.world.run_for(Duration::from_millis(100));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::Graceful));
    assert_eq!(t.state(t.b), StateName::ShutdownAckSent);
    let now = t.world.now();
    t.world.host_mut(t.a).endpoint.release(now, id);
    t
}

#[test]
//= rfc9260#8.4-6 8.4-7
fn a_host_that_has_forgotten_all_repeats_the_shutdown_complete_that_was_lost() {
    let _clear = InTheClear::begin();
    let mut t = complete_was_lost();
    let before = t.world.records.len();
    t.world.run_for(seconds(3));
    assert_eq!(sent_by(&t.world, before, "10.0.1.1"), ["SHUTDOWN COMPLETE(T)"]);
    assert_eq!(t.talk(t.b).closed, Some(CloseReason::Graceful));
}

#[test]
//= rfc9260#8.4-10
fn a_stray_packet_after_a_lost_shutdown_complete_does_not_prevent_a_graceful_end() {
    let mut t = complete_was_lost();
    let before = t.world.records.len();
    let tag = t.info(t.b).peer_tag;
    t.inject_to_a(tag, &[Chunk::Heartbeat(Heartbeat { info: b"long under way" })]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.1"), ["ABORT(T)"]);
    t.world.run_for(Duration::from_millis(100));
    assert_eq!(t.talk(t.b).closed, Some(CloseReason::Graceful));
}

#[test]
//= rfc9260#8.5.1-13
fn an_association_from_the_same_ports_after_a_lost_shutdown_complete_ends_the_old_one_well() {
    let mut t = complete_was_lost();
    t.world.host_mut(t.a).app.conversations.clear();
    t.connect(crate::support::sends_then_closes(messages(3, 100, 1)));
    t.world.run_for(seconds(10));
    let closed = |t: &Two, host: HostId| -> Vec<_> {
        t.world.host(host).app.conversations.values().map(|c| c.closed.clone()).collect()
    };
    assert_eq!(closed(&t, t.a), [Some(CloseReason::Graceful)], "{}", describe(&t.world));
    assert_eq!(closed(&t, t.b), [Some(CloseReason::Graceful), Some(CloseReason::Graceful)]);
}

fn send(t: &mut Two, stream: u16, bytes: Bytes, reliability: Reliability) {
    let (id, now) = (t.id(t.a), t.world.now());
    let options = SendOptions { reliability, ..SendOptions::default() };
    t.world.host_mut(t.a).endpoint.send(now, id, StreamId(stream), Ppid(0), bytes, options).unwrap();
}

#[test]
//= rfc3758#3.5-10
//= rfc6525#5.2.7-4
fn a_forward_tsn_after_a_reset_does_not_name_numbers_from_before_it() {
    let _clear = InTheClear::begin();
    const BOTH: Extensions =
        Extensions::NONE.with(Extension::StreamReconfiguration).with(Extension::PartialReliability);
    for extensions in [BOTH, BOTH.with(Extension::Interleaving)] {
        let reconfig = ReconfigPolicy::default().everything();
        let config = AssociationConfig { extensions, reconfig, ..AssociationConfig::default() };
        let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
        let mut t = two_with(1, LinkConfig::default(), endpoint);
        t.connect_with(config, Conversation::default());
        t.run_to_established();
        (0..5).for_each(|n| send(&mut t, 1, content(n, 100), Reliability::Full));
        t.world.run_for(seconds(1));
        // From now on no DATA and no SACK arrives, so abandoned chunks stay outstanding.
        let [a, b] = [t.a, t.b].map(|host| t.world.host(host).addresses[0]);
        let data = if extensions.has(Extension::Interleaving) { ChunkType::I_DATA } else { ChunkType::DATA };
        t.world.set_filter(move |record| {
            let kind = if record.route.local == a { data } else { ChunkType::SACK };
            assert!([a, b].contains(&record.route.local));
            without(kind, &record.packet)
        });
        let limited = Reliability::Lifetime(Duration::from_millis(50));
        send(&mut t, 1, content(5, 100), limited);
        t.world.run_for(seconds(5));
        let (id, now) = (t.id(t.a), t.world.now());
        t.world
            .host_mut(t.a)
            .endpoint
            .reset_streams(now, id, StreamDirection::Outgoing, &[StreamId(1)])
            .unwrap();
        t.world.run_for(Duration::from_millis(500));
        let was_reset = |e: &&Event| matches!(e, Event::StreamReset { .. });
        assert!(t.events(t.a).iter().any(was_reset), "{}", describe(&t.world));
        // The FORWARD TSN for this message also covers the older abandoned message.
        send(&mut t, 2, content(6, 100), limited);
        t.world.run_for(seconds(4));
        t.world.clear_filter();
        (0..8).for_each(|n| send(&mut t, 1, content(10 + n, 100), Reliability::Full));
        t.world.run_for(seconds(10));
        let received: Vec<_> = t.talk(t.b).received.iter().map(|m| m.bytes.clone()).collect();
        let expected: Vec<_> = (0..5).chain(10..18).map(|n| content(n, 100)).collect();
        assert_eq!(received, expected, "{}", describe(&t.world));
    }
}

#[test]
//= rfc8260#2-2
fn an_i_forward_tsn_is_taken_from_a_peer_that_interleaves_though_it_did_not_list_it() {
    let extensions = Extensions::NONE.with(Extension::Interleaving).with(Extension::PartialReliability);
    let association = AssociationConfig { extensions, ..AssociationConfig::default() };
    let mut t =
        two_with(1, LinkConfig::default(), EndpointConfig { association, ..EndpointConfig::default() });
    let stranger = Stranger::new(t.b, "10.0.1.2", "10.0.9.9", 9);
    let offer = [Parameter::SupportedExtensions(&[64]), Parameter::ForwardTsnSupported];
    let answer = stranger.ask(&mut t.world, &offer).expect("an INIT ACK");
    stranger.echo(&mut t.world, &answer);
    let streams = [IForwardTsnStream { stream: StreamId(0), unordered: false, mid: Mid(4) }];
    let forward = IForwardTsn { new_cumulative_tsn: Tsn(5), streams: List::from(&streams[..]) };
    stranger.send(&mut t.world, answer.tag, &[Chunk::IForwardTsn(forward)]);
    let before = t.world.records.len();
    t.world.run_for(seconds(1));
    let told = t.world.records[before..].iter().find_map(|r| {
        let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
        packet.chunks().find_map(|c| match c {
            Ok(Chunk::Sack(sack)) => Some(sack.cumulative_tsn),
            _ => None,
        })
    });
    assert_eq!(told, Some(Tsn(5)));
}

#[test]
//= rfc9260#3.2.2-2
fn hundreds_of_unknown_chunks_in_a_packet_are_reported_within_a_limit_and_the_rest_is_taken() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    let (tag, before) = (t.info(t.b).local_tag, t.world.records.len());
    let unknown = Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(0xf1), flags: 0, value: &[] });
    let mut chunks = vec![unknown; 300];
    chunks.push(Chunk::Heartbeat(Heartbeat { info: b"behind them" }));
    t.inject_to_b(tag, &chunks);
    let answers: Vec<_> = t.world.records[before..]
        .iter()
        .filter(|r| r.route.local == t.world.host(t.b).addresses[0])
        .collect();
    let names: Vec<_> = answers.iter().map(|r| chunk_names(&r.packet)).collect();
    assert_eq!(names.join(" ").matches("ERROR").count(), 8, "{names:?}");
    assert_eq!(names.join(" ").matches("HEARTBEAT ACK").count(), 1, "{names:?}");
    let bytes: usize = answers.iter().map(|r| r.packet.len()).sum();
    assert!(bytes < 300 * 4, "{bytes} bytes for {} received", 300 * 4);
    assert_eq!(t.state(t.b), StateName::Established);
}

#[test]
//= rfc9260#3.3.7-1 3.3.7-2
fn an_abort_is_sent_without_other_chunks_and_its_reason_is_truncated_to_fit() {
    let mut t = Two::established(1);
    let (id, now) = (t.id(t.a), t.world.now());
    let before = t.world.records.len();
    (0..50).for_each(|n| send(&mut t, 0, content(n, 1000), Reliability::Full));
    let long = AbortCause::user(vec![b'x'; 100_000]);
    t.world.host_mut(t.a).endpoint.abort(now, id, long);
    t.world.run_for(seconds(1));
    let sent = sent_by(&t.world, before, "10.0.1.1");
    let aborts: Vec<_> = sent.iter().filter(|names| names.contains("ABORT")).collect();
    assert_eq!(aborts, ["ABORT"]);
    let Some(CloseReason::PeerAborted(cause)) = &t.talk(t.b).closed else { panic!("{}", describe(&t.world)) };
    assert_eq!(cause.code, 12);
    assert!((1..1400).contains(&cause.reason.len()) && cause.reason.iter().all(|b| *b == b'x'));
}

#[test]
//= rfc9260#9.1-6
fn data_before_an_abort_is_delivered_and_chunks_behind_it_are_ignored() {
    let _clear = InTheClear::begin();
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig::default());
    t.world.recording = true;
    t.connect(sends(Vec::new()));
    t.run_to_established();
    let init = Packet::parse(&t.world.records[0].packet, ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::Init(init))) = init.chunks().next() else { panic!("an INIT") };
    let (tag, tsn) = (t.info(t.b).local_tag, init.initial_tsn);
    let data = |tsn: Tsn, ssn: u16, payload| {
        Chunk::Data(Data {
            immediate: false,
            unordered: false,
            begin: true,
            end: true,
            tsn,
            stream: StreamId(0),
            ssn: Ssn(ssn),
            ppid: Ppid(0),
            payload,
        })
    };
    let abort = Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY });
    t.inject_to_b(tag, &[data(tsn, 0, b"before"), abort, data(tsn.next(), 1, b"behind")]);
    t.world.run_for(seconds(1));
    assert!(matches!(t.talk(t.b).closed, Some(CloseReason::PeerAborted(_))));
    let received: Vec<_> = t.talk(t.b).received.iter().map(|m| m.bytes.clone()).collect();
    assert_eq!(received, [Bytes::from_static(b"before")]);
}

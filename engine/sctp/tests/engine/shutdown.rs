//! Tests of graceful shutdown (RFC 9260 section 9.2), with and without losses.

use sctp::{AssociationConfig, CloseReason, PathState, SendError, SendOptions, StateName};
use sim::{Conversation, InTheClear, LinkConfig, Loss, Reading};
use wire::{Chunk, Data, Ppid, Ssn, StreamId, Tsn};

use crate::support::{
    Two, at_seconds, drop_all, lose, messages, seconds, sends, sends_then_closes, sent_by, two, two_with,
};

const GRACEFUL: (CloseReason, CloseReason) = (CloseReason::Graceful, CloseReason::Graceful);

impl Two {
    fn shut_a(&mut self) {
        self.shut(self.a);
    }

    fn shut(&mut self, host: sim::HostId) {
        let (id, now) = (self.id(host), self.world.now());
        self.world.host_mut(host).endpoint.shutdown(now, id);
    }
}

#[test]
//= rfc9260#9.2-1 9.2-2 9.2-14 9.2-17 9.2-19 3.3.8-1 8.5.1-8
fn each_step_of_the_end_may_be_lost_twice() {
    for name in ["SHUTDOWN", "SHUTDOWN ACK", "SHUTDOWN COMPLETE"] {
        let mut t = two(1);
        lose(&mut t.world, name, 2);
        t.connect(sends_then_closes(messages(10, 100, 1)));
        assert_eq!(t.run_to_end(seconds(60)), GRACEFUL, "{name} lost");
    }
}

#[test]
//= rfc9260#9.2-25
fn both_sides_may_end_at_once() {
    let mut t = Two::established(1);
    t.shut_a();
    t.shut(t.b);
    assert_eq!(t.run_to_end(seconds(5)), GRACEFUL);
}

#[test]
//= rfc9260#9.2-20
fn data_sent_before_a_shutdown_is_delivered_first() {
    let link = LinkConfig { loss: Loss::Uniform(0.05), ..LinkConfig::default() };
    let mut t = two_with(1, link, sctp::EndpointConfig::default());
    t.connect(sends_then_closes(messages(200, 1400, 2)));
    assert_eq!(t.run_to_end(seconds(100)), GRACEFUL);
    assert_eq!(t.talk(t.b).received.len(), 200);
}

#[test]
//= rfc9260#9.2-8 9.2-13
fn the_other_sides_outstanding_data_is_delivered_after_shutdown_came() {
    // The buffer takes all messages at once.
    let association = AssociationConfig { buffer_start: 1 << 20, ..AssociationConfig::default() };
    let config = sctp::EndpointConfig { association, ..sctp::EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), config);
    t.world.host_mut(t.b).app.template = sends(messages(200, 1400, 2));
    t.connect(Conversation::default());
    t.run_to_established();
    t.shut_a();
    assert_eq!(t.run_to_end(seconds(10)), GRACEFUL);
    assert_eq!(t.talk(t.a).received.len(), 200);
}

/// When the peer shuts down, a driver may hold messages of its program that the engine does not have yet.
#[test]
//= rfc9260#9.2-8 9.2-13
fn with_late_messages_enabled_a_driver_may_send_after_a_shutdown_arrived() {
    let association = AssociationConfig {
        takes_late_messages: true,
        buffer_start: 1 << 20,
        ..AssociationConfig::default()
    };
    let config = sctp::EndpointConfig { association, ..sctp::EndpointConfig::default() };
    let link = LinkConfig { loss: Loss::Uniform(0.05), ..LinkConfig::default() };
    let mut t = two_with(1, link, config);
    t.connect(Conversation::default());
    t.run_to_established();
    t.shut_a();
    t.world.run_for(seconds(5));
    let id = t.id(t.b);
    let send = |t: &mut Two| {
        let now = t.world.now();
        let endpoint = &mut t.world.host_mut(t.b).endpoint;
        endpoint.send(now, id, StreamId(0), Ppid(0), vec![1; 5000].into(), SendOptions::default())
    };
    for _ in 0..20 {
        assert_eq!(send(&mut t), Ok(()));
    }
    t.world.run_for(seconds(5));
    assert_eq!(t.world.host_mut(t.b).endpoint.state(id), Some(StateName::ShutdownReceived), "more may come");
    assert_eq!(send(&mut t), Ok(()));
    t.shut(t.b);
    assert_eq!(send(&mut t), Err(SendError::Closed));
    assert_eq!(t.run_to_end(seconds(30)), GRACEFUL);
    assert_eq!(t.talk(t.a).received.len(), 21);
}

/// An end that has shut down and reads nothing answers each window probe with SHUTDOWN. This answer must not cause another probe.
#[test]
//= rfc9260#9.2-8 6.1-5
fn a_window_that_is_closed_after_shutdown_is_probed_by_the_timer_only() {
    let mut t = two(1);
    t.world.recording = true;
    t.world.host_mut(t.b).app.template.reading = Reading::Never;
    t.connect(Conversation { bulk: 4_000_000, ..sends(Vec::new()) });
    t.world.run_until(at_seconds(20), |_| false);
    t.shut(t.b);
    t.world.run_for(seconds(5));
    let before = t.world.records.len();
    t.world.run_for(seconds(60));
    let packets = t.world.records.len() - before;
    assert!((1..200).contains(&packets), "{packets} packets in a minute");
}

#[test]
//= rfc9260#9.2-21
fn nothing_can_be_sent_after_the_end_was_asked_for() {
    let mut t = Two::established(1);
    t.shut_a();
    let (id, now) = (t.id(t.a), t.world.now());
    let endpoint = &mut t.world.host_mut(t.a).endpoint;
    let sent = endpoint.send(now, id, StreamId(0), Ppid(0), "late".into(), SendOptions::default());
    assert_eq!(sent, Err(SendError::Closed));
}

#[test]
//= rfc9260#9.2-9
fn data_that_comes_after_shutdown_was_sent_is_acknowledged_with_another_shutdown() {
    let _clear = InTheClear::begin();
    let mut t = two(1);
    t.world.recording = true;
    t.connect(Conversation::default());
    t.run_to_established();
    let answer =
        t.world.records.iter().find(|r| sim::chunk_names(&r.packet) == "INIT ACK").unwrap().packet.clone();
    let parsed = wire::Packet::parse(&answer, wire::ChecksumMode::Verify).unwrap();
    let Some(Ok(Chunk::InitAck(init))) = parsed.chunks().next() else { panic!("an INIT ACK") };
    drop_all(&mut t.world, |names, _| names.contains("SHUTDOWN"));
    t.shut_a();
    t.world.run_for(std::time::Duration::from_millis(1));
    assert_eq!(t.state(t.a), StateName::ShutdownSent);
    let before = t.world.records.len();
    let data = Data {
        immediate: false,
        unordered: false,
        begin: true,
        end: true,
        tsn: Tsn(init.initial_tsn.0),
        stream: StreamId(0),
        ssn: Ssn(0),
        ppid: Ppid(0),
        payload: b"late",
    };
    let tag = t.info(t.a).local_tag;
    t.inject_to_a(tag, &[Chunk::Data(data)]);
    assert_eq!(sent_by(&t.world, before, "10.0.1.1"), ["SHUTDOWN SACK"]);
    assert_eq!(t.talk(t.a).received.len(), 1);
}

#[test]
fn a_shutdown_that_acknowledges_what_was_never_sent_is_answered_all_the_same() {
    let _clear = InTheClear::begin();
    // One of the two TSNs lies ahead of the sent data.
    for tsn in [0x1234_5678, 0x9234_5678] {
        let mut t = Two::established(1);
        let (tag, before) = (t.info(t.b).local_tag, t.world.records.len());
        t.inject_to_b(tag, &[Chunk::Shutdown(wire::Shutdown { cumulative_tsn: Tsn(tsn) })]);
        assert_eq!(sent_by(&t.world, before, "10.0.1.2"), ["SHUTDOWN ACK"]);
    }
}

#[test]
//= rfc9260#9.2-4 9.2-11
fn an_end_that_nobody_answers_is_given_up() {
    let mut t = Two::established(1);
    drop_all(&mut t.world, |_, _| true);
    t.shut_a();
    t.world.run_until(at_seconds(400), |_| false);
    assert!(matches!(t.talk(t.a).closed, Some(CloseReason::LostContact | CloseReason::Aborted(_))));
}

#[test]
//= rfc9260#9.1-1 9.1-3 9.1-6 9.1-7 3.3.7-1 9.1-2
fn an_aborted_association_tells_its_peer_why() {
    let mut t = Two::established(1);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.abort(now, id, sctp::AbortCause::user("enough"));
    let (a, b) = t.run_to_end(seconds(1));
    assert_eq!(a, CloseReason::Aborted(sctp::AbortCause::user("enough")));
    assert_eq!(b, CloseReason::PeerAborted(sctp::AbortCause::user("enough")));
}

#[test]
//= rfc9260#9-1 14.2-1
fn a_released_association_is_ended_for_its_peer_and_its_ports_are_free() {
    let mut t = Two::established(1);
    let (id, now) = (t.id(t.a), t.world.now());
    let host = t.world.host_mut(t.a);
    host.endpoint.release(now, id);
    assert_eq!(host.endpoint.state(id), None);
    host.app.conversations.clear();
    t.connect(sends_then_closes(messages(3, 100, 1)));
    t.world.run_for(seconds(3));
    let closed: Vec<_> = t.world.host(t.b).app.conversations.values().map(|c| c.closed.clone()).collect();
    assert!(
        matches!(closed[..], [Some(CloseReason::PeerAborted(_)), Some(CloseReason::Graceful)]),
        "{closed:?}"
    );
}

#[test]
fn an_association_that_lost_contact_gives_its_ports_free_before_it_is_released() {
    let mut t = Two::established(1);
    assert_eq!(t.info(t.a).paths[0].state, PathState::Active);
    drop_all(&mut t.world, |_, _| true);
    t.world.run_for(seconds(3000));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::LostContact));
    t.world.clear_filter();
    t.world.host_mut(t.a).app.conversations.clear();
    t.connect(sends_then_closes(messages(3, 100, 1)));
    t.world.run_for(seconds(3));
    assert_eq!(t.talk(t.a).closed, Some(CloseReason::Graceful));
}

//! Tests of traces: a trace agrees with the counters, and changes no packet.

use std::time::Duration;

use base::Ecn;
use sctp::{Counters, DropReason, EndpointConfig, Limits, PathState, StateName, TraceEvent, TraceRecord};
use sim::{Change, LinkConfig, Loss};

use crate::support::{Two, a_route, messages, seconds, sends, two, two_with};

/// Runs a transfer over a link that loses packets in both directions and is cut for a while.
fn troubled(recording: bool) -> Two {
    let link =
        LinkConfig { delay: Duration::from_millis(10), loss: Loss::Uniform(0.05), ..LinkConfig::default() };
    let mut t = two_with(3, link, EndpointConfig::default());
    t.world.recording = recording;
    t.connect(sends(messages(300, 1400, 1)));
    t.world.at(t.world.now() + Duration::from_millis(150), Change::CutBoth(t.links[0], true));
    t.world.at(t.world.now() + Duration::from_secs(4), Change::CutBoth(t.links[0], false));
    t.world.run_for(seconds(40));
    t
}

fn events(t: &Two) -> Vec<TraceEvent> {
    t.world.traces.iter().filter(|(host, _)| *host == t.a).map(|(_, record)| record.event).collect()
}

#[test]
fn the_number_of_trace_events_matches_the_counters() {
    let t = troubled(true);
    let endpoint = &t.world.host(t.a).endpoint;
    let Counters { data_retransmitted, sacks_received, timeouts, fast_recoveries, tail_probes, .. } =
        endpoint.info(t.id(t.a)).expect("the association").counters;
    let events = events(&t);
    let count = |is: fn(&TraceEvent) -> bool| events.iter().filter(|e| is(e)).count() as u64;
    let told = [
        count(|e| matches!(e, TraceEvent::Retransmitted { .. })),
        count(|e| matches!(e, TraceEvent::SackReceived { .. })),
        count(|e| matches!(e, TraceEvent::Timeout { .. })),
        count(|e| matches!(e, TraceEvent::RecoveryBegan { .. })),
        count(|e| matches!(e, TraceEvent::TailProbe { .. })),
    ];
    assert_eq!(told, [data_retransmitted, sacks_received, timeouts, fast_recoveries, tail_probes]);
    assert!(told.iter().all(|n| *n > 0), "{told:?}");
}

#[test]
fn a_trace_records_association_and_path_states_in_order() {
    let t = troubled(true);
    let events = events(&t);
    let place = |what: &dyn Fn(&TraceEvent) -> bool| events.iter().position(what).expect("it is told");
    let begun = place(&|e| matches!(e, TraceEvent::Begun { state: StateName::CookieEchoed, .. }));
    let up = place(&|e| {
        matches!(e, TraceEvent::State { from: StateName::CookieEchoed, to: StateName::Established })
    });
    let failed = place(&|e| matches!(e, TraceEvent::PathState { to: PathState::PotentiallyFailed, .. }));
    let back = place(&|e| matches!(e, TraceEvent::PathState { to: PathState::Active, .. }));
    assert!(begun < up && up < failed && failed < back);
}

#[test]
fn tracing_changes_no_packet() {
    assert_eq!(troubled(true).world.trace_hash(), troubled(false).world.trace_hash());
}

#[test]
fn without_tracing_no_record_is_kept() {
    let mut t = troubled(false);
    let a = t.a;
    assert_eq!(t.world.host_mut(a).endpoint.poll_trace(), None);
}

#[test]
fn a_dropped_packet_is_traced_with_its_route_and_reason() {
    let mut t = two(1);
    let (a, now) = (t.a, t.world.now());
    let host = t.world.host_mut(a);
    host.endpoint.set_tracing(true);
    let route = a_route();
    host.endpoint.handle_datagram(now, &route, Ecn::NotEct, b"no packet", &mut host.app);
    let event = TraceEvent::Dropped { route, reason: DropReason::Malformed };
    assert_eq!(host.endpoint.poll_trace(), Some(TraceRecord { at: now, association: None, event }));
    assert_eq!(host.endpoint.counters().malformed, 1);
}

#[test]
fn unread_trace_records_are_limited_and_lost_records_are_counted() {
    let limits = Limits { trace_records: 10, ..Limits::default() };
    let mut t = two_with(1, LinkConfig::default(), EndpointConfig { limits, ..EndpointConfig::default() });
    let a = t.a;
    t.world.host_mut(a).endpoint.set_tracing(true);
    t.connect(sends(messages(50, 1000, 1)));
    t.world.run_for(seconds(2));
    let endpoint = &mut t.world.host_mut(a).endpoint;
    let kept = std::iter::from_fn(|| endpoint.poll_trace()).count();
    assert_eq!(kept, 10);
    assert!(endpoint.counters().trace_lost > 10, "{}", endpoint.counters().trace_lost);
}

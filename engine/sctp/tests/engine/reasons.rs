//! Tests of the reported reasons for which data moves to another path.

use std::net::IpAddr;

use sctp::{Event, PathError, PathReason, PathState, Route, Unreachable};
use sim::InTheClear;

use crate::failover::{cut, end_doubts, idle, speak};
use crate::lossy::stream_with_loss;
use crate::support::{Two, seconds};

/// Returns the reasons for which data moved, in order.
fn reasons(t: &Two) -> Vec<PathReason> {
    let reason = |event: &Event| match event {
        Event::PathSwitched { reason, .. } => Some(*reason),
        _ => None,
    };
    t.events(t.a).into_iter().filter_map(reason).collect()
}

/// Local and remote address of the first path.
const FIRST: [&str; 2] = ["10.0.1.1", "10.0.1.2"];
const SECOND: &str = "10.0.2.2";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_silent_path_is_left_for_its_silence_and_taken_again_once_it_has_worked_for_long() {
    let mut t = idle(&[10, 10]);
    speak(&mut t, 20);
    cut(&mut t, 0, true);
    speak(&mut t, 20);
    assert_eq!(reasons(&t), [PathReason::Silence]);
    cut(&mut t, 0, false);
    speak(&mut t, 300);
    assert_eq!(reasons(&t), [PathReason::Silence, PathReason::PrimaryReturned]);
    let is_first = |route: &Route| [route.local, route.remote] == FIRST.map(address);
    let changes: Vec<_> = t
        .events(t.a)
        .iter()
        .filter_map(|event| match event {
            Event::PathChanged { route, to, reason, .. } if is_first(route) => Some((*to, *reason)),
            _ => None,
        })
        .collect();
    assert_eq!(changes.first().map(|(_, reason)| *reason), Some(PathReason::Silence), "{changes:?}");
    assert_eq!(changes.last(), Some(&(PathState::Active, PathReason::Answer)), "{changes:?}");
}

#[test]
fn with_doubts_off_a_silent_path_is_left_with_reason_timeout() {
    let mut t = idle(&[10, 10]);
    end_doubts(&mut t);
    speak(&mut t, 20);
    cut(&mut t, 0, true);
    speak(&mut t, 100);
    assert_eq!(reasons(&t).first(), Some(&PathReason::Timeout));
}

#[test]
fn a_link_down_and_a_removed_address_are_reported_as_reasons() {
    let mut t = idle(&[10, 10]);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.set_local_link(now, id, address(FIRST[0]), false);
    t.world.run_for(seconds(1));
    assert_eq!(reasons(&t), [PathReason::LinkDown]);
    let mut t = idle(&[10, 10]);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.remove_local_address(now, id, address(FIRST[0])).unwrap();
    t.world.run_for(seconds(1));
    assert_eq!(reasons(&t), [PathReason::AddressRemoved]);
}

#[test]
fn a_path_that_the_driver_prefers_is_chosen() {
    let mut t = idle(&[10, 10]);
    let (id, now) = (t.id(t.a), t.world.now());
    t.world.host_mut(t.a).endpoint.set_primary(now, id, address(SECOND)).unwrap();
    t.world.run_for(seconds(1));
    assert_eq!(reasons(&t), [PathReason::PrimaryChosen]);
}

#[test]
fn a_path_left_because_of_losses_reports_the_loss_in_percent() {
    let t = stream_with_loss(1, 0.3, seconds(1));
    let first = reasons(&t).first().copied();
    let Some(PathReason::Loss { percent }) = first else { panic!("{first:?}") };
    assert!((10..=60).contains(&percent), "{percent} %");
}

#[test]
fn host_unreachable_from_icmp_is_reported_as_the_reason() {
    // If packets are sealed, the engine first asks the peer whether the ICMP error is true.
    let _clear = InTheClear::begin();
    let mut t = idle(&[10, 10]);
    let info = t.info(t.a);
    let route = info.paths.iter().find(|path| path.route.local == address(FIRST[0])).unwrap().route;
    // The common header of one of our packets.
    let ports = [info.local_port.to_be_bytes(), info.remote_port.to_be_bytes()].concat();
    let quoted = [&ports[..], &info.peer_tag.to_be_bytes(), &[0; 4]].concat();
    t.world.inject_path_error(t.a, route, PathError::Unreachable(Unreachable::Host), &quoted);
    t.world.run_for(seconds(1));
    assert_eq!(reasons(&t), [PathReason::Unreachable(Unreachable::Host)]);
}

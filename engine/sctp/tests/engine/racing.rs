//! Tests of connection racing: an association comes up although its first path is dead or an attacker sends false errors.

use std::time::Duration;

use base::{Route, Time};
use sctp::{
    AssociationConfig, AssociationId, CloseReason, Connect, EndpointConfig, Event, PathError, StateName,
    Unreachable,
};
use sim::{Fate, LinkConfig, World, packet};
use wire::{Abort, Causes, Chunk};

use crate::support::{Two, a_route, messages, route, seconds, sends_then_closes, two};

const PORTS: (u16, u16) = (40_000, 7);

fn second() -> Route {
    route("10.0.2.1", "10.0.2.2")
}

/// Creates two hosts with one address on each of two links.
fn two_paths() -> Two {
    let mut world = World::new(1);
    let a = world.add_host(&["10.0.1.1", "10.0.2.1"], EndpointConfig::default());
    let b = world.add_host(&["10.0.1.2", "10.0.2.2"], EndpointConfig::default());
    let links: Vec<_> = (1..=2)
        .map(|i| {
            let link = world.add_link(LinkConfig::default());
            world.join(link, &format!("10.0.{i}.1"), &format!("10.0.{i}.2"));
            link
        })
        .collect();
    Two { world, a, b, links }
}

/// Creates two hosts with two links. The first link drops all packets. At first, the client knows only the path over the first link.
fn opening_on_a_dead_path() -> (Two, AssociationId) {
    let mut t = two_paths();
    let first = a_route();
    t.world.set_filter(move |record| {
        let is_first = [record.route.local, record.route.remote].contains(&first.remote);
        if is_first { Fate::Drop } else { Fate::Pass }
    });
    let id = open(&mut t, a_route());
    (t, id)
}

fn open(t: &mut Two, first: Route) -> AssociationId {
    let host = t.world.host_mut(t.a);
    let connect = Connect {
        local_port: PORTS.0,
        remote_port: PORTS.1,
        init_routes: vec![first],
        local_addresses: host.addresses.clone(),
        config: AssociationConfig::default(),
    };
    let id = host.endpoint.connect(Time::ZERO, connect).unwrap();
    host.app.conversations.insert(id, sends_then_closes(messages(5, 5000, 1)));
    id
}

#[test]
fn routes_that_are_added_are_tried_at_once_and_the_dead_first_path_does_not_matter() {
    let (mut t, id) = opening_on_a_dead_path();
    t.world.run_for(Duration::from_millis(100));
    let now = t.world.now();
    t.world.host_mut(t.a).endpoint.add_init_routes(now, id, &[second(), second()]);
    t.world.run_for(Duration::from_millis(50));
    assert!(matches!(t.events(t.a)[0], Event::Established { route, .. } if *route == second()));
    assert_eq!(t.run_to_end(seconds(5)), (CloseReason::Graceful, CloseReason::Graceful));
}

#[test]
fn a_refusal_by_an_added_address_does_not_end_the_attempt_and_one_by_the_first_does() {
    for (refusing, expected) in [(second(), StateName::CookieWait), (a_route(), StateName::Closed)] {
        let (mut t, id) = opening_on_a_dead_path();
        t.world.recording = true;
        let now = t.world.now();
        t.world.host_mut(t.a).endpoint.add_init_routes(now, id, &[second()]);
        t.world.set_filter(|_| Fate::Drop);
        t.world.run_for(Duration::from_millis(10));
        let init = t.world.records.iter().find(|r| r.route == second()).unwrap().packet.clone();
        let tag = u32::from_be_bytes(init[16..20].try_into().unwrap());
        let abort = Chunk::Abort(Abort { tag_reflected: false, causes: Causes::EMPTY });
        t.world.inject(t.a, refusing, &packet(PORTS.1, PORTS.0, tag, &[abort]));
        assert_eq!(t.world.host(t.a).endpoint.state(id), Some(expected), "{refusing:?}");
    }
}

#[test]
fn without_another_route_a_dead_first_path_stays_unanswered() {
    let (mut t, id) = opening_on_a_dead_path();
    t.world.run_for(seconds(2));
    assert_eq!(t.world.host(t.a).endpoint.state(id), Some(StateName::CookieWait));
}

#[test]
fn routes_added_after_the_answer_change_nothing() {
    let mut t = two(1);
    let id = open(&mut t, a_route());
    t.run_to_established();
    t.world.recording = true;
    let now = t.world.now();
    t.world.host_mut(t.a).endpoint.add_init_routes(now, id, &[second()]);
    t.run_to_end(seconds(5));
    assert!(t.world.records.iter().all(|record| record.route.remote != second().remote));
}

/// Returns the state of an attempt after ICMP quoted the first `length` bytes of its INIT. The byte at `changed` is altered, if set.
fn after_icmp(length: usize, changed: Option<usize>) -> Option<StateName> {
    let mut t = two(1);
    t.world.recording = true;
    t.world.set_filter(|_| Fate::Drop);
    let id = open(&mut t, a_route());
    t.world.run_for(Duration::from_millis(10));
    let mut quoted = t.world.records[0].packet[..length].to_vec();
    if let Some(index) = changed {
        quoted[index] ^= 1;
    }
    t.world.inject_path_error(t.a, a_route(), PathError::Unreachable(Unreachable::Port), &quoted);
    t.world.host(t.a).endpoint.state(id)
}

#[test]
//= rfc9260#10-5
fn icmp_ends_an_attempt_only_if_it_shows_the_inits_own_tag() {
    assert_eq!(after_icmp(20, None), Some(StateName::Closed));
    for (length, changed) in
        [(20, Some(16)), (20, Some(12)), (20, Some(7)), (19, None), (12, None), (8, None)]
    {
        assert_eq!(after_icmp(length, changed), Some(StateName::CookieWait), "{length} {changed:?}");
    }
}

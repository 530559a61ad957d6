//! Tests of memory: buffers that tune themselves, and one budget for all associations.

use std::time::Duration;

use base::{Carrier, Time};
use sctp::{AssociationConfig, CloseReason, Connect, ConnectError, EndpointConfig, Limits};
use sim::{Conversation, InTheClear, LinkConfig, Reading, World};

use crate::support::{Two, a_route, content, messages, seconds, sends, sends_then_closes, two, two_with};

/// Creates two hosts with buffers of `buffer` bytes. Their link has this rate and round trip, and a queue of one bandwidth-delay product.
fn path(mbit: u64, rtt: Duration, buffer: usize) -> (Two, AssociationConfig) {
    let config =
        AssociationConfig { send_buffer: buffer, receive_buffer: buffer, ..AssociationConfig::default() };
    let rate = mbit * 1_000_000;
    let queue_bytes = (rate / 8 * rtt.as_millis() as u64 / 1000) as usize;
    let link =
        LinkConfig { rate, delay: rtt / 2, queue_bytes, queue_packets: usize::MAX, ..LinkConfig::default() };
    let mut t =
        two_with(1, link, EndpointConfig { association: config.clone(), ..EndpointConfig::default() });
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    (t, config)
}

/// Returns the goodput from `from` to `to`, in Mbit/s.
fn goodput(t: &mut Two, from: u64, to: u64) -> f64 {
    let received = |t: &Two| t.talk(t.b).received_bytes;
    t.world.run_until(Time::from_millis(from), |_| false);
    let before = received(t);
    t.world.run_until(Time::from_millis(to), |_| false);
    (received(t) - before) as f64 * 8.0 / ((to - from) * 1000) as f64
}

#[test]
fn a_link_of_1_gbit_and_100_ms_is_filled_from_small_initial_buffers() {
    let _clear = InTheClear::begin();
    let (mut t, config) = path(1000, Duration::from_millis(100), 64 << 20);
    t.connect_with(config, Conversation { bulk: u64::MAX, ..Conversation::default() });
    let reached = goodput(&mut t, 3000, 4000);
    assert!(reached > 900.0, "{reached:.0} Mbit/s after three seconds");
}

#[test]
fn a_slow_path_gets_small_buffers() {
    let (mut t, config) = path(10, Duration::from_millis(20), 64 << 20);
    t.connect_with(config, Conversation { bulk: u64::MAX, ..Conversation::default() });
    let reached = goodput(&mut t, 5000, 15_000);
    assert!(reached > 9.0, "{reached:.1} Mbit/s");
    // The path and its queue together hold 50 kB.
    assert!(t.info(t.a).memory < 400_000, "{} bytes", t.info(t.a).memory);
    assert!(t.info(t.a).peer_rwnd < 1_000_000, "a window of {}", t.info(t.a).peer_rwnd);
}

#[test]
fn a_reader_that_never_reads_is_sent_no_more_than_the_first_window() {
    let (mut t, config) = path(100, Duration::from_millis(20), 64 << 20);
    t.world.host_mut(t.b).app.template.reading = Reading::Never;
    t.connect_with(config, Conversation { bulk: u64::MAX, ..Conversation::default() });
    t.world.run_for(seconds(20));
    let held = t.info(t.b).receive_buffered;
    assert!((50_000..80_000).contains(&held), "{held} bytes");
}

#[test]
fn a_message_longer_than_the_first_buffers_is_sent_and_delivered_whole() {
    let (mut t, config) = path(100, Duration::from_millis(20), 4 << 20);
    t.world.host_mut(t.b).app.template.keeps = true;
    let long = sim::Outgoing { stream: 0, unordered: false, bytes: content(1, 1_000_000) };
    t.connect_with(config, sends_then_closes(vec![long.clone()]));
    t.run_to_end(seconds(10));
    let received = &t.talk(t.b).received;
    assert_eq!((received.len(), received[0].parts), (1, 1));
    assert!(received[0].bytes == long.bytes);
}

#[test]
fn a_released_association_takes_no_memory() {
    let mut t = two(1);
    t.connect(sends_then_closes(messages(100, 1000, 4)));
    t.run_to_established();
    for host in [t.a, t.b] {
        assert!(t.world.host(host).endpoint.counters().memory > 1000);
    }
    t.run_to_end(seconds(10));
    for host in [t.a, t.b] {
        let (now, id) = (t.world.now(), t.id(host));
        let endpoint = &mut t.world.host_mut(host).endpoint;
        endpoint.release(now, id);
        assert_eq!(endpoint.counters().memory, 0);
    }
}

const BUDGET: usize = 1_000_000;

/// Creates a listener with little memory that does not read, and forty associations that send to it.
fn crowd() -> Two {
    let limits = Limits { memory: BUDGET, ..Limits::default() };
    let mut world = World::new(1);
    let a = world.add_host(&["10.0.1.1"], EndpointConfig::default());
    let b = world.add_host(&["10.0.1.2"], EndpointConfig { limits, ..EndpointConfig::default() });
    let links = vec![world.add_link(LinkConfig::default())];
    world.join(links[0], "10.0.1.1", "10.0.1.2");
    world.host_mut(b).app.template.reading = Reading::Never;
    let mut t = Two { world, a, b, links };
    for _ in 0..40 {
        t.world.connect(t.a, t.b, Carrier::Ip, AssociationConfig::default(), sends(messages(200, 1000, 2)));
    }
    t
}

fn memory(t: &Two) -> usize {
    t.world.host(t.b).endpoint.counters().memory
}

#[test]
fn forty_senders_to_a_reader_that_does_not_read_stay_in_the_budget_and_lose_nothing() {
    let mut t = crowd();
    let b = t.b;
    // Each of the 40 associations may exceed the budget a little.
    let most = BUDGET + 40 * 10_000;
    t.world.run_until(Time::ZERO + seconds(30), |w| {
        let used = w.host(b).endpoint.counters().memory;
        assert!(used <= most, "{used} bytes");
        false
    });
    assert!(memory(&t) > BUDGET * 7 / 8, "{} bytes: no pressure was seen", memory(&t));
    let id = t.id(b);
    assert!(t.world.host(b).endpoint.info(id).is_some());
    t.world.host_mut(b).app.conversations.values_mut().for_each(|c| c.reading = Reading::AtOnce);
    t.world.run_for(seconds(300));
    for talk in t.world.host(b).app.conversations.values() {
        for stream in 0..2 {
            let received: Vec<_> = talk.received.iter().filter(|m| m.stream == stream).collect();
            let expected = (0..100).map(|n| content(2 * n + usize::from(stream), 1000));
            assert!(received.iter().map(|m| m.bytes.clone()).eq(expected), "stream {stream}");
        }
    }
    assert!(memory(&t) < BUDGET / 2, "{} bytes are left", memory(&t));
}

#[test]
fn when_memory_is_short_nobody_new_is_served_and_later_everybody_again() {
    let mut t = crowd();
    t.world.run_for(seconds(30));
    let refused =
        t.world.connect(t.a, t.b, Carrier::Ip, AssociationConfig::default(), Conversation::default());
    t.world.run_for(seconds(1));
    let closed = t.world.host(t.a).app.conversations[&refused].closed.clone();
    assert!(matches!(&closed, Some(CloseReason::PeerAborted(cause)) if cause.code == 4), "{closed:?}");
    assert_eq!(t.world.host(t.b).endpoint.counters().out_of_resource, 1);
    let (now, route) = (t.world.now(), crate::support::b_route());
    let connect = Connect {
        local_port: 9,
        remote_port: 9,
        init_routes: vec![route],
        local_addresses: Vec::new(),
        config: AssociationConfig::default(),
    };
    let own = t.world.host_mut(t.b).endpoint.connect(now, connect);
    assert!(matches!(own, Err(ConnectError::NoMemory { budget: BUDGET, .. })), "{own:?}");
    assert_eq!(a_route().remote, route.local);

    t.world.host_mut(t.b).app.conversations.values_mut().for_each(|c| c.reading = Reading::AtOnce);
    t.world.run_for(seconds(100));
    let served =
        t.world.connect(t.a, t.b, Carrier::Ip, AssociationConfig::default(), Conversation::default());
    t.world.run_for(seconds(1));
    assert_eq!(t.world.host(t.a).app.conversations[&served].closed, None);
    assert_eq!(t.world.host(t.a).endpoint.state(served), Some(sctp::StateName::Established));
}

#[test]
fn memory_held_by_the_user_counts_until_it_is_released() {
    let mut t = crowd();
    t.world.host_mut(t.b).app.template.reading = Reading::AtOnce;
    t.world.host_mut(t.b).app.conversations.values_mut().for_each(|c| c.reading = Reading::AtOnce);
    t.world.run_for(seconds(30));
    let (id, before) = (t.id(t.b), memory(&t));
    let endpoint = &mut t.world.host_mut(t.b).endpoint;
    assert!(!endpoint.is_memory_short(id));
    endpoint.set_user_memory(id, BUDGET);
    assert_eq!(endpoint.counters().memory, before + BUDGET);
    assert!(endpoint.is_memory_short(id));
    endpoint.set_user_memory(id, 1000);
    endpoint.check_invariants();
    assert!(!endpoint.is_memory_short(id));

    t.world.run_for(seconds(10));
    let endpoint = &mut t.world.host_mut(t.b).endpoint;
    endpoint.release(Time::ZERO + seconds(40), id);
    endpoint.set_user_memory(id, BUDGET);
    endpoint.check_invariants();
    assert!(endpoint.counters().memory <= before, "an association that is gone counts nothing");
}

#[test]
fn a_slow_reader_is_paced_by_its_window_and_loses_nothing() {
    let mut t = two(1);
    t.world.host_mut(t.b).app.template.reading = Reading::Every(Duration::from_millis(20));
    t.connect(sends_then_closes(messages(500, 5000, 3)));
    t.run_to_end(seconds(60));
    assert_eq!(t.talk(t.b).received.len(), 500);
    assert_eq!(t.world.host(t.b).endpoint.counters().malformed, 0);
}

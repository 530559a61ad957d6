//! Tests of both carriers together, watched by a poll.

mod common;

use std::time::Duration;

use base::Ecn;
use common::*;
use mio::{Events, Poll, Token};
use netio::{Carriers, PATIENCE, SendErrorKind};

#[test]
fn a_packet_over_each_carrier_and_family_wakes_the_poll_with_its_own_token() {
    let (a, b) = pair();
    let mut sender = Carriers::new(Some(a.udp()), Some(a.raw()));
    let mut receiver = Carriers::new(Some(b.udp()), Some(b.raw()));
    let mut poll = Poll::new().unwrap();
    receiver.register(poll.registry(), Token(10)).unwrap();
    let [(v4, to_v4), (v6, to_v6)] = families(1);
    let routes =
        [udp_route(&v4, &to_v4), udp_route(&v6, &to_v6), raw_route(&v4, &to_v4), raw_route(&v6, &to_v6)];
    for (place, route) in routes.iter().enumerate() {
        sender.send(&train(route, None, Ecn::NotEct, 1400, b"knock")).unwrap();
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::from_secs(3))).unwrap();
        assert_eq!(events.iter().map(|e| e.token()).collect::<Vec<_>>(), [Token(10 + place)]);
        let mut arrived = Vec::new();
        receiver.recv_at(place, |_, _, bytes| arrived.push(bytes.to_vec())).unwrap();
        assert_eq!(arrived, [b"knock"]);
    }
    let counters = sender.counters();
    assert_eq!((counters.udp.unwrap().packets_sent, counters.raw.unwrap().packets_sent), (2, 2));
}

#[test]
fn sending_over_a_carrier_that_is_not_open_fails_with_no_carrier() {
    let (a, _b) = pair();
    let mut carriers = Carriers::new(Some(a.udp()), None);
    let route = raw_route("10.9.1.1", "10.9.1.2");
    assert!(!carriers.has(&route));
    let error = carriers.send(&train(&route, None, Ecn::NotEct, 1400, b"x")).unwrap_err();
    assert_eq!(error.kind, SendErrorKind::NoCarrier);
}

#[test]
fn a_full_send_buffer_is_reported_and_the_poll_wakes_when_it_drains() {
    let (a, b) = pair();
    let mut sender = Carriers::new(Some(a.udp()), None);
    let mut receiver = b.udp();
    for (from, to) in families(1) {
        // The first packet makes the kernel resolve the neighbour before `tc` slows the link down.
        sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, b"first")).unwrap();
        packets(&mut receiver, 1);
    }
    a.exec("tc qdisc add dev left root tbf rate 100mbit burst 64k limit 100m");
    let mut poll = Poll::new().unwrap();
    sender.register(poll.registry(), Token(0)).unwrap();
    let index = Some(a.ifindex("left"));
    let bytes = pattern(40 * 1400);
    for (from, to) in families(1) {
        let route = udp_route(&from, &to);
        let outcome = (0..10_000)
            .find_map(|_| a.within(|| sender.send(&train(&route, index, Ecn::NotEct, 1400, &bytes)).err()));
        let error = outcome
            .unwrap_or_else(|| panic!("the shaped link fills the buffer: {:?}", sender.counters().udp));
        assert_eq!((error.kind, error.sent), (SendErrorKind::Full, 0));
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::from_secs(3))).unwrap();
        assert!(events.iter().any(|e| e.is_writable()), "{events:?}");
        a.within(|| sender.send(&train(&route, index, Ecn::NotEct, 1400, &bytes))).unwrap();
    }
}

#[test]
fn the_sockets_of_an_interface_close_after_it_is_gone_and_not_before() {
    let (a, b) = two_uplinks();
    let mut carriers = Carriers::new(Some(a.udp()), Some(a.raw()));
    let _peer = (b.udp(), b.raw());
    // Each of the two files begins with a heading line.
    let sockets = || a.read("cat /proc/net/udp6 /proc/net/raw6").lines().count() - 2;
    assert_eq!(sockets(), 2);
    for net in [1, 2] {
        let index = Some(a.ifindex(if net == 1 { "left" } else { "right" }));
        let [_, (from, to)] = families(net);
        for route in [udp_route(&from, &to), raw_route(&from, &to)] {
            a.within(|| carriers.send(&train(&route, index, Ecn::NotEct, 1400, b"x"))).unwrap();
        }
    }
    carriers.close_gone_interfaces();
    assert_eq!(sockets(), 6, "one more for each carrier and interface");
    a.ip("link del right");
    carriers.close_gone_interfaces();
    assert_eq!(sockets(), 4);
}

/// Number of waiting calls after which a test gives up. The calls take at least three seconds together.
const WAITS: usize = 300;

#[test]
fn receiving_on_a_single_socket_waits_until_a_packet_arrives() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.udp(), Carriers::new(Some(b.udp()), None));
    receiver.keep_families(true, false);
    let [(from, to), _] = families(1);
    let mut arrived = Vec::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            for _ in 0..WAITS {
                if !arrived.is_empty() {
                    break;
                }
                let received =
                    receiver.recv_waiting(|route, _, bytes| arrived.push((*route, bytes.to_vec())));
                assert!(received.unwrap().packets < 2);
            }
        });
        sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, b"knock")).unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(arrived, [(udp_route(&to, &from), b"knock".to_vec())]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the kernel's clock is what is tested")]
fn receiving_on_a_single_socket_stops_waiting_after_the_timeout() {
    let (a, _b) = pair();
    let mut carriers = Carriers::new(Some(a.udp()), None);
    carriers.keep_families(false, true);
    let start = std::time::Instant::now();
    let received = carriers.recv_waiting(|_, _, _| {}).unwrap();
    assert_eq!(received.packets, 0);
    assert!((PATIENCE..Duration::from_secs(1)).contains(&start.elapsed()));
}

#[test]
fn carriers_are_lone_only_with_a_single_family_and_a_single_carrier() {
    let (a, _b) = pair();
    assert!(!Carriers::new(Some(a.udp()), None).is_lone());
    let mut both = Carriers::new(Some(a.udp_at(9900)), Some(a.raw()));
    both.keep_families(true, false);
    assert!(!both.is_lone());
    let mut udp = Carriers::new(Some(a.udp_at(9901)), None);
    udp.keep_families(true, false);
    assert!(udp.is_lone());
}

#[test]
fn the_last_family_of_a_carrier_stays_open() {
    let (a, _b) = pair();
    let mut carriers = Carriers::new(Some(a.udp()), None);
    let [(v4, to_v4), (v6, to_v6)] = families(1);
    carriers.keep_families(false, true);
    assert!(!carriers.has(&udp_route(&v4, &to_v4)));
    carriers.keep_families(true, false);
    assert!(carriers.has(&udp_route(&v6, &to_v6)));
}

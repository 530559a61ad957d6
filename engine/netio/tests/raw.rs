//! Tests of the raw carrier on a real kernel, between network namespaces.

mod common;

use base::Ecn;
use common::*;
use netio::{PathErrorKind, SendErrorKind, Unreachable};

#[test]
fn packets_cross_with_route_and_ecn_and_without_ip_header_in_both_families() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.raw(), b.raw());
    for (from, to) in families(1) {
        let bytes = pattern(2 * 1400 + 28);
        sender.send(&train(&raw_route(&from, &to), None, Ecn::Ect0, 1400, &bytes)).unwrap();
        let arrived = packets(&mut receiver, 3);
        assert!(arrived.iter().all(|p| (p.0, p.1) == (raw_route(&to, &from), Ecn::Ect0)), "{arrived:?}");
        assert_eq!(arrived.into_iter().flat_map(|p| p.2).collect::<Vec<_>>(), bytes);
    }
}

#[test]
fn a_hundred_packets_of_one_call_go_in_order() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.raw(), b.raw());
    let bytes = pattern(100 * 1000 + 7);
    for (from, to) in families(1) {
        // The first packet makes the kernel find the neighbour. Meanwhile, the kernel keeps only about 90 packets.
        sender.send(&train(&raw_route(&from, &to), None, Ecn::NotEct, 1000, b"first")).unwrap();
        packets(&mut receiver, 1);
        sender.send(&train(&raw_route(&from, &to), None, Ecn::NotEct, 1000, &bytes)).unwrap();
        let arrived = packets(&mut receiver, 101);
        assert_eq!(arrived.into_iter().flat_map(|p| p.2).collect::<Vec<_>>(), bytes);
    }
}

#[test]
fn a_host_without_a_raw_socket_is_reported_as_not_speaking_the_protocol() {
    let (a, _b) = pair();
    let mut sender = a.raw();
    let packet = pattern(200);
    for (from, to) in families(1) {
        let route = raw_route(&from, &to);
        sender.send(&train(&route, None, Ecn::NotEct, 1400, &packet)).unwrap();
        let (reported, kind, quoted) = path_error(&mut sender);
        assert_eq!((reported, kind), (route, PathErrorKind::Unreachable(Unreachable::Protocol)));
        assert!(quoted.len() >= 12 && packet.starts_with(&quoted));
    }
}

#[test]
fn a_host_with_a_raw_socket_does_not_refuse_the_protocol() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.raw(), b.raw());
    for (from, to) in families(1) {
        sender.send(&train(&raw_route(&from, &to), None, Ecn::NotEct, 1400, &pattern(200))).unwrap();
        packets(&mut receiver, 1);
        // An ICMP report would arrive before this answer.
        receiver.send(&train(&raw_route(&to, &from), None, Ecn::NotEct, 1400, b"answer")).unwrap();
        packets(&mut sender, 1);
        assert_eq!(sender.errors(), []);
    }
}

#[test]
fn a_small_link_behind_a_router_is_reported_and_larger_packets_still_leave() {
    let (a, _router, _b) = routed(1300);
    let mut sender = a.raw();
    for (from, to) in [("10.9.1.1", "10.9.2.2"), ("fd09:1::1", "fd09:2::2")] {
        let route = raw_route(from, to);
        for _ in 0..2 {
            sender.send(&train(&route, None, Ecn::NotEct, 1400, &pattern(1400))).unwrap();
            let (reported, kind, quoted) = path_error(&mut sender);
            assert_eq!((reported, kind), (route, PathErrorKind::FragmentationNeeded { mtu: Some(1300) }));
            assert!(pattern(1400).starts_with(&quoted) && quoted.len() >= 12);
        }
    }
}

#[test]
fn a_packet_longer_than_the_interface_allows_is_refused_as_too_large() {
    let (a, _b) = pair();
    let mut sender = a.raw();
    for (from, to) in families(1) {
        let error =
            sender.send(&train(&raw_route(&from, &to), None, Ecn::NotEct, 1600, &pattern(3200))).unwrap_err();
        assert_eq!((error.kind, error.sent), (SendErrorKind::TooLarge { mtu: None }, 0));
    }
}

#[test]
fn packets_leave_by_the_interface_of_their_source_address_whatever_the_main_route() {
    let (a, b) = two_uplinks();
    let (mut sender, mut receiver) = (a.raw(), b.raw());
    for (net, interface) in [(1, "left"), (2, "right")] {
        for ((from, _), to) in families(net).iter().zip(FAR) {
            let before = b.received_by(interface);
            let index = Some(a.ifindex(interface));
            let bytes = pattern(12_000);
            a.within(|| sender.send(&train(&raw_route(from, to), index, Ecn::NotEct, 1200, &bytes))).unwrap();
            assert!(packets(&mut receiver, 10).iter().all(|p| p.0 == raw_route(to, from)));
            assert!(b.received_by(interface) - before >= 12_000, "{from} did not leave by {interface}");
        }
    }
}

//! Tests of the UDP carrier on a real kernel, between network namespaces.

mod common;

use std::io::ErrorKind;
use std::num::NonZeroU8;

use base::{Ecn, Shard};
use common::*;
use netio::{PathErrorKind, SendErrorKind, UdpCarrier, Unreachable};
use wire::{Steer, steer};

#[test]
//= rfc6951#5.3-1 5.3-2
fn a_packet_crosses_with_its_route_in_both_families() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    for (from, to) in families(1) {
        sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, b"hello")).unwrap();
        let expected = (udp_route(&to, &from), Ecn::NotEct, b"hello".to_vec());
        assert_eq!(packets(&mut receiver, 1), [expected]);
    }
}

#[test]
fn an_unspecified_local_address_leaves_the_choice_to_the_kernel() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    for (unspecified, (from, to)) in ["0.0.0.0", "::"].into_iter().zip(families(1)) {
        sender.send(&train(&udp_route(unspecified, &to), None, Ecn::NotEct, 1400, b"hello")).unwrap();
        assert_eq!(packets(&mut receiver, 1)[0].0, udp_route(&to, &from));
    }
}

#[test]
fn a_train_crosses_in_one_piece_and_arrives_as_its_packets() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    let bytes = pattern(39 * 1400 + 333);
    for (from, to) in families(1) {
        let before = (sender.counters(), receiver.counters());
        sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, &bytes)).unwrap();
        let arrived = packets(&mut receiver, 40);
        assert_eq!(
            arrived.iter().map(|p| p.2.len()).collect::<Vec<_>>(),
            [vec![1400; 39], vec![333]].concat()
        );
        assert_eq!(arrived.into_iter().flat_map(|p| p.2).collect::<Vec<_>>(), bytes);
        assert_eq!(sender.counters().send_calls - before.0.send_calls, 1);
        assert_eq!(sender.counters().gso_batches - before.0.gso_batches, 1);
        assert_eq!(receiver.counters().gro_batches - before.1.gro_batches, 1);
    }
}

#[test]
fn a_train_crosses_where_the_interface_has_no_offloads() {
    let (a, b) = pair();
    a.exec("ethtool -K left tso off gso off gro off tx off sg off tx-udp-segmentation off");
    b.exec("ethtool -K left tso off gso off gro off tx off sg off rx off");
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    let bytes = pattern(40 * 1400);
    for (from, to) in families(1) {
        sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, &bytes)).unwrap();
        let arrived = packets(&mut receiver, 40);
        assert_eq!(arrived.into_iter().flat_map(|p| p.2).collect::<Vec<_>>(), bytes);
    }
    assert_eq!(receiver.counters().gro_batches, 0);
}

#[test]
fn more_than_one_train_in_a_call_is_split() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    let bytes = pattern(100 * 1000 + 1);
    for (from, to) in families(1) {
        sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1000, &bytes)).unwrap();
        let arrived = packets(&mut receiver, 101);
        assert_eq!(arrived.into_iter().flat_map(|p| p.2).collect::<Vec<_>>(), bytes);
    }
}

#[test]
//= rfc6951#5.8-1
fn the_ecn_bits_cross_on_single_packets_and_on_trains() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    for (from, to) in families(1) {
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            for len in [1000, 3000] {
                sender.send(&train(&udp_route(&from, &to), None, ecn, 1000, &pattern(len))).unwrap();
                let arrived = packets(&mut receiver, len / 1000);
                assert!(arrived.iter().all(|p| p.1 == ecn), "{from} {ecn:?} {arrived:?}");
            }
        }
    }
}

#[test]
fn packets_leave_by_the_interface_of_their_source_address_whatever_the_main_route() {
    let (a, b) = two_uplinks();
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    for (net, interface) in [(1, "left"), (2, "right")] {
        for ((from, _), to) in families(net).iter().zip(FAR) {
            let before = b.received_by(interface);
            let index = Some(a.ifindex(interface));
            let bytes = pattern(12_000);
            a.within(|| sender.send(&train(&udp_route(from, to), index, Ecn::NotEct, 1200, &bytes))).unwrap();
            assert!(packets(&mut receiver, 10).iter().all(|p| p.0 == udp_route(to, from)));
            assert!(b.received_by(interface) - before >= 12_000, "{from} did not leave by {interface}");
        }
    }
}

#[test]
fn an_answer_leaves_on_the_interface_on_which_the_peer_was_last_heard() {
    let (a, b) = pair();
    join(&a, &b, "right", 2);
    a.ip("route add 10.9.1.2/32 via 10.9.2.2 dev right");
    a.ip("route add fd09:1::2/128 via fd09:2::2 dev right");
    let (mut asker, mut answerer) = (a.udp(), b.udp());
    for ((_, to), (from, _)) in families(1).iter().zip(families(2).iter()) {
        let index = Some(a.ifindex("right"));
        let bytes = pattern(12_000);
        a.within(|| asker.send(&train(&udp_route(from, to), index, Ecn::NotEct, 1200, &bytes))).unwrap();
        assert!(packets(&mut answerer, 10).iter().all(|p| p.0 == udp_route(to, from)));
        let (before, index) = (a.received_by("right"), Some(b.ifindex("left")));
        b.within(|| answerer.send(&train(&udp_route(to, from), index, Ecn::NotEct, 1200, &bytes))).unwrap();
        assert!(packets(&mut asker, 10).iter().all(|p| p.0 == udp_route(from, to)));
        assert!(a.received_by("right") - before >= 12_000, "the answer from {to} did not come by right");
    }
}

#[test]
fn a_socket_still_receives_after_an_interface_sender_was_opened() {
    let (a, b) = pair();
    let (mut one, mut other) = (a.udp(), b.udp());
    let index = Some(a.ifindex("left"));
    for (from, to) in families(1) {
        a.within(|| one.send(&train(&udp_route(&from, &to), index, Ecn::NotEct, 1400, b"there"))).unwrap();
        packets(&mut other, 1);
        other.send(&train(&udp_route(&to, &from), None, Ecn::NotEct, 1400, b"back")).unwrap();
        assert_eq!(packets(&mut one, 1)[0].2, b"back");
    }
    drop(other);
    for (from, to) in families(1) {
        let route = udp_route(&from, &to);
        let kind = report_of_closed(&mut one, route, |it| {
            a.within(|| it.send(&train(&route, index, Ecn::NotEct, 1400, b"nobody"))).unwrap();
        });
        assert_eq!(kind, PathErrorKind::Unreachable(Unreachable::Port));
    }
}

#[test]
fn a_closed_port_is_reported_with_the_start_of_the_packet() {
    let (a, _b) = pair();
    let mut sender = a.udp();
    let packet = pattern(200);
    for (from, to) in families(1) {
        let route = udp_route(&from, &to);
        sender.send(&train(&route, None, Ecn::NotEct, 1400, &packet)).unwrap();
        let (reported, kind, quoted) = path_error(&mut sender);
        assert_eq!((reported, kind), (route, PathErrorKind::Unreachable(Unreachable::Port)));
        assert!(quoted.len() >= 12, "the whole SCTP header is quoted");
        assert!(packet.starts_with(&quoted));
    }
}

#[test]
fn an_icmp_report_about_one_peer_does_not_fail_a_send_to_another() {
    let (a, _b) = pair();
    let (mut sender, mut other) = (a.udp(), a.udp_at(9900));
    for (from, to) in families(1) {
        sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, b"lost")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut good = udp_route(&from, &from);
        good.carrier = base::Carrier::Udp { peer_port: 9900 };
        sender.send(&train(&good, None, Ecn::NotEct, 1400, b"kept")).unwrap();
        assert_eq!(packets(&mut other, 1)[0].2, b"kept");
        assert_eq!(path_error(&mut sender).0, udp_route(&from, &to));
    }
}

#[test]
fn a_small_link_behind_a_router_is_reported_and_larger_packets_still_leave() {
    let (a, _router, _b) = routed(1300);
    let mut sender = a.udp();
    for (from, to) in [("10.9.1.1", "10.9.2.2"), ("fd09:1::1", "fd09:2::2")] {
        let route = udp_route(from, to);
        for len in [1400, 1400, 4200] {
            sender.send(&train(&route, None, Ecn::NotEct, 1400, &pattern(len))).unwrap();
            let (reported, kind, quoted) = path_error(&mut sender);
            assert_eq!((reported, kind), (route, PathErrorKind::FragmentationNeeded { mtu: Some(1300) }));
            assert!(quoted.len() >= 12);
        }
    }
}

#[test]
fn a_packet_longer_than_the_interface_allows_is_refused_as_too_large() {
    let (a, b) = pair();
    let (mut sender, mut receiver) = (a.udp(), b.udp());
    for (from, to) in families(1) {
        let route = udp_route(&from, &to);
        for len in [1600, 8000] {
            let error = sender.send(&train(&route, None, Ecn::NotEct, 1600, &pattern(len))).unwrap_err();
            assert_eq!((error.kind, error.sent), (SendErrorKind::TooLarge { mtu: None }, 0));
        }
        sender.send(&train(&route, None, Ecn::NotEct, 1400, &pattern(2800))).unwrap();
        packets(&mut receiver, 2);
    }
    assert_eq!(sender.counters().gso_refusals, 0);
    assert_eq!(sender.counters().gso_batches, 2);
}

#[test]
fn a_source_address_that_is_not_ours_has_no_route() {
    let (a, _b) = pair();
    let mut sender = a.udp();
    for (from, to) in [("10.9.1.77", "10.9.1.2"), ("fd09:1::77", "fd09:1::2")] {
        let error = sender.send(&train(&udp_route(from, to), None, Ecn::NotEct, 1400, b"x")).unwrap_err();
        assert_eq!(error.kind, SendErrorKind::NoRoute, "{error}");
    }
}

#[test]
fn a_broadcast_is_thrown_away() {
    let (a, b) = pair();
    let mut receiver = b.udp();
    a.within(|| {
        let socket = std::net::UdpSocket::bind("10.9.1.1:9899").unwrap();
        socket.set_broadcast(true).unwrap();
        socket.send_to(b"all", "10.9.1.255:9899").unwrap();
        socket.send_to(b"one", "10.9.1.2:9899").unwrap();
    });
    assert_eq!(packets(&mut receiver, 1)[0].2, b"one");
    assert_eq!(receiver.counters().discarded, 1);
}

/// Returns a packet with a common header and a chunk header. The kernel and `wire::steer` read only these headers.
fn sctp_packet(ports: (u16, u16), tag: u32) -> Vec<u8> {
    let head = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    [&head[..], &tag.to_be_bytes(), &[0; 4], &[1, 0, 0, 4]].concat()
}

#[test]
fn each_shards_socket_gets_the_packets_of_its_tags_and_its_share_of_inits() {
    let (a, b) = pair();
    let mut sender = a.udp();
    let count = NonZeroU8::new(3).unwrap();
    let mut shards =
        b.within(|| UdpCarrier::bind_shards(netio::SCTP_OVER_UDP_PORT, count)).expect("a free port");
    for (from, to) in families(1) {
        let tags = (1..40u32).map(|n| sctp_packet((1, 2), n.wrapping_mul(0x0fed_cba9)));
        let inits = (1..40).map(|n| sctp_packet((n * 1009, n), 0));
        let all: Vec<Vec<u8>> = tags.chain(inits).collect();
        for packet in &all {
            sender.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, packet)).unwrap();
        }
        for (carrier, shard) in shards.iter_mut().zip(Shard::all(count)) {
            let is_its = |p: &&Vec<u8>| steer(p, from.parse().unwrap(), shard) == Steer::To(shard);
            let expected: Vec<&Vec<u8>> = all.iter().filter(is_its).collect();
            assert!(expected.len() > 10, "{} for {shard:?}", expected.len());
            let arrived = packets(carrier, expected.len());
            assert_eq!(arrived.iter().map(|p| &p.2).collect::<Vec<_>>(), expected, "{from} {shard:?}");
        }
    }
}

#[test]
fn a_port_of_shards_is_closed_to_other_carriers() {
    let a = Namespace::new();
    let _shards = a.within(|| UdpCarrier::bind_shards(9899, NonZeroU8::MIN)).unwrap();
    assert_eq!(a.within(|| UdpCarrier::bind(9899).err().map(|e| e.kind())), Some(ErrorKind::AddrInUse));
}

//! Peers that send much get sockets of their own, on a real kernel, between network namespaces.

mod common;

use std::io::ErrorKind;

use base::Ecn;
use common::*;
use netio::{PathErrorKind, UdpCarrier, Unreachable};

/// Trains of [`PACKETS`] packets, more than enough for an inlet where each packet arrives alone.
const TRAINS: usize = 50;
const PACKETS: usize = 64;
/// Each packet: its number.
const LENGTH: usize = 8;

/// A carrier with inlets, which it opens in its own namespace.
struct End(Namespace, UdpCarrier);

impl End {
    fn packets(&mut self, count: usize) -> Vec<Packet> {
        self.0.within(|| packets(&mut self.1, count))
    }
}

/// Two namespaces whose link has no offloads, and a carrier in each; the second opens inlets.
fn ends() -> (Namespace, UdpCarrier, End) {
    let (a, b) = pair();
    b.exec("ethtool -K left gro off");
    a.exec("ethtool -K left tx-udp-segmentation off");
    let (sender, mut receiver) = (a.udp(), b.udp());
    receiver.open_inlets();
    (a, sender, End(b, receiver))
}

/// Sends many packets with numbers, and takes what arrives as it comes.
fn send_much(sender: &mut UdpCarrier, receiver: &mut End, from: &str, to: &str) -> Vec<u64> {
    let mut arrived = Vec::new();
    for train_number in 0..TRAINS {
        let numbers = (0..PACKETS).map(|n| ((train_number * PACKETS + n) as u64).to_be_bytes());
        let bytes = numbers.collect::<Vec<_>>().concat();
        sender.send(&train(&udp_route(from, to), None, Ecn::Ect0, LENGTH, &bytes)).unwrap();
        for (route, ecn, bytes) in receiver.packets(PACKETS) {
            assert_eq!((route, ecn), (udp_route(to, from), Ecn::Ect0));
            arrived.push(u64::from_be_bytes(bytes.try_into().unwrap()));
        }
    }
    arrived
}

#[test]
fn what_a_busy_peer_sends_arrives_whole_and_in_order_by_a_socket_of_its_own() {
    let (_a, mut sender, mut receiver) = ends();
    for (inlets, (from, to)) in families(1).into_iter().enumerate() {
        assert_eq!(receiver.1.counters().inlets, inlets as u64);
        let arrived = send_much(&mut sender, &mut receiver, &from, &to);
        assert!(arrived.into_iter().eq(0..(TRAINS * PACKETS) as u64));
    }
    assert_eq!(receiver.1.counters().inlets, 2);
}

#[test]
fn others_still_arrive_and_nobody_else_gets_the_port() {
    let (a, mut sender, mut receiver) = ends();
    let mut other = a.udp_at(9900);
    for (from, to) in families(1) {
        send_much(&mut sender, &mut receiver, &from, &to);
        other.send(&train(&udp_route(&from, &to), None, Ecn::NotEct, 1400, b"hello")).unwrap();
        assert_eq!(receiver.packets(1)[0].2, b"hello");
    }
    let taken =
        receiver.0.within(|| UdpCarrier::bind(netio::SCTP_OVER_UDP_PORT)).err().expect("the port is taken");
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_report_about_a_busy_peer_that_has_gone_is_taken() {
    let (_a, mut sender, mut receiver) = ends();
    for (from, to) in families(1) {
        send_much(&mut sender, &mut receiver, &from, &to);
    }
    drop(sender);
    for (from, to) in families(1) {
        let route = udp_route(&to, &from);
        let kind = report_of_closed(&mut receiver.1, route, |it| {
            it.send(&train(&route, None, Ecn::NotEct, 1400, b"still there?")).unwrap();
        });
        assert_eq!(kind, PathErrorKind::Unreachable(Unreachable::Port));
    }
}

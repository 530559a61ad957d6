//! Tests of trains on a real kernel, with different work of the interfaces:
//!
//! - segmentation by the sender's interface, and GRO at the receiver's interface, each on and off
//! - packets of equal and of unequal length, and more packets than one send call accepts
//! - IPv4 and IPv6, UDP and raw IP
//!
//! Each packet must arrive once, in order, with unchanged bytes and a right CRC32c.

mod common;

use base::{Ecn, Route};
use common::*;
use netio::Counters;
use wire::{ChecksumMode, Chunk, CommonHeader, Data, Packet, PacketWriter, Ppid, Ssn, StreamId, Tsn};

/// Command that turns all offloads off. The interface then transmits single packets, as a physical link would carry them.
const WITHOUT_GSO: &str = "ethtool -K left tso off gso off tx off sg off tx-udp-segmentation off";
/// Command that turns hardware segmentation off. With hardware segmentation, a train would cross a veth in one piece, and GRO
/// would have nothing to merge.
const WITHOUT_HARDWARE_SEGMENTATION: &str = "ethtool -K left tso off tx-udp-segmentation off";

/// Trains of one load. All packets of a train except the last have one length. The last packet may be shorter.
struct Load {
    what: &'static str,
    trains: &'static [(usize, usize, usize)],
}

const fn trains(what: &'static str, trains: &'static [(usize, usize, usize)]) -> Load {
    Load { what, trains }
}

/// The loads. Each train is `(packets, length of each, length of the last)`. Lengths are multiples of four, like the lengths of
/// SCTP packets.
const LOADS: &[Load] = &[
    trains("all of one length", &[(40, 1400, 1400)]),
    trains("the last one short", &[(40, 1400, 332)]),
    trains("the last one as short as can be", &[(30, 1400, 32)]),
    trains("more than 64 packets", &[(64, 400, 400), (65, 400, 400), (129, 400, 100)]),
    trains("more than 64 KiB", &[(47, 1400, 1400), (100, 1400, 1000)]),
    trains(
        "every length another",
        &[(1, 0, 32), (1, 0, 1400), (1, 0, 36), (1, 0, 1396), (1, 0, 700), (1, 0, 704)],
    ),
    trains(
        "trains of different lengths",
        &[(5, 1400, 100), (7, 104, 36), (2, 1400, 1396), (3, 1396, 1400 - 8), (9, 60, 60)],
    ),
    trains(
        "a short train behind a long one of its length",
        &[(30, 1200, 1200), (2, 1200, 1196), (1, 0, 1200)],
    ),
];

/// Returns a packet with one DATA chunk, of `length` bytes in total.
fn packet(number: u32, length: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..length - 28).map(|i| (i as u32 * 7 + number * 31) as u8).collect();
    let data = Data {
        immediate: false,
        unordered: false,
        begin: true,
        end: true,
        tsn: Tsn(number),
        stream: StreamId(0),
        ssn: Ssn(number as u16),
        ppid: Ppid(0),
        payload: &payload,
    };
    let mut bytes = vec![0; length];
    let header = CommonHeader { source_port: 1, destination_port: 2, tag: wire::VerificationTag(number) };
    let mut writer = PacketWriter::new(&mut bytes, header);
    writer.push(&data).expect("it fits exactly");
    assert_eq!(writer.finish(), length);
    bytes
}

/// Sends a load over one route, and compares the packets that arrive.
fn crosses<C: AnyCarrier>(load: &Load, (sender, receiver): (&mut C, &mut C), there: &Route, back: &Route) {
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for &(count, length, last) in load.trains {
        let first = expected.len();
        let lengths = std::iter::repeat_n(length, count - 1).chain([last]);
        expected.extend(lengths.zip(first as u32..).map(|(length, number)| packet(number, length)));
        let bytes = expected[first..].concat();
        let segment_size = if count == 1 { last } else { length };
        sender.transmit(&train(there, None, Ecn::Ect0, segment_size, &bytes)).unwrap();
    }
    let arrived = packets(receiver, expected.len());
    assert_eq!(arrived.len(), expected.len(), "{}: {there:?}", load.what);
    for (number, ((route, ecn, bytes), expected)) in arrived.iter().zip(&expected).enumerate() {
        assert_eq!((route, *ecn), (back, Ecn::Ect0), "{}: packet {number}", load.what);
        assert!(bytes == expected, "{}: packet {number} of {there:?} is another", load.what);
        let packet = Packet::parse(bytes, ChecksumMode::Verify).expect("a right checksum");
        assert!(
            matches!(packet.chunks().next(), Some(Ok(Chunk::Data(data))) if data.tsn == Tsn(number as u32))
        );
    }
}

/// Sends all loads in both families between two namespaces. `commands` configure the interfaces of the two namespaces. No packet
/// may arrive twice.
fn all_cross<C: AnyCarrier>(
    commands: (&[&str], &[&str]),
    open: fn(&Namespace) -> C,
    route: fn(&str, &str) -> Route,
) -> (C, C) {
    let (a, b) = pair();
    commands.0.iter().for_each(|command| a.exec(command));
    commands.1.iter().for_each(|command| b.exec(command));
    let (mut sender, mut receiver) = (open(&a), open(&b));
    for (from, to) in families(1) {
        let (there, back) = (route(&from, &to), route(&to, &from));
        // The first packet makes the kernel find the neighbour. Meanwhile, the kernel keeps only about 90 packets.
        sender.transmit(&train(&there, None, Ecn::Ect0, 1400, &packet(0, 100))).unwrap();
        packets(&mut receiver, 1);
        for load in LOADS {
            crosses(load, (&mut sender, &mut receiver), &there, &back);
        }
    }
    receiver.receive(|_, _, bytes| panic!("{} bytes came twice", bytes.len()));
    (sender, receiver)
}

/// Runs all loads over UDP. The commands `a` and `b` configure the interfaces of sender and receiver. Returns the counters of
/// both sockets.
fn udp(a: &[&str], b: &[&str]) -> (Counters, Counters) {
    let (sender, receiver) = all_cross((a, b), Namespace::udp, udp_route);
    (sender.counters(), receiver.counters())
}

#[test]
fn trains_cross_in_one_piece_and_are_cut_by_the_receiver() {
    for gro in ["on", "off"] {
        let (sent, received) = udp(&[], &[&format!("ethtool -K left gro {gro}")]);
        assert_eq!((sent.gso_batches, sent.gso_refusals), (36, 0));
        assert_eq!(received.gro_batches, 36, "a veth hands the trains over whole, GRO {gro}");
    }
}

#[test]
fn trains_that_the_kernel_cuts_are_put_together_by_gro() {
    let (sent, received) = udp(&[WITHOUT_HARDWARE_SEGMENTATION], &["ethtool -K left gro on"]);
    assert!(sent.gso_batches > 0 && received.gro_batches > 0, "{sent:?} {received:?}");
}

#[test]
fn trains_that_the_kernel_cuts_arrive_packet_by_packet_without_gro() {
    let (sent, received) = udp(&[WITHOUT_HARDWARE_SEGMENTATION], &["ethtool -K left gro off"]);
    assert!(sent.gso_batches > 0, "{sent:?}");
    assert_eq!(received.gro_batches, 0);
}

#[test]
fn trains_over_an_interface_without_any_offload_are_put_together_by_gro() {
    let (_, received) = udp(&[WITHOUT_GSO], &["ethtool -K left gro on"]);
    assert!(received.gro_batches > 0, "{received:?}");
}

#[test]
fn trains_between_interfaces_without_any_offload_arrive_packet_by_packet() {
    let (_, received) = udp(&[WITHOUT_GSO], &["ethtool -K left gro off rx off"]);
    assert_eq!(received.gro_batches, 0);
}

#[test]
fn raw_packets_cross_whatever_the_interfaces_offload() {
    for (a, b) in [("on", "on"), ("on", "off"), ("off", "on"), ("off", "off")] {
        let gso = format!("ethtool -K left gso {a} tx {a}");
        let gro = format!("ethtool -K left gro {b}");
        all_cross((&[&gso], &[&gro]), Namespace::raw, raw_route);
    }
}

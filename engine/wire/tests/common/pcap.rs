//! Reader of the SCTP packets in a capture. It accepts pcap of either byte order, Ethernet or raw IP, and
//! SCTP as IP protocol 132 or in UDP port 9899.

use std::path::Path;

use etherparse::{IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice};

const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const LINK_ETHERNET: u32 = 1;
const LINK_RAW_IP: u32 = 101;
const UDP_PORT: u16 = 9899;

/// Returns the SCTP packets of a capture, each with its frame number in Wireshark.
pub(crate) fn sctp_packets(path: &Path) -> Vec<(usize, Vec<u8>)> {
    let bytes = std::fs::read(path).expect("a capture that can be read");
    let number = byte_order(&bytes);
    let link = number(&bytes[20..24]);
    let (mut packets, mut rest, mut frame) = (Vec::new(), &bytes[FILE_HEADER_LEN..], 0);
    while !rest.is_empty() {
        let (captured, original) = (number(&rest[8..12]), number(&rest[12..16]));
        assert_eq!(captured, original, "{}: frame {} is cut short", path.display(), frame + 1);
        let (record, behind) = rest[RECORD_HEADER_LEN..].split_at(captured as usize);
        (rest, frame) = (behind, frame + 1);
        packets.extend(sctp_inside(link, record).map(|sctp| (frame, sctp.to_vec())));
    }
    packets
}

fn byte_order(bytes: &[u8]) -> fn(&[u8]) -> u32 {
    match bytes[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => |b| u32::from_le_bytes(b.try_into().unwrap()),
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => |b| u32::from_be_bytes(b.try_into().unwrap()),
        _ => panic!("no pcap file: {:02x?}", &bytes[..4]),
    }
}

fn sctp_inside(link: u32, record: &[u8]) -> Option<&[u8]> {
    let packet = match link {
        LINK_ETHERNET => LaxSlicedPacket::from_ethernet(record).ok()?,
        LINK_RAW_IP => LaxSlicedPacket::from_ip(record).ok()?,
        other => panic!("link type {other} is neither Ethernet nor raw IP"),
    };
    if let Some(TransportSlice::Udp(udp)) = &packet.transport {
        return (udp.source_port() == UDP_PORT || udp.destination_port() == UDP_PORT).then(|| udp.payload());
    }
    let payload = match packet.net? {
        LaxNetSlice::Ipv4(ip) => ip.payload().clone(),
        LaxNetSlice::Ipv6(ip) => ip.payload().clone(),
        LaxNetSlice::Arp(_) => return None,
    };
    (payload.ip_number == IpNumber::SCTP && !payload.fragmented).then_some(payload.payload)
}

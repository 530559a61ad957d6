//! Records as a pcap file, with IP (and UDP) headers made up, for Wireshark.

use std::io::Write;
use std::net::IpAddr;

use base::Carrier;

use crate::world::Record;

/// Nanosecond pcap, host order irrelevant: written little-endian.
const MAGIC: u32 = 0xa1b2_3c4d;
/// LINKTYPE_RAW: packets begin with their IP header.
const RAW_IP: u32 = 101;
const ENCAPSULATION_PORT: u16 = 9899;

pub(crate) fn write(out: &mut impl Write, records: &[Record]) -> std::io::Result<()> {
    for word in [MAGIC, 0x0004_0002, 0, 0, 65_535, RAW_IP] {
        out.write_all(&word.to_le_bytes())?;
    }
    for record in records {
        let packet = ip_packet(record);
        let nanos = record.at.as_nanos();
        let length = packet.len() as u64;
        for word in [nanos / 1_000_000_000, nanos % 1_000_000_000, length, length] {
            out.write_all(&u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes())?;
        }
        out.write_all(&packet)?;
    }
    Ok(())
}

fn ip_packet(record: &Record) -> Vec<u8> {
    let (protocol, payload) = match record.route.carrier {
        Carrier::Ip => (132, record.packet.clone()),
        Carrier::Udp { peer_port } => (17, udp_packet(peer_port, &record.packet)),
    };
    let mut packet = match (record.route.local, record.route.remote) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = be16(20 + payload.len());
            let mut header = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
            header.extend_from_slice(&from.octets());
            header.extend_from_slice(&to.octets());
            let sum = header_checksum(&header);
            header[10..12].copy_from_slice(&sum);
            header
        }
        (from, to) => {
            let length = be16(payload.len());
            let mut header = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            for address in [from, to] {
                match address {
                    IpAddr::V4(a) => header.extend_from_slice(&a.to_ipv6_mapped().octets()),
                    IpAddr::V6(a) => header.extend_from_slice(&a.octets()),
                }
            }
            header
        }
    };
    packet.extend_from_slice(&payload);
    packet
}

fn udp_packet(to: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(8 + payload.len());
    packet.extend_from_slice(&ENCAPSULATION_PORT.to_be_bytes());
    packet.extend_from_slice(&to.to_be_bytes());
    packet.extend_from_slice(&be16(8 + payload.len()));
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(payload);
    packet
}

fn be16(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes()
}

fn header_checksum(header: &[u8]) -> [u8; 2] {
    let words = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0);
    (!folded).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Route, Time};

    #[test]
    fn a_capture_holds_headers_and_packets_in_the_layout_of_pcap() {
        let route = Route {
            local: "10.0.0.1".parse().unwrap(),
            remote: "10.0.0.2".parse().unwrap(),
            carrier: Carrier::Udp { peer_port: 9899 },
        };
        let record = Record {
            at: Time::from_millis(1500),
            route,
            packet: vec![7; 16],
            ecn: base::Ecn::NotEct,
            arrives: true,
        };
        let mut out = Vec::new();
        write(&mut out, &[record]).unwrap();
        assert_eq!(out.len(), 24 + 16 + 20 + 8 + 16);
        assert_eq!(out[24..32], [1, 0, 0, 0, 0x00, 0x65, 0xcd, 0x1d]);
        assert_eq!(header_checksum(&out[40..60]), [0, 0], "a header with its checksum sums to zero");
    }
}

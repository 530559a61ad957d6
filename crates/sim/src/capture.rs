//! Records as a pcapng file, with IP (and UDP) headers made up, for Wireshark.

use std::io::Write;
use std::net::IpAddr;

use base::Carrier;

use crate::world::Record;

/// Block types of pcapng (draft-ietf-opsawg-pcapng sections 4.1 to 4.3); all is written little-endian.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// The section's byte-order magic and its version, 1.0.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: u32 = 1;
/// The interface option that sets the unit of time: code 9, one octet, 10 to the minus 9th of a second.
const TIME_UNIT: [u32; 2] = [9 | 1 << 16, 9];
/// LINKTYPE_RAW: packets begin with their IP header.
const RAW_IP: u32 = 101;
const ENCAPSULATION_PORT: u16 = 9899;

pub(crate) fn write(out: &mut impl Write, records: &[Record]) -> std::io::Result<()> {
    // The section's length is not known.
    block(out, SECTION, &[BYTE_ORDER, VERSION, u32::MAX, u32::MAX], &[])?;
    block(out, INTERFACE, &[RAW_IP, 0, TIME_UNIT[0], TIME_UNIT[1], 0], &[])?;
    for record in records {
        let packet = ip_packet(record);
        let nanos = record.at.as_nanos();
        let [high, low] = [nanos >> 32, nanos & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        block(out, PACKET, &[0, high, low, length, length], &packet)?;
    }
    Ok(())
}

/// A block: type, length, content padded to four octets, length again.
fn block(out: &mut impl Write, kind: u32, words: &[u32], bytes: &[u8]) -> std::io::Result<()> {
    let padded = bytes.len().next_multiple_of(4);
    let length = u32::try_from(12 + 4 * words.len() + padded).unwrap_or(u32::MAX);
    for word in [kind, length].iter().chain(words) {
        out.write_all(&word.to_le_bytes())?;
    }
    out.write_all(bytes)?;
    out.write_all(&[0; 3][..padded - bytes.len()])?;
    out.write_all(&length.to_le_bytes())
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
    fn a_capture_holds_headers_and_packets_in_the_layout_of_pcapng() {
        let route = Route {
            local: "10.0.0.1".parse().unwrap(),
            remote: "10.0.0.2".parse().unwrap(),
            carrier: Carrier::Udp { peer_port: 9899 },
        };
        let record = Record {
            at: Time::from_millis(1500),
            route,
            packet: vec![7; 18],
            ecn: base::Ecn::NotEct,
            arrives: true,
        };
        let mut out = Vec::new();
        write(&mut out, &[record]).unwrap();
        let packet = 20 + 8 + 18;
        let blocks = [28, 32, 32 + packet + 2];
        assert_eq!(out.len(), blocks.iter().sum::<usize>());
        let mut at = 0;
        for (kind, length) in [SECTION, INTERFACE, PACKET].into_iter().zip(blocks) {
            let word = |place: usize| u32::from_le_bytes(out[place..place + 4].try_into().unwrap());
            assert_eq!(
                (word(at), word(at + 4) as usize, word(at + length - 4) as usize),
                (kind, length, length)
            );
            at += length;
        }
        let nanos: u64 = 1_500_000_000;
        assert_eq!(
            out[72..80],
            [(nanos >> 32).to_le_bytes()[..4].to_vec(), nanos.to_le_bytes()[..4].to_vec()].concat()
        );
        assert_eq!(header_checksum(&out[88..108]), [0, 0], "a header with its checksum sums to zero");
    }
}

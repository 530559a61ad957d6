//! A writer of pcapng files for Wireshark. It puts artificial IP and UDP headers in front of SCTP packets.
//!
//! Engines and simulations use this module, because their packets have no IP and UDP headers. Unlike the rest of the crate, this module
//! allocates memory. The writer refuses no packet. A length that is too large for its field is written as the field's maximum. Begin with
//! [`begin`], then call [`write()`] for each packet.

use std::io::{self, Write};
use std::net::IpAddr;

use base::Ecn;

/// Block types of pcapng (draft-ietf-opsawg-pcapng sections 4.1 to 4.3). All fields are written in little-endian order.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// The section's byte-order magic and its version, 1.0.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: u32 = 1;
/// Interface option for the time unit: code 9, one octet, 10^-9 seconds.
const TIME_UNIT: [u32; 2] = [9 | 1 << 16, 9];
/// LINKTYPE_RAW: packets begin with their IP header.
const RAW_IP: u32 = 101;
/// Options of a packet (sections 3.5 and 4.3): a comment, and four octets of flags whose low bits hold the direction.
const COMMENT: u16 = 1;
const FLAGS: u32 = 2 | 4 << 16;
/// Protocol numbers in an IP header.
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// Limit on a comment, in bytes. A longer comment is cut.
const COMMENT_MAX: usize = 4096;

/// Direction of a packet, from the point of view of the capturing host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The packet arrived.
    In,
    /// The packet was sent.
    Out,
}

/// One captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured<'a> {
    /// Time of the capture, in nanoseconds since 1970 or since the beginning of a simulation.
    pub at_ns: u64,
    /// Source address of the packet.
    pub from: IpAddr,
    /// Destination address of the packet.
    pub to: IpAddr,
    /// UDP source and destination ports, if the packet was encapsulated in UDP (RFC 6951).
    pub udp: Option<(u16, u16)>,
    /// ECN codepoint of the packet.
    pub ecn: Ecn,
    /// Direction of the packet. `None` if the capture belongs to no host.
    pub direction: Option<Direction>,
    /// A comment, which may be empty.
    pub comment: &'a str,
    /// Octets of the packet, from the SCTP header on.
    pub packet: &'a [u8],
}

/// Writes the blocks that precede the first packet.
///
/// # Errors
/// Returns the errors of `out`.
pub fn begin(out: &mut impl Write) -> io::Result<()> {
    // Two fields of all ones report that the section's length is unknown.
    block(out, SECTION, &[BYTE_ORDER, VERSION, u32::MAX, u32::MAX], &[], &[])?;
    block(out, INTERFACE, &[RAW_IP, 0, TIME_UNIT[0], TIME_UNIT[1], 0], &[], &[])
}

/// Writes one packet.
///
/// # Errors
/// Returns the errors of `out`.
pub fn write(out: &mut impl Write, captured: &Captured<'_>) -> io::Result<()> {
    let packet = ip_packet(captured);
    let [high, low] =
        [captured.at_ns >> 32, captured.at_ns & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
    let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    block(out, PACKET, &[0, high, low, length, length], &packet, &options(captured))
}

/// Returns the options of a packet with their end mark. Returns no octets if there are no options.
fn options(captured: &Captured<'_>) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(direction) = captured.direction {
        let bits: u32 = if direction == Direction::In { 1 } else { 2 };
        options.extend([FLAGS.to_le_bytes(), bits.to_le_bytes()].concat());
    }
    if !captured.comment.is_empty() {
        let text = captured.comment.as_bytes();
        let text = &text[..captured.comment.floor_char_boundary(COMMENT_MAX)];
        options.extend(COMMENT.to_le_bytes());
        options.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        options.extend(text);
        options.resize(options.len().next_multiple_of(4), 0);
    }
    if !options.is_empty() {
        options.extend([0; 4]);
    }
    options
}

/// Writes a block: type, length, fields, content padded to four octets, options, and the length again.
fn block(out: &mut impl Write, kind: u32, words: &[u32], bytes: &[u8], options: &[u8]) -> io::Result<()> {
    let padded = bytes.len().next_multiple_of(4);
    let length = u32::try_from(12 + 4 * words.len() + padded + options.len()).unwrap_or(u32::MAX);
    for word in [kind, length].iter().chain(words) {
        out.write_all(&word.to_le_bytes())?;
    }
    out.write_all(bytes)?;
    out.write_all(&[0; 3][..padded - bytes.len()])?;
    out.write_all(options)?;
    out.write_all(&length.to_le_bytes())
}

fn ip_packet(captured: &Captured<'_>) -> Vec<u8> {
    let (protocol, payload) = match captured.udp {
        None => (SCTP, captured.packet.to_vec()),
        Some(ports) => (UDP, udp_packet(ports, captured.packet)),
    };
    let mut packet = match (captured.from, captured.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = be16(20 + payload.len());
            let ecn = captured.ecn.bits();
            let mut header = vec![0x45, ecn, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
            header.extend_from_slice(&from.octets());
            header.extend_from_slice(&to.octets());
            let sum = header_checksum(&header);
            header[10..12].copy_from_slice(&sum);
            header
        }
        (from, to) => {
            let length = be16(payload.len());
            // The traffic class is between the version and the flow label.
            let mut header = vec![0x60, captured.ecn.bits() << 4, 0, 0, length[0], length[1], protocol, 64];
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

fn udp_packet((from, to): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(8 + payload.len());
    packet.extend_from_slice(&from.to_be_bytes());
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

    const PACKET_LEN: usize = 20 + 8 + 18;

    fn captured(comment: &str) -> Captured<'_> {
        Captured {
            at_ns: 1_500_000_000,
            from: "10.0.0.1".parse().unwrap(),
            to: "10.0.0.2".parse().unwrap(),
            udp: Some((9899, 9899)),
            ecn: Ecn::NotEct,
            direction: None,
            comment,
            packet: &[7; 18],
        }
    }

    fn word(bytes: &[u8], place: usize) -> u32 {
        u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap())
    }

    #[test]
    fn a_capture_holds_headers_and_packets_in_the_layout_of_pcapng() {
        let mut out = Vec::new();
        begin(&mut out).unwrap();
        write(&mut out, &captured("")).unwrap();
        let blocks = [28, 32, 32 + PACKET_LEN + 2];
        assert_eq!(out.len(), blocks.iter().sum::<usize>());
        let mut at = 0;
        for (kind, length) in [SECTION, INTERFACE, PACKET].into_iter().zip(blocks) {
            let found = (word(&out, at), word(&out, at + 4) as usize, word(&out, at + length - 4) as usize);
            assert_eq!(found, (kind, length, length));
            at += length;
        }
        let nanos: u64 = 1_500_000_000;
        assert_eq!(
            out[72..80],
            [(nanos >> 32).to_le_bytes()[..4].to_vec(), nanos.to_le_bytes()[..4].to_vec()].concat()
        );
        assert_eq!(header_checksum(&out[88..108]), [0, 0], "a header with its checksum sums to zero");
    }

    #[test]
    fn direction_and_comment_are_options_behind_the_packet() {
        let mut out = Vec::new();
        write(&mut out, &Captured { direction: Some(Direction::Out), ..captured("héllo") }).unwrap();
        let options = &out[28 + PACKET_LEN + 2..out.len() - 4];
        let text = ["h", "é", "llo"].concat();
        let expected =
            [&[2, 0, 4, 0, 2, 0, 0, 0, 1, 0, 6, 0][..], text.as_bytes(), &[0; 2], &[0; 4]].concat();
        assert_eq!(options, expected);
        assert_eq!(word(&out, 4) as usize, out.len());
    }
}

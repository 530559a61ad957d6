//! Parser of Ethernet frames. It finds the IP packet, and accesses the few fields that a link emulator or a
//! router reads or changes.
//!
//! It refuses no frame. A frame without an IP packet has the kind [`Kind::Other`]. Begin at [`Layout::of`].

use base::Ecn;

use crate::checksum;

/// Length of the two Ethernet addresses, which precede the type, in bytes.
const ADDRESSES_LEN: usize = 12;
/// Limit on VLAN tags before the type.
const TAGS_MAX: usize = 2;
/// Length of an IPv6 header without extensions, in bytes.
pub const V6_LEN: usize = 40;
/// Length of an IPv4 header without options, in bytes.
const V4_LEN: usize = 20;

/// Content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An IPv4 packet.
    V4,
    /// An IPv6 packet.
    V6,
    /// Something else, such as ARP.
    Other,
}

/// Range of the packet in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Offset of the first byte after the Ethernet header and VLAN tags.
    pub at: usize,
    /// Kind of the packet.
    pub kind: Kind,
    /// Length of the packet in bytes, without Ethernet's padding.
    pub length: usize,
}

impl Layout {
    /// Finds the packet in a frame.
    pub fn of(frame: &[u8]) -> Layout {
        let mut at = ADDRESSES_LEN;
        let mut kind = u16_at(frame, at);
        for _ in 0..TAGS_MAX {
            if matches!(kind, Some(0x8100 | 0x88a8)) {
                at += 4;
                kind = u16_at(frame, at);
            }
        }
        at = (at + 2).min(frame.len());
        let packet = &frame[at..];
        let (kind, length) = match kind {
            Some(0x0800) if is_v4(packet) => (Kind::V4, usize::from(u16_at(packet, 2).unwrap_or(0))),
            Some(0x86dd) if is_v6(packet) => (Kind::V6, V6_LEN + usize::from(u16_at(packet, 4).unwrap_or(0))),
            _ => (Kind::Other, packet.len()),
        };
        Layout { at, kind, length: length.min(packet.len()) }
    }

    /// Returns the packet's ECN codepoint.
    pub fn ecn(&self, frame: &[u8]) -> Ecn {
        let packet = &frame[self.at..];
        match self.kind {
            Kind::V4 => Ecn::from_bits(packet[1] & 3),
            Kind::V6 => Ecn::from_bits(packet[1] >> 4 & 3),
            Kind::Other => Ecn::NotEct,
        }
    }

    /// Writes another ECN codepoint. With IPv4, also updates the header checksum. Has no effect on a frame
    /// without an IP packet.
    pub fn set_ecn(&self, frame: &mut [u8], ecn: Ecn) {
        let packet = &mut frame[self.at..];
        match self.kind {
            Kind::V4 => {
                packet[1] = packet[1] & !3 | ecn.bits();
                checksum::fill_v4_header(packet);
            }
            Kind::V6 => packet[1] = packet[1] & !0x30 | ecn.bits() << 4,
            Kind::Other => {}
        }
    }

    /// Returns the length of the packet's IP header in bytes, without IPv6's extensions. Returns 0 without an
    /// IP packet.
    pub fn header_len(&self, frame: &[u8]) -> usize {
        match self.kind {
            Kind::V4 => usize::from(frame[self.at] & 15) * 4,
            Kind::V6 => V6_LEN,
            Kind::Other => 0,
        }
    }
}

fn is_v4(packet: &[u8]) -> bool {
    let header = usize::from(packet.first().copied().unwrap_or(0) & 15) * 4;
    packet.first().is_some_and(|first| first >> 4 == 4)
        && header >= V4_LEN
        && header <= packet.len()
        && u16_at(packet, 2).is_some_and(|length| usize::from(length) >= header)
}

fn is_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6) && packet.len() >= V6_LEN
}

/// Returns 16 bits in network order, or `None` if there are too few bytes.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
}

/// Writes 16 bits in network order. The caller must have checked that the two bytes exist.
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, tags: usize, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn v4(length: u8) -> Vec<u8> {
        let mut packet = vec![0; usize::from(length)];
        (packet[0], packet[3]) = (0x45, length);
        packet
    }

    #[test]
    fn packets_are_found_behind_tags_and_without_the_padding() {
        let mut padded = frame(0x0800, 1, &v4(30));
        padded.resize(60, 0);
        assert_eq!(Layout::of(&padded), Layout { at: 18, kind: Kind::V4, length: 30 });
        let mut v6 = vec![0; 48];
        (v6[0], v6[5]) = (0x60, 8);
        assert_eq!(Layout::of(&frame(0x86dd, 0, &v6)), Layout { at: 14, kind: Kind::V6, length: 48 });
    }

    #[test]
    fn a_truncated_or_non_ip_frame_is_of_another_kind() {
        assert_eq!(Layout::of(&frame(0x0806, 0, &[0; 28])).kind, Kind::Other);
        assert_eq!(Layout::of(&frame(0x0800, 0, &v4(30)[..12])).kind, Kind::Other);
        for length in 0..20 {
            assert_eq!(Layout::of(&vec![0x45; length]).kind, Kind::Other);
        }
    }

    #[test]
    fn an_ecn_codepoint_is_written_and_read_and_the_header_stays_right() {
        let mut packet = v4(30);
        checksum::fill_v4_header(&mut packet);
        let mut v6 = vec![0; 40];
        v6[0] = 0x60;
        for mut frame in [frame(0x0800, 0, &packet), frame(0x86dd, 0, &v6)] {
            let layout = Layout::of(&frame);
            assert_eq!(layout.ecn(&frame), Ecn::NotEct);
            layout.set_ecn(&mut frame, Ecn::Ce);
            assert_eq!(layout.ecn(&frame), Ecn::Ce);
            if layout.kind == Kind::V4 {
                assert_eq!(checksum::sum(&frame[14..34], 0), 0xffff);
            }
        }
    }
}

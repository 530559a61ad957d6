//! The checksum of IP, TCP, UDP and ICMP (RFC 1071), and the pseudo header that it includes.

use crate::packet::{Kind, Layout, put_u16};

/// Returns the one's complement sum of `start` and the 16-bit words of `bytes`. An odd last byte is the high half of a word.
pub fn sum(bytes: &[u8], start: u16) -> u16 {
    let (pairs, last) = bytes.as_chunks::<2>();
    let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    let mut sum = sum + u64::from(start) + last.first().map_or(0, |byte| u64::from(*byte) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Writes the checksum of an IPv4 header. The caller must have checked that the whole header exists.
pub fn fill_v4_header(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 15) * 4;
    put_u16(packet, 10, 0);
    let checksum = !sum(&packet[..header], 0);
    put_u16(packet, 10, checksum);
}

/// Returns the sum over the pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1) for `length` bytes of a protocol.
pub fn pseudo_header(frame: &[u8], layout: &Layout, protocol: u8, length: usize) -> u16 {
    let packet = &frame[layout.at..];
    let addresses = match layout.kind {
        Kind::V4 => &packet[12..20],
        Kind::V6 => &packet[8..40],
        Kind::Other => &[],
    };
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    sum(addresses, sum(&length, u16::from(protocol)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        // The words 0001, f203, f4f5 and f6f7 of section 3 have the sum ddf2.
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
        assert_eq!(sum(&[0x12], 0), 0x1200);
    }
}

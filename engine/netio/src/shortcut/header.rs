//! IP headers as the kernel would write them.
//!
//! This module follows RFC 791 section 3.1 and RFC 8200 section 3. In IPv4, Don't Fragment is set, so the identification has no
//! meaning (RFC 6864 section 4.1) and is 0. The headers have no options, no flow label, and DSCP 0.

use std::net::IpAddr;

use base::{Ecn, Route};

use super::Hops;

const V4: usize = 20;
const V6: usize = 40;
/// Version 4, and a header length of five words.
const V4_FIRST: u8 = 0x45;
const V6_FIRST: u8 = 0x60;
const DONT_FRAGMENT: u8 = 0x40;
/// Greatest value of an IP length field, in bytes.
const LENGTH_MAX: usize = u16::MAX as usize;

/// An IP header.
pub(super) struct Header {
    bytes: [u8; V6],
    len: usize,
}

impl Header {
    /// Returns the header of a packet with `length` bytes of SCTP. If the packet exceeds IP's greatest length, the header states
    /// the greatest length. The interface refuses the packet in any case.
    pub(super) fn new(route: &Route, ecn: Ecn, hops: Hops, length: usize) -> Header {
        match (route.local, route.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let mut bytes = [0; V6];
                bytes[..2].copy_from_slice(&[V4_FIRST, ecn.bits()]);
                bytes[2..4].copy_from_slice(&((V4 + length).min(LENGTH_MAX) as u16).to_be_bytes());
                bytes[6] = DONT_FRAGMENT;
                bytes[8..10].copy_from_slice(&[hops.v4, libc::IPPROTO_SCTP as u8]);
                bytes[12..16].copy_from_slice(&local.octets());
                bytes[16..20].copy_from_slice(&remote.octets());
                let checksum = checksum(&bytes[..V4]);
                bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
                Header { bytes, len: V4 }
            }
            (local, remote) => {
                let mut bytes = [0; V6];
                bytes[..2].copy_from_slice(&[V6_FIRST | ecn.bits() >> 4, ecn.bits() << 4]);
                bytes[4..6].copy_from_slice(&(length.min(LENGTH_MAX) as u16).to_be_bytes());
                bytes[6..8].copy_from_slice(&[libc::IPPROTO_SCTP as u8, hops.v6]);
                bytes[8..24].copy_from_slice(&octets(local));
                bytes[24..40].copy_from_slice(&octets(remote));
                Header { bytes, len: V6 }
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns the checksum of RFC 1071, over whole words.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Carrier;

    fn route(local: &str, remote: &str) -> Route {
        Route { local: local.parse().unwrap(), remote: remote.parse().unwrap(), carrier: Carrier::Ip }
    }

    const HOPS: Hops = Hops { v4: 64, v6: 63 };

    #[test]
    fn an_ipv4_header_has_the_layout_of_rfc_791_and_a_valid_checksum() {
        let header = Header::new(&route("10.9.1.1", "10.9.1.2"), Ecn::Ect0, HOPS, 1480);
        let expected = [0x45, 2, 5, 220, 0, 0, 0x40, 0, 64, 132];
        assert_eq!(header.bytes()[..10], expected);
        assert_eq!(header.bytes()[12..], [10, 9, 1, 1, 10, 9, 1, 2]);
        assert_eq!(checksum(header.bytes()), 0);
    }

    #[test]
    fn an_ipv6_header_is_that_of_rfc_8200() {
        let header = Header::new(&route("fd09:1::1", "fd09:1::2"), Ecn::Ect0, HOPS, 1460);
        assert_eq!(header.bytes()[..8], [0x60, 0x20, 0, 0, 5, 180, 132, 63]);
        assert_eq!((header.bytes().len(), header.bytes()[23], header.bytes()[39]), (40, 1, 2));
    }
}

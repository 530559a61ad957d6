//! Fragmentation of IPv6 packets in this process (RFC 8200 section 4.5).
//!
//! The kernel fragments packets that exceed the path MTU reported in ICMPv6. On a path with silent routers, the kernel knows no
//! path MTU. In this case, no socket option makes the kernel fragment a packet that fits the interface's MTU. The fragments of
//! this module fit every link. The process needs the right to open raw sockets (CAP_NET_RAW). Begin at [`Cutter::send`].

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::Ipv6Addr;
use std::num::NonZeroU32;
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Type};

use crate::cmsg::Control;
use crate::sockaddr::SockAddr;
use crate::sys;

/// Least MTU of an IPv6 link (RFC 8200 section 5), in bytes.
const MTU: usize = 1280;
const IP_HEADER: usize = 40;
const FRAGMENT_HEADER: usize = 8;
const UDP_HEADER: usize = 8;
/// Bytes of the packet that each fragment except the last carries. The number is a multiple of eight.
const PIECE: usize = (MTU - IP_HEADER - FRAGMENT_HEADER) / 8 * 8;
/// Flag that means that more fragments follow.
const MORE: u16 = 1;

/// Source and destination of a packet, its interface if one is required, and its control messages.
pub(crate) struct Addresses<'a> {
    pub(crate) local: Ipv6Addr,
    pub(crate) remote: Ipv6Addr,
    pub(crate) ifindex: Option<NonZeroU32>,
    pub(crate) control: &'a Control,
}

/// Sender of fragmented packets. The number is the identification of the last packet that was sent.
pub(crate) struct Cutter(u32);

impl Default for Cutter {
    /// Returns a cutter with a random first identification. Consecutive cutters thus use different numbers.
    fn default() -> Self {
        let anywhere = RandomState::new().hash_one(0).to_be_bytes();
        Cutter(u32::from_be_bytes([anywhere[0], anywhere[1], anywhere[2], anywhere[3]]))
    }
}

impl Cutter {
    /// Reports whether an SCTP packet of `length` bytes, in UDP, exceeds the MTU of the smallest link.
    pub(crate) fn must_cut(length: usize) -> bool {
        length + UDP_HEADER + IP_HEADER > MTU
    }

    /// Sends an SCTP packet in fragments. If `ports` has the local port and the peer's port, the packet is sent in UDP.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW; otherwise the errors of socket(2) and sendmsg(2).
    pub(crate) fn send(
        &mut self,
        addresses: &Addresses<'_>,
        ports: Option<(u16, u16)>,
        packet: &[u8],
    ) -> io::Result<()> {
        let socket = socket2::Socket::new(
            Domain::IPV6,
            Type::RAW.nonblocking(),
            Some(Protocol::from(libc::IPPROTO_FRAGMENT)),
        )?;
        socket.bind_device_by_index_v6(addresses.ifindex)?;
        let (next_header, whole) = match ports {
            Some(ports) => (libc::IPPROTO_UDP, in_udp(addresses, ports, packet)),
            None => (libc::IPPROTO_SCTP, packet.to_vec()),
        };
        let to = SockAddr::new(addresses.remote.into(), 0, addresses.ifindex.map_or(0, NonZeroU32::get));
        self.0 = self.0.wrapping_add(1);
        for fragment in fragments(next_header as u8, self.0, &whole) {
            sys::send(socket.as_fd(), &to, addresses.control, &fragment)?;
        }
        Ok(())
    }
}

/// Returns the fragments of a packet, each behind its fragment header.
fn fragments(next_header: u8, id: u32, packet: &[u8]) -> Vec<Vec<u8>> {
    let count = packet.len().div_ceil(PIECE);
    let fragment = |(n, piece): (usize, &[u8])| {
        // The offset counts units of eight bytes, and its field lies above three other bits. So the offset in bytes has the right
        // place without a shift.
        let place = (n * PIECE) as u16 | if n + 1 < count { MORE } else { 0 };
        let mut bytes = vec![next_header, 0];
        bytes.extend_from_slice(&place.to_be_bytes());
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(piece);
        bytes
    };
    packet.chunks(PIECE).enumerate().map(fragment).collect()
}

/// Returns the UDP datagram with its checksum.
fn in_udp(addresses: &Addresses<'_>, (source, destination): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = UDP_HEADER + payload.len();
    let mut bytes = Vec::with_capacity(length);
    for word in [source, destination, length as u16, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    let pseudo = [
        &addresses.local.octets()[..],
        &addresses.remote.octets(),
        &(length as u32).to_be_bytes(),
        &[0, 0, 0, 17],
    ];
    let sum = pseudo.iter().copied().chain([&bytes[..]]).map(sum_of_words).sum::<u64>();
    // 0 would mean that there is no checksum (RFC 768).
    let checksum = match !folded(sum) {
        0 => 0xffff,
        other => other,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Returns the sum of the 16-bit words. An odd last byte is the high byte of its word.
fn sum_of_words(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    bytes.chunks(2).map(word).sum()
}

/// Returns the ones' complement sum: bits above the lower 16 are added to them (RFC 1071).
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_fragments_fit_the_minimum_mtu_and_carry_offset_and_identification() {
        let packet: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
        let cut = fragments(132, 0x0102_0304, &packet);
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [1240, 1240, 544]);
        assert!(cut.iter().all(|f| f.len() + IP_HEADER <= MTU));
        assert_eq!(cut[0][..8], [132, 0, 0, 1, 1, 2, 3, 4]);
        assert_eq!(cut[1][..8], [132, 0, 0x04, 0xd1, 1, 2, 3, 4]);
        assert_eq!(cut[2][..8], [132, 0, 0x09, 0xa0, 1, 2, 3, 4]);
        assert_eq!(cut.iter().flat_map(|f| f[8..].to_vec()).collect::<Vec<_>>(), packet);
    }

    #[test]
    fn the_checksum_folds_carries_and_pads_an_odd_byte_with_zero() {
        assert_eq!(folded(sum_of_words(&[0xff, 0xff, 0x00, 0x01, 0x01])), 0x0101);
    }
}

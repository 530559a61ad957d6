//! `sockaddr_in`, `sockaddr_in6` and `sockaddr_ll` as bytes, encoded and decoded without `unsafe`.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::sys::Aligned;

/// Size of `sockaddr_in`, in bytes.
const V4_LEN: usize = size_of::<libc::sockaddr_in>();
/// Size of `sockaddr_in6`, in bytes.
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();

/// Size of `sockaddr_ll`, in bytes.
const LINK_LEN: usize = size_of::<libc::sockaddr_ll>();

/// A socket address in the kernel's form.
pub(crate) struct SockAddr {
    bytes: Aligned<V6_LEN>,
    len: usize,
}

impl Default for SockAddr {
    fn default() -> Self {
        SockAddr { bytes: Aligned([0; V6_LEN]), len: 0 }
    }
}

impl SockAddr {
    /// Bytes of the longest address.
    pub(crate) const CAPACITY: usize = V6_LEN;

    /// Returns an address to send to. `scope` matters only for IPv6 link-local addresses.
    pub(crate) fn new(ip: IpAddr, port: u16, scope: u32) -> SockAddr {
        let mut bytes = [0; V6_LEN];
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        let (family, len) = match ip {
            IpAddr::V4(ip) => {
                bytes[4..8].copy_from_slice(&ip.octets());
                (libc::AF_INET, V4_LEN)
            }
            IpAddr::V6(ip) => {
                bytes[8..24].copy_from_slice(&ip.octets());
                bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
                (libc::AF_INET6, V6_LEN)
            }
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        SockAddr { bytes: Aligned(bytes), len }
    }

    /// Returns a neighbour's address on the link of an interface, for packets of an Ethernet type. Returns None if the address is
    /// too long.
    pub(crate) fn neighbour(ethertype: u16, ifindex: u32, address: &[u8]) -> Option<SockAddr> {
        let mut bytes = [0; V6_LEN];
        bytes[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&ethertype.to_be_bytes());
        bytes[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        bytes[11] = u8::try_from(address.len()).ok()?;
        bytes[12..LINK_LEN].get_mut(..address.len())?.copy_from_slice(address);
        Some(SockAddr { bytes: Aligned(bytes), len: LINK_LEN })
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.bytes.0.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.0.as_mut_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(V6_LEN);
    }

    /// Returns the address and port, or None if the bytes are not an IP socket address.
    pub(crate) fn decode(&self) -> Option<(IpAddr, u16)> {
        decode(&self.bytes.0[..self.len])
    }
}

fn decode(bytes: &[u8]) -> Option<(IpAddr, u16)> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match libc::c_int::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some((Ipv4Addr::from(octets).into(), port))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some((Ipv6Addr::from(octets).into(), port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_went_in() {
        for ip in ["192.0.2.7".parse::<IpAddr>().unwrap(), "2001:db8::7".parse().unwrap()] {
            assert_eq!(SockAddr::new(ip, 9899, 3).decode(), Some((ip, 9899)));
        }
    }

    #[test]
    fn a_link_layer_address_is_encoded_and_one_longer_than_8_bytes_is_refused() {
        let neighbour = SockAddr::neighbour(0x0800, 3, &[2, 0, 0, 0, 0, 7]).unwrap();
        assert_eq!((neighbour.len(), &neighbour.bytes.0[10..20]), (20, &[0, 6, 2, 0, 0, 0, 0, 7, 0, 0][..]));
        assert!(SockAddr::neighbour(0x0800, 3, &[0; 9]).is_none());
    }

    #[test]
    fn a_truncated_socket_address_does_not_decode() {
        let mut address = SockAddr::new("2001:db8::7".parse().unwrap(), 1, 0);
        for len in 0..24 {
            address.set_len(len);
            assert_eq!(address.decode(), None, "{len} bytes");
        }
    }
}

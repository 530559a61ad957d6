//! Socket addresses in the layout of the C structures `struct sockaddr_in` and `struct sockaddr_in6`.
//!
//! A list of addresses, as in `sctp_bindx`, is packed without padding. Begin with [`SockAddr`] and [`read_addresses`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const V4_LENGTH: usize = 16;
const V6_LENGTH: usize = 28;

/// Longest address, in bytes.
pub const SOCKADDR_MAX: usize = V6_LENGTH;

/// An address as the bytes of its C structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SockAddr {
    bytes: [u8; SOCKADDR_MAX],
    length: usize,
}

impl SockAddr {
    /// Encodes an address. On an IPv6 socket, an IPv4 address becomes an IPv4-mapped IPv6 address. The flow label of an IPv6 address is 0.
    pub fn of(address: SocketAddr, on_ipv6: bool) -> SockAddr {
        let mut bytes = [0; SOCKADDR_MAX];
        let port = address.port().to_be_bytes();
        bytes[2..4].copy_from_slice(&port);
        match address {
            SocketAddr::V4(v4) if !on_ipv6 => {
                bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                SockAddr { bytes, length: V4_LENGTH }
            }
            _ => {
                bytes[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                let (ip, scope) = match address {
                    SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
                    SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
                };
                bytes[8..24].copy_from_slice(&ip.octets());
                bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
                SockAddr { bytes, length: V6_LENGTH }
            }
        }
    }

    /// Reads the first address, and ignores the bytes after it. An IPv4-mapped IPv6 address stays as it is.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn read(bytes: &[u8]) -> Result<SockAddr, AddressError> {
        let (_, length) = read_one(bytes)?;
        let mut copy = [0; SOCKADDR_MAX];
        copy[..length].copy_from_slice(&bytes[..length]);
        Ok(SockAddr { bytes: copy, length })
    }

    /// Returns the bytes of the C structure, without padding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reason why bytes are not a socket address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The bytes are too few (`EINVAL`).
    Length,
    /// The address family is neither IPv4 nor IPv6 (`EINVAL`).
    Family,
}

/// The addresses of a packed list. Iteration ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct Addresses<'a> {
    rest: &'a [u8],
}

/// Reads packed addresses. An IPv4-mapped address becomes an IPv4 address. Flow labels are dropped. Bytes after the last complete address
/// are an error.
pub fn read_addresses(packed: &[u8]) -> Addresses<'_> {
    Addresses { rest: packed }
}

impl Iterator for Addresses<'_> {
    type Item = Result<SocketAddr, AddressError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = read_one(self.rest);
        self.rest = match read {
            Ok((_, length)) => &self.rest[length..],
            Err(_) => &[],
        };
        Some(read.map(|(address, _)| address))
    }
}

/// Returns the address at the beginning of `bytes`, and its length in bytes.
fn read_one(bytes: &[u8]) -> Result<(SocketAddr, usize), AddressError> {
    let (family, _) = bytes.split_first_chunk::<2>().ok_or(AddressError::Length)?;
    match u16::from_ne_bytes(*family) {
        AF_INET => {
            let (b, _) = bytes.split_first_chunk::<V4_LENGTH>().ok_or(AddressError::Length)?;
            let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
            Ok((SocketAddr::new(ip.into(), u16::from_be_bytes([b[2], b[3]])), V4_LENGTH))
        }
        AF_INET6 => {
            let (b, _) = bytes.split_first_chunk::<V6_LENGTH>().ok_or(AddressError::Length)?;
            let mut octets = [0; 16];
            octets.copy_from_slice(&b[8..24]);
            let port = u16::from_be_bytes([b[2], b[3]]);
            let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
            let ip = Ipv6Addr::from(octets);
            let address = match ip.to_canonical() {
                IpAddr::V4(v4) => SocketAddr::new(v4.into(), port),
                IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
            };
            Ok((address, V6_LENGTH))
        }
        _ => Err(AddressError::Family),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn packed_addresses_of_both_families_are_read_as_written() {
        let all = [address("192.0.2.1:7"), address("[2001:db8::1]:8")];
        let packed: Vec<u8> = all.iter().flat_map(|a| SockAddr::of(*a, false).as_bytes().to_vec()).collect();
        let read: Result<Vec<_>, _> = read_addresses(&packed).collect();
        assert_eq!(read.unwrap(), all);
        assert_eq!(read_addresses(&packed[..20]).last(), Some(Err(AddressError::Length)));
    }

    #[test]
    fn an_ipv6_socket_sees_ipv4_peers_as_mapped_ones() {
        let mapped = SockAddr::of(address("192.0.2.1:7"), true);
        assert_eq!(mapped.as_bytes().len(), 28);
        assert_eq!(mapped.as_bytes()[18..24], [0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(read_addresses(mapped.as_bytes()).next(), Some(Ok(address("192.0.2.1:7"))));
    }

    #[test]
    fn other_families_and_cut_addresses_are_errors() {
        assert_eq!(read_addresses(&[1, 0, 0, 0]).next(), Some(Err(AddressError::Family)));
        assert_eq!(read_addresses(&[2]).next(), Some(Err(AddressError::Length)));
        assert_eq!(read_addresses(&[10, 0, 0, 0]).next(), Some(Err(AddressError::Length)));
        assert_eq!(read_addresses(&[]).next(), None);
    }
}

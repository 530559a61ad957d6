//! The addresses and ports that identify a TCP connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A TCP connection from this host's point of view. Both addresses belong to one family and are never v4-mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FourTuple {
    local: SocketAddr,
    remote: SocketAddr,
}

impl FourTuple {
    /// Returns the connection between `local` and `remote`, or None if these addresses belong to different families. Converts
    /// v4-mapped addresses to IPv4.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Option<FourTuple> {
        let (local, remote) = (canonical(local), canonical(remote));
        (local.is_ipv4() == remote.is_ipv4()).then_some(FourTuple { local, remote })
    }

    /// Returns the application's address and port on this host.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the address and port of the far end.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Reports whether the connection is over IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.local.is_ipv4()
    }
}

impl fmt::Debug for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}→{}", self.local, self.remote)
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Converts a v4-mapped address to IPv4. Removes flow label and scope, because they do not identify a connection.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the octets of an address: 4 or 16.
pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    let mut octets = Vec::new();
    put_octets(&mut octets, ip);
    octets
}

/// Appends the address in network byte order.
pub(crate) fn put_octets(bytes: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => bytes.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes.extend_from_slice(&v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("a socket address")
    }

    #[test]
    fn a_v4_mapped_address_is_the_ipv4_address() {
        let mapped = FourTuple::new(address("[::ffff:10.0.0.1]:1000"), address("10.0.0.2:80"));
        assert_eq!(mapped, FourTuple::new(address("10.0.0.1:1000"), address("10.0.0.2:80")));
        assert!(mapped.is_some_and(|flow| flow.is_ipv4()));
    }

    #[test]
    fn addresses_of_two_families_make_no_connection() {
        assert_eq!(FourTuple::new(address("[2001:db8::1]:1000"), address("10.0.0.2:80")), None);
    }
}

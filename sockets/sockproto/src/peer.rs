//! The part after the header of each message of a one-to-many socket: the peer, and the parameters of an association that the message
//! begins.

use core::net::SocketAddr;

use crate::sockaddr::{SOCKADDR_MAX, SockAddr, read_addresses};

/// Length of [`Peer`], in bytes.
pub const PEER_LENGTH: usize = 40;

/// The peer of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Address of the peer. A program may name the association instead ([`DataHeader::association`](crate::DataHeader::association)).
    pub address: Option<SockAddr>,
    /// `struct sctp_initmsg` for an association that the message begins. A field of 0 takes the value of the socket's option. Only
    /// messages to the server use this field.
    pub init: [u16; 4],
}

impl Peer {
    /// Returns the encoded peer.
    pub fn to_bytes(&self) -> [u8; PEER_LENGTH] {
        let mut bytes = [0; PEER_LENGTH];
        let address = self.address.as_ref().map_or(&[][..], SockAddr::as_bytes);
        bytes[..address.len()].copy_from_slice(address);
        for (place, value) in bytes[SOCKADDR_MAX + 4..].chunks_exact_mut(2).zip(self.init) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    /// Decodes a peer. The address is `None` if its bytes are not a valid address.
    pub fn read(bytes: &[u8; PEER_LENGTH]) -> Peer {
        let mut init = [0; 4];
        for (value, place) in init.iter_mut().zip(bytes[SOCKADDR_MAX + 4..].chunks_exact(2)) {
            *value = u16::from_ne_bytes([place[0], place[1]]);
        }
        Peer { address: SockAddr::read(&bytes[..SOCKADDR_MAX]).ok(), init }
    }

    /// Returns the address. An IPv4-mapped IPv6 address becomes an IPv4 address.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        read_addresses(self.address.as_ref()?.as_bytes()).next()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_read_as_it_was_written() {
        for address in ["192.0.2.1:7", "[2001:db8::1]:8"] {
            let address: SocketAddr = address.parse().unwrap();
            let peer = Peer { address: Some(SockAddr::of(address, false)), init: [1, 2, 3, 4] };
            assert_eq!(Peer::read(&peer.to_bytes()), peer);
            assert_eq!(peer.socket_address(), Some(address));
        }
        assert_eq!(Peer::read(&[0; PEER_LENGTH]), Peer::default());
    }
}

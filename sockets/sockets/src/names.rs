//! Names of sockets: `getsockname` and `getpeername`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sockproto::SockAddr;

use crate::socket::{Family, Socket, State};
use crate::{Errno, SocketKey, Sockets};

impl Sockets {
    /// `getsockname(2)`.
    ///
    /// # Errors
    /// `EBADF` if the socket does not exist.
    pub fn local_name(&self, key: SocketKey) -> Result<SockAddr, Errno> {
        let socket = self.get(key)?;
        let any = match socket.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let address = socket.local.or(socket.bound.first().copied()).unwrap_or(any);
        Ok(socket.name_of(SocketAddr::new(address, socket.port.unwrap_or(0))))
    }

    /// `getpeername(2)`.
    ///
    /// # Errors
    /// `ENOTCONN` if the socket has never had an association. `EINPROGRESS` while the association is being set up; the library in
    /// the program then waits or reports another error.
    pub fn peer_name(&self, key: SocketKey) -> Result<SockAddr, Errno> {
        let socket = self.get(key)?;
        match (socket.state, socket.peer) {
            (State::Up(_) | State::Over(_), Some(peer)) => Ok(socket.name_of(peer)),
            (State::Connecting(_), _) => Err(libc::EINPROGRESS),
            _ => Err(libc::ENOTCONN),
        }
    }
}

impl Socket {
    /// Returns an address in the form that this socket's program expects. On an IPv6 socket, an IPv4 address becomes an IPv4-mapped
    /// IPv6 address.
    pub(crate) fn name_of(&self, address: SocketAddr) -> SockAddr {
        SockAddr::of(address, self.family == Family::V6)
    }
}

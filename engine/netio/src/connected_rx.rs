//! Separate receive sockets for peers that send much. The main socket receives from all other peers.
//!
//! For each packet to an unconnected socket, the kernel looks up the route to the packet's destination. If the host has routing
//! policy rules, the kernel also looks up the route to the packet's source. Every host with this daemon has such rules. For a
//! connected socket, the kernel remembers both routes, as it does for TCP. Over a link without GRO, the lookups take a tenth of
//! the CPU time that both daemons and the kernel need for a packet. A peer that sent most of the recent datagrams therefore gets
//! a *connected socket*. This socket is bound to the local address and port, and connected to the peer's address and port.
//! Nothing is sent from it.
//!
//! The main socket and the connected sockets share the port through SO_REUSEPORT only. For this option, the kernel requires that
//! the same user created all sockets. SO_REUSEADDR would also give the port to any program that sets this option. The kernel
//! never chooses a connected socket for a datagram from another peer. The reason is that connected sockets and the main socket
//! belong to different reuseport groups. Within a group, the kernel distributes datagrams only among unconnected sockets. A
//! connected socket gets only the datagrams of its peer. Only between bind(2) and connect(2), the new socket receives datagrams
//! to its address from any sender. These datagrams stay in its queue with their source addresses, and are delivered like
//! datagrams of the main socket.
//!
//! Invariants:
//! - Up to [`CONNECTED_RX_MAX`] connected sockets receive, each from one peer that has an association.
//! - Datagrams that the main socket held when a connected socket was opened are delivered first, unless other peers keep the main
//!   socket full.
//! - A retired connected socket is closed when it is empty.
//!
//! Begin with [`ConnectedRx::note`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use base::{Carrier, Route};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::Socket;

use crate::options;
use crate::socket::Kind;
use crate::sys;
use crate::tx_sockets::new_socket;

/// Limit on the connected sockets next to a carrier's main socket. If another socket would exceed the limit, the oldest connected
/// socket is retired.
pub const CONNECTED_RX_MAX: usize = 4;
/// Lead in the majority vote, in datagrams, at which a peer gets a connected socket.
const LEAD: u32 = 2048;
/// Limit on the receive calls during which a new connected socket waits until the main socket is empty.
const CALLS_BEHIND_MAX: u8 = 16;
/// The discard port, from which this host sends nothing. A socket that is connected to this port receives nothing more.
const SILENT_PORT: u16 = 9;

/// The owner of a received packet, as known to the receiver. Only packets of an association count for the choice of the peers
/// that get connected sockets ([`UdpCarrier::open_connected_rx`](crate::UdpCarrier::open_connected_rx)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The owner is not known.
    Unknown,
    /// An association owns the packet.
    Association,
}

impl From<()> for Owner {
    fn from((): ()) -> Owner {
        Owner::Unknown
    }
}

impl From<bool> for Owner {
    /// Converts a flag that is true if the packet belongs to an association.
    fn from(belonged: bool) -> Owner {
        if belonged { Owner::Association } else { Owner::Unknown }
    }
}

/// The connected sockets, and the peer that may get the next one.
#[derive(Default)]
pub(crate) struct ConnectedRx {
    open: Vec<Receiver>,
    /// The leading peer in the majority vote of Boyer and Moore, and its lead in datagrams.
    leader: Option<(Route, u32)>,
}

struct Receiver {
    socket: Socket,
    /// The route whose packets the socket receives. None if the socket is retired, so only its queue must still be read.
    route: Option<Route>,
    /// Number of receive calls during which the socket still waits for the main socket.
    calls_behind: u8,
}

impl ConnectedRx {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the file descriptor of socket `n`.
    pub(crate) fn fd(&self, n: usize) -> Option<BorrowedFd<'_>> {
        self.open.get(n).map(|receiver| receiver.socket.as_fd())
    }

    /// Notes a datagram of an association that arrived on the main socket.
    pub(crate) fn note(&mut self, route: &Route) {
        self.leader = match self.leader {
            Some((leader, lead)) if leader == *route => Some((leader, lead.saturating_add(1))),
            Some((leader, lead)) if lead > 1 => Some((leader, lead - 1)),
            _ => Some((*route, 1)),
        };
    }

    /// Reports whether the current receive call must read socket `n`. `main_is_empty` is true if this receive call has left the
    /// main socket empty.
    pub(crate) fn is_next(&mut self, n: usize, main_is_empty: bool) -> bool {
        let Some(receiver) = self.open.get_mut(n) else { return false };
        receiver.calls_behind = if main_is_empty { 0 } else { receiver.calls_behind.saturating_sub(1) };
        receiver.calls_behind == 0
    }

    /// Notes that socket `n` was read until it was empty. Closes a retired socket.
    pub(crate) fn on_empty(&mut self, n: usize) {
        if self.open.get(n).is_some_and(|receiver| receiver.route.is_none()) {
            self.close(n);
        }
    }

    /// Opens a socket for the leading peer if its lead suffices. Reports whether the socket was opened and connected.
    pub(crate) fn open_for_leader(&mut self, port: u16, poll: Option<&(Registry, Token)>) -> bool {
        let Some((route, _)) = self.leader.take_if(|(_, lead)| *lead >= LEAD) else { return false };
        if self.open.iter().any(|receiver| receiver.route == Some(route)) {
            return false;
        }
        // If `bind` fails, the main socket still receives the peer's datagrams. The next attempt follows when the peer has the
        // lead again.
        let Ok(socket) = bind(port, &route, poll) else { return false };
        let is_connected = connect(&socket, &route).is_ok();
        self.open.push(Receiver { socket, route: Some(route), calls_behind: CALLS_BEHIND_MAX });
        if !is_connected {
            self.retire(self.open.len() - 1);
        } else if self.open.iter().filter(|receiver| receiver.route.is_some()).count() > CONNECTED_RX_MAX
            && let Some(oldest) = self.open.iter().position(|receiver| receiver.route.is_some())
        {
            self.retire(oldest);
        }
        is_connected
    }

    /// Retires socket `n`: the socket receives nothing more, and is closed when it is empty. A bound socket without a peer would
    /// receive datagrams from any sender, so the socket is connected to [`SILENT_PORT`].
    fn retire(&mut self, n: usize) {
        let Some(receiver) = self.open.get_mut(n) else { return };
        let silent = receiver.route.take().map(|route| SocketAddr::new(route.local, SILENT_PORT));
        if silent.is_none_or(|silent| receiver.socket.connect(&silent.into()).is_err()) {
            self.close(n);
        }
    }

    /// Closes socket `n`, which failed or is no longer needed.
    pub(crate) fn close(&mut self, n: usize) {
        if n < self.open.len() {
            self.open.remove(n);
        }
    }
}

/// Returns a socket that is bound to the route's local address and the main socket's port, and is registered with `poll`. The
/// caller must connect the socket next. Until then, the socket receives datagrams from any sender.
fn bind(port: u16, route: &Route, poll: Option<&(Registry, Token)>) -> io::Result<Socket> {
    let has_port = matches!(route.carrier, Carrier::Udp { .. });
    if !has_port || matches!(route.remote, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        // A socket for a link-local address would also need the interface's index, which a route lacks.
        return Err(io::ErrorKind::Unsupported.into());
    }
    let is_v4 = route.local.is_ipv4();
    let socket = new_socket(Kind::Udp, is_v4)?;
    options::set_all(socket.as_fd(), is_v4)?;
    let _ = sys::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    socket.set_reuse_port(true)?;
    if let Some((registry, token)) = poll {
        registry.register(&mut SourceFd(&socket.as_raw_fd()), *token, Interest::READABLE)?;
    }
    socket.bind(&SocketAddr::new(route.local, port).into())?;
    Ok(socket)
}

/// Makes the socket receive only datagrams from one peer.
fn connect(socket: &Socket, route: &Route) -> io::Result<()> {
    let Carrier::Udp { peer_port } = route.carrier else { return Err(io::ErrorKind::Unsupported.into()) };
    socket.connect(&SocketAddr::new(route.remote, peer_port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Route {
        let (local, remote) = ([127, 0, 0, 1].into(), [127, 0, 0, last].into());
        Route { local, remote, carrier: Carrier::Udp { peer_port: 9899 } }
    }

    #[test]
    fn a_peer_with_the_majority_of_packets_leads() {
        let mut connected = ConnectedRx::default();
        for n in 0..300_u32 {
            connected.note(&peer(if n % 3 == 0 { (n % 100) as u8 + 2 } else { 1 }));
        }
        assert!(
            matches!(connected.leader, Some((leader, 90..)) if leader == peer(1)),
            "{:?}",
            connected.leader
        );
    }

    #[test]
    fn a_new_socket_waits_for_the_main_socket_but_not_for_ever() {
        let socket = new_socket(Kind::Udp, true).unwrap();
        let receiver = Receiver { socket, route: Some(peer(1)), calls_behind: CALLS_BEHIND_MAX };
        let mut connected = ConnectedRx { open: vec![receiver], leader: None };
        let calls = (0..100).take_while(|_| !connected.is_next(0, false)).count();
        assert_eq!(calls, usize::from(CALLS_BEHIND_MAX) - 1);
        assert!(connected.is_next(0, true) && !connected.is_next(1, true));
    }
}

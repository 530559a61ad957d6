//! Sockets of their own for peers that send much, beside the one that receives from all.
//!
//! The kernel looks the route of each packet for an unconnected socket up, and its source's where the host has routing rules,
//! as every host with our daemon has; for a connected socket it remembers them, as it does for TCP. Over a link without GRO
//! that was a tenth of what both daemons and the kernel did for a packet. So the peer that most of the last datagrams came
//! from gets a *connected socket*, bound to our address and port and connected to its own. Nothing is sent by it.
//!
//! The port is shared by SO_REUSEPORT alone, for which the kernel compares the users that made the sockets. SO_REUSEADDR
//! would give the port to any program that sets it, too. The kernel never takes a connected socket for a stranger's datagram:
//! a connected socket and the main socket are not of one group, and within a group of these connected ones are passed over. Between
//! its bind(2) and its connect(2) a connected socket does receive what anybody sends to its address. That stays in its queue, each
//! datagram with its source, and is delivered like what the main socket holds.
//!
//! Invariants: at most [`CONNECTED_RX_MAX`] receive, and each is for a peer with an association; what the main socket held when a
//! connected socket was opened is delivered first, unless others keep the main socket full; a connected socket is closed once it is
//! empty. Begin with [`ConnectedRx::note`].

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

/// Connected sockets of a carrier's socket at most; one more closes the oldest.
pub const CONNECTED_RX_MAX: usize = 4;
/// By how many datagrams one peer must lead all others together to get a connected socket.
const LEAD: u32 = 2048;
/// Calls in which a new connected socket waits for the main socket to be empty at most.
const CALLS_BEHIND_MAX: u8 = 16;
/// A port of this host that sends nothing: discard. A socket connected to it receives nothing more.
const SILENT_PORT: u16 = 9;

/// The owner of a received packet, as far as its receiver can tell. Only a packet of an association makes its sender a
/// busy peer ([`UdpCarrier::open_connected_rx`](crate::UdpCarrier::open_connected_rx)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Anybody's.
    Unknown,
    /// An association's.
    Association,
}

impl From<()> for Owner {
    fn from((): ()) -> Owner {
        Owner::Unknown
    }
}

impl From<bool> for Owner {
    /// Reports whether the packet belonged to an association.
    fn from(belonged: bool) -> Owner {
        if belonged { Owner::Association } else { Owner::Unknown }
    }
}

/// The connected sockets, and who may get the next one.
#[derive(Default)]
pub(crate) struct ConnectedRx {
    open: Vec<Receiver>,
    /// The leader by the majority vote of Boyer and Moore, and its lead.
    leader: Option<(Route, u32)>,
}

struct Receiver {
    socket: Socket,
    /// The route whose packets it gets; none while it only has to be emptied.
    route: Option<Route>,
    /// Calls in which it still waits for the main socket at most.
    calls_behind: u8,
}

impl ConnectedRx {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The socket number `n`.
    pub(crate) fn fd(&self, n: usize) -> Option<BorrowedFd<'_>> {
        self.open.get(n).map(|receiver| receiver.socket.as_fd())
    }

    /// Notes a datagram of an association that came by the main socket.
    pub(crate) fn note(&mut self, route: &Route) {
        self.leader = match self.leader {
            Some((leader, lead)) if leader == *route => Some((leader, lead.saturating_add(1))),
            Some((leader, lead)) if lead > 1 => Some((leader, lead - 1)),
            _ => Some((*route, 1)),
        };
    }

    /// Reports whether socket `n` is to be read in this call, in which the main socket was left empty or not.
    pub(crate) fn is_next(&mut self, n: usize, main_is_empty: bool) -> bool {
        let Some(receiver) = self.open.get_mut(n) else { return false };
        receiver.calls_behind = if main_is_empty { 0 } else { receiver.calls_behind.saturating_sub(1) };
        receiver.calls_behind == 0
    }

    /// Socket `n` was read until it was empty.
    pub(crate) fn on_empty(&mut self, n: usize) {
        if self.open.get(n).is_some_and(|receiver| receiver.route.is_none()) {
            self.close(n);
        }
    }

    /// Opens a socket for a peer that leads by enough; tells whether it did.
    pub(crate) fn open_for_leader(&mut self, port: u16, poll: Option<&(Registry, Token)>) -> bool {
        let Some((route, _)) = self.leader.take_if(|(_, lead)| *lead >= LEAD) else { return false };
        if self.open.iter().any(|receiver| receiver.route == Some(route)) {
            return false;
        }
        // Without it the main socket goes on to receive what it would: it is asked for again after as many datagrams.
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

    /// Makes socket `n` receive nothing more; it closes when it is empty. It stays bound, so it must stay connected: else it would
    /// get what anybody sends.
    fn retire(&mut self, n: usize) {
        let Some(receiver) = self.open.get_mut(n) else { return };
        let silent = receiver.route.take().map(|route| SocketAddr::new(route.local, SILENT_PORT));
        if silent.is_none_or(|silent| receiver.socket.connect(&silent.into()).is_err()) {
            self.close(n);
        }
    }

    /// Closes socket `n`, which failed or is not needed.
    pub(crate) fn close(&mut self, n: usize) {
        if n < self.open.len() {
            self.open.remove(n);
        }
    }
}

/// A socket on the main socket's port of one of our addresses, and in its poll. It gets what anybody sends there until it is
/// connected, which is the next thing to do.
fn bind(port: u16, route: &Route, poll: Option<&(Registry, Token)>) -> io::Result<Socket> {
    let has_port = matches!(route.carrier, Carrier::Udp { .. });
    if !has_port || matches!(route.remote, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        // A link-local address would need the interface, too.
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

/// Has the socket receive what one peer sends, and nothing else.
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

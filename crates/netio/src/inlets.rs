//! Sockets of their own for peers that send much, beside the one that receives from all.
//!
//! The kernel looks the route of each packet for an unconnected socket up, and its source's where the host has routing rules,
//! as every host with our daemon has; for a connected socket it remembers them, as it does for TCP. Over a link without GRO
//! that was a tenth of what both daemons and the kernel did for a packet. So the peer that most of the last datagrams came
//! from gets an *inlet*: a socket bound to our address and port, and connected to its own. Nothing is sent by it.
//!
//! Invariants: at most [`INLETS_MAX`]; what the main socket held when an inlet was opened is delivered first, unless others
//! keep the main socket full. Begin with [`Inlets::note`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use base::{Carrier, Route};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{SockRef, Socket};

use crate::options;
use crate::outlets::new_socket;
use crate::socket::Kind;
use crate::sys;

/// Inlets of a socket at most; one more closes the oldest.
pub const INLETS_MAX: usize = 4;
/// By how many datagrams one peer must lead all others together to get an inlet.
const LEAD: u32 = 2048;
/// Calls in which a new inlet waits for the main socket to be empty at most.
const CALLS_BEHIND_MAX: u8 = 16;

/// The inlets, and who may get the next one.
#[derive(Default)]
pub(crate) struct Inlets {
    open: Vec<Inlet>,
    /// Who leads by the majority vote of Boyer and Moore, and by how much.
    leader: Option<(Route, u32)>,
}

struct Inlet {
    socket: Socket,
    route: Route,
    /// Calls in which it still waits for the main socket at most.
    calls_behind: u8,
}

impl Inlets {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The socket of inlet `n`.
    pub(crate) fn fd(&self, n: usize) -> Option<BorrowedFd<'_>> {
        self.open.get(n).map(|inlet| inlet.socket.as_fd())
    }

    /// Notes a datagram that came by the main socket.
    pub(crate) fn note(&mut self, route: &Route) {
        self.leader = match self.leader {
            Some((leader, lead)) if leader == *route => Some((leader, lead.saturating_add(1))),
            Some((leader, lead)) if lead > 1 => Some((leader, lead - 1)),
            _ => Some((*route, 1)),
        };
    }

    /// Whether inlet `n` is to be read in this call, in which the main socket was left empty or not.
    pub(crate) fn is_next(&mut self, n: usize, main_is_empty: bool) -> bool {
        let Some(inlet) = self.open.get_mut(n) else { return false };
        inlet.calls_behind = if main_is_empty { 0 } else { inlet.calls_behind.saturating_sub(1) };
        inlet.calls_behind == 0
    }

    /// Opens an inlet for a peer that leads by enough; tells whether it did. All inlets were read just before: what the oldest
    /// one holds is lost if it has to go.
    pub(crate) fn open_for_leader(
        &mut self,
        main: BorrowedFd<'_>,
        port: u16,
        poll: Option<&(Registry, Token)>,
    ) -> bool {
        let Some((route, _)) = self.leader.take_if(|(_, lead)| *lead >= LEAD) else { return false };
        if self.open.iter().any(|inlet| inlet.route == route) {
            return false;
        }
        // Without it the main socket goes on to receive what it would: it is asked for again after as many datagrams.
        let Ok(socket) = open(main, port, &route) else { return false };
        if let Some((registry, token)) = poll
            && registry.register(&mut SourceFd(&socket.as_raw_fd()), *token, Interest::READABLE).is_err()
        {
            return false;
        }
        if self.open.len() == INLETS_MAX {
            self.open.remove(0);
        }
        self.open.push(Inlet { socket, route, calls_behind: CALLS_BEHIND_MAX });
        true
    }

    /// Closes inlet `n`, which failed.
    pub(crate) fn close(&mut self, n: usize) {
        if n < self.open.len() {
            self.open.remove(n);
        }
    }
}

/// A socket that gets what one peer sends to one of our addresses, on the main socket's port.
fn open(main: BorrowedFd<'_>, port: u16, route: &Route) -> io::Result<Socket> {
    let Carrier::Udp { peer_port } = route.carrier else { return Err(io::ErrorKind::Unsupported.into()) };
    if matches!(route.remote, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        // It would need the interface, too.
        return Err(io::ErrorKind::Unsupported.into());
    }
    let is_v4 = route.local.is_ipv4();
    let socket = new_socket(Kind::Udp, is_v4)?;
    options::set_all(socket.as_fd(), is_v4)?;
    let _ = sys::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    // Both must agree to share the port, for this moment only: nobody else is to get it.
    let main = SockRef::from(&main);
    let agree = |on| main.set_reuse_address(on).and(socket.set_reuse_address(on));
    agree(true)?;
    let bound = socket.bind(&SocketAddr::new(route.local, port).into());
    agree(false)?;
    bound?;
    socket.connect(&SocketAddr::new(route.remote, peer_port).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Route {
        let (local, remote) = ([127, 0, 0, 1].into(), [127, 0, 0, last].into());
        Route { local, remote, carrier: Carrier::Udp { peer_port: 9899 } }
    }

    #[test]
    fn who_sends_more_than_all_others_leads() {
        let mut inlets = Inlets::default();
        for n in 0..300_u32 {
            inlets.note(&peer(if n % 3 == 0 { (n % 100) as u8 + 2 } else { 1 }));
        }
        assert!(matches!(inlets.leader, Some((leader, 90..)) if leader == peer(1)), "{:?}", inlets.leader);
    }

    #[test]
    fn a_new_inlet_waits_for_the_main_socket_but_not_for_ever() {
        let socket = new_socket(Kind::Udp, true).unwrap();
        let inlet = Inlet { socket, route: peer(1), calls_behind: CALLS_BEHIND_MAX };
        let mut inlets = Inlets { open: vec![inlet], leader: None };
        let calls = (0..100).take_while(|_| !inlets.is_next(0, false)).count();
        assert_eq!(calls, usize::from(CALLS_BEHIND_MAX) - 1);
        assert!(inlets.is_next(0, true) && !inlets.is_next(1, true));
    }
}

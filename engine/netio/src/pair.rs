//! The sockets of one carrier: an IPv4 socket and an IPv6 socket. One of the two may be absent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base::{Ecn, Route};

use crate::connected_rx::Owner;
use crate::counters::Counters;
use crate::error::{PathError, SendError, SendErrorKind};
use crate::shortcut::Hops;
use crate::socket::{Kind, Received, Sharing, Socket};
use crate::sys::Patience;
use crate::train::Train;

/// An IPv4 and an IPv6 socket. Invariant: at least one is present.
pub(crate) struct Pair {
    pub(crate) v4: Option<Socket>,
    pub(crate) v6: Option<Socket>,
}

impl Pair {
    /// Opens both sockets on the unspecified address. On a host without one address family, opens only the other socket.
    pub(crate) fn open(kind: Kind, port: u16, sharing: Sharing) -> io::Result<Pair> {
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let v4 = optional(Socket::open(kind, v4, sharing))?;
        let port = v4.as_ref().map_or(port, Socket::port);
        let v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let v6 = optional(Socket::open(kind, v6, sharing))?;
        if v4.is_none() && v6.is_none() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        Ok(Pair { v4, v6 })
    }

    /// Returns the port of both sockets.
    pub(crate) fn port(&self) -> u16 {
        self.v4.as_ref().or(self.v6.as_ref()).map_or(0, Socket::port)
    }

    /// Returns the train with the interface through which it should leave.
    pub(crate) fn towards<'a>(&self, train: &Train<'a>) -> Train<'a> {
        let socket = if train.route.remote.is_ipv4() { &self.v4 } else { &self.v6 };
        socket.as_ref().map_or(*train, |socket| socket.towards(train))
    }

    /// Returns the interface on which the last packet on this route arrived.
    pub(crate) fn came_by(&self, route: &Route) -> Option<u32> {
        let socket = if route.remote.is_ipv4() { &self.v4 } else { &self.v6 };
        socket.as_ref()?.came_by(route)
    }

    /// Returns the bytes that wait in this host before the packets of a train would leave, or None if the number is not known.
    pub(crate) fn waiting(&self, train: &Train<'_>) -> Option<usize> {
        let socket = if train.route.remote.is_ipv4() { &self.v4 } else { &self.v6 };
        socket.as_ref()?.waiting(&self.towards(train)).ok()
    }

    pub(crate) fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        let route = &train.route;
        let socket = match route.remote {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        };
        match socket {
            Some(socket) if route.local.is_ipv4() == route.remote.is_ipv4() => socket.send(train),
            _ => Err(no_carrier(route)),
        }
    }

    pub(crate) fn recv(&mut self, f: &mut impl FnMut(&Route, Ecn, &[u8]) -> Owner) -> io::Result<Received> {
        let mut received = Received::default();
        for socket in self.sockets() {
            received.join(socket.recv(Patience::None, f)?);
        }
        Ok(received)
    }

    pub(crate) fn take_errors(&mut self, f: &mut impl FnMut(&PathError<'_>)) -> bool {
        self.sockets().fold(false, |more, socket| socket.take_errors(f) | more)
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for socket in self.v4.iter().chain(&self.v6) {
            sum += socket.counters();
        }
        sum
    }

    /// Returns the TTL and hop limit of sent packets. For an absent family, the value is 64, Linux's default.
    pub(crate) fn hops(&self) -> Hops {
        let customary = Hops::default();
        let (v4, v6) = (self.v4.as_ref().and_then(Socket::hops), self.v6.as_ref().and_then(Socket::hops));
        Hops { v4: v4.unwrap_or(customary.v4), v6: v6.unwrap_or(customary.v6) }
    }

    pub(crate) fn sockets(&mut self) -> impl Iterator<Item = &mut Socket> {
        self.v4.iter_mut().chain(&mut self.v6)
    }
}

/// Returns the error of a send over a carrier or family that is not open.
pub(crate) fn no_carrier(route: &Route) -> SendError {
    let source = io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
    SendError { route: *route, sent: 0, kind: SendErrorKind::NoCarrier, source }
}

/// Converts the errors that mean "no such address family on this host" to None.
fn optional(socket: io::Result<Socket>) -> io::Result<Option<Socket>> {
    match socket {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => Ok(None),
        outcome => outcome.map(Some),
    }
}

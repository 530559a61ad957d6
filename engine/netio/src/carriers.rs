//! Both carriers behind one door.

use std::io;
use std::ops::Range;

use base::{Carrier, Ecn, Route};
use mio::{Registry, Token};

use crate::connected_rx::Owner;
use crate::counters::Counters;
use crate::error::{PathError, SendError};
use crate::pair::{Pair, no_carrier};
use crate::raw::RawCarrier;
use crate::socket::{Received, Socket};
use crate::sys::Patience;
use crate::train::Train;
use crate::udp::UdpCarrier;

/// The places of the sockets of SCTP in UDP: IPv4, IPv6.
const UDP_PLACES: Range<usize> = 0..2;
/// Those of SCTP over IP.
const RAW_PLACES: Range<usize> = 2..4;

/// The open carriers of a host: SCTP in UDP, SCTP over IP, or both.
///
/// In an event loop: [`register`](Carriers::register) once; at each event of its tokens call
/// [`recv_at`](Carriers::recv_at) until `more` is false, then [`take_errors`](Carriers::take_errors) if
/// `errors_waiting`; after a send that failed with [`Full`](crate::SendErrorKind::Full) the next event of any
/// of these tokens may mean that there is room again.
#[derive(Default)]
pub struct Carriers {
    udp: Option<UdpCarrier>,
    raw: Option<RawCarrier>,
}

/// Counters by carrier, for those that are open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CarrierCounters {
    /// SCTP in UDP.
    pub udp: Option<Counters>,
    /// SCTP over IP.
    pub raw: Option<Counters>,
}

impl Carriers {
    /// Poll tokens that [`register`](Carriers::register) takes: one for each carrier and family.
    pub const TOKENS: usize = 4;

    /// Joins the carriers; either may be absent.
    pub fn new(udp: Option<UdpCarrier>, raw: Option<RawCarrier>) -> Carriers {
        Carriers { udp, raw }
    }

    /// Reports whether packets can be sent over the route: its carrier and address family are open.
    pub fn has(&self, route: &Route) -> bool {
        let pair = match route.carrier {
            Carrier::Udp { .. } => self.udp.as_ref().map(|udp| &udp.pair),
            Carrier::Ip => self.raw.as_ref().map(|raw| &raw.pair),
        };
        pair.is_some_and(|pair| if route.remote.is_ipv4() { pair.v4.is_some() } else { pair.v6.is_some() })
    }

    /// Has the poll report, edge-triggered, with the tokens from `first` to `first + TOKENS - 1` that packets
    /// or ICMP reports arrived or that a send buffer that was full has drained.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn register(&mut self, registry: &Registry, first: Token) -> io::Result<()> {
        self.register_places(registry, first, 0..Self::TOKENS)
    }

    fn register_places(&mut self, registry: &Registry, first: Token, places: Range<usize>) -> io::Result<()> {
        for place in places {
            if let (Some(pair), is_v4) = self.at(place) {
                let socket = if is_v4 { &mut pair.v4 } else { &mut pair.v6 };
                socket.as_mut().map_or(Ok(()), |s| s.register(registry, Token(first.0 + place)))?;
            }
        }
        Ok(())
    }

    /// Adds SCTP in UDP to carriers that are registered already, with the same first token.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn add_udp(&mut self, udp: UdpCarrier, registry: &Registry, first: Token) -> io::Result<()> {
        self.udp = Some(udp);
        self.register_places(registry, first, UDP_PLACES)
    }

    /// Adds SCTP over IP to carriers that are registered already, with the same first token.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn add_raw(&mut self, raw: RawCarrier, registry: &Registry, first: Token) -> io::Result<()> {
        self.raw = Some(raw);
        self.register_places(registry, first, RAW_PLACES)
    }

    /// Reports whether SCTP in UDP is open.
    pub const fn has_udp(&self) -> bool {
        self.udp.is_some()
    }

    /// Reports whether SCTP over IP is open.
    pub const fn has_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// Sends the packets over their route's carrier; see [`UdpCarrier::send`].
    ///
    /// # Errors
    /// [`SendError`], by kind what to do; `sent` tells how many bytes went before it.
    pub fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        match (train.route.carrier, &mut self.udp, &mut self.raw) {
            (Carrier::Udp { .. }, Some(udp), _) => udp.send(train),
            (Carrier::Ip, _, Some(raw)) => raw.send(train),
            _ => Err(no_carrier(&train.route)),
        }
    }

    /// Bytes that wait in this host, in queues of interfaces above all, where the packets of this train leave it: those of all that
    /// was sent by the same socket, as the kernel counts them, its own overhead included. Over IPv6 each interface has a socket of
    /// its own, over IPv4 all share one. None if that is not known. Costs a system call, or two over IP.
    pub fn waiting(&self, train: &Train<'_>) -> Option<usize> {
        match train.route.carrier {
            Carrier::Udp { .. } => self.udp.as_ref()?.pair.waiting(train),
            Carrier::Ip => self.raw.as_ref()?.waiting(train),
        }
    }

    /// The index of the interface by which the last packet on this route came; the port does not count. None if none has come,
    /// or so many others since that it is forgotten. Tunnels, bridges and bonds count, not the interfaces below them.
    pub fn came_by(&self, route: &Route) -> Option<u32> {
        match route.carrier {
            Carrier::Udp { .. } => self.udp.as_ref()?.pair.came_by(route),
            Carrier::Ip => self.raw.as_ref()?.pair.came_by(route),
        }
    }

    /// Calls `f` with the packets that have arrived at any carrier; see [`UdpCarrier::recv`].
    ///
    /// # Errors
    /// Those of recvmmsg(2); empty sockets are no error.
    pub fn recv<O: Into<Owner>>(
        &mut self,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        let mut received = Received::default();
        for pair in self.pairs() {
            received.join(pair.recv(&mut |route, ecn, packet| f(route, ecn, packet).into())?);
        }
        Ok(received)
    }

    /// Calls `f` with the packets that have arrived at the socket whose token is `first + place`.
    ///
    /// # Errors
    /// Those of recvmmsg(2); an empty socket, or none at that place, is no error.
    pub fn recv_at<O: Into<Owner>>(
        &mut self,
        place: usize,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        let (Some(pair), is_v4) = self.at(place) else { return Ok(Received::default()) };
        let socket = if is_v4 { &mut pair.v4 } else { &mut pair.v6 };
        socket.as_mut().map_or(Ok(Received::default()), |socket| {
            socket.recv(Patience::None, &mut |route, ecn, packet| f(route, ecn, packet).into())
        })
    }

    /// Closes the sockets of the address family that nobody needs. The last one stays.
    pub fn keep_families(&mut self, v4: bool, v6: bool) {
        for pair in self.pairs() {
            match (&pair.v4, &pair.v6) {
                (_, Some(_)) if !v4 && v6 => pair.v4 = None,
                (Some(_), _) if v4 && !v6 => pair.v6 = None,
                _ => {}
            }
        }
    }

    /// Reports whether there is but one socket, for [`recv_waiting`](Self::recv_waiting).
    pub fn is_lone(&mut self) -> bool {
        self.pairs().flat_map(Pair::sockets).count() == 1
    }

    /// Where there is but one socket: waits until it has packets, for [`PATIENCE`](crate::PATIENCE) at most, and calls `f`
    /// with them as [`recv`](Self::recv) does. Where a poll is needed to wait for several, nothing is received.
    ///
    /// Takes one system call where a poll takes two. Nothing else is noticed meanwhile, neither wakers nor room in a send
    /// buffer.
    ///
    /// # Errors
    /// Those of recvmmsg(2); a socket that stays empty is no error.
    pub fn recv_waiting<O: Into<Owner>>(
        &mut self,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        let mut sockets = self.pairs().flat_map(Pair::sockets);
        match (sockets.next(), sockets.next()) {
            (Some(lone), None) => {
                lone.recv(Patience::UntilTheFirst, &mut |route, ecn, packet| f(route, ecn, packet).into())
            }
            _ => Ok(Received::default()),
        }
    }

    /// Calls `f` with the ICMP reports that wait at any carrier; tells whether more may wait.
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pairs().fold(false, |more, pair| pair.take_errors(&mut f) | more)
    }

    /// Closes the sockets of interfaces that are gone (see [`SENDERS_MAX`](crate::SENDERS_MAX)): call it when a
    /// [`Monitor`](crate::Monitor) reports changes. Costs a system call or two for each of them.
    pub fn close_gone_interfaces(&mut self) {
        self.pairs().flat_map(Pair::sockets).for_each(Socket::close_gone);
    }

    /// Returns the counters.
    pub fn counters(&self) -> CarrierCounters {
        CarrierCounters {
            udp: self.udp.as_ref().map(UdpCarrier::counters),
            raw: self.raw.as_ref().map(RawCarrier::counters),
        }
    }

    fn pairs(&mut self) -> impl Iterator<Item = &mut Pair> {
        let udp = self.udp.iter_mut().map(|udp| &mut udp.pair);
        udp.chain(self.raw.iter_mut().map(|raw| &mut raw.pair))
    }

    /// The carrier and whether the IPv4 socket is meant: UDP over IPv4, UDP over IPv6, raw IPv4, raw IPv6.
    fn at(&mut self, place: usize) -> (Option<&mut Pair>, bool) {
        let pair = match place {
            place if UDP_PLACES.contains(&place) => self.udp.as_mut().map(|udp| &mut udp.pair),
            place if RAW_PLACES.contains(&place) => self.raw.as_mut().map(|raw| &mut raw.pair),
            _ => None,
        };
        (pair, place.is_multiple_of(2))
    }
}

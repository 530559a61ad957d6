//! One interface to both carriers: SCTP in UDP, and SCTP over IP.

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

/// Places (offsets of poll tokens) of the sockets of SCTP in UDP: IPv4, then IPv6.
const UDP_PLACES: Range<usize> = 0..2;
/// Places of the sockets of SCTP over IP: IPv4, then IPv6.
const RAW_PLACES: Range<usize> = 2..4;

/// The open carriers of a host: SCTP in UDP, SCTP over IP, or both.
///
/// In an event loop:
///
/// - Call [`register`](Carriers::register) once.
/// - At each event of its tokens, call [`recv_at`](Carriers::recv_at) until `more` is false.
/// - If `errors_waiting` of the result is true, call [`take_errors`](Carriers::take_errors).
/// - After a send that failed with [`Full`](crate::SendErrorKind::Full), wait for an event of any of these tokens. This event may
///   mean that the send buffer has room again.
#[derive(Default)]
pub struct Carriers {
    udp: Option<UdpCarrier>,
    raw: Option<RawCarrier>,
}

/// Counters of each open carrier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CarrierCounters {
    /// SCTP in UDP.
    pub udp: Option<Counters>,
    /// SCTP over IP.
    pub raw: Option<Counters>,
}

impl Carriers {
    /// Number of poll tokens that [`register`](Carriers::register) uses: one for each carrier and family.
    pub const TOKENS: usize = 4;

    /// Joins the carriers. Each carrier may be absent.
    pub fn new(udp: Option<UdpCarrier>, raw: Option<RawCarrier>) -> Carriers {
        Carriers { udp, raw }
    }

    /// Reports whether packets can be sent over the route. The route's carrier must have an open socket of the route's address
    /// family.
    pub fn has(&self, route: &Route) -> bool {
        let pair = match route.carrier {
            Carrier::Udp { .. } => self.udp.as_ref().map(|udp| &udp.pair),
            Carrier::Ip => self.raw.as_ref().map(|raw| &raw.pair),
        };
        pair.is_some_and(|pair| if route.remote.is_ipv4() { pair.v4.is_some() } else { pair.v6.is_some() })
    }

    /// Registers the sockets with a poll, edge-triggered, under the tokens from `first` to `first + TOKENS - 1`. An event means
    /// that packets or ICMP reports have arrived, or that a full send buffer has drained.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
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

    /// Adds SCTP in UDP to carriers that are already registered with `first`.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn add_udp(&mut self, udp: UdpCarrier, registry: &Registry, first: Token) -> io::Result<()> {
        self.udp = Some(udp);
        self.register_places(registry, first, UDP_PLACES)
    }

    /// Adds SCTP over IP to carriers that are already registered with `first`.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
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
    /// [`SendError`]. Its kind recommends the reaction, and `sent` is the number of bytes sent before the error.
    pub fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        match (train.route.carrier, &mut self.udp, &mut self.raw) {
            (Carrier::Udp { .. }, Some(udp), _) => udp.send(train),
            (Carrier::Ip, _, Some(raw)) => raw.send(train),
            _ => Err(no_carrier(&train.route)),
        }
    }

    /// Returns the bytes that would leave this host before the packets of this train. Most of these bytes wait in queues of
    /// interfaces. The number covers all unsent bytes of the socket that would send the train. It includes the kernel's overhead
    /// per packet. Over IPv6, each interface has its own socket. Over IPv4, all interfaces share one socket. Returns None if the
    /// number is not known. Makes one system call, or two if SCTP over IP uses shortcuts.
    pub fn waiting(&self, train: &Train<'_>) -> Option<usize> {
        match train.route.carrier {
            Carrier::Udp { .. } => self.udp.as_ref()?.pair.waiting(train),
            Carrier::Ip => self.raw.as_ref()?.waiting(train),
        }
    }

    /// Returns the index of the interface on which the last packet on this route arrived, regardless of its port. Returns None if
    /// no packet has arrived, or if the entry was forgotten after packets on many other routes. If packets arrive through a
    /// tunnel, bridge or bond, the result is the tunnel, bridge or bond, not an interface below it.
    pub fn came_by(&self, route: &Route) -> Option<u32> {
        match route.carrier {
            Carrier::Udp { .. } => self.udp.as_ref()?.pair.came_by(route),
            Carrier::Ip => self.raw.as_ref()?.pair.came_by(route),
        }
    }

    /// Calls `f` with the packets that have arrived on any carrier; see [`UdpCarrier::recv`].
    ///
    /// # Errors
    /// The errors of recvmmsg(2). Empty sockets are no error.
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
    /// The errors of recvmmsg(2). An empty socket, or a place without a socket, is no error.
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

    /// Closes each carrier's IPv4 socket if only `v6` is true, and each carrier's IPv6 socket if only `v4` is true. The only
    /// socket of a carrier stays open.
    pub fn keep_families(&mut self, v4: bool, v6: bool) {
        for pair in self.pairs() {
            match (&pair.v4, &pair.v6) {
                (_, Some(_)) if !v4 && v6 => pair.v4 = None,
                (Some(_), _) if v4 && !v6 => pair.v6 = None,
                _ => {}
            }
        }
    }

    /// Reports whether only one socket is open, as [`recv_waiting`](Self::recv_waiting) requires.
    pub fn is_lone(&mut self) -> bool {
        self.pairs().flat_map(Pair::sockets).count() == 1
    }

    /// If only one socket is open, waits until it has packets, and calls `f` with them as [`recv`](Self::recv) does. The limit of
    /// the wait is [`PATIENCE`](crate::PATIENCE). If several sockets are open, receives nothing, because only a poll can wait for
    /// several sockets.
    ///
    /// This method needs one system call. A poll and a receive call need two. During the wait, the caller does not notice wakers
    /// or room in a send buffer.
    ///
    /// # Errors
    /// The errors of recvmmsg(2). A socket that stays empty is no error.
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

    /// Calls `f` with the ICMP reports that wait at any carrier. Returns true if more may wait.
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pairs().fold(false, |more, pair| pair.take_errors(&mut f) | more)
    }

    /// Closes the sockets of interfaces that no longer exist (see [`SENDERS_MAX`](crate::SENDERS_MAX)). The caller should call
    /// this method when a [`Monitor`](crate::Monitor) reports changes. Costs one or two system calls for each interface with a
    /// socket.
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

    /// Returns the carrier at a place, and true if the place belongs to the carrier's IPv4 socket. Places: UDP over IPv4, UDP
    /// over IPv6, raw IPv4, raw IPv6.
    fn at(&mut self, place: usize) -> (Option<&mut Pair>, bool) {
        let pair = match place {
            place if UDP_PLACES.contains(&place) => self.udp.as_mut().map(|udp| &mut udp.pair),
            place if RAW_PLACES.contains(&place) => self.raw.as_mut().map(|raw| &mut raw.pair),
            _ => None,
        };
        (pair, place.is_multiple_of(2))
    }
}

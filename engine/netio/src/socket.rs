//! One socket of one address family, for the UDP carrier and the raw carrier.
//!
//! The socket exchanges packets with many peers, so it is never connected. A call blocks only if the caller asks it to wait.
//!
//! Invariants:
//! - Packets leave with DF set, and this host does not fragment them. Packets of a train that allows fragments are the exception.
//! - After a failed send, the caller knows how many bytes were sent.
//! - A pending error of the socket is never mistaken for the outcome of the current call. A pending error comes from an ICMP
//!   report about an earlier packet. Linux returns this error from any later call. The failed call is then repeated, and the
//!   report stays in the error queue.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU32};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use base::{Carrier, Ecn, Route};
use mio::{Registry, Token};

use crate::arrivals::Arrivals;
use crate::cmsg::Control;
use crate::connected_rx::{ConnectedRx, Owner};
use crate::counters::Counters;
use crate::cut::{Addresses, Cutter};
use crate::error::{PathError, SendError, SendErrorKind};
use crate::gso::{self, Refusals};
use crate::inbound::{open_datagram, open_error};
use crate::options;
use crate::sockaddr::SockAddr;
use crate::steering;
use crate::sys::{self, Patience, Slot};
use crate::train::Train;
use crate::tx_sockets::{TxSocket, TxSockets, new_socket};

/// Limit on the datagrams of one `recv`. A train that GRO has merged counts as one datagram.
pub const DATAGRAMS_PER_RECV: usize = 64;
/// Limit on the reports of one `take_errors`.
pub const ERRORS_PER_CALL: usize = 64;
/// Limit on the datagrams of one `recvmmsg`.
const SLOTS: usize = 16;
/// Length of the longest datagram that IP can carry, in bytes.
const SLOT_BYTES: usize = 65_535;
/// Timeout of a waiting `recv`. The kernel rounds the timeout up to its timer tick.
pub const PATIENCE: Duration = Duration::from_millis(10);
/// Limit on the attempts of one call. An attempt may return only the pending error of an earlier packet, so the call must be
/// repeated.
const ATTEMPTS: usize = 4;

/// The protocol that carries the SCTP packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Udp,
    Raw,
}

/// Choice whether other sockets of this user may already be bound to the port (SO_REUSEPORT).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    No,
    Yes,
}

/// Result of a `recv` call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// SCTP packets delivered.
    pub packets: usize,
    /// True if the call reached its limit. The caller must call again, because an edge-triggered poll may not report the
    /// remaining packets.
    pub more: bool,
    /// True if ICMP reports wait. Call `take_errors`.
    pub errors_waiting: bool,
}

impl Received {
    pub(crate) fn join(&mut self, other: Received) {
        self.packets += other.packets;
        self.more |= other.more;
        self.errors_waiting |= other.errors_waiting;
    }
}

/// A socket, with its state for sending and receiving.
pub(crate) struct Socket {
    tx_sockets: TxSockets,
    kind: Kind,
    is_v4: bool,
    slots: Vec<Slot>,
    refusals: Refusals,
    cutter: Cutter,
    /// Connected sockets for peers that send much, if they are enabled.
    connected_rx: Option<ConnectedRx>,
    errors_waiting: bool,
    counters: Counters,
    arrivals: Arrivals,
}

/// A receiving socket: the main socket, or a connected one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Main,
    Connected(usize),
}

impl Socket {
    /// Opens and binds a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// The errors of socket(2), setsockopt(2) and bind(2). Raw sockets need CAP_NET_RAW.
    pub(crate) fn open(kind: Kind, address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
        let is_v4 = address.is_ipv4();
        let socket = new_socket(kind, is_v4)?;
        options::set_all(socket.as_fd(), is_v4)?;
        if sharing == Sharing::Yes {
            socket.set_reuse_port(true)?;
        }
        if kind == Kind::Udp {
            // Kernels before 5.0 have no GRO on sockets, so packets arrive one by one.
            let _ = sys::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        sys::set_patience(socket.as_fd(), PATIENCE)?;
        socket.bind(&address.into())?;
        if kind == Kind::Udp {
            // From now on, send sockets and connected sockets may share the port. Without shards, `bind` succeeds only if no
            // other socket has the port. Programs of other users cannot share the port, because SO_REUSEPORT requires that the
            // same user created all sockets.
            socket.set_reuse_port(true)?;
        }
        let slots = (0..SLOTS).map(|_| Slot::new(SLOT_BYTES)).collect();
        let port = socket.local_addr()?.as_socket().map_or(0, |bound| bound.port());
        let tx_sockets = TxSockets::new(socket, kind, port);
        let (refusals, cutter, counters, arrivals) = Default::default();
        let (connected_rx, errors_waiting) = (None, false);
        Ok(Socket {
            tx_sockets,
            kind,
            is_v4,
            slots,
            refusals,
            cutter,
            connected_rx,
            errors_waiting,
            counters,
            arrivals,
        })
    }

    /// From now on, opens separate receive sockets for peers that send much.
    pub(crate) fn open_connected_rx(&mut self) {
        self.connected_rx.get_or_insert_default();
    }

    pub(crate) fn port(&self) -> u16 {
        self.tx_sockets.port()
    }

    /// Makes the kernel choose among the sockets of this port by the contents of the SCTP packets. A kernel without this feature
    /// chooses by addresses and ports. With such a kernel, many packets arrive at the wrong shard, which must hand them on.
    pub(crate) fn steer(&self, shards: NonZeroU8) {
        let _ = sys::steer(self.tx_sockets.main(), &steering::program(shards, self.is_v4));
    }

    /// Returns the TTL or hop limit of sent packets, or None if the kernel does not report it.
    pub(crate) fn hops(&self) -> Option<u8> {
        let main = self.tx_sockets.main();
        let socket = socket2::SockRef::from(&main);
        let hops = if self.is_v4 { socket.ttl_v4() } else { socket.unicast_hops_v6() };
        hops.ok().and_then(|hops| u8::try_from(hops).ok())
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Registers the sockets with `registry`. An event of `token` means that packets or reports have arrived, or that a full send
    /// buffer has drained.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.tx_sockets.register(registry, token)
    }

    /// Returns the train with the interface through which it should leave.
    pub(crate) fn towards<'a>(&self, train: &Train<'a>) -> Train<'a> {
        self.arrivals.towards(train)
    }

    /// Returns the interface on which the last packet on this route arrived.
    pub(crate) fn came_by(&self, route: &Route) -> Option<u32> {
        self.arrivals.came_by(route)
    }

    /// Returns the bytes that wait in this host before the packets of a train would leave.
    pub(crate) fn waiting(&self, train: &Train<'_>) -> io::Result<usize> {
        self.tx_sockets.waiting(train.route.local, train.source_ifindex.unwrap_or(0))
    }

    /// Sends the packets of a train.
    pub(crate) fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        let ifindex = train.source_ifindex.unwrap_or(0);
        let tx_socket =
            self.tx_sockets.choose(train.route.local, ifindex).map_err(|e| self.fail(train, 0, e))?;
        if !train.may_fragment {
            return self.send_by(tx_socket, train);
        }
        if let Some(outcome) = self.send_cut(tx_socket, train) {
            return outcome;
        }
        options::set_fragmenting(self.tx_sockets.fd(tx_socket), self.is_v4, true)
            .map_err(|e| self.fail(train, 0, e))?;
        let outcome = self.send_by(tx_socket, train);
        let restored = options::set_fragmenting(self.tx_sockets.fd(tx_socket), self.is_v4, false);
        outcome.and(restored.map_err(|e| self.fail(train, train.bytes.len(), e)))
    }

    /// Sends packets over IPv6 in fragments that fit every link. Returns None if the kernel must send the packets: if they are
    /// short, if the kernel chooses the source address, or if raw sockets are not allowed.
    fn send_cut(&mut self, tx_socket: TxSocket, train: &Train<'_>) -> Option<Result<(), SendError>> {
        let (IpAddr::V6(local), IpAddr::V6(remote)) = (train.route.local, train.route.remote) else {
            return None;
        };
        if local.is_unspecified() || !Cutter::must_cut(train.segment_size.min(train.bytes.len())) {
            return None;
        }
        let control = Shipment::new(train, tx_socket).control();
        let ifindex = train.source_ifindex.and_then(NonZeroU32::new);
        let addresses = Addresses { local, remote, ifindex, control: &control };
        let ports = match train.route.carrier {
            Carrier::Udp { peer_port } => Some((self.port(), peer_port)),
            Carrier::Ip => None,
        };
        let mut sent = 0;
        for packet in train.bytes.chunks(train.segment_size) {
            match self.cutter.send(&addresses, ports, packet) {
                Ok(()) => self.count_sent(1, packet.len()),
                Err(e) if sent == 0 && e.kind() == io::ErrorKind::PermissionDenied => return None,
                Err(e) => {
                    let error = self.fail(train, sent, e);
                    self.counters.send_errors.count(error.kind);
                    return Some(Err(error));
                }
            }
            sent += packet.len();
        }
        Some(Ok(()))
    }

    fn send_by(&mut self, tx_socket: TxSocket, train: &Train<'_>) -> Result<(), SendError> {
        let shipment = Shipment::new(train, tx_socket);
        let mut sent = 0;
        for batch in train.bytes.chunks(gso::max_batch(shipment.segment_size)) {
            if let Err((part, source)) = self.send_batch(&shipment, batch) {
                let error = self.fail(train, sent + part, source);
                self.counters.send_errors.count(error.kind);
                self.tx_sockets.on_send_error(tx_socket, error.kind);
                return Err(error);
            }
            sent += batch.len();
        }
        self.tx_sockets.on_sent(tx_socket);
        Ok(())
    }

    /// Returns the error of a failed call. If a packet was too long, the error contains the interface's current MTU.
    fn fail(&self, train: &Train<'_>, sent: usize, source: io::Error) -> SendError {
        let mut kind = SendErrorKind::of(&source);
        if let (SendErrorKind::TooLarge { mtu }, Some(ifindex)) = (&mut kind, train.source_ifindex) {
            *mtu = sys::interface_mtu(self.tx_sockets.main(), ifindex).ok();
        }
        SendError { route: train.route, sent, kind, source }
    }

    /// Sends one batch, in one piece if possible. The error contains the number of bytes that were sent before the error.
    fn send_batch(&mut self, shipment: &Shipment, train: &[u8]) -> Result<(), (usize, io::Error)> {
        let is_batch =
            self.kind == Kind::Udp && train.len() > shipment.segment_size && !shipment.may_fragment;
        if !is_batch || !self.refusals.allow(shipment.ifindex) {
            return self.send_one_by_one(shipment, train);
        }
        match self.send_gso(shipment, train) {
            Err(e) if is_gso_refusal(&e) => {}
            outcome => return outcome.map_err(|e| (0, e)),
        }
        // EINVAL also has other causes. The error was a refusal of GSO only if the kernel accepts the packets one by one.
        let outcome = self.send_one_by_one(shipment, train);
        if outcome.is_ok() {
            self.counters.gso_refusals += 1;
            self.refusals.note(shipment.ifindex);
        }
        outcome
    }

    fn send_gso(&mut self, shipment: &Shipment, train: &[u8]) -> io::Result<()> {
        let mut control = shipment.control();
        control.push_segment_size(shipment.segment_size as u16);
        let packets = train.len().div_ceil(shipment.segment_size);
        self.attempt(shipment.tx_socket, |fd| sys::send(fd, &shipment.to, &control, train)).map(|_| {
            self.counters.gso_batches += 1;
            self.count_sent(packets, train.len());
        })
    }

    fn send_one_by_one(&mut self, shipment: &Shipment, train: &[u8]) -> Result<(), (usize, io::Error)> {
        let control = shipment.control();
        let mut sent = 0;
        while sent < train.len() {
            let left = &train[sent..];
            let outcome = if left.len() <= shipment.segment_size {
                self.attempt(shipment.tx_socket, |fd| sys::send(fd, &shipment.to, &control, left)).map(|_| 1)
            } else {
                self.attempt(shipment.tx_socket, |fd| {
                    sys::send_many(fd, &shipment.to, &control, shipment.segment_size, left, |_| &[])
                })
            };
            let packets = outcome.map_err(|e| (sent, e))?;
            let bytes = (packets * shipment.segment_size).min(left.len());
            self.count_sent(packets, bytes);
            sent += bytes;
        }
        Ok(())
    }

    fn count_sent(&mut self, packets: usize, bytes: usize) {
        self.counters.packets_sent += packets as u64;
        self.counters.bytes_sent += bytes as u64;
    }

    /// Makes a send call, and repeats the call while the call only returns the pending error of an earlier packet. A packet that
    /// the interface's queue dropped (ENOBUFS) counts as sent. To SCTP, the dropped packet is lost, like a packet that a router
    /// dropped.
    fn attempt(
        &mut self,
        tx_socket: TxSocket,
        call: impl Fn(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut outcome = Ok(0);
        for _ in 0..ATTEMPTS {
            self.counters.send_calls += 1;
            outcome = call(self.tx_sockets.fd(tx_socket));
            match &outcome {
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.counters.send_errors.dropped += 1;
                    return Ok(1);
                }
                Err(e) if may_be_pending(e) => self.errors_waiting = true,
                _ => return outcome,
            }
        }
        outcome
    }

    /// Closes the send sockets of interfaces that are gone.
    pub(crate) fn close_gone(&mut self) {
        self.tx_sockets.close_gone();
    }

    /// Delivers up to [`DATAGRAMS_PER_RECV`] datagrams of each socket, split into SCTP packets.
    pub(crate) fn recv(
        &mut self,
        patience: Patience,
        f: &mut impl FnMut(&Route, Ecn, &[u8]) -> Owner,
    ) -> io::Result<Received> {
        let mut received = self.recv_from(Source::Main, patience, f)?;
        if self.connected_rx.is_some() {
            let main_is_empty = !received.more;
            self.recv_from_connected(main_is_empty, &mut received, f);
        }
        Ok(received)
    }

    fn recv_from_connected(
        &mut self,
        main_is_empty: bool,
        received: &mut Received,
        f: &mut impl FnMut(&Route, Ecn, &[u8]) -> Owner,
    ) {
        for n in (0..self.connected_rx.as_ref().map_or(0, ConnectedRx::len)).rev() {
            if self.connected_rx.as_mut().is_some_and(|connected| connected.is_next(n, main_is_empty)) {
                match self.recv_from(Source::Connected(n), Patience::None, f) {
                    Ok(more) => {
                        received.join(more);
                        if !more.more {
                            self.connected_rx.iter_mut().for_each(|connected| connected.on_empty(n));
                        }
                    }
                    // After the failed socket is closed, the main socket receives the peer's datagrams.
                    Err(_) => self.connected_rx.iter_mut().for_each(|connected| connected.close(n)),
                }
            }
        }
        if let Some(connected) = &mut self.connected_rx {
            let (port, poll) = (self.tx_sockets.port(), self.tx_sockets.poll());
            self.counters.connected_rx += u64::from(connected.open_for_leader(port, poll));
        }
    }

    fn source(&self, source: Source) -> Option<BorrowedFd<'_>> {
        match source {
            Source::Main => Some(self.tx_sockets.main()),
            Source::Connected(n) => self.connected_rx.as_ref().and_then(|connected| connected.fd(n)),
        }
    }

    fn recv_from(
        &mut self,
        source: Source,
        mut patience: Patience,
        f: &mut impl FnMut(&Route, Ecn, &[u8]) -> Owner,
    ) -> io::Result<Received> {
        let mut received = Received::default();
        let mut failures = 0;
        for _ in 0..DATAGRAMS_PER_RECV / SLOTS {
            self.counters.recv_calls += 1;
            let patience = std::mem::replace(&mut patience, Patience::None);
            let mut slots = std::mem::take(&mut self.slots);
            let outcome = self.source(source).map_or(Ok(0), |fd| sys::recv_many(fd, &mut slots, patience));
            self.slots = slots;
            match outcome {
                Ok(filled) => {
                    self.deliver(source, filled, &mut received, f);
                    if filled < SLOTS {
                        received.errors_waiting = self.errors_waiting;
                        return Ok(received);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    received.errors_waiting = self.errors_waiting;
                    return Ok(received);
                }
                Err(e) if may_be_pending(&e) && failures < ATTEMPTS => {
                    failures += 1;
                    self.errors_waiting = true;
                }
                Err(e) => return Err(e),
            }
        }
        received.more = true;
        received.errors_waiting = self.errors_waiting;
        Ok(received)
    }

    fn deliver(
        &mut self,
        source: Source,
        filled: usize,
        received: &mut Received,
        f: &mut impl FnMut(&Route, Ecn, &[u8]) -> Owner,
    ) {
        for slot in &self.slots[..filled] {
            let Some((route, meta, data)) = open_datagram(self.kind, self.is_v4, slot) else {
                self.counters.discarded += 1;
                continue;
            };
            if let Some(ifindex) = meta.ifindex {
                self.arrivals.note(&route, ifindex);
            }
            let segment_size = meta.segment_size.unwrap_or(data.len()).max(1);
            let packets = data.len().div_ceil(segment_size);
            self.counters.gro_batches += u64::from(packets > 1);
            self.counters.packets_received += packets as u64;
            self.counters.bytes_received += data.len() as u64;
            received.packets += packets;
            let mut is_known = false;
            for packet in data.chunks(segment_size) {
                is_known |= f(&route, meta.ecn, packet) == Owner::Association;
            }
            if is_known
                && source == Source::Main
                && let Some(connected) = &mut self.connected_rx
            {
                connected.note(&route);
            }
        }
    }

    /// Delivers up to [`ERRORS_PER_CALL`] ICMP reports. Returns true if more may wait.
    pub(crate) fn take_errors(&mut self, f: &mut impl FnMut(&PathError<'_>)) -> bool {
        if !self.errors_waiting {
            return false;
        }
        let connected = self.connected_rx.as_ref().map_or(0, ConnectedRx::len);
        let sources = std::iter::once(Source::Main).chain((0..connected).map(Source::Connected));
        self.errors_waiting = sources.fold(false, |more, source| self.take_errors_of(source, f) | more);
        self.errors_waiting
    }

    fn take_errors_of(&mut self, source: Source, f: &mut impl FnMut(&PathError<'_>)) -> bool {
        for _ in 0..ERRORS_PER_CALL {
            let mut slots = std::mem::take(&mut self.slots);
            let outcome = self.source(source).map(|fd| sys::recv_error(fd, &mut slots[0]));
            self.slots = slots;
            if !matches!(outcome, Some(Ok(()))) {
                return false;
            }
            if let Some(error) = open_error(self.kind, &self.slots[0]) {
                self.counters.path_errors += 1;
                f(&error);
            }
        }
        true
    }
}

/// Common properties of the packets of one send call.
struct Shipment {
    to: SockAddr,
    ifindex: u32,
    tx_socket: TxSocket,
    local: IpAddr,
    ecn: Ecn,
    segment_size: usize,
    may_fragment: bool,
}

impl Shipment {
    fn new(train: &Train<'_>, tx_socket: TxSocket) -> Shipment {
        let ifindex = train.source_ifindex.unwrap_or(0);
        let port = match train.route.carrier {
            Carrier::Udp { peer_port } => peer_port,
            Carrier::Ip => 0,
        };
        Shipment {
            to: SockAddr::new(train.route.remote, port, ifindex),
            ifindex,
            tx_socket,
            local: train.route.local,
            ecn: train.ecn,
            segment_size: train.segment_size.clamp(1, train.bytes.len().max(1)),
            may_fragment: train.may_fragment,
        }
    }

    fn control(&self) -> Control {
        let mut control = Control::new();
        if self.ifindex != 0 || !self.local.is_unspecified() {
            control.push_source(self.local, self.ifindex);
        }
        if self.ecn != Ecn::NotEct {
            control.push_ecn(self.local.is_ipv4(), self.ecn);
        }
        control
    }
}

/// Reports whether the error means that the kernel or the interface refused a train. The reason may be missing checksum offload,
/// IPsec, or an old kernel.
fn is_gso_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP))
}

/// Reports whether `error` may be the pending error that an ICMP report left on the socket.
fn may_be_pending(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EPROTO
                | libc::EMSGSIZE
                | libc::EACCES
                | libc::EOPNOTSUPP
                | libc::EINTR
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_loopback() -> (Socket, u16) {
        let socket = Socket::open(Kind::Udp, "127.0.0.1:0".parse().unwrap(), Sharing::No).unwrap();
        let port = socket2::SockRef::from(&socket.tx_sockets.main()).local_addr().unwrap();
        (socket, port.as_socket().unwrap().port())
    }

    #[test]
    fn a_train_that_the_kernel_refuses_and_the_next_train_leave_as_single_packets() {
        let ((mut sender, _), (mut receiver, peer_port)) = (on_loopback(), on_loopback());
        // Without checksums, the kernel accepts single packets but no trains.
        sys::set_int(sender.tx_sockets.main(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let route = Route { local: loopback, remote: loopback, carrier: Carrier::Udp { peer_port } };
        let bytes: Vec<u8> = (0..=255).collect();
        for (round, send_calls) in [(1, 2), (2, 3)] {
            let (source_ifindex, ecn) = (None, Ecn::NotEct);
            let train =
                Train { route, source_ifindex, ecn, segment_size: 100, may_fragment: false, bytes: &bytes };
            sender.send(&train).unwrap();
            let mut arrived = Vec::new();
            receiver
                .recv(Patience::None, &mut |_, _, packet| {
                    arrived.push(packet.to_vec());
                    Owner::Unknown
                })
                .unwrap();
            assert_eq!(arrived, bytes.chunks(100).collect::<Vec<_>>());
            let counters = sender.counters();
            assert_eq!(
                (counters.gso_batches, counters.gso_refusals, counters.packets_sent),
                (0, 1, round * 3)
            );
            assert_eq!(counters.send_calls, send_calls);
        }
    }
}

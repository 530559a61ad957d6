//! SCTP in UDP (RFC 6951): the fast path, thanks to GSO and GRO.

use std::io;
use std::num::NonZeroU8;

use base::{Ecn, Route};

use crate::connected_rx::Owner;
use crate::counters::Counters;
use crate::error::{PathError, SendError};
use crate::gso;
use crate::pair::Pair;
use crate::socket::{Kind, Received, Sharing, Socket};
use crate::train::Train;

/// The port of SCTP in UDP (RFC 6951 section 5.1).
pub const SCTP_OVER_UDP_PORT: u16 = 9899;

/// An IPv4 and an IPv6 UDP socket on one port of all addresses.
///
/// UDP checksums are on. Where the host has only one address family, the other is left out.
pub struct UdpCarrier {
    pub(crate) pair: Pair,
}

impl UdpCarrier {
    /// Binds `port` (usually [`SCTP_OVER_UDP_PORT`]) of `0.0.0.0` and `[::]` in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2), `AddrInUse` above all: another program holds the port.
    pub fn bind(port: u16) -> io::Result<UdpCarrier> {
        Ok(UdpCarrier { pair: Pair::open(Kind::Udp, port, Sharing::No)? })
    }

    /// Binds `port` once for each of `count` shards, in order; port 0 lets the kernel choose one for all. Where the kernel
    /// can (4.5 and later), it hands each datagram to the socket of the shard that [`Shard`](base::Shard) names for its first SCTP
    /// packet. A train that GRO put together may hold packets of other shards behind it, and a packet whose T bit is set
    /// may belong to any: the caller looks at each (`wire::steer`) and hands it on.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2), `AddrInUse` above all: another program, or another user's, holds the port.
    pub fn bind_shards(port: u16, count: NonZeroU8) -> io::Result<Vec<UdpCarrier>> {
        let mut carriers: Vec<UdpCarrier> = Vec::new();
        for _ in 0..count.get() {
            let port = carriers.first().map_or(port, |first| first.pair.port());
            carriers.push(UdpCarrier { pair: Pair::open(Kind::Udp, port, Sharing::Yes)? });
        }
        if let Some(first) = carriers.first_mut() {
            first.pair.sockets().for_each(|socket| socket.steer(count));
        }
        Ok(carriers)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.pair.port()
    }

    /// Receives from peers that send much by sockets of their own from now on, up to [`CONNECTED_RX_MAX`](crate::CONNECTED_RX_MAX) for each
    /// family, for which the kernel remembers the route of what arrives. Only packets that the callback of a `recv` says to be an
    /// association's ([`Owner`]) make a peer a busy one. The sockets are watched by the poll that watches the
    /// carrier; [`Carriers::recv_waiting`](crate::Carriers::recv_waiting) does not wait for them. One whose
    /// peer has gone silent stays until others need its place.
    pub fn open_connected_rx(&mut self) {
        self.pair.sockets().for_each(Socket::open_connected_rx);
    }

    /// The bytes that go into one system call at most, for packets of `segment_size` bytes: up to 64 packets
    /// and 65,507 bytes. Longer input to [`UdpCarrier::send`] is split.
    pub fn max_batch(segment_size: usize) -> usize {
        gso::max_batch(segment_size)
    }

    /// Sends the packets of a [`Train`].
    ///
    /// A packet that the interface's own queue drops (ENOBUFS) counts as sent, and as
    /// [`SendErrors::dropped`](crate::SendErrors::dropped).
    ///
    /// # Errors
    /// [`SendError`], by kind what to do; `sent` tells how many bytes went before it.
    //= rfc6951#5.3-1 5.3-2
    pub fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        self.pair.send(&self.pair.towards(train))
    }

    /// Calls `f` with each SCTP packet that has arrived, up to
    /// [`DATAGRAMS_PER_RECV`](crate::DATAGRAMS_PER_RECV) datagrams (of up to 64 packets each) per family.
    /// The bytes are unchecked; both addresses of the route are unicast. Where busy peers have sockets of their own, `f` tells
    /// whether an association knows the packet ([`Owner`]); elsewhere it may return nothing.
    ///
    /// # Errors
    /// Those of recvmmsg(2); an empty socket is no error.
    pub fn recv<O: Into<Owner>>(
        &mut self,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        self.pair.recv(&mut |route, ecn, packet| f(route, ecn, packet).into())
    }

    /// Calls `f` with each ICMP report that waits, up to [`ERRORS_PER_CALL`](crate::ERRORS_PER_CALL) per
    /// family; tells whether more may wait. Costs nothing when neither a send nor a `recv` met one.
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pair.take_errors(&mut f)
    }

    /// Returns the counters of both families together.
    pub fn counters(&self) -> Counters {
        self.pair.counters()
    }
}

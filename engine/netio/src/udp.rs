//! SCTP in UDP (RFC 6951): the fast carrier, because of GSO and GRO.

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

/// An IPv4 and an IPv6 UDP socket on one port, on all addresses.
///
/// UDP checksums are on. If the host has only one address family, the other socket is absent.
pub struct UdpCarrier {
    pub(crate) pair: Pair,
}

impl UdpCarrier {
    /// Binds `port` (usually [`SCTP_OVER_UDP_PORT`]) of `0.0.0.0` and `[::]` in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2). `AddrInUse` means that another program holds the port.
    pub fn bind(port: u16) -> io::Result<UdpCarrier> {
        Ok(UdpCarrier { pair: Pair::open(Kind::Udp, port, Sharing::No)? })
    }

    /// Binds `port` once for each of `count` shards, in order. With port 0, the kernel chooses one port for all. A kernel of
    /// version 4.5 or later hands each datagram to the socket of the shard that [`Shard`](base::Shard) gives for its first SCTP
    /// packet.
    ///
    /// Two kinds of packets may belong to another shard: later packets of a train that GRO merged, and packets with the T bit.
    /// The caller must therefore look at each packet (`wire::steer`) and hand it on.
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2). `AddrInUse` means that another program, or another user's, holds the port.
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

    /// Opens separate receive sockets for peers that send much from now on, up to [`CONNECTED_RX_MAX`](crate::CONNECTED_RX_MAX)
    /// for each family. For such a socket, the kernel remembers the route of arriving packets. A peer counts as busy only because
    /// of packets that the callback of a `recv` assigns to an association ([`Owner`]). The poll that watches the carrier also
    /// watches these sockets. [`Carriers::recv_waiting`](crate::Carriers::recv_waiting) does not wait for them. The socket of a
    /// silent peer stays open until other peers need its place.
    pub fn open_connected_rx(&mut self) {
        self.pair.sockets().for_each(Socket::open_connected_rx);
    }

    /// Returns the limit on the bytes of one system call, for packets of `segment_size` bytes: up to 64 packets and 65,507 bytes.
    /// [`UdpCarrier::send`] splits longer input.
    pub fn max_batch(segment_size: usize) -> usize {
        gso::max_batch(segment_size)
    }

    /// Sends the packets of a [`Train`].
    ///
    /// A packet that the interface's own queue drops (ENOBUFS) counts as sent, and as
    /// [`SendErrors::dropped`](crate::SendErrors::dropped).
    ///
    /// # Errors
    /// [`SendError`]. Its kind recommends the reaction, and `sent` is the number of bytes sent before the error.
    //= rfc6951#5.3-1 5.3-2
    pub fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        self.pair.send(&self.pair.towards(train))
    }

    /// Calls `f` with each SCTP packet that has arrived, up to [`DATAGRAMS_PER_RECV`](crate::DATAGRAMS_PER_RECV) datagrams (of up
    /// to 64 packets each) per family. The bytes are unchecked. Both addresses of the route are unicast. After
    /// [`open_connected_rx`](UdpCarrier::open_connected_rx), `f` must return whether an association owns the packet ([`Owner`]).
    /// Otherwise, it may return nothing.
    ///
    /// # Errors
    /// The errors of recvmmsg(2). An empty socket is no error.
    pub fn recv<O: Into<Owner>>(
        &mut self,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        self.pair.recv(&mut |route, ecn, packet| f(route, ecn, packet).into())
    }

    /// Calls `f` with each ICMP report that waits, up to [`ERRORS_PER_CALL`](crate::ERRORS_PER_CALL) per family. Returns true if
    /// more may wait. Costs nothing if neither a send nor a `recv` met a report.
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pair.take_errors(&mut f)
    }

    /// Returns the sum of the counters of both families.
    pub fn counters(&self) -> Counters {
        self.pair.counters()
    }
}

//! SCTP in UDP (RFC 6951). This carrier is faster than the raw carrier, because UDP sockets have GSO and GRO.

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
    /// The errors of socket(2) and bind(2). `AddrInUse` means that another socket has the port.
    pub fn bind(port: u16) -> io::Result<UdpCarrier> {
        Ok(UdpCarrier { pair: Pair::open(Kind::Udp, port, Sharing::No)? })
    }

    /// Binds `port` once for each of `count` shards, in order. With port 0, the kernel chooses one port, which all shards share.
    /// A kernel of version 4.5 or later delivers each datagram to the socket of one shard. The datagram's first SCTP packet
    /// determines this shard (see [`Shard`](base::Shard)).
    ///
    /// Two kinds of packets may belong to another shard: later packets of a train that GRO merged, and packets with the T bit.
    /// The caller must therefore look at each packet (`wire::steer`) and hand it on.
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2). `AddrInUse` means that a socket of another program has the port.
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

    /// From now on, opens separate receive sockets for busy peers, which send most of the packets. The limit is
    /// [`CONNECTED_RX_MAX`](crate::CONNECTED_RX_MAX) sockets for each family. For packets of such a socket, the kernel need not
    /// look up routes. Only packets that the callback of a `recv` assigns to an association ([`Owner`]) count for this choice.
    /// The poll that watches the carrier also watches these sockets. [`Carriers::recv_waiting`](crate::Carriers::recv_waiting)
    /// does not wait for packets of these sockets. If a further busy peer would exceed the limit, the oldest of these sockets is
    /// closed. Until then, the socket of a silent peer stays open.
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

    /// Calls `f` with each SCTP packet that has arrived, up to [`DATAGRAMS_PER_RECV`](crate::DATAGRAMS_PER_RECV) datagrams from
    /// each socket. A datagram that GRO merged has up to 64 packets. The packets' contents are not checked. Both addresses of the
    /// route are unicast. After [`open_connected_rx`](UdpCarrier::open_connected_rx), `f` must return whether an association owns
    /// the packet ([`Owner`]). Otherwise, it may return nothing.
    ///
    /// # Errors
    /// The errors of recvmmsg(2). An empty socket is no error.
    pub fn recv<O: Into<Owner>>(
        &mut self,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        self.pair.recv(&mut |route, ecn, packet| f(route, ecn, packet).into())
    }

    /// Calls `f` with each ICMP report that waits, up to [`ERRORS_PER_CALL`](crate::ERRORS_PER_CALL) from each socket. Returns
    /// true if more reports may wait. Makes no system call if no earlier call returned the pending error of a report.
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pair.take_errors(&mut f)
    }

    /// Returns the sum of the counters of both families.
    pub fn counters(&self) -> Counters {
        self.pair.counters()
    }
}

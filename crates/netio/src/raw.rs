//! SCTP straight over IP (protocol 132): the way to native SCTP peers.
//!
//! The SCTP checksum is the caller's: the kernel neither fills nor checks it. While a raw socket is open the
//! kernel does not answer SCTP packets with "protocol unreachable" (ICMP) or "unrecognized next header"
//! (ICMPv6); without one it does. Packets of up to 3 Gbit/s per core: there is neither GSO nor GRO here.

use std::io;

use base::{Ecn, Route};

use crate::counters::Counters;
use crate::error::{PathError, SendError};
use crate::pair::Pair;
use crate::socket::{Kind, Received, Sharing};
use crate::train::Train;

/// An IPv4 and an IPv6 raw socket for protocol 132, on all addresses.
pub struct RawCarrier {
    pub(crate) pair: Pair,
}

impl RawCarrier {
    /// Opens the sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW, and the other errors of socket(2).
    pub fn open() -> io::Result<RawCarrier> {
        Ok(RawCarrier { pair: Pair::open(Kind::Raw, 0, Sharing::No)? })
    }

    /// Sends the packets of a [`Train`], as in [`UdpCarrier::send`](crate::UdpCarrier::send).
    ///
    /// # Errors
    /// [`SendError`], by kind what to do; `sent` tells how many bytes went before it.
    pub fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        self.pair.send(train)
    }

    /// Calls `f` with each SCTP packet that has arrived, IP headers removed, up to
    /// [`DATAGRAMS_PER_RECV`](crate::DATAGRAMS_PER_RECV) per family.
    ///
    /// # Errors
    /// Those of recvmmsg(2); an empty socket is no error.
    pub fn recv(&mut self, mut f: impl FnMut(&Route, Ecn, &[u8])) -> io::Result<Received> {
        self.pair.recv(&mut f)
    }

    /// Calls `f` with each ICMP report that waits, as in
    /// [`UdpCarrier::take_errors`](crate::UdpCarrier::take_errors).
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pair.take_errors(&mut f)
    }

    /// What was sent and received so far, both families together.
    pub fn counters(&self) -> Counters {
        self.pair.counters()
    }
}

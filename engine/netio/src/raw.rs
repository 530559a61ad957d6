//! SCTP straight over IP (protocol 132): the way to native SCTP peers.
//!
//! The SCTP checksum is the caller's: the kernel neither fills nor checks it. While a raw socket is open the
//! kernel does not answer SCTP packets with "protocol unreachable" (ICMP) or "unrecognized next header"
//! (ICMPv6); without one it does. Packets of up to 3 Gbit/s per core: there is neither GSO nor GRO here.

use std::io;

use base::{Ecn, Route};

use crate::connected_rx::Owner;
use crate::counters::Counters;
use crate::error::{PathError, SendError};
use crate::pair::Pair;
use crate::shortcut::Shortcut;
use crate::socket::{Kind, Received, Sharing};
use crate::sys::MESSAGES_PER_CALL;
use crate::train::Train;

/// An IPv4 and an IPv6 raw socket for protocol 132, on all addresses.
pub struct RawCarrier {
    pub(crate) pair: Pair,
    shortcut: Option<Shortcut>,
    by_shortcut: Counters,
}

impl RawCarrier {
    /// Opens the sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW, and the other errors of socket(2).
    pub fn open() -> io::Result<RawCarrier> {
        let pair = Pair::open(Kind::Raw, 0, Sharing::No)?;
        Ok(RawCarrier { pair, shortcut: None, by_shortcut: Counters::default() })
    }

    /// Lets long trains pass by most of the kernel's IP from now on, through a packet socket, wherever the kernel would do
    /// nothing with them but pass them on: no nftables chain for IP but those of `own_table`, no iptables, no IPsec policy, a
    /// plain route to a neighbour it knows. Any other packet goes the usual way by itself. Not seen by such
    /// packets: rules that come while a train is being sent, and filters of a cgroup until the next train that goes the usual
    /// way (one in 64), after which [`SendErrorKind::Forbidden`](crate::SendErrorKind::Forbidden) tells of them.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2), `PermissionDenied` above all (CAP_NET_RAW); the carrier works on without.
    pub fn take_shortcuts(&mut self, own_table: Option<&str>) -> io::Result<()> {
        self.shortcut = Some(Shortcut::open(own_table, self.pair.hops())?);
        Ok(())
    }

    /// Sends the packets of a [`Train`], as in [`UdpCarrier::send`](crate::UdpCarrier::send).
    ///
    /// # Errors
    /// [`SendError`], by kind what to do; `sent` tells how many bytes went before it.
    pub fn send(&mut self, train: &Train<'_>) -> Result<(), SendError> {
        let train = &self.pair.towards(train);
        let sent = self.shortcut.as_mut().map_or(0, |shortcut| shortcut.send(train));
        if sent == 0 {
            return self.pair.send(train);
        }
        let packets = sent.div_ceil(train.segment_size) as u64;
        self.by_shortcut.shortcut_packets += packets;
        self.by_shortcut.packets_sent += packets;
        self.by_shortcut.send_calls += packets.div_ceil(MESSAGES_PER_CALL as u64);
        self.by_shortcut.bytes_sent += sent as u64;
        if sent == train.bytes.len() {
            return Ok(());
        }
        let rest = Train { bytes: &train.bytes[sent..], ..*train };
        self.pair.send(&rest).map_err(|e| SendError { sent: sent + e.sent, ..e })
    }

    /// Bytes that wait in this host where the packets of a train leave it, by either way; none if that is not known.
    pub(crate) fn waiting(&self, train: &Train<'_>) -> Option<usize> {
        let by_shortcut = self.shortcut.as_ref().and_then(Shortcut::waiting).unwrap_or(0);
        self.pair.waiting(train).map(|bytes| bytes + by_shortcut)
    }

    /// Calls `f` with each SCTP packet that has arrived, IP headers removed, up to
    /// [`DATAGRAMS_PER_RECV`](crate::DATAGRAMS_PER_RECV) per family.
    ///
    /// # Errors
    /// Those of recvmmsg(2); an empty socket is no error.
    pub fn recv<O: Into<Owner>>(
        &mut self,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        self.pair.recv(&mut |route, ecn, packet| f(route, ecn, packet).into())
    }

    /// Calls `f` with each ICMP report that waits, as in
    /// [`UdpCarrier::take_errors`](crate::UdpCarrier::take_errors).
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pair.take_errors(&mut f)
    }

    /// Returns the counters of both families together.
    pub fn counters(&self) -> Counters {
        let mut counters = self.pair.counters();
        counters += self.by_shortcut;
        counters
    }
}

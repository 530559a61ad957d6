//! SCTP directly over IP (protocol 132), for native SCTP peers.
//!
//! The caller must fill and check the SCTP checksum, because the kernel does neither. While a raw socket is open, the kernel does
//! not answer SCTP packets with "protocol unreachable" (ICMP) or "unrecognized next header" (ICMPv6). Without a raw socket, the
//! kernel answers SCTP packets with these errors. One core carries up to 3 Gbit/s, because raw sockets have neither GSO nor GRO.

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

    /// Lets long trains bypass most of the kernel's IP stack from now on, through a packet socket. A train takes this shortcut
    /// only if the kernel would send it without further work:
    ///
    /// - In nftables, all base chains for IP belong to the table `own_table`.
    /// - iptables is not in use, and IPsec has no policy.
    /// - A plain route leads to a neighbour that the kernel knows.
    ///
    /// All other packets take the usual way. Shortcut packets escape rules that are added while a train is being sent. They
    /// escape new rules of iptables-legacy and new IPsec policies for about 1,024 long trains. They escape filters of a cgroup
    /// until the next long train takes the usual way (one long train in 64). This train fails with
    /// [`SendErrorKind::Forbidden`](crate::SendErrorKind::Forbidden).
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2), mostly `PermissionDenied` without CAP_NET_RAW. After an error, the carrier works
    /// without shortcuts.
    pub fn take_shortcuts(&mut self, own_table: Option<&str>) -> io::Result<()> {
        self.shortcut = Some(Shortcut::open(own_table, self.pair.hops())?);
        Ok(())
    }

    /// Sends the packets of a [`Train`], as in [`UdpCarrier::send`](crate::UdpCarrier::send).
    ///
    /// # Errors
    /// [`SendError`]. Its kind recommends the reaction, and `sent` is the number of bytes sent before the error.
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

    /// Returns the bytes that wait in this host before the packets of a train would leave, summed over the shortcut and the usual
    /// way. Returns None if the number is not known.
    pub(crate) fn waiting(&self, train: &Train<'_>) -> Option<usize> {
        let by_shortcut = self.shortcut.as_ref().and_then(Shortcut::waiting).unwrap_or(0);
        self.pair.waiting(train).map(|bytes| bytes + by_shortcut)
    }

    /// Calls `f` with each SCTP packet that has arrived, without its IP headers, up to
    /// [`DATAGRAMS_PER_RECV`](crate::DATAGRAMS_PER_RECV) per family.
    ///
    /// # Errors
    /// The errors of recvmmsg(2). An empty socket is no error.
    pub fn recv<O: Into<Owner>>(
        &mut self,
        mut f: impl FnMut(&Route, Ecn, &[u8]) -> O,
    ) -> io::Result<Received> {
        self.pair.recv(&mut |route, ecn, packet| f(route, ecn, packet).into())
    }

    /// Calls `f` with each ICMP report that waits, as [`UdpCarrier::take_errors`](crate::UdpCarrier::take_errors) does.
    pub fn take_errors(&mut self, mut f: impl FnMut(&PathError<'_>)) -> bool {
        self.pair.take_errors(&mut f)
    }

    /// Returns the sum of the counters of both families.
    pub fn counters(&self) -> Counters {
        let mut counters = self.pair.counters();
        counters += self.by_shortcut;
        counters
    }
}

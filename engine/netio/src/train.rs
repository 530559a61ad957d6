//! Arguments of a send call.

use base::{Ecn, Route};

/// Packets to one peer that leave by one way in one call.
#[derive(Debug, Clone, Copy)]
pub struct Train<'a> {
    /// The way to go. An unspecified `local` leaves the choice of the source address to the kernel.
    pub route: Route,
    /// The interface that owns `route.local`: the packets leave by it, whatever the main route to the peer, so a
    /// host with two uplinks needs no policy routing, only a route (of any metric) over each of them. A peer whose packets to
    /// `route.local` come by another interface is answered as the kernel's routes say, without regard to this. None for peers on
    /// this same host.
    pub source_ifindex: Option<u32>,
    /// The ECN bits of each packet.
    pub ecn: Ecn,
    /// Length of each packet in bytes; the last may be shorter.
    pub segment_size: usize,
    /// True if IP may fragment the packets: they leave one by one, without DF. Over IPv6 only the sender fragments. If this
    /// host may open raw sockets, it cuts them to the 1,280 bytes that every link takes. Otherwise its kernel cuts them to
    /// the path MTU that ICMPv6 reported, and packets are lost where routers do not report. Set it for the rare packet that
    /// cannot be made shorter after the path MTU fell: SCTP needs DF to find the MTU itself.
    pub may_fragment: bool,
    /// The packets, one after the other.
    pub bytes: &'a [u8],
}

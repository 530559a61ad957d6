//! Arguments of a send call.

use base::{Ecn, Route};

/// Packets to one peer that are sent over one route in one call.
#[derive(Debug, Clone, Copy)]
pub struct Train<'a> {
    /// The route. An unspecified `local` leaves the choice of the source address to the kernel.
    pub route: Route,
    /// The interface that owns `route.local`. The packets leave through it, whatever the main route to the peer. A host with two
    /// uplinks thus needs no policy routing, only a route (of any metric) over each of them. If the peer's packets to
    /// `route.local` arrive on another interface, the kernel's routes choose the interface instead. None for peers on this same
    /// host.
    pub source_ifindex: Option<u32>,
    /// The ECN bits of each packet.
    pub ecn: Ecn,
    /// Length of each packet in bytes. The last packet may be shorter.
    pub segment_size: usize,
    /// True if IP may fragment the packets. They then leave one by one, without DF. Over IPv6, only the sender fragments. If this
    /// host may open raw sockets, it cuts the packets to the 1,280 bytes that every link takes. Otherwise its kernel cuts them to
    /// the path MTU that ICMPv6 reported, and packets are lost where routers do not report. Set this for the rare packet that
    /// cannot be made shorter after the path MTU fell. Other packets need DF, with which SCTP finds the MTU itself.
    pub may_fragment: bool,
    /// The packets, one after the other.
    pub bytes: &'a [u8],
}

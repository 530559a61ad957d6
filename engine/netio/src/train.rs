//! Arguments of a send call.

use base::{Ecn, Route};

/// Packets to one peer that are sent over one route in one call.
#[derive(Debug, Clone, Copy)]
pub struct Train<'a> {
    /// The route. An unspecified `local` leaves the choice of the source address to the kernel.
    pub route: Route,
    /// The interface that owns `route.local`. The packets leave through this interface, even if the main route to the peer leads
    /// through another one. A host with two uplinks thus needs no policy routing. It needs only a route of any metric over each
    /// uplink. If the peer's packets to `route.local` arrive on another interface, the kernel's routes choose the interface
    /// instead. The value is None for peers on this host.
    pub source_ifindex: Option<u32>,
    /// The ECN bits of each packet.
    pub ecn: Ecn,
    /// Length of each packet in bytes. The last packet may be shorter.
    pub segment_size: usize,
    /// True if IP may fragment the packets. The packets then leave one by one, without DF. Over IPv6, only the sender fragments.
    /// If this process may open raw sockets, it cuts the packets to the 1,280 bytes that every link carries. Otherwise, the
    /// kernel cuts the packets to the path MTU that ICMPv6 reported. Without such a report, packets that are too long for a link
    /// are lost. Only a packet that cannot be made shorter after the path MTU fell needs the value true. SCTP finds the path MTU
    /// with DF, so other packets need DF.
    pub may_fragment: bool,
    /// The packets, one after the other.
    pub bytes: &'a [u8],
}

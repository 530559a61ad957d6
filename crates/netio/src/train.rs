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
    /// Whether IP may fragment the packets: they leave without DF, one by one. Over IPv6, where only the sender
    /// fragments, this host cuts them to the 1,280 bytes that every link takes if it may open raw sockets; else to the path MTU
    /// that ICMPv6 told its kernel, so that packets for a path whose routers are silent get lost. Meant for the rare packet that cannot be made shorter after the path's MTU fell;
    /// otherwise SCTP finds the MTU itself and needs DF.
    pub may_fragment: bool,
    /// The packets, one after the other.
    pub bytes: &'a [u8],
}

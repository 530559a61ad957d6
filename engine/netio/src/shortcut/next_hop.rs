//! Link address of the next hop, from the kernel's routes and neighbours.
//!
//! This module only reads the kernel's state. It accepts only a plain unicast route over a link with link-layer addresses, to a
//! neighbour that the kernel considers valid. For tunnels, the loopback interface, and routes into MPLS or through a gateway of
//! the other address family, the result is None.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteType};

use crate::netlink::Netlink;
use crate::routes;
use crate::sockaddr::SockAddr;

/// A neighbour's address on its link.
pub(super) struct NextHop(SockAddr);

impl NextHop {
    /// Returns the next hop from `local` to `remote`. If `ifindex` is not 0, the route must lead through this interface. Returns
    /// None if only the kernel can send to `remote`.
    ///
    /// # Errors
    /// The errors of netlink(7), for example if no route exists, or if the neighbour is unknown.
    pub(super) fn find(
        netlink: &mut Netlink,
        local: IpAddr,
        remote: IpAddr,
        ifindex: u32,
    ) -> io::Result<Option<NextHop>> {
        if local.is_unspecified() || remote.is_multicast() || local.is_ipv4() != remote.is_ipv4() {
            return Ok(None);
        }
        let answer = netlink.ask(RouteNetlinkMessage::GetRoute(routes::question(local, remote, ifindex)))?;
        let Some((gateway, ifindex)) = usable_route(&answer, remote) else { return Ok(None) };
        let answer = netlink.ask(RouteNetlinkMessage::GetNeighbour(neighbour_question(gateway, ifindex)))?;
        let ethertype = if remote.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let address = usable_neighbour(&answer);
        Ok(address.and_then(|it| SockAddr::neighbour(ethertype as u16, ifindex, it)).map(NextHop))
    }

    /// Returns the address for a packet socket.
    pub(super) fn address(&self) -> &SockAddr {
        &self.0
    }
}

/// Returns the address of the next hop, and the interface. Returns None for any route that is not plain.
fn usable_route(answer: &RouteNetlinkMessage, remote: IpAddr) -> Option<(IpAddr, u32)> {
    let RouteNetlinkMessage::NewRoute(route) = answer else { return None };
    let (mut gateway, mut ifindex) = (remote, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = (*address).into(),
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => gateway = (*address).into(),
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::Via(_) | RouteAttribute::EncapType(_) | RouteAttribute::Encap(_) => return None,
            _ => {}
        }
    }
    let is_plain = route.header.kind == RouteType::Unicast && gateway.is_ipv4() == remote.is_ipv4();
    ifindex.filter(|_| is_plain).map(|ifindex| (gateway, ifindex))
}

fn neighbour_question(address: IpAddr, ifindex: u32) -> NeighbourMessage {
    let mut question = NeighbourMessage::default();
    question.header.family = routes::family(address);
    question.header.ifindex = ifindex;
    let address = match address {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    question.attributes = vec![NeighbourAttribute::Destination(address)];
    question
}

/// Returns the neighbour's link address, if the kernel itself would send to the neighbour.
fn usable_neighbour(answer: &RouteNetlinkMessage) -> Option<&[u8]> {
    use NeighbourState::{Delay, Permanent, Probe, Reachable, Stale};
    let RouteNetlinkMessage::NewNeighbour(neighbour) = answer else { return None };
    if !matches!(neighbour.header.state, Reachable | Stale | Delay | Probe | Permanent) {
        return None;
    }
    neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(address) if !address.is_empty() => Some(address.as_slice()),
        _ => None,
    })
}

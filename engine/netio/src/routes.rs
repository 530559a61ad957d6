//! Asks the kernel which route a packet would take, with all routing tables and routing rules.
//!
//! This module only reads the kernel's routes, and sends no packet. Begin with [`Routes::find`].

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::Netlink;

/// A route that a packet would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRoute {
    /// Length of the route's prefix, in bits. A default route has 0.
    pub prefix_len: u8,
    /// True if the packet goes to a router first. Otherwise the destination is a neighbour.
    pub has_gateway: bool,
}

/// Access to the routing tables of the network namespace in which it was opened.
pub struct Routes {
    netlink: Netlink,
}

impl Routes {
    /// Opens access to the calling thread's network namespace.
    ///
    /// # Errors
    /// The errors of netlink(7) sockets.
    pub fn open() -> io::Result<Routes> {
        Ok(Routes { netlink: Netlink::open(0, false)? })
    }

    /// Returns the route of a packet from the host's address `local`, through this interface, to `remote`. Returns `None` if no
    /// route exists. For a query with an interface, the kernel would treat any destination as a neighbour on this interface, even
    /// without a route. The request therefore asks for the matching entry of a routing table.
    ///
    /// # Errors
    /// The errors of netlink(7) sockets.
    pub fn find(&mut self, local: IpAddr, ifindex: u32, remote: IpAddr) -> io::Result<Option<FoundRoute>> {
        if local.is_ipv4() != remote.is_ipv4() || remote.is_multicast() {
            return Ok(None);
        }
        let mut question = question(local, remote, ifindex);
        question.header.flags = RouteFlags::FibMatch;
        match self.netlink.ask(RouteNetlinkMessage::GetRoute(question)) {
            Ok(RouteNetlinkMessage::NewRoute(route)) => Ok(read(&route, ifindex)),
            Ok(_) => Ok(None),
            Err(error) if is_no_route(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reports whether the kernel's error means that no route leads from the source to the destination.
fn is_no_route(error: &io::Error) -> bool {
    let codes = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::EACCES,
        libc::EINVAL,
        libc::ENODEV,
        libc::EADDRNOTAVAIL,
    ];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Returns the route if it leads through this interface to another host.
fn read(route: &RouteMessage, ifindex: u32) -> Option<FoundRoute> {
    let (mut leads_out, mut has_gateway) = (false, false);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => leads_out |= *index == ifindex,
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => has_gateway = true,
            RouteAttribute::MultiPath(hops) => {
                let hop = hops.iter().find(|hop| hop.interface_index == ifindex);
                leads_out |= hop.is_some();
                has_gateway |= hop.is_some_and(|hop| !hop.attributes.is_empty());
            }
            _ => {}
        }
    }
    let is_elsewhere = route.header.kind == RouteType::Unicast;
    (leads_out && is_elsewhere)
        .then_some(FoundRoute { prefix_len: route.header.destination_prefix_length, has_gateway })
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Returns the request for a packet's route. Interface 0 means any interface.
pub(crate) fn question(local: IpAddr, remote: IpAddr, ifindex: u32) -> RouteMessage {
    let bits = if remote.is_ipv4() { 32 } else { 128 };
    let mut question = RouteMessage::default();
    question.header.address_family = family(remote);
    question.header.destination_prefix_length = bits;
    question.header.source_prefix_length = bits;
    question.attributes =
        vec![RouteAttribute::Destination(remote.into()), RouteAttribute::Source(local.into())];
    if ifindex != 0 {
        question.attributes.push(RouteAttribute::Oif(ifindex));
    }
    question
}

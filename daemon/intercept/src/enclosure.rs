//! An enclosed network namespace, whose only way out is the veth.
//!
//! The namespace belongs to one command. It supports only the traffic that the daemon carries (TCP and UDP), and its own
//! loopback.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use crate::links::{self, Ends, LOOPBACK_INDEX};
use crate::netlink::Netlink;

/// Source address of IPv6 packets to destinations beyond the veth. It is a unique local address (RFC 4193). With this source
/// address, the address selection of RFC 6724 prefers IPv4 for destinations that have both families.
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x132, 0, 0, 0, 0, 0, 1);

/// Brings `lo` up and makes the veth the default route.
pub(crate) fn lead_all(netlink: &mut Netlink, index: u32, ends: &[Ends]) -> io::Result<()> {
    links::bring_up(netlink, LOOPBACK_INDEX)?;
    if ends.len() > 1 {
        links::keep_address(netlink, index, SOURCE6.into())?;
    }
    ends.iter().try_for_each(|end| links::add_default_route(netlink, index, end))
}

/// Returns the address at which an enclosed command reaches a name server that listens on the host's loopback.
pub fn name_server() -> IpAddr {
    links::shim_end4()
}

//! An enclosed network namespace: the veth is its only way out.
//!
//! It belongs to one command. Only what the daemon carries has to work in it: TCP, UDP, and the namespace's own loopback.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use crate::links::{self, Ends, LOOPBACK_INDEX};
use crate::netlink::Netlink;

/// A source address for IPv6 beyond the link, from the range of local ones (RFC 4193): address selection by RFC 6724 then prefers
/// IPv4 for hosts that have both.
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x132, 0, 0, 0, 0, 0, 1);

/// Brings `lo` up and makes the veth the default route.
pub(crate) fn lead_all(netlink: &mut Netlink, index: u32, ends: &[Ends]) -> io::Result<()> {
    links::bring_up(netlink, LOOPBACK_INDEX)?;
    if ends.len() > 1 {
        links::keep_address(netlink, index, SOURCE6.into())?;
    }
    ends.iter().try_for_each(|end| links::add_default_route(netlink, index, end))
}

/// Returns the address at which an enclosed command finds the host's name server, if that listens on the host's loopback.
pub fn name_server() -> IpAddr {
    links::shim_end4()
}

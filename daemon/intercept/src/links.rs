//! The veth pair, its addresses and routes, and the routing policy rules, over rtnetlink.
//!
//! On the host, a rule of low preference sends marked packets to a table whose only route leads into the veth. In the private
//! namespace, all packets that enter through the veth are local. IPv4 and IPv6 work alike.
//!
//! With `Config::loopback`, the host's rules precede the kernel's rule for local addresses. Marked packets from the host to
//! itself are thus also diverted. An earlier rule makes packets that return through the veth local.
//!
//! Everything created here disappears with the veth pair, except the host's rules.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkDeserializable, NetlinkHeader};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::config::Config;
use crate::namespace::Namespace;
use crate::netlink::Netlink;

/// The alias that marks an interface as sctpify's.
const ALIAS: &str = "sctpify";
/// MAC addresses of the veth's ends. Each end has a permanent neighbour entry with the other end's address, because a firewall
/// may forbid address resolution.
const HOST_MAC: [u8; 6] = [0x02, 0x84, 0, 0, 0, 1];
const SHIM_MAC: [u8; 6] = [0x02, 0x84, 0, 0, 0, 2];
/// The largest MTU of a veth, in bytes.
const MTU: u32 = 65535;
/// The main routing table, for packets that no rule sends elsewhere.
const MAIN_TABLE: u8 = 254;
/// Limit on the stale copies of one rule that a removal deletes.
const STALE_RULES_MAX: usize = 64;
pub(crate) const LOOPBACK_INDEX: u32 = 1;
/// Prefix length of 127.0.0.1 on the loopback interface, as set by the kernel.
const LOOPBACK_PREFIX_LENGTH: u8 = 8;
/// The kernel's routing table for the host's own addresses.
const LOCAL_TABLE: u8 = 255;
/// The preference of the kernel's rule for [`LOCAL_TABLE`]. No preference is lower, so only a rule with the same preference can
/// precede the kernel's rule.
const FIRST: u32 = 0;

/// The two ends of the veth in one address family.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    family: AddressFamily,
    host: IpAddr,
    shim: IpAddr,
    prefix_length: u8,
}

const ENDS4: Ends = Ends {
    family: AddressFamily::Inet,
    host: IpAddr::V4(Ipv4Addr::new(169, 254, 132, 1)),
    shim: IpAddr::V4(Ipv4Addr::new(169, 254, 132, 2)),
    prefix_length: 30,
};
const ENDS6: Ends = Ends {
    family: AddressFamily::Inet6,
    host: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x132, 1)),
    shim: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x132, 2)),
    prefix_length: 64,
};

/// Returns the veth's ends in the address families to serve.
pub(crate) fn families(ipv6: bool) -> &'static [Ends] {
    if ipv6 { &[ENDS4, ENDS6] } else { &[ENDS4] }
}

/// Returns the private namespace's own IPv4 address.
pub(crate) fn shim_end4() -> IpAddr {
    ENDS4.shim
}

/// Adds a default route through the veth.
pub(crate) fn add_default_route(host: &mut Netlink, index: u32, end: &Ends) -> io::Result<()> {
    let mut route = route_message(end.family, MAIN_TABLE, RouteType::Unicast);
    route.attributes = vec![RouteAttribute::Gateway(end.shim.into()), RouteAttribute::Oif(index)];
    add_route(host, route)
}

/// Creates the veth pair, whose far end is in `namespace`. Fails with EEXIST if an interface of the configured name exists.
pub(crate) fn create_veth(host: &mut Netlink, config: &Config, namespace: &Namespace) -> io::Result<()> {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(config.shim_interface.clone()),
        LinkAttribute::Address(SHIM_MAC.to_vec()),
        LinkAttribute::Mtu(MTU),
        LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd()),
    ];
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(config.host_interface.clone()),
        LinkAttribute::Address(HOST_MAC.to_vec()),
        LinkAttribute::Mtu(MTU),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    host.route_request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)?;
    let mut alias = LinkMessage::default();
    alias.attributes =
        vec![LinkAttribute::IfName(config.host_interface.clone()), LinkAttribute::IfAlias(ALIAS.to_owned())];
    host.route_request(RouteNetlinkMessage::SetLink(alias), 0)
}

/// Removes the veth pair if it exists and has [`ALIAS`]. Another interface of that name stays.
pub(crate) fn delete_veth(host: &mut Netlink, name: &str) -> io::Result<()> {
    if !is_ours(host, name)? {
        return Ok(());
    }
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    match host.route_request(RouteNetlinkMessage::DelLink(link), 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        result => result,
    }
}

fn is_ours(host: &mut Netlink, name: &str) -> io::Result<bool> {
    let mut query = LinkMessage::default();
    query.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    let alias = LinkAttribute::IfAlias(ALIAS.to_owned());
    Ok(find(host, query)?.is_some_and(|link| link.attributes.contains(&alias)))
}

/// Reports whether an interface with this index exists. Returns true if the query fails.
pub(crate) fn is_there(host: &mut Netlink, index: u32) -> bool {
    find(host, by_index(index)).map_or(true, |link| link.is_some())
}

/// Reports whether the interface with this index exists, is up, and has a carrier.
pub(crate) fn is_up(host: &mut Netlink, index: u32) -> io::Result<bool> {
    let needed = LinkFlags::Up | LinkFlags::LowerUp;
    Ok(find(host, by_index(index))?.is_some_and(|link| link.header.flags.contains(needed)))
}

/// Returns the name of the interface with this index, or None if the interface does not exist.
pub(crate) fn name(host: &mut Netlink, index: u32) -> io::Result<Option<String>> {
    let link = find(host, by_index(index))?;
    let name = |attribute| if let LinkAttribute::IfName(name) = attribute { Some(name) } else { None };
    Ok(link.and_then(|link| link.attributes.into_iter().find_map(name)))
}

fn by_index(index: u32) -> LinkMessage {
    let mut query = LinkMessage::default();
    query.header.index = index;
    query
}

/// Returns the link that the query identifies, or None if it does not exist.
fn find(host: &mut Netlink, query: LinkMessage) -> io::Result<Option<LinkMessage>> {
    let query = host.route_message(RouteNetlinkMessage::GetLink(query), 0);
    let found = host.ask(query, |kind, body| {
        let mut header = NetlinkHeader::default();
        header.message_type = kind;
        match RouteNetlinkMessage::deserialize(&header, body) {
            Ok(RouteNetlinkMessage::NewLink(link)) => Some(link),
            _ => None,
        }
    });
    match found {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        found => found,
    }
}

/// Brings the veth's host end up, and adds its addresses. Adds the default routes to the configured table. The far end must
/// already be up.
pub(crate) fn configure_host(
    host: &mut Netlink,
    index: u32,
    config: &Config,
    ends: &[Ends],
) -> io::Result<()> {
    bring_up(host, index)?;
    for end in ends {
        add_address(host, index, end.host, end)?;
        add_neighbour(host, index, end.shim, SHIM_MAC)?;
    }
    for end in ends {
        let mut route = route_message(end.family, config.routing_table, RouteType::Unicast);
        route.attributes = vec![RouteAttribute::Gateway(end.shim.into()), RouteAttribute::Oif(index)];
        add_route(host, route)?;
    }
    Ok(())
}

/// Brings the private namespace's end and `lo` up, and makes all packets that enter through the veth local.
pub(crate) fn configure_shim(
    shim: &mut Netlink,
    index: u32,
    config: &Config,
    ends: &[Ends],
) -> io::Result<()> {
    bring_up(shim, LOOPBACK_INDEX)?;
    if config.loopback {
        // Answers to programs at 127.0.0.1 must go back to the host.
        let own = address_message(LOOPBACK_INDEX, Ipv4Addr::LOCALHOST.into(), LOOPBACK_PREFIX_LENGTH);
        shim.route_request(RouteNetlinkMessage::DelAddress(own), 0)?;
    }
    bring_up(shim, index)?;
    for end in ends {
        add_address(shim, index, end.shim, end)?;
        add_neighbour(shim, index, end.host, HOST_MAC)?;
        let mut back = route_message(end.family, MAIN_TABLE, RouteType::Unicast);
        back.attributes = vec![RouteAttribute::Gateway(end.host.into()), RouteAttribute::Oif(index)];
        add_route(shim, back)?;
        let mut local = route_message(end.family, config.routing_table, RouteType::Local);
        local.header.scope = RouteScope::Host;
        local.attributes = vec![RouteAttribute::Oif(LOOPBACK_INDEX)];
        add_route(shim, local)?;
        let mut rule = rule_message(end.family, config);
        rule.attributes.push(RuleAttribute::Iifname(config.shim_interface.clone()));
        shim.route_request(RouteNetlinkMessage::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL)?;
    }
    Ok(())
}

pub(crate) fn bring_up(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    netlink.route_request(RouteNetlinkMessage::SetLink(link), 0)
}

fn add_address(netlink: &mut Netlink, index: u32, ip: IpAddr, ends: &Ends) -> io::Result<()> {
    let address = address_message(index, ip, ends.prefix_length);
    netlink.route_request(RouteNetlinkMessage::NewAddress(address), NLM_F_CREATE | NLM_F_EXCL)
}

/// Adds a permanent neighbour entry for `ip` on the link.
fn add_neighbour(netlink: &mut Netlink, index: u32, ip: IpAddr, mac: [u8; 6]) -> io::Result<()> {
    let mut neighbour = NeighbourMessage::default();
    neighbour.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    neighbour.header.ifindex = index;
    neighbour.header.state = NeighbourState::Permanent;
    neighbour.header.kind = RouteType::Unicast;
    let address = match ip {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    neighbour.attributes =
        vec![NeighbourAttribute::Destination(address), NeighbourAttribute::LinkLayerAddress(mac.to_vec())];
    netlink.route_request(RouteNetlinkMessage::NewNeighbour(neighbour), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Adds a local address to the veth, without a network prefix. An existing address is no error.
pub(crate) fn keep_address(host: &mut Netlink, index: u32, ip: IpAddr) -> io::Result<()> {
    let address = address_message(index, ip, host_prefix_length(ip));
    match host.route_request(RouteNetlinkMessage::NewAddress(address), NLM_F_CREATE | NLM_F_EXCL) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result,
    }
}

/// Removes a kept address. A missing address is no error.
pub(crate) fn release_address(host: &mut Netlink, index: u32, ip: IpAddr) -> io::Result<()> {
    let address = address_message(index, ip, host_prefix_length(ip));
    match host.route_request(RouteNetlinkMessage::DelAddress(address), 0) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(()),
        result => result,
    }
}

/// Returns the prefix length of a single address.
fn host_prefix_length(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn address_message(index: u32, ip: IpAddr, prefix_length: u8) -> AddressMessage {
    let mut address = AddressMessage::default();
    address.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    address.header.prefix_len = prefix_length;
    address.header.index = index;
    address.attributes = vec![
        AddressAttribute::Local(ip),
        AddressAttribute::Address(ip),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    address
}

fn add_route(netlink: &mut Netlink, route: RouteMessage) -> io::Result<()> {
    netlink.route_request(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_EXCL)
}

/// Returns a default route in `table`. The caller adds the attributes.
fn route_message(family: AddressFamily, table: u8, kind: RouteType) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family;
    route.header.table = table;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Universe;
    route.header.kind = kind;
    route
}

/// Returns a rule with the configured preference and table. The caller adds the selector.
fn rule_message(family: AddressFamily, config: &Config) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family;
    rule.header.table = config.routing_table;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![RuleAttribute::Priority(config.rule_preference)];
    rule
}

fn mark_rule(family: AddressFamily, config: &Config) -> RuleMessage {
    let mut rule = rule_message(family, config);
    rule.attributes.push(RuleAttribute::FwMark(config.marks.shim));
    rule.attributes.push(RuleAttribute::FwMask(config.marks.mask));
    rule
}

/// Returns a copy of the kernel's rule for the host's own addresses.
fn own_rule(family: AddressFamily) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family;
    rule.header.table = LOCAL_TABLE;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![RuleAttribute::Priority(FIRST)];
    rule
}

/// Returns the two rules that precede the kernel's rule for [`LOCAL_TABLE`]. The first rule makes packets from the veth local.
/// The second rule diverts marked packets.
fn first_rules(family: AddressFamily, config: &Config) -> [RuleMessage; 2] {
    let mut back = own_rule(family);
    back.attributes.push(RuleAttribute::Iifname(config.host_interface.clone()));
    let mut away = mark_rule(family, config);
    away.attributes[0] = RuleAttribute::Priority(FIRST);
    [back, away]
}

/// Adds the host's rules that send marked packets to the configured table.
pub(crate) fn add_mark_rules(host: &mut Netlink, config: &Config, ends: &[Ends]) -> io::Result<()> {
    ends.iter().try_for_each(|end| {
        if config.loopback {
            return add_first_rules(host, config, end.family);
        }
        let rule = RouteNetlinkMessage::NewRule(mark_rule(end.family, config));
        host.route_request(rule, NLM_F_CREATE | NLM_F_EXCL)
    })
}

/// Puts the rules of [`first_rules`] before the kernel's own rule. The kernel inserts a new rule after rules of the same
/// preference, and deletes the first of two identical rules. The kernel's own rule thus moves behind the new rules. At no time is
/// the kernel's rule absent, so nothing must restore it later.
fn add_first_rules(host: &mut Netlink, config: &Config, family: AddressFamily) -> io::Result<()> {
    for rule in first_rules(family, config) {
        host.route_request(RouteNetlinkMessage::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL)?;
    }
    host.route_request(RouteNetlinkMessage::NewRule(own_rule(family)), NLM_F_CREATE)?;
    host.route_request(RouteNetlinkMessage::DelRule(own_rule(family)), 0)
}

/// Removes all copies of the rules that `add_mark_rules` adds, for both values of `Config::loopback`.
pub(crate) fn delete_mark_rules(host: &mut Netlink, config: &Config, ends: &[Ends]) -> io::Result<()> {
    ends.iter().try_for_each(|end| {
        delete_rule(host, &mark_rule(end.family, config))?;
        first_rules(end.family, config).iter().try_for_each(|rule| delete_rule(host, rule))
    })
}

fn delete_rule(host: &mut Netlink, rule: &RuleMessage) -> io::Result<()> {
    for _ in 0..STALE_RULES_MAX {
        match host.route_request(RouteNetlinkMessage::DelRule(rule.clone()), 0) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

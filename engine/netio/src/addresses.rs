//! Lists the addresses at which peers can reach this host, and watches their changes and those of routes.
//!
//! This module only reads the kernel's state. It always omits:
//! - loopback and link-local addresses
//! - addresses that are not valid yet (tentative, unless optimistic), that failed duplicate detection, or that new connections
//!   should not use (deprecated)
//! - interfaces whose names begin with a prefix that the caller gives
//!
//! Begin with [`addresses`] for a list, or with [`Monitor`] for changes.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol};

use crate::netlink::{Dump, Netlink};

/// Arbitrary port to which a UDP socket is connected. The socket sends no packet.
const DISCARD: u16 = 9;
/// The kernel's table of this host's own addresses.
const LOCAL_TABLE: u32 = 255;
/// Limit on the receive calls of one [`Monitor::poll`].
const CALLS_PER_POLL: usize = 64;

/// An address of this host that may be reported to peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub addr: IpAddr,
    /// Length of the subnet's prefix, in bits.
    pub prefix_len: u8,
    /// The address's scope.
    pub scope: Scope,
    /// Index of the address's interface, for [`Train::source_ifindex`](crate::Train::source_ifindex).
    pub ifindex: u32,
    /// Name of the address's interface.
    pub ifname: String,
    /// Kind of the address's interface.
    pub kind: LinkKind,
    /// True if the interface is up and has a carrier.
    pub is_up: bool,
    /// The interface's IP MTU in bytes.
    pub mtu: u32,
}

/// The kind of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// A bridge. The bridge's ports may include physical links, or be only links to containers and virtual machines.
    Bridge,
    /// A VPN, tunnel, TUN or TAP interface. The interface encapsulates its packets, and they leave the host through another
    /// interface.
    Tunnel,
    /// Any other kind: network cards, bonds, VLANs, ends of veth pairs.
    Other,
}

impl LinkKind {
    fn of(message: &LinkMessage) -> LinkKind {
        let kind = message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
                LinkInfo::Kind(kind) => Some(kind),
                _ => None,
            }),
            _ => None,
        });
        use InfoKind as K;
        match kind {
            Some(K::Bridge) => LinkKind::Bridge,
            Some(
                K::Tun
                | K::Wireguard
                | K::Xfrm
                | K::Vti
                | K::Vti6
                | K::IpIp
                | K::Ip6Tnl
                | K::SitTun
                | K::GreTun
                | K::GreTun6
                | K::GreTap
                | K::GreTap6
                | K::ErSpan
                | K::Ip6ErSpan
                | K::Vxlan
                | K::Geneve
                | K::BareUdp
                | K::Gtp
                | K::Amt,
            ) => LinkKind::Tunnel,
            // The library has no names for kernel OpenVPN and similar kinds.
            Some(K::Other(name)) if ["ovpn", "ovpn-dco", "l2tp", "fou"].contains(&name.as_str()) => {
                LinkKind::Tunnel
            }
            _ => LinkKind::Other,
        }
    }
}

/// Scope of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Within an organisation: private IPv4 (RFC 1918, RFC 6598) and unique local IPv6 (RFC 4193).
    Private,
    /// Valid everywhere.
    Global,
}

impl Scope {
    /// Returns the scope of this address.
    pub fn of(addr: IpAddr) -> Scope {
        let is_private = match addr {
            IpAddr::V4(ip) => ip.is_private() || matches!(ip.octets(), [100, 64..=127, ..]),
            IpAddr::V6(ip) => ip.is_unique_local(),
        };
        if is_private { Scope::Private } else { Scope::Global }
    }
}

/// Returns the address from which the kernel sends to `remote`, or `None` if no route exists.
pub fn source_address(remote: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match remote {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // connect(2) on a UDP socket makes the kernel choose the source address, and sends no packet.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((remote, DISCARD)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// A change that a [`Monitor`] reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressEvent {
    /// An address became usable, or changed. The event may repeat a known state.
    AddressAdded(LocalAddress),
    /// An address is no longer usable. The event may name an address that was never usable.
    AddressRemoved {
        /// The address.
        addr: IpAddr,
        /// Index of the address's interface.
        ifindex: u32,
    },
    /// An interface came up: it is administratively up and has a carrier.
    LinkUp {
        /// The interface's index.
        ifindex: u32,
        /// The interface's name.
        ifname: String,
    },
    /// An interface went down, lost its carrier, or was removed.
    LinkDown {
        /// The interface's index.
        ifindex: u32,
        /// The interface's name.
        ifname: String,
    },
    /// A default route, or another route that no routing daemon owns, came or went.
    RoutesChanged,
    /// Changes came faster than the caller read them, so the monitor lost some changes. The caller must list the addresses again.
    Lost,
}

/// Lists the usable addresses of the calling thread's network namespace, ordered by interface index. Omits interfaces whose names
/// begin with an element of `skip` (such as `docker`, `veth`).
///
/// # Errors
/// The errors of netlink(7) sockets.
pub fn addresses(skip: &[impl AsRef<str>]) -> io::Result<Vec<LocalAddress>> {
    let mut netlink = Netlink::open(0, false)?;
    let links = Links::list(&mut netlink, skip)?;
    let mut found = Vec::new();
    netlink.dump(Dump::Addresses, |message| {
        if let RouteNetlinkMessage::NewAddress(message) = message {
            found.extend(links.usable(&message));
        }
    })?;
    found.sort_by_key(|address| (address.ifindex, address.addr));
    Ok(found)
}

/// The kernel's count of the bytes of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceBytes {
    /// The interface's index.
    pub ifindex: u32,
    /// The interface's name.
    pub ifname: String,
    /// Bytes received and sent since the interface exists, with the headers of its link layer.
    pub bytes: u64,
}

/// Returns the bytes of all interfaces of the calling thread's network namespace.
///
/// # Errors
/// The errors of netlink(7) sockets.
pub fn interface_bytes() -> io::Result<Vec<InterfaceBytes>> {
    let mut found = Vec::new();
    Netlink::open(0, false)?.dump(Dump::Links, |message| {
        if let RouteNetlinkMessage::NewLink(message) = message {
            found.extend(bytes_of(&message));
        }
    })?;
    Ok(found)
}

fn bytes_of(message: &LinkMessage) -> Option<InterfaceBytes> {
    let ifname = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    let bytes = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Stats64(stats) => Some(stats.rx_bytes.saturating_add(stats.tx_bytes)),
        _ => None,
    });
    Some(InterfaceBytes { ifindex: message.header.index, ifname: ifname?, bytes: bytes? })
}

/// Watcher of the links, addresses and routes of a network namespace. Its file descriptor can be registered with a poll, edge- or
/// level-triggered. At each event, call [`poll`](Monitor::poll).
pub struct Monitor {
    netlink: Netlink,
    links: Links,
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.netlink.as_raw_fd()
    }
}

impl Monitor {
    /// Starts to watch the calling thread's network namespace. Omits interfaces whose names begin with an element of `skip`. The
    /// monitor reports changes from now on, so list the addresses after opening it.
    ///
    /// # Errors
    /// The errors of netlink(7) sockets.
    pub fn open(skip: &[impl AsRef<str>]) -> io::Result<Monitor> {
        let groups = libc::RTMGRP_LINK
            | libc::RTMGRP_IPV4_IFADDR
            | libc::RTMGRP_IPV4_ROUTE
            | libc::RTMGRP_IPV6_IFADDR
            | libc::RTMGRP_IPV6_ROUTE;
        let netlink = Netlink::open(groups as u32, true)?;
        let links = Links::list(&mut Netlink::open(0, false)?, skip)?;
        Ok(Monitor { netlink, links })
    }

    /// Calls `f` with each change since the last call, in order.
    ///
    /// # Errors
    /// The errors of netlink(7) sockets. The absence of changes is no error.
    pub fn poll(&mut self, mut f: impl FnMut(AddressEvent)) -> io::Result<()> {
        for _ in 0..CALLS_PER_POLL {
            let links = &mut self.links;
            match self.netlink.receive(|message| links.apply(message, &mut f)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => f(AddressEvent::Lost),
                Err(e) => return Err(e),
            }
        }
        // More changes may wait. An edge-triggered poll would not report them again, so the monitor discards them and reports
        // `Lost`.
        self.discard_rest();
        f(AddressEvent::Lost);
        Ok(())
    }

    fn discard_rest(&mut self) {
        let links = &mut self.links;
        for _ in 0..CALLS_PER_POLL * CALLS_PER_POLL {
            if self.netlink.receive(|message| links.apply(message, &mut |_| {})).is_err() {
                return;
            }
        }
    }
}

struct Link {
    name: String,
    kind: LinkKind,
    is_up: bool,
    mtu: u32,
}

/// The watched links, by index. Invariant: no loopback link and no skipped link is in the map.
struct Links {
    known: BTreeMap<u32, Link>,
    skip: Vec<String>,
}

impl Links {
    fn list(netlink: &mut Netlink, skip: &[impl AsRef<str>]) -> io::Result<Links> {
        let skip = skip.iter().map(|prefix| prefix.as_ref().to_owned()).collect();
        let mut links = Links { known: BTreeMap::new(), skip };
        netlink.dump(Dump::Links, |message| links.apply(message, &mut |_| {}))?;
        Ok(links)
    }

    /// Applies a message, and calls `f` with each resulting change.
    fn apply(&mut self, message: RouteNetlinkMessage, f: &mut impl FnMut(AddressEvent)) {
        match message {
            RouteNetlinkMessage::NewLink(message) => self.on_link(&message, f),
            RouteNetlinkMessage::DelLink(message) => {
                if let Some(link) = self.known.remove(&message.header.index) {
                    f(AddressEvent::LinkDown { ifindex: message.header.index, ifname: link.name });
                }
            }
            RouteNetlinkMessage::NewAddress(message) => match self.usable(&message) {
                Some(address) => f(AddressEvent::AddressAdded(address)),
                None => self.on_unusable(&message, f),
            },
            RouteNetlinkMessage::DelAddress(message) => self.on_unusable(&message, f),
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route)
                if matters(&route) =>
            {
                f(AddressEvent::RoutesChanged);
            }
            _ => {}
        }
    }

    fn on_link(&mut self, message: &LinkMessage, f: &mut impl FnMut(AddressEvent)) {
        let ifindex = message.header.index;
        let Some(link) = self.read(message) else { return };
        let (ifname, is_up) = (link.name.clone(), link.is_up);
        let was_up = self.known.insert(ifindex, link).is_some_and(|before| before.is_up);
        match (was_up, is_up) {
            (false, true) => f(AddressEvent::LinkUp { ifindex, ifname }),
            (true, false) => f(AddressEvent::LinkDown { ifindex, ifname }),
            _ => {}
        }
    }

    fn on_unusable(&self, message: &AddressMessage, f: &mut impl FnMut(AddressEvent)) {
        let ifindex = message.header.index;
        if let (Some(addr), true) = (own_address(message), self.known.contains_key(&ifindex)) {
            f(AddressEvent::AddressRemoved { addr, ifindex });
        }
    }

    fn read(&self, message: &LinkMessage) -> Option<Link> {
        let flags = message.header.flags;
        let (mut name, mut mtu) = (None, 0);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(value) => name = Some(value),
                LinkAttribute::Mtu(value) => mtu = *value,
                _ => {}
            }
        }
        let name = name.filter(|name| !self.skip.iter().any(|prefix| name.starts_with(prefix)))?.clone();
        let is_up = flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
        (!flags.contains(LinkFlags::Loopback)).then(|| Link { name, kind: LinkKind::of(message), is_up, mtu })
    }

    fn usable(&self, message: &AddressMessage) -> Option<LocalAddress> {
        let ifindex = message.header.index;
        let link = self.known.get(&ifindex)?;
        let addr = own_address(message).filter(|addr| is_usable(*addr))?;
        let flags = flags(message);
        let is_tentative =
            flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
        let has_scope = matches!(message.header.scope, AddressScope::Universe | AddressScope::Site);
        if is_tentative || !has_scope || flags.intersects(AddressFlags::Dadfailed | AddressFlags::Deprecated)
        {
            return None;
        }
        Some(LocalAddress {
            addr,
            prefix_len: message.header.prefix_len,
            scope: Scope::of(addr),
            ifindex,
            ifname: link.name.clone(),
            kind: link.kind,
            is_up: link.is_up,
            mtu: link.mtu,
        })
    }
}

/// Reports whether a change of this route can change the ways to peers. Leaves out the routes that the kernel keeps for each address, and
/// those of routing daemons, which may change all the time, except default routes.
fn matters(route: &RouteMessage) -> bool {
    let in_attribute = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    let table = in_attribute.unwrap_or_else(|| u32::from(route.header.table));
    let is_by_operator = matches!(
        route.header.protocol,
        RouteProtocol::Boot | RouteProtocol::Static | RouteProtocol::Dhcp | RouteProtocol::Ra
    );
    table != LOCAL_TABLE && (route.header.destination_prefix_length == 0 || is_by_operator)
}

/// Returns the host's own address. On point-to-point links, `IFA_ADDRESS` is the peer's address.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(addr) => Some(*addr),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(addr) => Some(*addr),
            _ => None,
        })
    })
}

/// Returns all flags of an address. The header holds only the first eight.
fn flags(message: &AddressMessage) -> AddressFlags {
    let full = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    full.unwrap_or_else(|| AddressFlags::from_bits_retain(u32::from(message.header.flags.bits())))
}

fn is_usable(addr: IpAddr) -> bool {
    let is_link_local = match addr {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !addr.is_loopback() && !addr.is_multicast() && !addr.is_unspecified() && !is_link_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_link_local_and_mapped_addresses_are_not_usable() {
        for addr in ["127.0.0.2", "169.254.1.1", "0.0.0.0", "::1", "fe80::1", "::ffff:192.0.2.1", "ff02::1"] {
            assert!(!is_usable(addr.parse().unwrap()), "{addr}");
        }
        for addr in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(is_usable(addr.parse().unwrap()), "{addr}");
        }
    }

    #[test]
    fn private_addresses_have_the_smaller_scope() {
        for (addr, scope) in [
            ("10.0.0.1", Scope::Private),
            ("100.64.0.1", Scope::Private),
            ("100.128.0.1", Scope::Global),
            ("fd00::1", Scope::Private),
            ("2001:db8::1", Scope::Global),
        ] {
            assert_eq!(Scope::of(addr.parse().unwrap()), scope, "{addr}");
        }
    }
}

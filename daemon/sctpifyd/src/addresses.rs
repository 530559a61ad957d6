//! Tracks the addresses of this host and their interfaces. Selects the addresses to offer to a peer. Gives the reason why an address is not
//! offered.
//!
//! The address that TCP would use always comes first; this module decides about further addresses. A link policy with the use `never`
//! excludes the link's addresses. Apart from such policies, the setting `interfaces` overrides all other rules. Without this setting, a
//! link's addresses are offered if the link has a default route or a route to the peer. Three rules refine this condition:
//!
//! - A neighbour that this host connects to is also offered addresses of links to other networks, because the neighbour may be attached to
//!   those networks.
//! - Addresses of container bridges, tunnels, VPNs and bridges without a default route are never offered as further addresses. An
//!   association that begins in a tunnel stays in this tunnel.
//! - A peer at a public address is offered no private address.
//!
//! Routes are looked up when a peer needs them and cached for [`ROUTES_AGE_MAX`]. A change of addresses or routes triggers a new listing; `roaming`
//! applies the change to connections. Begin at [`AddressBook::offered`].

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use base::Time;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use netio::{FoundRoute, LinkKind, LocalAddress, Monitor, Routes, Scope};
use rules::{Interfaces, LinkPolicy, LinkUse, Links, Listed};
use sctp::{AddressUse, Preference};

/// Limit on the addresses offered to a peer.
const OFFERED_MAX: usize = 16;
/// Name prefix of the daemon's own interface.
pub(crate) const OURS: [&str; 1] = ["shim"];
/// Name prefixes of interfaces to this host's containers and virtual machines. Other hosts cannot reach the addresses of these interfaces.
const OF_CONTAINERS: [&str; 12] =
    ["docker", "br-", "virbr", "veth", "cni", "cali", "flannel", "podman", "lxc", "lxd", "incusbr", "vnet"];
/// Name prefixes of tunnels and VPNs whose kind the kernel does not report, or reports wrongly.
const OF_TUNNELS: [&str; 6] = ["wg", "tun", "tap", "tailscale", "zt", "nebula"];
/// Limit on a peer's further addresses to which routes are looked up. Without this limit, one INIT could list enough addresses to learn all
/// networks of this host.
const LISTED_MAX: usize = 8;
/// Lifetime of a cached route.
const ROUTES_AGE_MAX: Duration = Duration::from_secs(1);
/// Limit on the cached routes. At this limit the cache is cleared.
const ROUTES_MAX: usize = 4096;
/// Documentation addresses of different networks (RFC 5737, RFC 3849, RFC 9637). A host has no specific route to all of them, so one of the lookups
/// finds its default route. Test networks often have some of them.
const ANYWHERE: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 1)),
];
/// Limit on the remembered addresses that this host no longer has.
const GONE_MAX: usize = 64;
/// Largest MTU that is probed for, in bytes: the MTU of Ethernet jumbo frames.
const MTU_MAX: u32 = 9000;
/// MTU assumed for a host without usable links, in bytes.
const MTU_USUAL: u32 = 1500;
/// Smallest MTU that IPv6 allows, in bytes.
const MTU_MIN: u32 = 1280;

/// The peer that may be offered addresses of this host.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    /// The local address with which the association begins.
    pub(crate) local: IpAddr,
    /// The peer's address. Other addresses that the peer lists are unproven.
    pub(crate) remote: IpAddr,
    /// Further addresses that the peer has or claims to have.
    pub(crate) others: &'a [IpAddr],
    /// True if this host connects to the peer.
    pub(crate) is_dialled: bool,
}

/// The reason why an address of this host is not offered to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeftOut {
    BySetting,
    ByPolicy,
    OfContainers,
    Tunnel,
    /// The association begins in a tunnel.
    OutsideOfTunnel,
    BridgeWithoutDefault,
    NoRoute,
    PrivateToPublic,
    LinkDown,
}

impl LeftOut {
    /// Describes the reason for users.
    pub(crate) const fn why(self) -> &'static str {
        match self {
            LeftOut::BySetting => "excluded by the setting interfaces",
            LeftOut::ByPolicy => "excluded by its link's policy, use = never",
            LeftOut::OfContainers => "an interface to containers or virtual machines",
            LeftOut::Tunnel => "a tunnel or VPN",
            LeftOut::OutsideOfTunnel => "outside the connection's tunnel",
            LeftOut::BridgeWithoutDefault => "a bridge without a default route",
            LeftOut::NoRoute => "no default route, and no route to the peer",
            LeftOut::PrivateToPublic => "private, and the peer's address is public",
            LeftOut::LinkDown => "the link is down",
        }
    }
}

/// Kind of interface that an address belongs to, for the choice of addresses to offer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Uplink,
    Bridge,
    Tunnel,
    Containers,
}

/// Numbers of links, from 1, by which the engine identifies them. An interface keeps its number while it has an address, or while the
/// address book remembers an address that the interface had.
#[derive(Default)]
struct LinkNumbers(Vec<u32>);

impl LinkNumbers {
    /// Gives a number to each of the `interfaces` that has none. Frees the numbers of interfaces that are no longer `known`.
    fn assign(&mut self, interfaces: impl Iterator<Item = u32>, known: &BTreeSet<u32>) {
        const FREE: u32 = 0;
        self.0.iter_mut().filter(|ifindex| !known.contains(ifindex)).for_each(|ifindex| *ifindex = FREE);
        for ifindex in interfaces {
            if self.0.contains(&ifindex) {
                continue;
            }
            match self.0.iter_mut().find(|number| **number == FREE) {
                Some(number) => *number = ifindex,
                None => self.0.push(ifindex),
            }
        }
    }

    /// Returns the number of an interface, or 0 if it has none or its number exceeds 255.
    fn of(&self, ifindex: u32) -> u8 {
        let position = self.0.iter().position(|known| *known == ifindex);
        position.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or_default()
    }
}

/// The host's addresses and routes.
pub(crate) struct AddressBook {
    monitor: Monitor,
    routes: RefCell<KnownRoutes>,
    wanted: Interfaces,
    links: Links,
    /// Interfaces whose link has reached its cap.
    capped: BTreeSet<String>,
    all: Vec<LocalAddress>,
    /// The most recently removed addresses, newest first. Events about such an address still name its interface.
    gone: VecDeque<LocalAddress>,
    /// Addresses whose link is up and that some peer may be offered.
    usable: Vec<IpAddr>,
    numbers: LinkNumbers,
    /// Addresses whose link was down at the last check.
    down: BTreeSet<IpAddr>,
    mtu: u16,
    /// True if loopback addresses count as this host's own.
    loopback: bool,
}

impl AddressBook {
    /// Lists the addresses of the calling thread's network namespace, and watches them from now on. With `loopback`, loopback addresses
    /// count as this host's own, although no other host is offered them.
    pub(crate) fn open(wanted: Interfaces, links: Links, loopback: bool) -> Result<AddressBook> {
        let monitor = Monitor::open(&OURS).context("cannot watch this host's addresses")?;
        let routes = KnownRoutes::open().context("cannot query this host's routes")?;
        let mut book = AddressBook {
            monitor,
            routes: RefCell::new(routes),
            wanted,
            links,
            capped: BTreeSet::new(),
            all: Vec::new(),
            gone: VecDeque::new(),
            usable: Vec::new(),
            numbers: LinkNumbers::default(),
            down: BTreeSet::new(),
            mtu: MTU_USUAL as u16,
            loopback,
        };
        book.list().context("cannot list this host's addresses")?;
        Ok(book)
    }

    pub(crate) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.monitor.as_raw_fd()), token, Interest::READABLE)
    }

    /// Applies address changes.
    pub(crate) fn refresh(&mut self) {
        let mut is_changed = false;
        let polled = self.monitor.poll(|event| {
            tracing::debug!(?event, "addresses");
            is_changed = true;
        });
        let outcome = if is_changed { polled.and_then(|()| self.list()) } else { polled };
        if let Err(error) = outcome {
            tracing::warn!(%error, "changes of this host's addresses may have been missed");
        }
    }

    /// Applies new link policies; returns whether they differ from the old ones.
    pub(crate) fn set_links(&mut self, links: &Links) -> bool {
        if self.links == *links {
            return false;
        }
        self.links = links.clone();
        self.find_usable();
        true
    }

    /// Notes the interfaces whose link has reached its cap; returns whether they differ from those before.
    pub(crate) fn set_capped(&mut self, capped: BTreeSet<String>) -> bool {
        if self.capped == capped {
            return false;
        }
        self.capped = capped;
        self.find_usable();
        true
    }

    fn list(&mut self) -> io::Result<()> {
        let before = std::mem::replace(&mut self.all, netio::addresses(&OURS)?);
        for known in before.into_iter().filter(|known| self.all.iter().all(|still| still.addr != known.addr))
        {
            self.gone.retain(|gone| gone.addr != known.addr);
            self.gone.push_front(known);
        }
        self.gone.truncate(GONE_MAX);
        self.routes.borrow_mut().forget();
        self.find_usable();
        Ok(())
    }

    fn find_usable(&mut self) {
        let usable: Vec<&LocalAddress> =
            self.all.iter().filter(|address| address.is_up && self.may_count(address)).collect();
        self.mtu = largest_mtu(&usable);
        self.usable = usable.iter().map(|address| address.addr).collect();
        let known = self.all.iter().chain(&self.gone).map(|address| address.ifindex).collect();
        self.numbers.assign(usable.iter().map(|address| address.ifindex), &known);
    }

    /// Reports whether the address may be offered to some peer while its link is up.
    fn may_count(&self, address: &LocalAddress) -> bool {
        match self.listed(address) {
            Listed::Used => true,
            Listed::LeftOut => false,
            Listed::Unsaid => matches!(class(address), Class::Uplink | Class::Bridge),
        }
    }

    fn listed(&self, address: &LocalAddress) -> Listed {
        let policy = self.policy_of(&address.ifname);
        let is_never = policy.is_some_and(|policy| policy.usage() == LinkUse::Never);
        if is_never { Listed::LeftOut } else { self.wanted.of(&address.ifname, address.addr) }
    }

    /// Returns the reason why the settings exclude an address.
    fn excluded_by(&self, address: &LocalAddress) -> LeftOut {
        match self.wanted.of(&address.ifname, address.addr) {
            Listed::LeftOut => LeftOut::BySetting,
            Listed::Used | Listed::Unsaid => LeftOut::ByPolicy,
        }
    }

    /// Returns the policy of the link that has the address, or had it before the address was removed.
    pub(crate) fn link_policy(&self, address: IpAddr) -> Option<Cow<'_, LinkPolicy>> {
        self.policy_of(&self.interface_name(address)?)
    }

    /// Returns the policy of an interface's link. After the link's cap is reached, its use is the one at the cap.
    fn policy_of(&self, interface: &str) -> Option<Cow<'_, LinkPolicy>> {
        let policy = self.links.of(interface)?;
        let is_capped = self.capped.contains(interface);
        Some(if is_capped { Cow::Owned(policy.at_cap()) } else { Cow::Borrowed(policy) })
    }

    /// Returns the name that the operator has given the link of an interface.
    pub(crate) fn link_name(&self, interface: &str) -> Option<&str> {
        self.links.of(interface)?.name()
    }

    /// Returns the link of an address, and the use that the link's policy gives the address.
    pub(crate) fn usage(&self, address: IpAddr) -> AddressUse {
        let link = self.find_or_gone(address).map_or(0, |known| self.numbers.of(known.ifindex));
        let Some(policy) = self.link_policy(address) else {
            return AddressUse { link, ..AddressUse::default() };
        };
        let preference = match policy.usage() {
            LinkUse::Primary => Preference::Primary,
            LinkUse::Secondary => Preference::Secondary,
            LinkUse::Backup | LinkUse::Never => Preference::Backup,
        };
        let heartbeat = policy.heartbeat_s().map(|seconds| Duration::from_secs(seconds.into()));
        AddressUse { preference, heartbeat, link }
    }

    fn find(&self, address: IpAddr) -> Option<&LocalAddress> {
        let address = address.to_canonical();
        self.all.iter().find(|known| known.addr == address)
    }

    /// Reports whether the address belongs to this host. Addresses of interfaces to containers do not count.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        let is_known = self.find(address).is_some_and(|known| class(known) != Class::Containers);
        is_known || (self.loopback && is_loopback_v4(address.to_canonical()))
    }

    /// Reports whether the setting `interfaces` or `link` excludes this address of the host from SCTP.
    pub(crate) fn is_left_out(&self, address: IpAddr) -> bool {
        self.find(address).is_some_and(|known| self.listed(known) == Listed::LeftOut)
    }

    /// Reports whether connections to this address stay within the host and cannot use SCTP. This is always true for `::1`. For other
    /// addresses of this host it is true unless loopback addresses count as this host's own.
    pub(crate) fn stays_plain(&self, remote: IpAddr) -> bool {
        let is_within = remote.is_loopback() || self.is_own(remote);
        is_within && !(self.loopback && self.is_own(remote))
    }

    fn find_or_gone(&self, address: IpAddr) -> Option<&LocalAddress> {
        let address = address.to_canonical();
        self.find(address).or_else(|| self.gone.iter().find(|gone| gone.addr == address))
    }

    /// Returns the name of the interface that has the address, or had it before the address was removed.
    pub(crate) fn interface_name(&self, address: IpAddr) -> Option<String> {
        self.find_or_gone(address).map(|known| known.ifname.clone())
    }

    /// Returns the name of the interface with this index, or `None` if the interface has no address.
    pub(crate) fn name_of(&self, ifindex: u32) -> Option<String> {
        self.all.iter().find(|known| known.ifindex == ifindex).map(|known| known.ifname.clone())
    }

    /// Returns the index of the interface that has the address.
    pub(crate) fn interface_of(&self, address: IpAddr) -> Option<u32> {
        self.find(address).map(|known| known.ifindex)
    }

    /// Returns the addresses whose links went down (`false`) or came up (`true`) since the last call.
    pub(crate) fn take_link_changes(&mut self) -> Vec<(IpAddr, bool)> {
        let down: BTreeSet<IpAddr> =
            self.all.iter().filter(|known| !known.is_up).map(|known| known.addr).collect();
        let fallen = down.difference(&self.down).map(|address| (*address, false));
        let has_link = |address: &&IpAddr| self.find(**address).is_some_and(|known| known.is_up);
        let risen = self.down.difference(&down).filter(has_link);
        let changes = fallen.chain(risen.map(|address| (*address, true))).collect();
        self.down = down;
        changes
    }

    /// Returns the uplink addresses that the peer is not offered, each with the reason. Addresses of container bridges and tunnels, and
    /// addresses that the settings exclude, do not count as uplinks.
    pub(crate) fn unused_uplinks(&self, now: Time, asker: Asker<'_>) -> Vec<(IpAddr, LeftOut)> {
        let all = self.all_left_out(now, asker).into_iter().filter(|(known, _)| self.may_count(known));
        all.map(|(known, why)| (known.addr, why)).collect()
    }

    /// Returns the addresses that some peer may be offered. Their links are up, and neither the settings nor the kind of interface excludes
    /// them.
    pub(crate) fn usable(&self) -> &[IpAddr] {
        &self.usable
    }

    /// Returns the addresses to offer to a peer, beginning with the association's first address. If the peer is this host, returns only the
    /// first address.
    pub(crate) fn offered(&self, now: Time, asker: Asker<'_>) -> Vec<IpAddr> {
        let first = std::iter::once(asker.local);
        if self.is_own(asker.remote) || self.usable.iter().all(|address| *address == asker.local) {
            return first.collect();
        }
        let others = self.all.iter().filter(|known| known.addr != asker.local);
        let told = others.filter(|known| self.left_out(now, known, asker).is_none()).map(|known| known.addr);
        first.chain(told).take(OFFERED_MAX).collect()
    }

    /// Returns the addresses that the peer is not offered, each with its interface and the reason.
    pub(crate) fn all_left_out(&self, now: Time, asker: Asker<'_>) -> Vec<(&LocalAddress, LeftOut)> {
        let others = self.all.iter().filter(|known| known.addr != asker.local);
        others.filter_map(|known| Some((known, self.left_out(now, known, asker)?))).collect()
    }

    /// Returns the addresses that are offered to no peer or only to some peers, each with its interface and the reason.
    pub(crate) fn generally_left_out(&self, now: Time) -> Vec<(&LocalAddress, LeftOut)> {
        let why = |known: &LocalAddress| match self.listed(known) {
            Listed::LeftOut => Some(self.excluded_by(known)),
            Listed::Used => None,
            Listed::Unsaid => match class(known) {
                Class::Containers => Some(LeftOut::OfContainers),
                Class::Tunnel => Some(LeftOut::Tunnel),
                Class::Bridge if !self.has_default(now, known.ifindex) => Some(LeftOut::BridgeWithoutDefault),
                Class::Bridge => None,
                Class::Uplink => (!self.has_default(now, known.ifindex)).then_some(LeftOut::NoRoute),
            },
        };
        let down = |known: &LocalAddress| (!known.is_up).then_some(LeftOut::LinkDown);
        self.all.iter().filter_map(|known| Some((known, down(known).or_else(|| why(known))?))).collect()
    }

    /// Returns the reason why the peer is not offered this address, or `None` if it is offered.
    fn left_out(&self, now: Time, known: &LocalAddress, asker: Asker<'_>) -> Option<LeftOut> {
        if !known.is_up {
            return Some(LeftOut::LinkDown);
        }
        match self.listed(known) {
            Listed::Used => return None,
            Listed::LeftOut => return Some(self.excluded_by(known)),
            Listed::Unsaid => {}
        }
        let is_public = |address| Scope::of(address) == Scope::Global;
        let begins_in_tunnel = self.find(asker.local).is_some_and(|first| class(first) == Class::Tunnel);
        match class(known) {
            Class::Containers => Some(LeftOut::OfContainers),
            Class::Tunnel => Some(LeftOut::Tunnel),
            _ if begins_in_tunnel => Some(LeftOut::OutsideOfTunnel),
            _ if !is_public(known.addr) && is_public(asker.remote) => Some(LeftOut::PrivateToPublic),
            _ if self.has_default(now, known.ifindex) => None,
            Class::Bridge => Some(LeftOut::BridgeWithoutDefault),
            Class::Uplink if self.leads_to(now, known.ifindex, asker) => None,
            Class::Uplink => Some(LeftOut::NoRoute),
        }
    }

    /// Reports whether the interface has a default route of either address family.
    fn has_default(&self, now: Time, ifindex: u32) -> bool {
        ANYWHERE.iter().any(|to| self.route(now, ifindex, *to).is_some_and(|route| route.prefix_len == 0))
    }

    /// Reports whether the interface has a route to the peer. Also returns true for a neighbour that this host connects to, because the
    /// neighbour may have further addresses that are not known yet.
    fn leads_to(&self, now: Time, ifindex: u32, asker: Asker<'_>) -> bool {
        let mut peers = std::iter::once(&asker.remote).chain(asker.others.iter().take(LISTED_MAX));
        let is_neighbour = || {
            let first = self.interface_of(asker.local);
            first
                .and_then(|first| self.route(now, first, asker.remote))
                .is_some_and(|route| !route.has_gateway)
        };
        peers.any(|peer| self.route(now, ifindex, *peer).is_some()) || (asker.is_dialled && is_neighbour())
    }

    /// Finds a route from any of the interface's addresses to the address `to`.
    fn route(&self, now: Time, ifindex: u32, to: IpAddr) -> Option<FoundRoute> {
        let sources =
            self.all.iter().filter(|known| known.ifindex == ifindex && known.addr.is_ipv4() == to.is_ipv4());
        let mut routes = self.routes.borrow_mut();
        sources.map(|known| known.addr).find_map(|source| routes.find(now, (source, ifindex, to)))
    }

    /// Returns the largest MTU of the links with usable addresses, in bytes with the IP header. The engine discovers the MTU of each path
    /// itself.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu
    }
}

/// Source, interface and destination of a packet.
type RouteKey = (IpAddr, u32, IpAddr);

/// Recently looked-up routes.
struct KnownRoutes {
    routes: Routes,
    known: BTreeMap<RouteKey, Option<FoundRoute>>,
    asked_since: Time,
}

impl KnownRoutes {
    fn open() -> io::Result<KnownRoutes> {
        Ok(KnownRoutes { routes: Routes::open()?, known: BTreeMap::new(), asked_since: Time::ZERO })
    }

    fn forget(&mut self) {
        self.known.clear();
    }

    fn find(&mut self, now: Time, key: RouteKey) -> Option<FoundRoute> {
        if now.since(self.asked_since) > ROUTES_AGE_MAX || self.known.len() >= ROUTES_MAX {
            self.known.clear();
            self.asked_since = now;
        }
        if let Some(found) = self.known.get(&key) {
            return *found;
        }
        let (local, ifindex, remote) = key;
        let found = self.routes.find(local, ifindex, remote).unwrap_or_else(|error| {
            tracing::warn!(%local, %remote, %error, "cannot query a route: the address is not offered");
            None
        });
        self.known.insert(key, found);
        found
    }
}

fn class(address: &LocalAddress) -> Class {
    let begins = |list: &[&str]| list.iter().any(|beginning| address.ifname.starts_with(beginning));
    match address.kind {
        // Docker names its bridges "br-" and a hexadecimal number. The name of an operator's bridge may also begin with "br-". Such a
        // bridge may be an uplink.
        LinkKind::Bridge if address.ifname.starts_with("br-") && !is_of_docker(&address.ifname) => {
            Class::Bridge
        }
        _ if begins(&OF_CONTAINERS) => Class::Containers,
        LinkKind::Tunnel => Class::Tunnel,
        _ if begins(&OF_TUNNELS) => Class::Tunnel,
        LinkKind::Bridge => Class::Bridge,
        LinkKind::Other => Class::Uplink,
    }
}

/// Reports whether Docker chose this name for the bridge of a network: "br-" and twelve hexadecimal digits.
fn is_of_docker(name: &str) -> bool {
    let number = name.strip_prefix("br-").unwrap_or_default();
    number.len() == 12 && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the part of the address that identifies one host. For IPv6 it is the /64 network.
pub(crate) fn host_part(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & NETWORK).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn is_loopback_v4(address: IpAddr) -> bool {
    address.is_ipv4() && address.is_loopback()
}

fn largest_mtu(usable: &[&LocalAddress]) -> u16 {
    let largest = usable.iter().map(|address| address.mtu).max();
    u16::try_from(largest.unwrap_or(MTU_USUAL).clamp(MTU_MIN, MTU_MAX)).unwrap_or(MTU_USUAL as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(ifname: &str, kind: LinkKind) -> Class {
        let (addr, ifname) = ([10, 0, 0, 1].into(), ifname.to_owned());
        let scope = Scope::Private;
        class(&LocalAddress { addr, prefix_len: 24, scope, ifindex: 2, ifname, kind, is_up: true, mtu: 1500 })
    }

    #[test]
    fn an_interface_keeps_its_number_until_it_is_forgotten() {
        let mut numbers = LinkNumbers::default();
        let known = |all: &[u32]| all.iter().copied().collect::<BTreeSet<_>>();
        numbers.assign([7, 3, 7].into_iter(), &known(&[3, 7, 9]));
        assert_eq!([7, 3, 9].map(|ifindex| numbers.of(ifindex)), [1, 2, 0]);
        numbers.assign([3, 9].into_iter(), &known(&[3, 7, 9]));
        assert_eq!([7, 3, 9].map(|ifindex| numbers.of(ifindex)), [1, 2, 3], "7 had an address lately");
        numbers.assign([3, 9, 20].into_iter(), &known(&[3, 9, 20]));
        assert_eq!([7, 3, 9, 20].map(|ifindex| numbers.of(ifindex)), [0, 2, 3, 1]);
        numbers.assign(1..=300, &(1..=300).collect());
        assert!((1..=300).any(|ifindex| numbers.of(ifindex) == 255));
        assert_eq!(numbers.of(300), 0);
    }

    #[test]
    fn interfaces_to_containers_and_tunnels_are_told_from_uplinks() {
        for (name, kind, expected) in [
            ("eth0", LinkKind::Other, Class::Uplink),
            ("ppp0", LinkKind::Other, Class::Uplink),
            ("br-wan", LinkKind::Bridge, Class::Bridge),
            ("br0", LinkKind::Bridge, Class::Bridge),
            ("br-0123456789ab", LinkKind::Bridge, Class::Containers),
            ("docker0", LinkKind::Bridge, Class::Containers),
            ("veth12ab34", LinkKind::Other, Class::Containers),
            ("wg0", LinkKind::Tunnel, Class::Tunnel),
            ("office", LinkKind::Tunnel, Class::Tunnel),
            ("tailscale0", LinkKind::Other, Class::Tunnel),
        ] {
            assert!(class_of(name, kind) == expected, "{name}");
        }
    }
}

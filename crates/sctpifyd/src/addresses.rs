//! The addresses of this host: which are our own, which are offered to peers, and which interface has them.
//!
//! Follows changes by listing anew; what they mean for connections is for `roaming`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use netio::{LocalAddress, Monitor};

/// Addresses offered to a peer at most.
const OFFERED_MAX: usize = 16;
/// Interfaces whose addresses mean nothing to other hosts, by the beginning of their names: our own, and bridges of
/// containers and virtual machines.
const SKIPPED: [&str; 4] = ["shim", "docker", "br-", "virbr"];
/// The largest MTU that is probed for: what jumbo frames of Ethernet carry.
const MTU_MAX: u32 = 9000;
/// The MTU of a host without links.
const MTU_USUAL: u32 = 1500;
/// The smallest MTU that IPv6 allows.
const MTU_MIN: u32 = 1280;

/// What is known of the host's addresses.
pub(crate) struct AddressBook {
    monitor: Monitor,
    interfaces: BTreeMap<IpAddr, u32>,
    usable: Vec<IpAddr>,
    /// Addresses without a link, when that was last asked.
    down: BTreeSet<IpAddr>,
    mtu: u16,
    /// Whether loopback addresses are our own like others.
    loopback: bool,
}

impl AddressBook {
    /// Lists the addresses of the calling thread's network namespace, and watches them from now on.
    /// With `loopback` those of the loopback interface are taken for our own, though they are offered to nobody else.
    pub(crate) fn open(loopback: bool) -> Result<AddressBook> {
        let monitor = Monitor::open(&SKIPPED).context("cannot watch this host's addresses")?;
        let (interfaces, usable, mtu) = (BTreeMap::new(), Vec::new(), MTU_USUAL as u16);
        let down = BTreeSet::new();
        let mut book = AddressBook { monitor, interfaces, usable, down, mtu, loopback };
        book.list().context("cannot list this host's addresses")?;
        Ok(book)
    }

    pub(crate) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.monitor.as_raw_fd()), token, Interest::READABLE)
    }

    /// Takes changes in.
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

    fn list(&mut self) -> io::Result<()> {
        let found = netio::addresses(&SKIPPED)?;
        self.interfaces = found.iter().map(|address| (address.addr, address.ifindex)).collect();
        self.usable = found.iter().filter(|address| address.is_up).map(|address| address.addr).collect();
        self.mtu = largest_mtu(&found);
        Ok(())
    }

    /// Whether the address is one of this host.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.interfaces.contains_key(&address) || (self.loopback && is_loopback_v4(address))
    }

    /// Whether connections to this address stay within the host and cannot be carried: those to `::1` always, those to other
    /// addresses of its own unless loopback is included.
    pub(crate) fn stays_plain(&self, remote: IpAddr) -> bool {
        let is_within = remote.is_loopback() || self.is_own(remote);
        is_within && !(self.loopback && self.is_own(remote))
    }

    /// The interface that has the address.
    pub(crate) fn interface_of(&self, address: IpAddr) -> Option<u32> {
        self.interfaces.get(&address).copied()
    }

    /// The addresses that peers may use, of both families.
    pub(crate) fn usable(&self) -> &[IpAddr] {
        &self.usable
    }

    /// The addresses whose links have gone down, and those whose links have come up, since this was last asked.
    pub(crate) fn take_link_changes(&mut self) -> Vec<(IpAddr, bool)> {
        let down: BTreeSet<IpAddr> =
            self.interfaces.keys().copied().filter(|address| !self.usable.contains(address)).collect();
        let fallen = down.difference(&self.down).map(|address| (*address, false));
        let risen = self.down.difference(&down).filter(|address| self.usable.contains(address));
        let changes = fallen.chain(risen.map(|address| (*address, true))).collect();
        self.down = down;
        changes
    }

    /// The addresses to offer.
    pub(crate) fn offered(&self) -> impl Iterator<Item = IpAddr> {
        self.usable.iter().copied().take(OFFERED_MAX)
    }

    /// The addresses to offer to `peer`, this one first; this one alone to ourselves.
    pub(crate) fn offered_first(&self, first: IpAddr, peer: IpAddr) -> Vec<IpAddr> {
        if self.is_own(peer) {
            return vec![first];
        }
        let others = self.usable.iter().copied().filter(|address| *address != first);
        std::iter::once(first).chain(others).take(OFFERED_MAX).collect()
    }

    /// The MTU of the largest link, in bytes with the IP header; the engine finds each path's own.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu
    }
}

fn is_loopback_v4(address: IpAddr) -> bool {
    address.is_ipv4() && address.is_loopback()
}

fn largest_mtu(found: &[LocalAddress]) -> u16 {
    let largest = found.iter().filter(|address| address.is_up).map(|address| address.mtu).max();
    u16::try_from(largest.unwrap_or(MTU_USUAL).clamp(MTU_MIN, MTU_MAX)).unwrap_or(MTU_USUAL as u16)
}

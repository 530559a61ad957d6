//! A link between two hosts: a veth pair with addresses. The link can fail silently.
//!
//! The interface of link `n` is called `path<n>` in both hosts. The left host has the addresses 10.77.n.1/24 and
//! fd77:n::1/64. The right host has 10.77.n.2/24 and fd77:n::2/64. The MTU is 1500.

use crate::host::Host;
use anyhow::{Context, Result};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Segmentation offloads of the link's ends. The choice does not affect checksum offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offloads {
    /// Default of veth: segments may be larger than the MTU, and captures show them as such.
    On,
    /// The kernel segments before the device. Captures show packets up to the MTU, as on a wire.
    Off,
}

/// Features of ethtool(8) that make packets larger than the MTU appear in captures.
const SEGMENTATION: &[&str] = &["tso", "gso", "gro", "tx-udp-segmentation", "tx-sctp-segmentation"];

/// Veth pair between two hosts.
#[derive(Debug, Clone)]
pub struct Link {
    number: u8,
    left: Host,
    right: Host,
}

impl Link {
    pub(crate) fn between(left: &Host, right: &Host, number: u8, offloads: Offloads) -> Result<Self> {
        let link = Self { number, left: left.clone(), right: right.clone() };
        let name = link.name();
        let (here, there) = (left.namespace(), right.namespace());
        left.ip(&[
            "link", "add", &name, "mtu", "1500", "type", "veth", "peer", &name, "mtu", "1500", "netns", there,
        ])?;
        debug_assert_ne!(here, there, "a link joins two hosts");
        link.configure(offloads)?;
        Ok(link)
    }

    /// Assigns addresses to both ends, and brings the ends up. The ends must exist and be down.
    pub(crate) fn configure(&self, offloads: Offloads) -> Result<()> {
        let name = self.name();
        let ends =
            [(&self.left, self.left_v4(), self.left_v6()), (&self.right, self.right_v4(), self.right_v6())];
        for (host, v4, v6) in ends {
            host.ip(&["addr", "add", &format!("{v4}/24"), "dev", &name])?;
            host.ip(&["addr", "add", &format!("{v6}/64"), "dev", &name, "nodad"])?;
            if offloads == Offloads::Off {
                for feature in SEGMENTATION {
                    host.tool("ethtool", &["-K", &name, feature, "off"])?;
                }
            }
            host.ip(&["link", "set", &name, "up"])?;
        }
        Ok(())
    }

    /// Returns a link whose interfaces do not exist yet.
    pub(crate) fn planned(left: &Host, right: &Host, number: u8) -> Self {
        Self { number, left: left.clone(), right: right.clone() }
    }

    /// Returns the interface's name, which is the same in both hosts.
    pub fn name(&self) -> String {
        format!("path{}", self.number)
    }

    /// Enters each end's link-layer address permanently into the other end's neighbour table. The link represents a
    /// path between distant hosts. On such a path, no packet waits until the distant host's link-layer address is
    /// resolved.
    ///
    /// # Errors
    /// When ip(8) fails.
    pub fn introduce(&self) -> Result<()> {
        let name = self.name();
        let ends = [
            (&self.left, &self.right, IpAddr::from(self.right_v4()), IpAddr::from(self.right_v6())),
            (&self.right, &self.left, self.left_v4().into(), self.left_v6().into()),
        ];
        for (host, other, v4, v6) in ends {
            let output = other.ip(&["-o", "link", "show", "dev", &name])?;
            let mac = output.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
            let mac = mac.with_context(|| format!("{name} has no address on the wire: {output}"))?;
            for address in [v4, v6] {
                let address = address.to_string();
                host.ip(&["neigh", "replace", &address, "lladdr", mac, "dev", &name, "nud", "permanent"])?;
            }
        }
        Ok(())
    }

    /// Returns the left host's IPv4 address.
    pub fn left_v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 1)
    }

    /// Returns the right host's IPv4 address.
    pub fn right_v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 2)
    }

    /// Returns the left host's IPv6 address.
    pub fn left_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, u16::from(self.number), 0, 0, 0, 0, 0, 1)
    }

    /// Returns the right host's IPv6 address.
    pub fn right_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, u16::from(self.number), 0, 0, 0, 0, 0, 2)
    }

    /// Sets the congestion control of TCP over IPv4 from the left host over this link, regardless of the host's
    /// default. The congestion control is set as an attribute of the route. As a namespace's default, the kernel
    /// accepts only a congestion control that the machine allows for all users.
    ///
    /// # Errors
    /// When the kernel has no such control.
    pub fn set_left_tcp_control(&self, control: &str) -> Result<()> {
        self.set_tcp_control(&self.left, self.left_v4(), control)
    }

    /// Like [`Link::set_left_tcp_control`], but at both hosts.
    ///
    /// # Errors
    /// When the kernel has no such control.
    pub fn set_tcp_controls(&self, control: &str) -> Result<()> {
        self.set_left_tcp_control(control)?;
        self.set_tcp_control(&self.right, self.right_v4(), control)
    }

    fn set_tcp_control(&self, host: &Host, source: Ipv4Addr, control: &str) -> Result<()> {
        let (name, source) = (self.name(), source.to_string());
        let routes = host.ip(&["-o", "route", "show", "dev", &name, "scope", "link"])?;
        let subnet = routes.split_whitespace().next().context("the link has no route")?;
        let route =
            ["route", "change", subnet, "dev", &name, "proto", "kernel", "scope", "link", "src", &source];
        host.ip(&[&route[..], &["congctl", control]].concat())?;
        Ok(())
    }

    /// Returns the number of bytes in frames that the left host has sent over this link.
    ///
    /// # Errors
    /// When ip(8) fails.
    pub fn left_sent_bytes(&self) -> Result<u64> {
        let output: Value =
            serde_json::from_str(&self.left.ip(&["-s", "-j", "link", "show", "dev", &self.name()])?)?;
        output
            .pointer("/0/stats64/tx/bytes")
            .and_then(Value::as_u64)
            .with_context(|| format!("no bytes: {output}"))
    }

    /// Drops every frame in both directions while the link stays up, so neither end can detect the failure from its
    /// interface.
    ///
    /// Frames are dropped on arrival, because a rule on departure would make the sender's system call fail. Segments
    /// with the firewall mark of a daemon's deliveries are not dropped: they are local segments that the daemon sends
    /// through this interface, and do not cross the link.
    ///
    /// # Errors
    /// When nft(8) fails.
    pub fn silence(&self) -> Result<()> {
        let (table, name) = (self.table(), self.name());
        let chain = format!("{{ type filter hook ingress device {name} priority -500; policy drop; }}");
        let delivered = "meta mark & 0x0f000000 == 0x06000000 accept";
        let ruleset = format!(
            "add table netdev {table}; add chain netdev {table} nothing {chain}; add rule netdev {table} nothing {delivered}"
        );
        self.left.tool("nft", &[&ruleset])?;
        self.right.tool("nft", &[&ruleset])?;
        Ok(())
    }

    /// Ends [`Link::silence`].
    ///
    /// # Errors
    /// When the link was not silenced.
    pub fn restore(&self) -> Result<()> {
        for host in [&self.left, &self.right] {
            host.tool("nft", &["delete", "table", "netdev", &self.table()])?;
        }
        Ok(())
    }

    fn table(&self) -> String {
        format!("silent{}", self.number)
    }
}

/// Creates a veth pair whose ends are down and have no addresses.
pub(crate) fn make_pair(left: &Host, left_name: &str, right: &Host, right_name: &str) -> Result<()> {
    let peer = ["peer", right_name, "mtu", "1500", "netns", right.namespace()];
    left.ip(&[&["link", "add", left_name, "mtu", "1500", "type", "veth"], &peer[..]].concat())?;
    Ok(())
}

//! Two hosts joined by one or two links, with one transport between them, and perhaps a NAT on the first
//! link.

use super::Load;
use super::stage::{Stage, Victim};
use crate::settings::FellBack;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::{DelayedLink, Host, Lab, Link, Offloads, Process};

/// The transport of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::experiments) enum Transport {
    /// Plain TCP.
    Tcp,
    /// The kernel's MPTCP, requested by the programs themselves.
    Mptcp,
    /// Plain TCP, which the daemons carry over SCTP.
    Sctpify,
}

/// Parameters of a [`World`].
#[derive(Clone, Copy, Debug)]
pub(in crate::experiments) struct Plan<'a> {
    pub(in crate::experiments) transport: Transport,
    pub(in crate::experiments) rtt: Duration,
    /// Presence of a second link.
    pub(in crate::experiments) second: bool,
    /// Presence of a NAT on the first link.
    pub(in crate::experiments) nat: bool,
    /// Configuration of both daemons, if the transport uses daemons.
    pub(in crate::experiments) configuration: &'a str,
    pub(in crate::experiments) seed: u64,
}

/// The NAT on the first link.
pub(in crate::experiments) struct Nat(Host);

/// Two joined hosts.
pub(in crate::experiments) struct World {
    pub(in crate::experiments) pair: Pair,
    pub(in crate::experiments) first: DelayedLink,
    pub(in crate::experiments) nat: Option<Nat>,
    pub(in crate::experiments) flow: PathBuf,
    transport: Transport,
    daemons: Option<Daemons>,
    second: Option<DelayedLink>,
    /// The last field, because its drop removes the namespaces of the other fields.
    _lab: Lab,
}

/// TCP congestion control on the links, regardless of this machine's setting. CUBIC is the default of Linux
/// and of our stack.
const TCP_CONTROL: &str = "cubic";
/// The number of the link between alpha and the NAT.
const INNER: u8 = 3;
/// Returns the NAT's nftables rules. `ports` is the range of ports for translated TCP and UDP.
fn masquerade(ports: &str) -> String {
    format!(
        "flush ruleset
add table ip nat
add chain ip nat post {{ type nat hook postrouting priority 100; }}
add rule ip nat post oifname path1 meta l4proto {{ tcp, udp }} masquerade to :{ports}
add rule ip nat post oifname path1 masquerade
{}",
        forward_chain("accept")
    )
}

/// Returns the nftables chain of forwarded packets. `policy` is `accept` or `drop`.
fn forward_chain(policy: &str) -> String {
    format!("add chain ip nat forward {{ type filter hook forward priority 0; policy {policy}; }}")
}

/// The NAT's range of ports, before it forgets its state.
const PORTS_BEFORE: &str = "20000-29999";
/// The NAT's range of ports, after it has forgotten its state.
const PORTS_AFTER: &str = "40000-49999";
/// Rate of each link.
pub(super) const RATE: &str = "100mbit";
/// Length of each link's queue, in packets.
pub(super) const QUEUE: &str = "1000";
/// Python program that empties the table of connections over netlink, as `conntrack -F` does.
const FORGET: &str = "
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
s.send(struct.pack('=IHHII', 20, 1 << 8 | 2, 5, 1, 0) + struct.pack('=BBH', 0, 0, 0))
assert struct.unpack_from('=i', s.recv(4096), 16)[0] == 0
";

impl Nat {
    fn new(lab: &Lab) -> Result<Self> {
        let host = lab.host("nat")?;
        host.tool("sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"])?;
        host.tool("nft", &[&masquerade(PORTS_BEFORE)])?;
        Ok(Self(host))
    }

    /// Forgets all connections, and translates later connections to other ports.
    pub(in crate::experiments) fn rebind(&self) -> Result<()> {
        self.0.tool("nft", &[&masquerade(PORTS_AFTER)])?;
        self.0.tool("python3", &["-c", FORGET]).map(drop)
    }

    /// Drops all forwarded packets, or forwards them again. The NAT still answers packets to its own address.
    fn set_silent(&self, is_silent: bool) -> Result<()> {
        self.0.tool("nft", &[&forward_chain(if is_silent { "drop" } else { "accept" })]).map(drop)
    }

    /// Adds a route to beta's address on the second link; the route uses the first link. With the route, the
    /// NAT can answer packets that beta sends from this address.
    fn learn(&self, second: &Link, by: &Link) -> Result<()> {
        self.0
            .ip(&["route", "add", &second.right_v4().to_string(), "via", &by.right_v4().to_string()])
            .map(drop)
    }
}

impl World {
    pub(in crate::experiments) fn new(tools: &Tools, plan: &Plan<'_>) -> Result<Self> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let nat = plan.nat.then(|| Nat::new(&lab)).transpose()?;
        let join = |left: &Host, number: u8| {
            let (delay, seed) = (format!("{}us", plan.rtt.as_micros() / 2), plan.seed + u64::from(number));
            let settings = ["--rate", RATE, "--queue", QUEUE, "--delay", &delay, "--seed", &seed.to_string()];
            DelayedLink::emulated(&lab, left, &pair.beta, number, &settings, &tools.linkemu)
        };
        let first = join(nat.as_ref().map_or(&pair.alpha, |nat| &nat.0), 1)?;
        let inner = match &nat {
            Some(nat) => lab.join(&pair.alpha, &nat.0, INNER, Offloads::On)?,
            None => first.link.clone(),
        };
        let second = plan.second.then(|| join(&pair.alpha, 2)).transpose()?;
        let outer = second.as_ref().map(|second| &second.link);
        for (link, metric) in std::iter::once(&inner).chain(outer).zip(["10", "20"]) {
            route_by(&pair.alpha, link, metric)?;
            link.set_left_tcp_control(TCP_CONTROL)?;
            meet(&pair.alpha, link)?;
        }
        if let (Some(nat), Some(second)) = (&nat, outer) {
            nat.learn(second, &first.link)?;
        }
        let flow = tools.programs.path("flow");
        let mut world =
            Self { pair, first, nat, flow, transport: plan.transport, daemons: None, second, _lab: lab };
        world.prepare(tools, plan.configuration)?;
        Ok(world)
    }

    /// Starts the daemons, or configures MPTCP's path manager, as the transport requires.
    fn prepare(&mut self, tools: &Tools, configuration: &str) -> Result<()> {
        match self.transport {
            Transport::Tcp => {}
            Transport::Mptcp => {
                self.offer_mptcp(&self.pair.alpha, "subflow")?;
                self.offer_mptcp(&self.pair.beta, "signal")?;
            }
            Transport::Sctpify => self.daemons = Some(self.pair.start_daemons_with(tools, configuration)?),
        }
        Ok(())
    }

    fn offer_mptcp(&self, host: &Host, role: &str) -> Result<()> {
        host.ip(&["mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4"])?;
        let Some(DelayedLink { link, .. }) = &self.second else { return Ok(()) };
        let own = if role == "subflow" { link.left_v4() } else { link.right_v4() };
        host.ip(&["mptcp", "endpoint", "add", &own.to_string(), "dev", &link.name(), role]).map(drop)
    }

    /// Returns the port that connections use.
    pub(in crate::experiments) fn port(&self) -> u16 {
        if self.transport == Transport::Sctpify { SHIM_PORT } else { TCP_PORT }
    }

    /// Returns beta's address on the first link.
    pub(in crate::experiments) fn server(&self) -> Ipv4Addr {
        self.first.link.right_v4()
    }

    /// Returns the programs' argument that selects MPTCP, if it is the transport.
    pub(in crate::experiments) fn word(&self) -> Option<&'static str> {
        (self.transport == Transport::Mptcp).then_some("mptcp")
    }

    fn has_second(&self) -> Result<bool> {
        let second = self.second.as_ref().context("no second link")?;
        let (here, there) = (second.link.left_v4().to_string(), second.link.right_v4().to_string());
        Ok(match &self.daemons {
            None => {
                self.pair.alpha.tool("ss", &["-Htn", "state", "established", "dst", &there])?.contains(&here)
            }
            Some(daemons) => daemons.alphas.sctpify(&["status", "--json"])?.good()?.stdout.contains(&there),
        })
    }

    fn link(&self, number: usize) -> Result<&DelayedLink> {
        let mut links = std::iter::once(&self.first).chain(&self.second);
        links.nth(number).with_context(|| format!("no link {number}"))
    }

    /// Stops the daemons gracefully, if the transport uses daemons.
    pub(in crate::experiments) fn end(self) {
        if let Some(daemons) = self.daemons {
            daemons.stop();
        }
    }
}

impl Victim for World {
    fn set_link(&self, link: usize, settings: &[&str]) -> Result<()> {
        self.link(link)?.set(settings)
    }

    fn senders_ip(&self, words: &[&str]) -> Result<()> {
        self.pair.alpha.ip(words).map(drop)
    }

    fn senders_end(&self, link: usize) -> Result<(String, String)> {
        let link = &self.link(link)?.link;
        Ok((link.name(), format!("{}/24", link.left_v4())))
    }

    fn rebind(&self) -> Result<()> {
        self.nat.as_ref().context("no NAT")?.rebind()
    }

    fn set_nat_silent(&self, is_silent: bool) -> Result<()> {
        self.nat.as_ref().context("no NAT")?.set_silent(is_silent)
    }
}

impl Stage for World {
    fn receive(&self, limit_s: f64, from_s: f64) -> Result<Process> {
        let [port, limit, from] = [self.port().to_string(), limit_s.to_string(), from_s.to_string()];
        let words = ["receive", &port, &limit, &from];
        self.pair.serve(&self.flow, &[&words[..], self.word().as_slice()].concat())
    }

    fn send(&self, stream_s: f64, load: Load) -> Result<Process> {
        let mut command = self.pair.alpha.command(&self.flow);
        command.args(["send", &format!("{}:{}", self.server(), self.port()), &stream_s.to_string()]);
        command.args([load.size.to_string(), load.pause_us.to_string()]).args(self.word());
        self.pair.alpha.spawn("sender", command)
    }

    fn ensure_second(&self) -> Result<()> {
        ensure!(
            self.second.is_none() || self.transport == Transport::Tcp || self.has_second()?,
            "{:?}: one path",
            self.transport
        );
        Ok(())
    }

    fn ensure_over_sctp(&self) -> Result<()> {
        let Some(daemons) = &self.daemons else { return Ok(()) };
        let over_sctp = daemons.connects_sctp()?;
        if over_sctp == 1 {
            return Ok(());
        }
        Err(FellBack(format!("{over_sctp} of 1 were carried over SCTP: {}", daemons.recent_fallbacks()?))
            .into())
    }

    fn shown(&self) -> Result<Vec<Value>> {
        std::iter::once(&self.first).chain(&self.second).map(DelayedLink::show).collect()
    }
}

/// Makes both ends of a link resolve each other's link-layer address. The link stands for a long path, on
/// which connections do not wait for ARP.
fn meet(host: &Host, link: &Link) -> Result<()> {
    // `ping` repeats its requests until the first answer, because a new link may lose the first packets.
    let patience = ["-q", "-c", "1", "-i", "0.2", "-w", "5"];
    let options = ["-I", &link.name(), &link.right_v4().to_string()];
    host.tool("ping", &[&patience[..], &options].concat()).map(drop)
}

/// Adds a default route over a link. With one such route per link, the host reaches all networks over each
/// link.
fn route_by(host: &Host, link: &Link, metric: &str) -> Result<()> {
    let (via, name) = (link.right_v4().to_string(), link.name());
    let route =
        ["route", "add", "default", "via", &via, "dev", &name, "metric", metric, "congctl", TCP_CONTROL];
    host.ip(&route).map(drop)
}

//! Hosts with SIP proxies and user agents.

use super::agent_report::AgentReport;
use crate::experiment::{Cell, Environment};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;
use testbed::{DelayedLink, Host, Lab, Process};

/// Limit on the time until a started program is ready, and on the time until a stopped program ends.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// Domain of the users in [`Star`], and of the callers in [`Joined`].
pub(super) const DOMAIN: &str = "a.example";
/// Domain of the called users in [`Joined`].
const CALLED_DOMAIN: &str = "b.example";
/// TCP's congestion control, regardless of the host's default.
const TCP_CONTROL: &str = "cubic";
/// Port of user agent 0. The port of agent n is higher by n.
const AGENT_PORT: u16 = 5070;

/// A user agent, before it is started.
pub(super) struct Agent<'a> {
    pub(super) host: &'a Host,
    pub(super) address: Ipv4Addr,
    pub(super) proxy: Ipv4Addr,
    pub(super) transport: &'a str,
    /// The user's name without the number.
    pub(super) name: &'a str,
    /// Number of the agent, which is appended to the name and added to the port.
    pub(super) number: u16,
    pub(super) domain: &'a str,
}

impl Agent<'_> {
    fn command(&self, environment: &Environment, words: &[&str]) -> Command {
        let mut command = self.host.command(environment.tools.programs.path("sctpify-ua"));
        let (number, port) = (self.number, AGENT_PORT + self.number);
        command.args(["--local", &format!("{}:{port}", self.address)]);
        command.args(["--proxy", &format!("{}:5060", self.proxy), "--transport", self.transport]);
        command.args(["--user", &format!("{}{number}@{}", self.name, self.domain), "--log", "info"]);
        // The log must have no colours, because the lab parses it.
        command.env("NO_COLOR", "1").args(["--rtp-port", &(4000 + 2 * number).to_string()]).args(words);
        command
    }

    /// Starts the agent.
    pub(super) fn start(&self, environment: &Environment, words: &[&str]) -> Result<Process> {
        self.host.spawn(&format!("{}{}", self.name, self.number), self.command(environment, words))
    }

    /// Starts the agent, and waits until it has registered `times` times.
    pub(super) fn registered(
        &self,
        environment: &Environment,
        words: &[&str],
        times: u32,
    ) -> Result<Process> {
        let mut agent = self.start(environment, words)?;
        let count = |agent: &Process| agent.stderr().matches("event=Registered").count();
        agent.wait_until("registrations", LIMIT, |agent| count(agent) >= times as usize)?;
        Ok(agent)
    }

    /// Runs the agent until it ends, and returns its report.
    pub(super) fn run(
        &self,
        environment: &Environment,
        words: &[&str],
        limit: Duration,
    ) -> Result<AgentReport> {
        AgentReport::of(&self.start(environment, words)?.finish(limit)?)
    }
}

/// Sends a ping from a host to an address, which resolves the link-layer addresses along the path.
fn meet(host: &Host, address: Ipv4Addr) -> Result<()> {
    host.tool("ping", &["-c", "1", "-W", "5", "-q", &address.to_string()]).map(drop)
}

/// Stops an agent with SIGTERM, and returns its report.
pub(super) fn stop(agent: Process) -> Result<AgentReport> {
    agent.signal(Signal::SIGTERM)?;
    AgentReport::of(&agent.finish(LIMIT)?)
}

/// Starts a proxy with this configuration, and waits until its `listeners` sockets listen.
pub(super) fn proxy(
    environment: &Environment,
    host: &Host,
    configuration: &str,
    listeners: usize,
) -> Result<Process> {
    let path = host.dir()?.join("sip.toml");
    std::fs::write(&path, configuration).with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = host.command(environment.tools.programs.path("sctpify-sip"));
    command.arg("--config").arg(&path);
    let mut proxy = host.spawn("proxy", command)?;
    proxy.wait_until("listening", LIMIT, |proxy| proxy.stderr().matches("listening").count() == listeners)?;
    Ok(proxy)
}

pub(super) fn listen(transport: &str, address: Ipv4Addr) -> String {
    format!("[[listen]]\ntransport = \"{transport}\"\naddress = \"{address}:5060\"\n")
}

/// A proxy, and a host of user agents on each side of it (Figures 5.4 and 5.8).
pub(super) struct Star {
    pub(super) callers: Host,
    pub(super) called: Host,
    pub(super) proxy: Host,
    pub(super) links: [DelayedLink; 2],
    pub(super) transport: &'static str,
    _proxy: Process,
    /// The last field, because its drop removes the namespaces of the other fields.
    _lab: Lab,
}

impl Star {
    /// Creates the hosts, and starts the proxy. `settings` are the arguments of `linkemu` for both links.
    pub(super) fn new(
        environment: &Environment,
        transport: &'static str,
        settings: &[&str],
        seed: u64,
    ) -> Result<Self> {
        let lab = Lab::new()?;
        let (callers, proxy_host, called) = (lab.host("callers")?, lab.host("proxy")?, lab.host("called")?);
        let join = |left: &Host, right: &Host, number: u8| {
            let seed = (seed + u64::from(number)).to_string();
            let settings = [settings, &["--seed", &seed]].concat();
            DelayedLink::emulated(&lab, left, right, number, &settings, &environment.tools.linkemu)
        };
        let links = [join(&callers, &proxy_host, 1)?, join(&proxy_host, &called, 2)?];
        // All agents use the same address of the proxy, on the first link.
        let (first, second) = (&links[0].link, &links[1].link);
        let via = second.left_v4().to_string();
        called.ip(&["route", "add", &first.right_v4().to_string(), "via", &via, "congctl", TCP_CONTROL])?;
        [first, second].into_iter().try_for_each(|link| link.set_tcp_controls(TCP_CONTROL))?;
        let address = first.right_v4();
        // Resolves link-layer addresses now, so no measured packet waits for ARP.
        [&callers, &called].into_iter().try_for_each(|host| meet(host, address))?;
        let listeners: String = ["udp", "tcp", "sctp"].map(|transport| listen(transport, address)).concat();
        let configuration = format!("domains = [\"{DOMAIN}\"]\n{listeners}[access]\nrequests_per_s = 0\n");
        let process = proxy(environment, &proxy_host, &configuration, 3)?;
        Ok(Self { callers, called, proxy: proxy_host, links, transport, _proxy: process, _lab: lab })
    }

    fn proxy_address(&self) -> Ipv4Addr {
        self.links[0].link.right_v4()
    }

    /// Returns the user agent of a caller.
    pub(super) fn caller(&self, number: u16) -> Agent<'_> {
        self.agent(&self.callers, self.links[0].link.left_v4(), "alice", number)
    }

    /// Returns the user agent of a callee.
    pub(super) fn callee(&self, number: u16) -> Agent<'_> {
        self.agent(&self.called, self.links[1].link.right_v4(), "bob", number)
    }

    fn agent<'a>(&'a self, host: &'a Host, address: Ipv4Addr, name: &'a str, number: u16) -> Agent<'a> {
        let (proxy, transport) = (self.proxy_address(), self.transport);
        Agent { host, address, proxy, transport, name, number, domain: DOMAIN }
    }

    /// Changes the settings of both links.
    pub(super) fn set(&self, settings: &[&str]) -> Result<()> {
        self.links.iter().try_for_each(|link| link.set(settings))
    }
}

/// Returns the URI of a callee at the single proxy.
pub(super) fn bob(number: u16) -> String {
    format!("sip:bob{number}@{DOMAIN}")
}

/// Transport between two proxies.
#[derive(Clone, Copy)]
pub(super) struct Between {
    pub(super) transport: &'static str,
    /// Lines for the table `[sctp]` of the proxies' configuration.
    pub(super) sctp: &'static str,
    /// TCP's congestion control.
    pub(super) tcp_control: &'static str,
    /// Number of links between the proxies, 1 or 2. An association has addresses on all links.
    pub(super) links: u8,
}

impl Between {
    /// Returns this transport over one link, with CUBIC as TCP's congestion control.
    pub(super) const fn by(transport: &'static str) -> Self {
        Self { transport, sctp: "", tcp_control: TCP_CONTROL, links: 1 }
    }
}

/// Two proxies joined by one or two links. Each user agent runs on the host of its proxy, and reaches the
/// proxy over UDP.
pub(super) struct Joined {
    pub(super) links: Vec<DelayedLink>,
    callers: Host,
    proxies: [Process; 2],
    _callee: Process,
    /// The last field, because its drop removes the namespaces of the other fields.
    _lab: Lab,
}

impl Joined {
    /// Creates the proxies with the transport of the cell's series. `all` must contain this series. Before
    /// the function returns, a few calls set up the connection between the proxies.
    pub(super) fn of_cell(
        environment: &Environment,
        all: &[(&str, Between)],
        cell: &Cell,
        rtt_ms: f64,
    ) -> Result<Self> {
        let series = all.iter().find(|(name, _)| *name == cell.point.series);
        let (_, between) = series.context("no such series")?;
        let delay = format!("{}us", rtt_ms * 500.0);
        let joined = Joined::new(environment, between, &["--delay", &delay], cell.seed)?;
        joined.warm_up(environment)?;
        Ok(joined)
    }

    /// Creates the proxies, and a callee at the far proxy. `settings` are the arguments of `linkemu` for all
    /// links.
    fn new(environment: &Environment, between: &Between, settings: &[&str], seed: u64) -> Result<Self> {
        let lab = Lab::new()?;
        let (callers, called) = (lab.host("alpha")?, lab.host("beta")?);
        let join = |number: u8| {
            let seed = (seed + u64::from(number)).to_string();
            let settings = [settings, &["--seed", &seed]].concat();
            DelayedLink::emulated(&lab, &callers, &called, number, &settings, &environment.tools.linkemu)
        };
        let links = (1..=between.links).map(join).collect::<Result<Vec<_>>>()?;
        links.iter().try_for_each(|link| link.link.set_tcp_controls(between.tcp_control))?;
        let lefts: Vec<Ipv4Addr> = links.iter().map(|link| link.link.left_v4()).collect();
        let rights: Vec<Ipv4Addr> = links.iter().map(|link| link.link.right_v4()).collect();
        let sides = [
            (&callers, DOMAIN, &lefts, CALLED_DOMAIN, &rights),
            (&called, CALLED_DOMAIN, &rights, DOMAIN, &lefts),
        ];
        let [near, far] = sides.map(|(host, domain, ours, other, theirs)| {
            let (text, listeners) = joined(between, domain, ours, other, theirs[0]);
            proxy(environment, host, &text, listeners)
        });
        let proxies = [near?, far?];
        let bob = Agent {
            host: &called,
            address: rights[0],
            proxy: rights[0],
            transport: "udp",
            name: "bob",
            number: 0,
            domain: CALLED_DOMAIN,
        };
        let callee = bob.registered(environment, &[], 1)?;
        Ok(Self { links, callers, proxies, _callee: callee, _lab: lab })
    }

    /// Returns the user agent of the caller.
    fn alice(&self) -> Agent<'_> {
        let address = self.links[0].link.left_v4();
        let (host, domain) = (&self.callers, DOMAIN);
        Agent { host, address, proxy: address, transport: "udp", name: "alice", number: 0, domain }
    }

    /// Starts `calls` calls, at `rate` calls per second. The caller hangs up each call as soon as it is
    /// answered.
    pub(super) fn begin_calls(&self, environment: &Environment, rate: f64, calls: u32) -> Result<Process> {
        let (rate, calls) = (rate.to_string(), calls.to_string());
        let uri = format!("sip:bob0@{CALLED_DOMAIN}");
        self.alice()
            .start(environment, &["--call", &uri, "--calls", &calls, "--rate", &rate, "--duration", "0"])
    }

    /// Makes a few calls, which set up the connection between the proxies.
    fn warm_up(&self, environment: &Environment) -> Result<()> {
        let report = AgentReport::of(&self.begin_calls(environment, 20.0, 5)?.finish(LIMIT)?)?;
        let answered = report.number("calls_answered/count")?;
        ensure!(answered == 5.0, "{answered} of 5 calls without loss were answered");
        Ok(())
    }

    /// Returns the number of bytes that the near proxy's host has sent over each link.
    pub(super) fn sent_bytes(&self) -> Result<Vec<u64>> {
        self.links.iter().map(|link| link.link.left_sent_bytes()).collect()
    }

    /// Returns the number of path switches that the near proxy has logged.
    pub(super) fn switches(&self) -> usize {
        self.proxies[0].stderr().matches("SCTP path switched").count()
    }
}

/// Returns the configuration of a proxy that reaches the other proxy, and the number of its listeners.
fn joined(
    between: &Between,
    domain: &str,
    ours: &[Ipv4Addr],
    other: &str,
    theirs: Ipv4Addr,
) -> (String, usize) {
    let Between { transport, sctp, .. } = *between;
    let mut text = format!("domains = [\"{domain}\"]\n{}", listen("udp", ours[0]));
    if transport != "udp" {
        text += &listen(transport, ours[0]);
    }
    text += &format!(
        "[[next_hop]]\ndomain = \"{other}\"\ntransport = \"{transport}\"\naddress = \"{theirs}:5060\"\n"
    );
    let more: Vec<String> = ours[1..].iter().map(|address| format!("\"{address}\"")).collect();
    text += &format!("[access]\nrequests_per_s = 0\n[sctp]\naddresses = [{}]\n{sctp}\n", more.join(", "));
    (text, if transport == "udp" { 1 } else { 2 })
}

//! Two hosts on one link. Their daemons have rules for [`PORT`] and [`HTTP_PORT`]. Functions of this module read the
//! daemons' reports.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Lab, Link, Offloads, Process, Programs, cpu};

/// Port of beta whose connections use SCTP.
pub(crate) const PORT: u16 = 7000;
/// Port of nginx on beta, whose connections also use SCTP.
pub(crate) const HTTP_PORT: u16 = 80;
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Limit on the time until the daemons have no ended connections any more.
const QUIET_LIMIT: Duration = Duration::from_secs(20);
/// Number of IPv6 send sockets that a daemon opens for one link: one for each carrier.
const LASTING_SENDERS: usize = 2;
/// Path of the program `bulk`, which measures throughput and connects repeatedly.
pub(crate) const BULK: &str = env!("CARGO_BIN_EXE_bulk");

/// Configuration that offers no encryption.
pub(crate) const UNENCRYPTED: &str = "encryption = \"off\"\n";

pub(crate) struct World {
    pub(crate) alpha: Host,
    pub(crate) beta: Host,
    pub(crate) link: Link,
    pub(crate) alphas: Daemon,
    /// Daemon on beta; `None` if beta has none.
    pub(crate) betas: Option<Daemon>,
    pub(crate) lab: Lab,
}

/// Drops SCTP over UDP and over IP silently on arrival.
pub(crate) fn drop_sctp(host: &Host) {
    let rules = "add table inet deaf; add chain inet deaf in { type filter hook prerouting priority -400; }; \
                 add rule inet deaf in udp dport 9899 drop; add rule inet deaf in meta l4proto 132 drop";
    host.tool("nft", &[rules]).unwrap();
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with("", true)
    }

    /// Creates a world with this configuration of alpha's daemon. Beta has a daemon if `at_beta` is set.
    pub(crate) fn with(configuration: &str, at_beta: bool) -> Self {
        Self::over(Offloads::On, configuration, at_beta.then_some(""))
    }

    /// Creates a world with these configurations of the daemons on alpha and beta. Beta has no daemon if `betas` is
    /// `None`.
    pub(crate) fn of_each(alphas: &str, betas: Option<&str>) -> Self {
        Self::over(Offloads::On, alphas, betas)
    }

    /// Creates a world with daemons on both hosts. Segmentation offloads are off, so captures of the link show each
    /// packet separately.
    pub(crate) fn without_offloads() -> Self {
        Self::over(Offloads::Off, "", Some(""))
    }

    /// Like [`World::without_offloads`], but without encryption, so captures show each chunk.
    pub(crate) fn readable() -> Self {
        Self::over(Offloads::Off, UNENCRYPTED, Some(""))
    }

    fn over(offloads: Offloads, configuration: &str, at_beta: Option<&str>) -> Self {
        let programs = Programs::find().unwrap();
        let lab = Lab::new().unwrap();
        let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
        let link = lab.join(&alpha, &beta, 1, offloads).unwrap();
        let alphas = Daemon::start(&alpha, &programs, configuration).unwrap();
        let betas = at_beta.map(|configuration| Daemon::start(&beta, &programs, configuration).unwrap());
        for port in [PORT, HTTP_PORT].map(|port| port.to_string()) {
            alphas.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
            if let Some(betas) = &betas {
                betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
            }
        }
        Self { alpha, beta, link, alphas, betas, lab }
    }

    /// Returns beta's IPv4 address and [`PORT`], in the form "address:port".
    pub(crate) fn target(&self) -> String {
        format!("{}:{PORT}", self.link.right_v4())
    }

    /// Starts a program on beta, and waits until it prints "listening".
    pub(crate) fn serve(&self, program: &str, args: &[&str]) -> Process {
        let mut command = self.beta.command(program);
        command.args(args);
        let mut process = self.beta.spawn("server", command).unwrap();
        process.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
        process
    }

    /// Returns a command that runs a program on alpha.
    pub(crate) fn client(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.alpha.command(program);
        command.args(args);
        command
    }

    /// Waits until neither daemon has a connection, and until only shared, idle associations remain. Fails after
    /// [`QUIET_LIMIT`].
    pub(crate) fn wait_quiet(&self) {
        let is_quiet = |daemon: &Daemon| {
            let status = status(daemon);
            let is_idle = |association: &Value| association["shared_by"] == 0;
            status["connections"].as_array().is_some_and(Vec::is_empty)
                && status["associations"].as_array().is_some_and(|all| all.iter().all(is_idle))
        };
        let daemons = || std::iter::once(&self.alphas).chain(&self.betas);
        let quiet = wait_for(QUIET_LIMIT, || daemons().all(is_quiet));
        assert!(quiet, "alpha, beta: {:?}", daemons().map(status).collect::<Vec<_>>());
    }

    /// Makes a first connection. It makes the daemons open all descriptors that later connections share. Returns the
    /// number of open descriptors of the daemons on alpha and on beta.
    pub(crate) fn descriptors_after(&self, first: Command) -> (usize, usize) {
        self.alpha.run("first", first, LIMIT).unwrap().good().unwrap();
        self.wait_quiet();
        self.descriptors()
    }

    /// Returns the number of open descriptors of the daemons on alpha and on beta.
    fn descriptors(&self) -> (usize, usize) {
        (descriptors(&self.alpha), descriptors(&self.beta))
    }

    /// Waits until each daemon has no more open descriptors than `before`, plus [`LASTING_SENDERS`]. The daemon closes
    /// the socket of a status query shortly after the query. The first IPv6 packet of each carrier may open a send
    /// socket for the link at any time.
    pub(crate) fn wait_descriptors(&self, before: (usize, usize)) {
        let is_back =
            |now: (usize, usize)| now.0 <= before.0 + LASTING_SENDERS && now.1 <= before.1 + LASTING_SENDERS;
        let closed = wait_for(QUIET_LIMIT, || is_back(self.descriptors()));
        assert!(closed, "open descriptors of the daemons: {before:?} before, {:?} after", self.descriptors());
    }

    /// Returns the number of alpha's connections over SCTP so far.
    pub(crate) fn connects_sctp(&self) -> u64 {
        status(&self.alphas)["counters"]["connects_sctp"].as_u64().unwrap()
    }

    /// Returns alpha's recent fallbacks to plain TCP, with their reasons.
    pub(crate) fn fallbacks(&self) -> Value {
        status(&self.alphas)["recent_fallbacks"].take()
    }
}

/// Returns the status that `sctpify status` reports, as JSON.
pub(crate) fn status(daemon: &Daemon) -> Value {
    let output = daemon.sctpify(&["status", "--json"]).unwrap().good().unwrap();
    serde_json::from_str(&output.stdout).unwrap()
}

fn descriptors(host: &Host) -> usize {
    let ids = cpu::processes(host, "sctpifyd").unwrap();
    let count = |id: u32| {
        std::fs::read_dir(Path::new("/proc").join(id.to_string()).join("fd")).map_or(0, Iterator::count)
    };
    ids.into_iter().map(count).sum()
}

/// A client and a server, each with a daemon. The rules of both daemons enable [`PORT`]. The client has two uplinks to
/// a router, two default routes and no policy routing. The server is behind the router, and has one address.
pub(crate) struct TwoUplinks {
    pub(crate) alpha: Host,
    pub(crate) beta: Host,
    /// Links from alpha to the router. The route over the first one has the better metric.
    pub(crate) uplinks: [Link; 2],
    pub(crate) alphas: Daemon,
    behind: Link,
    _betas: Daemon,
    _router: Host,
    _lab: Lab,
}

impl TwoUplinks {
    pub(crate) fn new() -> TwoUplinks {
        TwoUplinks::with("")
    }

    /// Creates these hosts. `alphas_config` is the configuration of the client's daemon.
    pub(crate) fn with(alphas_config: &str) -> TwoUplinks {
        let programs = Programs::find().unwrap();
        let lab = Lab::new().unwrap();
        let [alpha, router, beta] = ["alpha", "router", "beta"].map(|name| lab.host(name).unwrap());
        let uplinks = [1, 2].map(|number| lab.join(&alpha, &router, number, Offloads::On).unwrap());
        let behind = lab.join(&router, &beta, 3, Offloads::On).unwrap();
        router.tool("sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"]).unwrap();
        beta.ip(&["route", "add", "default", "via", &behind.left_v4().to_string()]).unwrap();
        for (uplink, metric) in uplinks.iter().zip(["10", "20"]) {
            let (via, name) = (uplink.right_v4().to_string(), uplink.name());
            alpha.ip(&["route", "add", "default", "via", &via, "dev", &name, "metric", metric]).unwrap();
        }
        let [alphas, betas] = [(&alpha, alphas_config), (&beta, "")]
            .map(|(host, config)| Daemon::start(host, &programs, config).unwrap());
        let port = PORT.to_string();
        alphas.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
        betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
        TwoUplinks { alpha, beta, uplinks, alphas, behind, _betas: betas, _router: router, _lab: lab }
    }

    /// Returns the server's address.
    pub(crate) fn server(&self) -> String {
        self.behind.right_v4().to_string()
    }

    /// Returns the server's address and [`PORT`], in the form "address:port".
    pub(crate) fn target(&self) -> String {
        format!("{}:{PORT}", self.server())
    }

    /// Starts a program on the server, and waits until it listens.
    pub(crate) fn serve(&self, program: &str, args: &[&str]) -> Process {
        let mut command = self.beta.command(program);
        command.args(args);
        let mut server = self.beta.spawn("server", command).unwrap();
        server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
        server
    }
}

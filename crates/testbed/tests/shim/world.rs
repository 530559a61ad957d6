//! Two hosts on one link, daemons with rules for [`PORT`] and [`HTTP_PORT`], and what the daemon tells.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Lab, Link, Offloads, Process, Programs, cpu};

/// Connections to this port of beta ride SCTP.
pub(crate) const PORT: u16 = 7000;
/// So do those to nginx.
pub(crate) const HTTP_PORT: u16 = 80;
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// How long the daemons may take to forget connections that are over.
const QUIET_LIMIT: Duration = Duration::from_secs(20);
/// IPv6 senders that a daemon opens for one link: one by each carrier.
const LASTING_SENDERS: usize = 2;
/// The program that measures throughput and connects again and again.
pub(crate) const BULK: &str = env!("CARGO_BIN_EXE_bulk");

pub(crate) struct World {
    pub(crate) alpha: Host,
    pub(crate) beta: Host,
    pub(crate) link: Link,
    pub(crate) alphas: Daemon,
    /// None where beta has no sctpify.
    pub(crate) betas: Option<Daemon>,
    pub(crate) lab: Lab,
}

/// Drops SCTP by both carriers where it arrives, and tells nobody.
pub(crate) fn drop_sctp(host: &Host) {
    let rules = "add table inet deaf; add chain inet deaf in { type filter hook prerouting priority -400; }; \
                 add rule inet deaf in udp dport 9899 drop; add rule inet deaf in meta l4proto 132 drop";
    host.tool("nft", &[rules]).unwrap();
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with("", true)
    }

    /// With alpha's configuration, and a daemon at beta or none.
    pub(crate) fn with(configuration: &str, at_beta: bool) -> Self {
        Self::over(Offloads::On, configuration, at_beta)
    }

    /// Daemons at both ends of a link that shows each packet alone.
    pub(crate) fn without_offloads() -> Self {
        Self::over(Offloads::Off, "", true)
    }

    fn over(offloads: Offloads, configuration: &str, at_beta: bool) -> Self {
        let programs = Programs::find().unwrap();
        let lab = Lab::new().unwrap();
        let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
        let link = lab.join(&alpha, &beta, 1, offloads).unwrap();
        let alphas = Daemon::start(&alpha, &programs, configuration).unwrap();
        let betas = at_beta.then(|| Daemon::start(&beta, &programs, "").unwrap());
        for port in [PORT, HTTP_PORT].map(|port| port.to_string()) {
            alphas.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
            if let Some(betas) = &betas {
                betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
            }
        }
        Self { alpha, beta, link, alphas, betas, lab }
    }

    /// "beta's address:PORT".
    pub(crate) fn target(&self) -> String {
        format!("{}:{PORT}", self.link.right_v4())
    }

    /// Starts a program on beta that prints "listening" when it does.
    pub(crate) fn serve(&self, program: &str, args: &[&str]) -> Process {
        let mut command = self.beta.command(program);
        command.args(args);
        let mut process = self.beta.spawn("server", command).unwrap();
        process.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
        process
    }

    /// A program on alpha.
    pub(crate) fn client(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.alpha.command(program);
        command.args(args);
        command
    }

    /// Waits until neither daemon knows a connection, or an association but for one that nothing uses, and fails when that
    /// never comes.
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

    /// Open descriptors once a first connection is over: it opens what all later ones share.
    pub(crate) fn descriptors_after(&self, first: Command) -> (usize, usize) {
        self.alpha.run("first", first, LIMIT).unwrap().good().unwrap();
        self.wait_quiet();
        self.descriptors()
    }

    /// Open file descriptors of the daemons on alpha and on beta.
    fn descriptors(&self) -> (usize, usize) {
        (descriptors(&self.alpha), descriptors(&self.beta))
    }

    /// Waits until no more descriptors are open than `before`, but for those that last: the last question's socket closes a
    /// little later, and the first IPv6 packet by each carrier opens a sender for the link, which may come at any time.
    pub(crate) fn wait_descriptors(&self, before: (usize, usize)) {
        let is_back =
            |now: (usize, usize)| now.0 <= before.0 + LASTING_SENDERS && now.1 <= before.1 + LASTING_SENDERS;
        let closed = wait_for(QUIET_LIMIT, || is_back(self.descriptors()));
        assert!(closed, "open descriptors of the daemons: {before:?} before, {:?} after", self.descriptors());
    }

    /// How many of alpha's connections rode SCTP so far.
    pub(crate) fn connects_sctp(&self) -> u64 {
        status(&self.alphas)["counters"]["connects_sctp"].as_u64().unwrap()
    }

    /// Why connections of alpha were plain TCP lately.
    pub(crate) fn fallbacks(&self) -> Value {
        status(&self.alphas)["recent_fallbacks"].take()
    }
}

/// What `sctpify status` tells.
pub(crate) fn status(daemon: &Daemon) -> Value {
    let told = daemon.sctpify(&["status", "--json"]).unwrap().good().unwrap();
    serde_json::from_str(&told.stdout).unwrap()
}

fn descriptors(host: &Host) -> usize {
    let ids = cpu::processes(host, "sctpifyd").unwrap();
    let count = |id: u32| {
        std::fs::read_dir(Path::new("/proc").join(id.to_string()).join("fd")).map_or(0, Iterator::count)
    };
    ids.into_iter().map(count).sum()
}

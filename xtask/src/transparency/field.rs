//! The environment of a suite: one host that talks to itself, or two hosts, with daemons or without. Also the daemons' counts of
//! connections.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt;
use testbed::{Daemon, Host, Lab, Link, Offloads, Programs};

/// Configuration that makes all connections of the host use SCTP. The race timer and the number of INITs have their maximum values, because
/// a handshake can take long on a busy machine.
const CONFIGURATION: &str = "default_local_enable = true
default_remote_enable = true
race_timer_ms = 3000
init_rtx_max = 12
learn = false
";

/// Kind of world that a suite needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// One host that connects to itself.
    Alone,
    /// Two hosts on one link.
    Pair,
}

/// A world that is set up.
pub(crate) struct Field {
    pub(crate) alpha: Host,
    /// The other host and the link to it, in a [`World::Pair`].
    pub(crate) beta: Option<(Host, Link)>,
    daemons: Vec<Daemon>,
    pub(crate) lab: Lab,
}

impl Field {
    /// Creates a world without sctpify.
    pub(crate) fn plain(world: World) -> Result<Self> {
        let lab = Lab::new()?;
        let alpha = lab.host("alpha")?;
        let beta = match world {
            World::Alone => None,
            World::Pair => {
                let beta = lab.host("beta")?;
                let link = lab.join(&alpha, &beta, 1, Offloads::On)?;
                Some((beta, link))
            }
        };
        Ok(Self { alpha, beta, daemons: Vec::new(), lab })
    }

    /// Creates a world with a daemon on each host.
    pub(crate) fn with_daemons(world: World, programs: &Programs) -> Result<Self> {
        let mut field = Self::plain(world)?;
        let loopback = if world == World::Alone { "loopback = true\n" } else { "" };
        let configuration = format!("{CONFIGURATION}{loopback}");
        let hosts = std::iter::once(&field.alpha).chain(field.beta.as_ref().map(|(beta, _)| beta));
        field.daemons =
            hosts.map(|host| Daemon::start(host, programs, &configuration)).collect::<Result<_>>()?;
        Ok(field)
    }

    /// Returns the connection counts of all daemons, added up.
    pub(crate) fn connection_counts(&self) -> Result<ConnectionCounts> {
        let mut counts = ConnectionCounts::default();
        for daemon in &self.daemons {
            let output = daemon.sctpify(&["status", "--json"])?.good()?;
            let status: Value = serde_json::from_str(&output.stdout).context("status is not JSON")?;
            counts.add(&status);
        }
        Ok(counts)
    }
}

/// Counts of connections.
#[derive(Default)]
pub(crate) struct ConnectionCounts {
    over_sctp: u64,
    /// Connections that the daemon counts as kept on TCP by the rules. Their destination is `::1` or the connecting socket itself, or their
    /// client no longer waits.
    by_rule: u64,
    /// Connections that the server's host refused. This host would also refuse them over TCP.
    refused: u64,
    /// Connections that fell back to TCP for another reason.
    strayed: u64,
    why: Vec<String>,
}

impl ConnectionCounts {
    fn add(&mut self, status: &Value) {
        let count = |name: &str| status["counters"][name].as_u64().unwrap_or_default();
        self.over_sctp += count("connects_sctp");
        self.by_rule += count("connects_by_rule_tcp");
        let latest = status["recent_fallbacks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let others: Vec<&Value> =
            latest.iter().filter(|fallback| fallback["reason"]["kind"] != "peer_aborted").collect();
        self.strayed += others.len() as u64;
        self.refused += count("connects_fallback") - others.len() as u64;
        self.why.extend(others.iter().map(|fallback| fallback.to_string()));
    }

    /// Returns the fault in the counts, if any: too few connections over SCTP, or fallbacks that no refusal caused.
    pub(crate) fn fault(&self, connections_min: u64) -> Option<String> {
        if self.over_sctp < connections_min {
            return Some(format!("{} connections over SCTP, fewer than {connections_min}", self.over_sctp));
        }
        (self.strayed > 0).then(|| format!("{} fell back to TCP: {}", self.strayed, self.why.join("; ")))
    }
}

impl fmt::Display for ConnectionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { over_sctp, by_rule, refused, .. } = self;
        write!(f, "connections: {over_sctp} over SCTP, {refused} refused, {by_rule} by rule plain")
    }
}

//! Two hosts with a daemon in each, and the programs that measure.
//!
//! The daemons take connections to [`SHIM_PORT`] and leave [`TCP_PORT`] alone, so plain TCP and the shim are
//! measured on the same link with the same processes running.

use crate::process::wait_for;
use crate::{Daemon, Host, Lab, Process, Programs};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Connections to this port ride SCTP.
pub const SHIM_PORT: u16 = 5002;
/// Connections to this port are allowed to by alpha, and beta refuses: alpha learns that.
pub const LEARNED_PORT: u16 = 5003;
/// Connections to this port do not.
pub const TCP_PORT: u16 = 5001;
/// How long a server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How long all connections of one kind may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);

/// Programs used by the measurements.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The daemon and its commands.
    pub programs: Programs,
    /// The plain TCP program that sends, receives and connects.
    pub bulk: PathBuf,
    /// The link emulator.
    pub linkemu: PathBuf,
}

impl Tools {
    /// Those that lie where [`Programs::find`] looks.
    ///
    /// # Errors
    /// When a program of ours is missing there.
    pub fn find() -> Result<Self> {
        let programs = Programs::find()?;
        let (bulk, linkemu) = (programs.path("bulk"), programs.path("linkemu"));
        Ok(Self { programs, bulk, linkemu })
    }
}

/// Two hosts; the left one connects.
#[derive(Debug)]
pub struct Pair {
    /// Connects.
    pub alpha: Host,
    /// Serves.
    pub beta: Host,
}

/// The daemons of a pair.
#[derive(Debug)]
pub struct Daemons {
    /// Alpha's.
    pub alphas: Daemon,
    /// Beta's.
    pub betas: Daemon,
}

impl Pair {
    /// Two hosts whose names end in `name`, not joined yet.
    ///
    /// # Errors
    /// When a namespace cannot be made.
    pub fn new(lab: &Lab, name: &str) -> Result<Self> {
        Ok(Self { alpha: lab.host(&format!("alpha{name}"))?, beta: lab.host(&format!("beta{name}"))? })
    }

    /// Starts a daemon on alpha alone, which uses UDP and takes connections to [`SHIM_PORT`].
    ///
    /// # Errors
    /// When it does not begin, or refuses the rule.
    pub fn start_alphas(&self, tools: &Tools) -> Result<Daemon> {
        self.start_alphas_with(tools, "carriers = \"udp\"\n")
    }

    /// The same with a configuration of one's own, in the daemon's TOML.
    ///
    /// # Errors
    /// Like [`Pair::start_alphas`].
    pub fn start_alphas_with(&self, tools: &Tools, configuration: &str) -> Result<Daemon> {
        let daemon = Daemon::start(&self.alpha, &tools.programs, configuration)
            .context("sctpifyd does not run on alpha")?;
        daemon.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &SHIM_PORT.to_string()])?.good()?;
        Ok(daemon)
    }

    /// Starts daemons that use UDP, with rules for [`SHIM_PORT`] and, at alpha, for [`LEARNED_PORT`]. The hosts must be joined before.
    ///
    /// # Errors
    /// When one does not begin, or refuses a rule.
    pub fn start_daemons(&self, tools: &Tools) -> Result<Daemons> {
        self.start_daemons_with(tools, "carriers = \"udp\"\nlearned_failures = 1\nlearned_hold_s = 3600\n")
    }

    /// The same with a configuration of one's own, in the daemon's TOML.
    ///
    /// # Errors
    /// When one does not begin, or refuses a rule.
    pub fn start_daemons_with(&self, tools: &Tools, configuration: &str) -> Result<Daemons> {
        let alphas = Daemon::start(&self.alpha, &tools.programs, configuration)
            .context("sctpifyd does not run on alpha")?;
        let betas = Daemon::start(&self.beta, &tools.programs, configuration)
            .context("sctpifyd does not run on beta")?;
        let rules =
            [(&alphas, "remote", SHIM_PORT), (&alphas, "remote", LEARNED_PORT), (&betas, "local", SHIM_PORT)];
        for (daemon, chain, port) in rules {
            daemon.shimrules(&["-A", "-c", chain, "-p", "enable", "-P", &port.to_string()])?.good()?;
        }
        Ok(Daemons { alphas, betas })
    }

    /// Connects from alpha again and again; how long each took, in microseconds.
    ///
    /// # Errors
    /// When one fails, or all take more than two minutes.
    pub fn connect(&self, to: IpAddr, tools: &Tools, port: u16, count: u32) -> Result<Vec<f64>> {
        let mut command = self.alpha.command(&tools.bulk);
        command.args(["connect", &format!("{to}:{port}"), &count.to_string()]);
        let finished = self.alpha.run("connect", command, CONNECT_LIMIT)?.good()?;
        Ok(finished.stdout.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Starts `bulk` on beta with these words; it listens when this returns.
    ///
    /// # Errors
    /// When it ends, or does not listen within 10 s.
    pub fn serve(&self, program: &Path, args: &[&str]) -> Result<Process> {
        let mut command = self.beta.command(program);
        command.args(args);
        self.serve_command(command)
    }

    /// The same for a command of beta's.
    ///
    /// # Errors
    /// Like [`Pair::serve`].
    pub fn serve_command(&self, command: Command) -> Result<Process> {
        let mut process = self.beta.spawn("server", command)?;
        process.wait_until("listening", START_LIMIT, |process| process.stdout().contains("listening"))?;
        Ok(process)
    }
}

impl Daemons {
    /// How many connections of alpha rode SCTP so far. A measurement that fell back to TCP must not count.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn connects_sctp(&self) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let status: Value = serde_json::from_str(&text).context("sctpify status --json printed no JSON")?;
        number(&status, "connects_sctp").context("sctpify status --json tells no connects_sctp")
    }

    /// How many turns of the packet loop of alpha's daemon took longer than `limit` so far. Asks for its status.
    ///
    /// # Errors
    /// When the daemon does not answer, or `limit` is no bound of its histogram.
    pub fn turns_longer_than(&self, limit: Duration) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let mut status: Value = serde_json::from_str(&text)?;
        let bounds: Vec<u64> = serde_json::from_value(status["turns"]["bounds_us"].take())?;
        let counts: Vec<u64> = serde_json::from_value(status["turns"]["counts"].take())?;
        let bound = bounds.iter().position(|us| Duration::from_micros(*us) == limit);
        let bound = bound.with_context(|| format!("no bucket ends at {limit:?}"))?;
        Ok(counts.iter().skip(bound + 1).sum())
    }

    /// Changes a setting of alpha's.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub fn set(&self, assignment: &str) -> Result<()> {
        self.alphas.sctpify(&["set", assignment])?.good().map(drop)
    }

    /// How many connections of alpha rode an association that others share.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn connects_shared(&self) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let status: Value = serde_json::from_str(&text)?;
        number(&status, "connects_shared").context("sctpify status --json tells no connects_shared")
    }

    /// Whether both daemons have an association that connections share.
    fn have_trunk(&self) -> Result<bool> {
        let has = |daemon: &Daemon| -> Result<bool> {
            let status: Value = serde_json::from_str(&daemon.sctpify(&["status", "--json"])?.good()?.stdout)?;
            Ok(number(&status, "trunks").is_some_and(|trunks| trunks > 0))
        };
        Ok(has(&self.alphas)? && has(&self.betas)?)
    }

    /// Waits until both daemons have an association that connections share; their first connection makes them open it.
    ///
    /// # Errors
    /// When a daemon does not answer, or there is none in 10 s.
    pub fn await_trunk(&self) -> Result<()> {
        let mut outcome = Ok(false);
        let is_up = wait_for(START_LIMIT, || {
            outcome = self.have_trunk();
            !matches!(outcome, Ok(false))
        });
        ensure!(is_up && outcome?, "no association is shared");
        Ok(())
    }

    /// How many connections of alpha were TCP at once, as learned.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn learned_tcp(&self) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let status: Value = serde_json::from_str(&text)?;
        number(&status, "connects_learned_tcp").context("sctpify status --json tells no connects_learned_tcp")
    }

    /// Why connections of alpha were plain TCP lately, as its daemon tells.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn recent_fallbacks(&self) -> Result<String> {
        let told = self.alphas.sctpify(&["status", "--json"])?.good()?;
        let status: Value = serde_json::from_str(&told.stdout)?;
        Ok(status["recent_fallbacks"].to_string())
    }

    /// Ends both.
    pub fn stop(self) {
        self.alphas.stop();
        self.betas.stop();
    }
}

/// The first number of this name, wherever it stands.
fn number(value: &Value, name: &str) -> Option<u64> {
    match value {
        Value::Object(fields) => fields
            .get(name)
            .and_then(Value::as_u64)
            .or_else(|| fields.values().find_map(|inner| number(inner, name))),
        Value::Array(items) => items.iter().find_map(|inner| number(inner, name)),
        _ => None,
    }
}

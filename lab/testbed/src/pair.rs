//! Two hosts, each with a daemon, and the programs for measurements.
//!
//! The daemons carry connections to [`SHIM_PORT`] over SCTP, and ignore connections to [`TCP_PORT`]. A
//! measurement can therefore compare plain TCP and the shim on the same link, while the same processes run.

use crate::process::wait_for;
use crate::{Daemon, Host, Lab, Process, Programs};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Port whose connections the daemons carry over SCTP.
pub const SHIM_PORT: u16 = 5002;
/// Port that alpha's rules enable, and that beta's rules do not enable. Alpha caches the port as not
/// supporting SCTP.
pub const LEARNED_PORT: u16 = 5003;
/// Port whose connections stay plain TCP.
pub const TCP_PORT: u16 = 5001;
/// Limit on the time until a server listens.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Limit on the time from a connection to the shared association that it opens.
const SHARED_LIMIT: Duration = Duration::from_secs(4);
/// Limit on the connections that are made to open a shared association.
const CONNECTS_MAX: u32 = 4;

/// Limit on the time of all connections of one measurement.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);

/// Programs that the measurements use.
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
    /// Returns the programs at the location that [`Programs::find`] returns.
    ///
    /// # Errors
    /// When one of the daemon's programs is missing there.
    pub fn find() -> Result<Self> {
        let programs = Programs::find()?;
        let (bulk, linkemu) = (programs.path("bulk"), programs.path("linkemu"));
        Ok(Self { programs, bulk, linkemu })
    }
}

/// Two hosts: alpha connects, and beta serves.
#[derive(Debug)]
pub struct Pair {
    /// Host that connects.
    pub alpha: Host,
    /// Host that serves.
    pub beta: Host,
}

/// The daemons of a pair.
#[derive(Debug)]
pub struct Daemons {
    /// Alpha's daemon.
    pub alphas: Daemon,
    /// Beta's daemon.
    pub betas: Daemon,
}

impl Pair {
    /// Creates two hosts whose names end in `name`. The hosts have no link yet.
    ///
    /// # Errors
    /// When a namespace cannot be created.
    pub fn new(lab: &Lab, name: &str) -> Result<Self> {
        Ok(Self { alpha: lab.host(&format!("alpha{name}"))?, beta: lab.host(&format!("beta{name}"))? })
    }

    /// Starts a daemon on alpha only. The daemon uses the carrier UDP, and carries connections to
    /// [`SHIM_PORT`] over SCTP.
    ///
    /// # Errors
    /// When the daemon does not start, or rejects the rule.
    pub fn start_alphas(&self, tools: &Tools) -> Result<Daemon> {
        self.start_alphas_with(tools, "carriers = \"udp\"\n")
    }

    /// Like [`Pair::start_alphas`], with a given configuration in TOML.
    ///
    /// # Errors
    /// Like [`Pair::start_alphas`].
    pub fn start_alphas_with(&self, tools: &Tools, configuration: &str) -> Result<Daemon> {
        let daemon = Daemon::start(&self.alpha, &tools.programs, configuration)
            .context("sctpifyd does not run on alpha")?;
        daemon.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", &SHIM_PORT.to_string()])?.good()?;
        Ok(daemon)
    }

    /// Starts daemons that use the carrier UDP. Both daemons have a rule for [`SHIM_PORT`]. Alpha's daemon
    /// also has a rule for [`LEARNED_PORT`]. The hosts must already be joined.
    ///
    /// # Errors
    /// When a daemon does not start, or rejects a rule.
    pub fn start_daemons(&self, tools: &Tools) -> Result<Daemons> {
        self.start_daemons_with(tools, "carriers = \"udp\"\nlearned_failures = 1\nlearned_hold_s = 3600\n")
    }

    /// Like [`Pair::start_daemons`], with a given configuration in TOML.
    ///
    /// # Errors
    /// When a daemon does not start, or rejects a rule.
    pub fn start_daemons_with(&self, tools: &Tools, configuration: &str) -> Result<Daemons> {
        self.start_daemons_each(tools, configuration, configuration)
    }

    /// Like [`Pair::start_daemons`], with one configuration for alpha and one for beta.
    ///
    /// # Errors
    /// When a daemon does not start, or rejects a rule.
    pub fn start_daemons_each(&self, tools: &Tools, alphas: &str, betas: &str) -> Result<Daemons> {
        let alphas =
            Daemon::start(&self.alpha, &tools.programs, alphas).context("sctpifyd does not run on alpha")?;
        let betas =
            Daemon::start(&self.beta, &tools.programs, betas).context("sctpifyd does not run on beta")?;
        let rules =
            [(&alphas, "remote", SHIM_PORT), (&alphas, "remote", LEARNED_PORT), (&betas, "local", SHIM_PORT)];
        for (daemon, chain, port) in rules {
            daemon.shimrules(&["-A", "-c", chain, "-p", "enable", "-P", &port.to_string()])?.good()?;
        }
        Ok(Daemons { alphas, betas })
    }

    /// Connects from alpha `count` times. Returns the duration of each connect, in microseconds.
    ///
    /// # Errors
    /// When a connect fails, or all of them together take longer than two minutes.
    pub fn connect(&self, to: IpAddr, tools: &Tools, port: u16, count: u32) -> Result<Vec<f64>> {
        let mut command = self.alpha.command(&tools.bulk);
        command.args(["connect", &format!("{to}:{port}"), &count.to_string()]);
        self.connect_command(command)
    }

    /// Like [`Pair::connect`], with a command on alpha that runs [`Tools::bulk`] in its mode `connect`.
    ///
    /// # Errors
    /// Like [`Pair::connect`].
    pub fn connect_command(&self, command: Command) -> Result<Vec<f64>> {
        let finished = self.alpha.run("connect", command, CONNECT_LIMIT)?.good()?;
        Ok(finished.stdout.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Starts a program on beta with these arguments. The program is listening on return.
    ///
    /// # Errors
    /// When the program ends, or does not listen within 10 s.
    pub fn serve(&self, program: &Path, args: &[&str]) -> Result<Process> {
        let mut command = self.beta.command(program);
        command.args(args);
        self.serve_command(command)
    }

    /// Like [`Pair::serve`], with a command on beta.
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
    /// Returns the number of alpha's connections over SCTP so far. The number shows whether a measurement fell
    /// back to TCP.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn connects_sctp(&self) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let status: Value = serde_json::from_str(&text).context("sctpify status --json printed no JSON")?;
        number(&status, "connects_sctp").context("sctpify status --json reports no connects_sctp")
    }

    /// Returns the number of turns of alpha's daemon that took longer than `limit`. The daemon's status has
    /// this number, counted from the daemon's start.
    ///
    /// # Errors
    /// When the daemon does not answer, or `limit` is not a bound of its histogram of turns.
    pub fn turns_longer_than(&self, limit: Duration) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let mut status: Value = serde_json::from_str(&text)?;
        let bounds: Vec<u64> = serde_json::from_value(status["turns"]["bounds_us"].take())?;
        let counts: Vec<u64> = serde_json::from_value(status["turns"]["counts"].take())?;
        let bound = bounds.iter().position(|us| Duration::from_micros(*us) == limit);
        let bound = bound.with_context(|| format!("no bucket ends at {limit:?}"))?;
        Ok(counts.iter().skip(bound + 1).sum())
    }

    /// Changes a setting of alpha's daemon.
    ///
    /// # Errors
    /// When the daemon rejects the setting.
    pub fn set(&self, assignment: &str) -> Result<()> {
        self.alphas.sctpify(&["set", assignment])?.good().map(drop)
    }

    /// Returns the number of alpha's connections in shared associations so far.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn connects_shared(&self) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let status: Value = serde_json::from_str(&text)?;
        number(&status, "connects_shared").context("sctpify status --json reports no connects_shared")
    }

    /// Reports whether both daemons have a shared association.
    fn have_shared(&self) -> Result<bool> {
        let has = |daemon: &Daemon| -> Result<bool> {
            let status: Value = serde_json::from_str(&daemon.sctpify(&["status", "--json"])?.good()?.stdout)?;
            Ok(number(&status, "shared_associations").is_some_and(|opened| opened > 0))
        };
        Ok(has(&self.alphas)? && has(&self.betas)?)
    }

    /// Connects until both daemons have a shared association, up to [`CONNECTS_MAX`] times. The daemons open the
    /// shared association for the first connection over SCTP. On a busy machine, SCTP may lose the race, and the
    /// connection is then plain TCP.
    ///
    /// # Errors
    /// When a connection fails, a daemon does not answer, or no shared association exists after the last
    /// connection.
    pub fn connect_until_shared(&self, mut connect: impl FnMut() -> Result<()>) -> Result<()> {
        for _ in 0..CONNECTS_MAX {
            connect()?;
            let mut outcome = Ok(false);
            let is_known = wait_for(SHARED_LIMIT, || {
                outcome = self.have_shared();
                !matches!(outcome, Ok(false))
            });
            if is_known {
                return outcome.map(drop);
            }
        }
        bail!("no association is shared after {CONNECTS_MAX} connections")
    }

    /// Returns the number of alpha's connections that used TCP at once, because the destination is cached as
    /// not supporting SCTP.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn learned_tcp(&self) -> Result<u64> {
        let text = self.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
        let status: Value = serde_json::from_str(&text)?;
        number(&status, "connects_learned_tcp")
            .context("sctpify status --json reports no connects_learned_tcp")
    }

    /// Returns the reasons for alpha's recent fallbacks to plain TCP, as its daemon reports them.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn recent_fallbacks(&self) -> Result<String> {
        let output = self.alphas.sctpify(&["status", "--json"])?.good()?;
        let status: Value = serde_json::from_str(&output.stdout)?;
        Ok(status["recent_fallbacks"].to_string())
    }

    /// Shuts both daemons down.
    pub fn stop(self) {
        self.alphas.stop();
        self.betas.stop();
    }
}

/// Returns the first number whose field has this name, at any depth.
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

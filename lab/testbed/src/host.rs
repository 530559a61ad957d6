//! A host: one network namespace, with programs that run inside it.

use crate::lab::Shared;
use crate::process::{Finished, Process};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Name of the nftables table that drops SCTP.
const FIREWALL: &str = "no_sctp";

/// Network namespace of a lab.
#[derive(Debug, Clone)]
pub struct Host {
    name: String,
    namespace: String,
    shared: Arc<Shared>,
}

impl Host {
    pub(crate) fn new(name: &str, namespace: String, shared: Arc<Shared>) -> Self {
        Self { name: name.to_owned(), namespace, shared }
    }

    /// Returns the short name that was given when the host was created.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the namespace's name for `ip -n`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns this host's directory, which is below the lab's directory. Creates the directory if it is
    /// missing.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn dir(&self) -> Result<PathBuf> {
        let dir = self.shared.dir.join(&self.name);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(dir)
    }

    /// Returns a command that runs a program inside the host. The program keeps the file system, user and
    /// directory of the caller.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", Path::new("/run/netns").join(&self.namespace).display()));
        command.arg("--").arg(program).stdin(Stdio::null());
        command
    }

    /// Starts a command from [`Host::command`]. Its output goes to log files named after `name`.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn spawn(&self, name: &str, command: Command) -> Result<Process> {
        Process::spawn(&self.shared, &format!("{}-{name}", self.name), command)
    }

    /// Runs a command until it ends, for up to `limit`.
    ///
    /// # Errors
    /// When the command cannot be started, or takes longer than `limit`. A nonzero exit status is not an
    /// error: see [`Finished`].
    pub fn run(&self, name: &str, command: Command, limit: Duration) -> Result<Finished> {
        self.spawn(name, command)?.finish(limit)
    }

    /// Runs `ip` in this host.
    ///
    /// # Errors
    /// When the tool fails, with its output.
    pub fn ip(&self, args: &[&str]) -> Result<String> {
        run_tool("ip", &[&["-n", self.namespace.as_str()], args].concat())
    }

    /// Makes this host drop incoming SCTP over UDP silently, like a firewall that lets only TCP pass.
    ///
    /// # Errors
    /// When nft(8) fails.
    pub fn drop_sctp(&self) -> Result<()> {
        let chain = "{ chain in { type filter hook input priority 0; udp dport 9899 drop; }; }";
        self.tool("nft", &[&format!("table inet {FIREWALL} {chain}")]).map(drop)
    }

    /// Ends [`Host::drop_sctp`].
    ///
    /// # Errors
    /// When SCTP was not dropped.
    pub fn pass_sctp(&self) -> Result<()> {
        self.tool("nft", &["delete", "table", "inet", FIREWALL]).map(drop)
    }

    /// Runs any tool in this host, and returns its standard output.
    ///
    /// # Errors
    /// When the tool fails, with its output.
    pub fn tool(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = self.command(program);
        command.args(args);
        output_of(command)
    }
}

/// Runs a tool in the caller's own namespace, and returns its standard output.
pub(crate) fn run_tool(program: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    output_of(command)
}

/// Runs a command, and returns its standard output, or an error with its standard error.
pub(crate) fn output_of(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| {
        format!("cannot start {:?}: `./x doctor` names its package", command.get_program())
    })?;
    if !output.status.success() {
        bail!(
            "{command:?} failed with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

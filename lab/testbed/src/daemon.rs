//! Runs `sctpifyd` and its two commands in a host. Each daemon has its own control socket, configuration file
//! and state directory below its host's directory.

use crate::host::Host;
use crate::process::{Finished, Process};
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Limit on the time until the daemon answers on its control socket.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Limit on the run time of a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// Location of this project's built programs.
#[derive(Debug, Clone)]
pub struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// Returns `dir` as the location. The directory must contain `sctpifyd`, `sctpify` and `shimrules`.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn in_dir(dir: &Path) -> Result<Self> {
        for name in ["sctpifyd", "sctpify", "shimrules"] {
            if !dir.join(name).is_file() {
                bail!("{name} is missing in {}: cargo build --workspace --bins", dir.display());
            }
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns the location in the environment variable SCTPIFY_BIN_DIR. Without it, returns the directory of
    /// the running program or test.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn find() -> Result<Self> {
        if let Some(dir) = std::env::var_os("SCTPIFY_BIN_DIR") {
            return Self::in_dir(Path::new(&dir));
        }
        let exe = std::env::current_exe().context("cannot determine this program's path")?;
        let dir = exe.parent().context("this program's path has no directory")?;
        Self::in_dir(if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir })
    }

    /// Returns the path of one program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// A running `sctpifyd`.
#[derive(Debug)]
pub struct Daemon {
    host: Host,
    programs: Programs,
    dir: PathBuf,
    process: Process,
}

impl Daemon {
    /// Starts the daemon in the foreground with this configuration text. Returns once the daemon answers.
    ///
    /// # Errors
    /// When the daemon ends, or does not answer within 10 s. The error has its output.
    pub fn start(host: &Host, programs: &Programs, configuration: &str) -> Result<Self> {
        Self::configure(host, configuration)?;
        Self::restart(host, programs)
    }

    /// Starts a daemon with the configuration and state of an earlier daemon on this host.
    ///
    /// # Errors
    /// Like [`Daemon::start`].
    pub fn restart(host: &Host, programs: &Programs) -> Result<Self> {
        Self::restart_with(host, programs, &[])
    }

    /// Like [`Daemon::restart`], with these environment variables.
    ///
    /// # Errors
    /// Like [`Daemon::start`].
    pub fn restart_with(host: &Host, programs: &Programs, environment: &[(&str, &Path)]) -> Result<Self> {
        Self::launch(host, programs, host.command(programs.path("sctpifyd")), environment)
    }

    /// Starts the daemon like [`Daemon::start`], but with these capabilities only, in the form of setpriv(1).
    ///
    /// # Errors
    /// Like [`Daemon::start`].
    pub fn start_with_capabilities(
        host: &Host,
        programs: &Programs,
        configuration: &str,
        capabilities: &str,
    ) -> Result<Self> {
        Self::configure(host, configuration)?;
        let mut command = host.command("setpriv");
        command.arg(format!("--bounding-set={capabilities}")).arg("--").arg(programs.path("sctpifyd"));
        Self::launch(host, programs, command, &[])
    }

    fn configure(host: &Host, configuration: &str) -> Result<()> {
        let dir = host.dir()?.join("sctpifyd");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(std::fs::write(dir.join("sctpify.toml"), configuration)?)
    }

    /// Adds the daemon's arguments to `command`, starts it, and waits until the daemon answers.
    fn launch(
        host: &Host,
        programs: &Programs,
        mut command: Command,
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let dir = host.dir()?.join("sctpifyd");
        command.arg("--control").arg(dir.join("control.sock"));
        command.arg("--config").arg(dir.join("sctpify.toml")).arg("--state-dir").arg(&dir);
        command.envs(environment.iter().copied());
        let process = host.spawn("sctpifyd", command)?;
        let mut daemon = Self { host: host.clone(), programs: programs.clone(), dir, process };
        daemon.wait_ready()?;
        Ok(daemon)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let (socket, sctpify) = (self.dir.join("control.sock"), self.programs.path("sctpify"));
        let host = self.host.clone();
        self.process.wait_until("answer on its control socket", START_LIMIT, |_| {
            let answers = || {
                let mut command = host.command(&sctpify);
                command.args(["status", "--json"]).env("SCTPIFY_CONTROL", &socket);
                command.output().is_ok_and(|output| output.status.success())
            };
            socket.exists() && answers()
        })
    }

    /// Runs `sctpify` with these arguments against this daemon.
    ///
    /// # Errors
    /// When the command cannot be run, or takes longer than 10 s. A nonzero exit status is not an error.
    pub fn sctpify(&self, args: &[&str]) -> Result<Finished> {
        self.control("sctpify", args)
    }

    /// Runs `shimrules` with these arguments against this daemon.
    ///
    /// # Errors
    /// When the command cannot be run, or takes longer than 10 s. A nonzero exit status is not an error.
    pub fn shimrules(&self, args: &[&str]) -> Result<Finished> {
        self.control("shimrules", args)
    }

    /// Returns the path of the daemon's control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    fn control(&self, program: &str, args: &[&str]) -> Result<Finished> {
        let mut command = self.host.command(self.programs.path(program));
        command.args(args).env("SCTPIFY_CONTROL", self.control_socket());
        command.env("SCTPIFY_CONFIG", self.dir.join("sctpify.toml"));
        self.host.run(program, command, COMMAND_LIMIT)
    }

    /// Returns the id of the started process. All processes of the daemon are in the process group with this
    /// id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal to every process of the daemon.
    ///
    /// # Errors
    /// When the daemon has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Returns true until the started process has ended.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Returns the daemon's log so far.
    pub fn log(&self) -> String {
        self.process.stderr() + &self.process.stdout()
    }

    /// Shuts the daemon down with SIGTERM.
    pub fn stop(self) {
        self.process.stop();
    }

    /// Kills only the started process, as `kill -9 PID` would.
    ///
    /// # Errors
    /// When the daemon has ended.
    pub fn kill_supervisor(&self) -> Result<()> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.process.id())?);
        nix::sys::signal::kill(pid, Signal::SIGKILL).context("cannot kill sctpifyd")
    }
}

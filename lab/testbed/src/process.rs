//! A process of a lab. It has its own process group, and its output goes to files. When a [`Process`] is dropped, the
//! process group is ended.
//!
//! An ended process stays in the process table until the [`Process`] is dropped or finished. Otherwise the kernel could
//! give the id to another process or group, and this module would end that process or group.

use crate::lab::Shared;
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Polling interval of waits.
const POLL: Duration = Duration::from_millis(2);
/// Time for a process to obey SIGTERM before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Running or ended process, with its process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    started: Instant,
    shared: Arc<Shared>,
    /// Set once the process is reaped. From then on, another process may have its id.
    is_reaped: bool,
}

/// Result and output of an ended process.
#[derive(Debug)]
pub struct Finished {
    /// Name of the process in messages.
    pub name: String,
    /// Exit status.
    pub status: ExitStatus,
    /// Complete standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// Complete standard error, with invalid UTF-8 replaced.
    pub stderr: String,
    /// Time from start to end, with a resolution of 2 ms.
    pub elapsed: Duration,
}

impl Finished {
    /// Returns `self` if the exit status is 0.
    ///
    /// # Errors
    /// When the exit status is not 0. The error has the start and the end of the output.
    pub fn good(self) -> Result<Self> {
        if !self.status.success() {
            bail!("{} failed with {}: {}{}", self.name, self.status, ends(&self.stdout), ends(&self.stderr));
        }
        Ok(self)
    }
}

impl Process {
    pub(crate) fn spawn(shared: &Arc<Shared>, name: &str, mut command: Command) -> Result<Self> {
        let log = shared.dir.join("logs").join(format!("{:04}-{name}.out", shared.next_number()));
        command.stdout(File::create(&log)?).stderr(File::create(log.with_extension("err"))?).process_group(0);
        let started = now();
        let child =
            command.spawn().with_context(|| format!("cannot start {name}: {:?}", command.get_program()))?;
        shared.janitor.note(&format!("group {}", child.id()))?;
        Ok(Self { name: name.to_owned(), child, log, started, shared: Arc::clone(shared), is_reaped: false })
    }

    /// Returns the process id, which is also the id of the process group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns true until the process has ended.
    pub fn is_running(&mut self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        matches!(waitid(Id::Pid(self.group()), flags), Ok(WaitStatus::StillAlive))
    }

    /// Returns the log file of the standard output. The log of the standard error has the same name with the extension
    /// `err`.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the standard output so far.
    pub fn stdout(&self) -> String {
        text_of(&self.log)
    }

    /// Returns the standard error so far.
    pub fn stderr(&self) -> String {
        text_of(&self.log.with_extension("err"))
    }

    /// Waits until `condition` holds. `what` describes the condition in error messages.
    ///
    /// # Errors
    /// When the process ends first, or `limit` passes. The error has the output.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<()> {
        let start = now();
        while !condition(self) {
            if !self.is_running() {
                bail!("{} ended before {what}: {}{}", self.name, ends(&self.stdout()), ends(&self.stderr()));
            }
            if start.elapsed() > limit {
                bail!(
                    "{}: no {what} in {limit:?}: {}{}",
                    self.name,
                    ends(&self.stdout()),
                    ends(&self.stderr())
                );
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits for up to `limit` until the process ends.
    ///
    /// # Errors
    /// When the process does not end within `limit`. The process is then killed.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        let start = now();
        while self.is_running() {
            if start.elapsed() > limit {
                bail!(
                    "{} took longer than {limit:?}: {}{}",
                    self.name,
                    ends(&self.stdout()),
                    ends(&self.stderr())
                );
            }
            std::thread::sleep(POLL);
        }
        let elapsed = self.started.elapsed();
        let (stdout, stderr) = (self.stdout(), self.stderr());
        let status = self.end()?;
        Ok(Finished { name: self.name.clone(), status, stdout, stderr, elapsed })
    }

    /// Sends a signal to the whole group.
    ///
    /// # Errors
    /// When the group no longer exists.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        killpg(self.group(), signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Ends the group with SIGTERM, and after 3 s with SIGKILL.
    pub fn stop(mut self) {
        // An error means that the group has already ended, as desired.
        let _ = self.signal(Signal::SIGTERM);
        let start = now();
        while self.is_running() && start.elapsed() < STOP_LIMIT {
            std::thread::sleep(POLL);
        }
    }

    /// Kills the remaining processes of the group, and reaps the process. Returns its status.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        // Errors mean that the group has ended, or that the janitor is cleaning up the lab.
        let _ = killpg(self.group(), Signal::SIGKILL);
        let status = self.child.wait();
        self.is_reaped = true;
        status
    }

    fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.end();
        }
        let _ = self.shared.janitor.note(&format!("ended {}", self.child.id()));
    }
}

/// Waits until `condition` holds. Returns false if `limit` passes first.
pub fn wait_for(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = now();
    while !condition() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Returns the time of the real clock, because this crate measures real programs.
#[allow(clippy::disallowed_methods, reason = "tests of real programs need the real time")]
pub fn now() -> Instant {
    Instant::now()
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Returns the first four and the last eight lines of a program's output, for an error message. The first lines often
/// name the error, and the last lines show its context.
fn ends(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len().saturating_sub(8).max(lines.len().min(4));
    let first = lines.iter().take(4.min(last));
    let gap = (last > 4).then_some(&"...");
    first.chain(gap).chain(&lines[last..]).map(|line| format!("\n    {line}")).collect()
}

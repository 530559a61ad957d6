//! A process of a lab: in its own process group, logged to files, ended by its id on drop.
//!
//! An ended process stays in the process table until then. Otherwise the kernel could give its id, and that of its group, to
//! another process, which would be ended in its place.

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

/// A process, running or ended, and its group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    started: Instant,
    shared: Arc<Shared>,
    /// Set once its id may be another's.
    is_reaped: bool,
}

/// The end of a process, and its output.
#[derive(Debug)]
pub struct Finished {
    /// Its name in messages.
    pub name: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// All of its standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// All of its standard error, likewise.
    pub stderr: String,
    /// Time from start to end, polled every 2 ms.
    pub elapsed: Duration,
}

impl Finished {
    /// Returns itself if the status is 0.
    ///
    /// # Errors
    /// Otherwise, with the start and end of its output.
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

    /// Returns its process id, which is also the id of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns true until it has ended.
    pub fn is_running(&mut self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        matches!(waitid(Id::Pid(self.group()), flags), Ok(WaitStatus::StillAlive))
    }

    /// Returns the log file of its standard output; standard error is next to it, with the extension `err`.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns its standard output so far.
    pub fn stdout(&self) -> String {
        text_of(&self.log)
    }

    /// Returns its standard error so far.
    pub fn stderr(&self) -> String {
        text_of(&self.log.with_extension("err"))
    }

    /// Waits until `condition` holds.
    ///
    /// # Errors
    /// When the process ends first or `limit` passes, with its output.
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

    /// Waits for the end, for at most `limit` from now.
    ///
    /// # Errors
    /// When it takes longer; it is then killed.
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
    /// When the group is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        killpg(self.group(), signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Ends the group with SIGTERM, and after 3 s with SIGKILL.
    pub fn stop(mut self) {
        // An error means that it has already ended, as desired.
        let _ = self.signal(Signal::SIGTERM);
        let start = now();
        while self.is_running() && start.elapsed() < STOP_LIMIT {
            std::thread::sleep(POLL);
        }
    }

    /// Kills what is left of the group; returns the status of the process.
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

/// Waits until `condition` holds; returns false if `limit` passes first.
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

/// The real clock: this crate measures real programs.
#[allow(clippy::disallowed_methods, reason = "tests of real programs need the real time")]
pub fn now() -> Instant {
    Instant::now()
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Returns the first and the last lines of a program's output for an error message: an error's text precedes
/// its context.
fn ends(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len().saturating_sub(8).max(lines.len().min(4));
    let first = lines.iter().take(4.min(last));
    let gap = (last > 4).then_some(&"...");
    first.chain(gap).chain(&lines[last..]).map(|line| format!("\n    {line}")).collect()
}

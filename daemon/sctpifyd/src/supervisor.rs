//! The process that watches the worker.
//!
//! The worker's standard output is its heartbeat: a byte each quarter of a second. If none comes for two seconds (a deadlock,
//! SIGSTOP), every new connection of the host would hang in the queue, so the supervisor kills the worker. A worker that the
//! kernel keeps waiting, for a processor or for a lock, is given more time ([`Vitals`]): all connections end with it, and SYNs are
//! held by no kernel table whose daemon is silent. If the worker dies
//! without having cleaned up, the supervisor removes what it left behind. The worker is not root, so it reads and writes files
//! through a socket on its standard input ([`crate::archive`]). The socket closes when this process dies, and the worker then
//! stops in good order.
//!
//! Deliberately small: only two extra threads, for signals and for files; no sockets of its own until the worker is dead; nothing
//! of the configuration except how far it confines itself.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use control::DaemonArgs;
use intercept::{Config, SavedSysctls, remove_leftovers};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::archive;
use crate::confinement::{self, Confinement};

/// Marks a process as the worker.
const ROLE_VARIABLE: &str = "SCTPIFYD_ROLE";
const WORKER: &str = "worker";

/// Interval of the heartbeats.
pub(crate) const BEAT: Duration = Duration::from_millis(250);
/// Silence after which the worker counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(2);
/// Extra time for a worker in case this process itself did not run: after a stop of the whole service, or of the whole machine,
/// the beats arrive only now.
const GRACE: Duration = Duration::from_millis(500);
/// Silence after which even a worker that the kernel keeps waiting is killed.
const WAITING_MAX: Duration = Duration::from_secs(30);
/// Silence allowed until the first heartbeat, while the worker sets up.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Reports whether this process was started as a worker by a supervisor.
pub(crate) fn is_worker() -> bool {
    std::env::var_os(ROLE_VARIABLE).is_some_and(|role| role == WORKER)
}

/// Starts a worker and watches it to its end.
pub(crate) fn run(args: &DaemonArgs) -> Result<ExitCode> {
    crate::worker::start_log(args)?;
    let sysctls = SavedSysctls::read().context("cannot read this network namespace's sysctls")?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    archive::prepare_directories(args)?;
    let (ours, theirs) = UnixStream::pair().context("cannot create a socket for the worker")?;
    let mut worker = start_worker(theirs)?;
    // This process may open no more files once it is confined.
    let vitals = Vitals::open(&worker);
    // The worker reports a wrong configuration.
    let settings = control::load_config(&args.config).unwrap_or_default();
    confinement::log("supervisor", &Confinement::of_supervisor(&settings, args, worker.id()).apply());
    forward_signals(signals, &worker)?;
    keep_files(ours, args)?;
    let mut socket = None;
    let hung = watch(&mut worker, vitals.as_ref(), || socket = identity_of(&args.control))?;
    if hung {
        tracing::error!("the worker sent no heartbeat for {} s: killing it", HUNG_AFTER.as_secs());
        kill(pid_of(&worker)?, Signal::SIGKILL).context("cannot kill the worker")?;
    }
    let status = worker.wait().context("cannot wait for the worker")?;
    // Remove our socket's file, so that nobody waits for a daemon that is gone; another daemon's stays.
    if socket.is_some() && socket == identity_of(&args.control) {
        let _ = fs::remove_file(&args.control);
    }
    if status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    if status.code().is_none() {
        tracing::error!(%status, "the worker died; its connections are reset, new ones are plain TCP");
        remove_leftovers(&Config::default(), &sysctls)?;
    }
    Ok(ExitCode::FAILURE)
}

fn start_worker(socket: UnixStream) -> Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(ROLE_VARIABLE, WORKER)
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the worker")
}

fn pid_of(worker: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(worker.id())?))
}

/// Identifies a file independently of its name.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|status| (status.dev(), status.ino()))
}

/// Reads and writes files for the worker, in a thread: a slow disk is no reason to miss a heartbeat.
fn keep_files(socket: UnixStream, args: &DaemonArgs) -> Result<()> {
    let args = args.clone();
    let keep = move || archive::serve(&socket, &args);
    std::thread::Builder::new().name("files".to_owned()).spawn(keep)?;
    Ok(())
}

fn forward_signals(mut signals: Signals, worker: &Child) -> Result<()> {
    let worker = pid_of(worker)?;
    let forward = move || {
        for signal in signals.forever() {
            if let Ok(signal) = Signal::try_from(signal) {
                // The worker may have ended by itself: then nobody is left to signal.
                let _ = kill(worker, signal);
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(forward)?;
    Ok(())
}

/// The kernel's account of the worker's first thread.
struct Vitals(File);

/// The condition of a thread, according to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Condition {
    /// As in proc_pid_stat(5): `R` runs or waits for a processor, `D` waits in the kernel, whatever signals it has.
    state: u8,
    /// Processor time, in clock ticks.
    ticks: u64,
}

impl Condition {
    fn parse(stat: &str) -> Option<Condition> {
        // The name in parentheses may contain anything.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let mut times = fields.skip(10).map(str::parse::<u64>);
        Some(Condition { state, ticks: times.next()?.ok()? + times.next()?.ok()? })
    }

    /// Reports whether the kernel has kept the thread waiting since it was in the condition `before`.
    fn waits_since(self, before: Condition) -> bool {
        match self.state {
            b'D' => true,
            b'R' => self.ticks <= before.ticks + 1,
            _ => false,
        }
    }
}

impl Vitals {
    fn open(worker: &Child) -> Option<Vitals> {
        let id = worker.id();
        File::open(format!("/proc/{id}/task/{id}/stat")).ok().map(Vitals)
    }

    fn condition(&self) -> Option<Condition> {
        let mut text = [0; 1024];
        let length = self.0.read_at(&mut text, 0).ok()?;
        Condition::parse(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Returns when the worker has closed its heartbeat (false) or stopped beating (true). Calls `on_first` at its first beat.
fn watch(worker: &mut Child, vitals: Option<&Vitals>, on_first: impl FnOnce()) -> Result<bool> {
    let mut on_first = Some(on_first);
    let mut beats = worker.stdout.take().context("the worker has no heartbeat")?;
    let mut limit = START_LIMIT;
    let condition = || vitals.and_then(Vitals::condition);
    let mut before = None;
    let mut waited = Duration::ZERO;
    let mut bytes = [0; 64];
    loop {
        let timeout = PollTimeout::try_from(limit)?;
        match poll(&mut [PollFd::new(beats.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if limit == GRACE => {
                let now = condition();
                let is_kept = now.zip(before).is_some_and(|(now, before)| now.waits_since(before));
                waited += GRACE;
                if !is_kept || waited >= WAITING_MAX {
                    return Ok(true);
                }
                before = now;
            }
            Ok(0) => {
                limit = GRACE;
                waited = Duration::ZERO;
                before = condition();
            }
            Ok(_) if beats.read(&mut bytes)? == 0 => return Ok(false),
            Ok(_) => {
                limit = HUNG_AFTER;
                if let Some(on_first) = on_first.take() {
                    on_first();
                }
            }
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot watch the worker"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Condition;

    fn condition(state: u8, ticks: u64) -> Condition {
        Condition { state, ticks }
    }

    #[test]
    fn the_account_of_this_very_thread_is_read() {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert_eq!(Condition::parse(&stat).unwrap().state, b'R');
        let strange = "12 (a) R 3) D 1 2 3 4 5 6 7 8 9 10 30 12 0 0";
        assert_eq!(Condition::parse(strange), Some(condition(b'D', 42)));
        assert_eq!(Condition::parse("12 (a) D 1"), None);
    }

    #[test]
    fn a_thread_that_gets_no_processor_or_no_lock_is_kept_waiting() {
        assert!(condition(b'R', 10).waits_since(condition(b'S', 10)));
        assert!(condition(b'D', 10).waits_since(condition(b'S', 10)));
    }

    #[test]
    fn a_thread_that_sleeps_is_stopped_or_spins_is_hung() {
        for state in *b"StTZ" {
            assert!(!condition(state, 10).waits_since(condition(state, 10)));
        }
        assert!(!condition(b'R', 60).waits_since(condition(b'R', 10)));
    }
}

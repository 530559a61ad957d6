//! The process that watches the worker.
//!
//! The worker's standard output is its heartbeat: a byte each quarter of a second. If none comes for two seconds (a deadlock,
//! SIGSTOP), every new connection of the host would hang in the queue, so the supervisor kills the worker. If the worker dies
//! without having cleaned up, the supervisor removes what it left behind. The worker is not root, so it reads and writes files
//! through a socket on its standard input ([`crate::archive`]). The socket closes when this process dies, and the worker then
//! stops in good order.
//!
//! Deliberately small: only two extra threads, for signals and for files; no sockets of its own until the worker is dead; nothing
//! of the configuration except how far it confines itself.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
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
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket for the worker")?;
    let mut worker = start_worker(theirs)?;
    // The worker reports a wrong configuration.
    let settings = control::load_config(&args.config).unwrap_or_default();
    confinement::log("supervisor", &Confinement::of_supervisor(&settings, args, worker.id()).apply());
    forward_signals(signals, &worker)?;
    keep_files(ours, args)?;
    let mut socket = None;
    let hung = watch(&mut worker, || socket = identity_of(&args.control))?;
    if hung {
        tracing::error!("the worker gave no sign of life for {} s: killing it", HUNG_AFTER.as_secs());
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

/// Returns when the worker has closed its heartbeat (false) or stopped beating (true). Calls `on_first` at its first beat.
fn watch(worker: &mut Child, on_first: impl FnOnce()) -> Result<bool> {
    let mut on_first = Some(on_first);
    let mut beats = worker.stdout.take().context("the worker has no heartbeat")?;
    let mut limit = START_LIMIT;
    let mut bytes = [0; 64];
    loop {
        let timeout = PollTimeout::try_from(limit)?;
        match poll(&mut [PollFd::new(beats.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if limit == GRACE => return Ok(true),
            Ok(0) => limit = GRACE,
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

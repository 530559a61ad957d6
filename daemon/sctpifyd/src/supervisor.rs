//! Runs the supervisor: the process that watches the worker.
//!
//! Every quarter of a second, the worker writes a byte, its heartbeat, to its standard output. A worker without a heartbeat for
//! two seconds counts as hung, perhaps after a deadlock or SIGSTOP. Connections whose SYNs wait in a hung worker's queue would
//! hang too, so the supervisor kills the worker. A worker that the kernel keeps waiting for a processor or for a lock gets more
//! time ([`Vitals`]), because all connections end with the worker. During this time, new SYNs pass as plain TCP, because the
//! kernel holds no SYNs for a silent daemon. If the worker dies without cleaning up, the supervisor removes the worker's
//! leftovers from the kernel.
//!
//! The worker is not root. It reads and writes files through a socket on its standard input ([`crate::archive`]). Through the
//! same socket, it requests signatures with the host's key, which only the supervisor has. If the supervisor dies, the socket
//! closes, and the worker shuts down in good order.
//!
//! The supervisor is deliberately small. It has only three extra threads: for signals, for signatures and for files. Until the
//! worker is dead, it opens no sockets except the one to the worker. Of the configuration, it uses only the settings about
//! confinement and encryption.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control::DaemonArgs;
use intercept::{Config, SavedSysctls, remove_leftovers};
use keying::{HostKey, KeyFileError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use rules::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::archive;
use crate::confinement::{self, Confinement};

/// Environment variable that marks a process as the worker.
const ROLE_VARIABLE: &str = "SCTPIFYD_ROLE";
const WORKER: &str = "worker";

/// Interval between heartbeats.
pub(crate) const BEAT: Duration = Duration::from_millis(250);
/// Silence after which the worker counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(2);
/// Extra time before a silent worker is killed. If the whole service or machine was stopped, this process did not run either,
/// and the worker's heartbeats arrive only now.
const GRACE: Duration = Duration::from_millis(500);
/// Limit on the extra time for a worker that the kernel keeps waiting.
const WAITING_MAX: Duration = Duration::from_secs(30);
/// Limit on the silence before the first heartbeat, while the worker sets up.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Limit on the wait for the end of a killed worker. A worker that waits in the kernel may end later, or never.
const DEATH_LIMIT: Duration = Duration::from_secs(30);
/// Interval between checks for a worker's end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Reports whether this process was started as a worker by a supervisor.
pub(crate) fn is_worker() -> bool {
    std::env::var_os(ROLE_VARIABLE).is_some_and(|role| role == WORKER)
}

/// Starts a worker and watches it to its end.
pub(crate) fn run(args: &DaemonArgs) -> Result<ExitCode> {
    crate::worker::start_log(args)?;
    let sysctls = SavedSysctls::read().context("cannot read this network namespace's sysctls")?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    if let Some(parent) = args.ends_with {
        end_with(parent)?;
    }
    archive::prepare_directories(args)?;
    // The worker reports errors in the configuration.
    let settings = control::load_config(&args.config).unwrap_or_default();
    let key = host_key(args, &settings)?;
    let (ours, theirs) = UnixStream::pair().context("cannot create a socket for the worker")?;
    let mut worker = start_worker(theirs)?;
    // After its confinement, this process cannot open these files.
    let vitals = Vitals::open(&worker);
    confinement::log("supervisor", &Confinement::of_supervisor(&settings, args, worker.id()).apply());
    forward_signals(signals, &worker)?;
    keep_files(ours, args, key)?;
    let mut socket = None;
    if let Some(silence) = watch(&mut worker, vitals.as_ref(), || socket = identity_of(&args.control))? {
        tracing::error!("the worker sent no heartbeat for {:.1} s: killing it", silence.as_secs_f64());
        kill(pid_of(&worker)?, Signal::SIGKILL).context("cannot kill the worker")?;
    }
    let status = end_of(&mut worker)?;
    // Remove this worker's socket file, because no client should wait for a daemon that has gone. Another daemon's file is not
    // removed.
    if socket.is_some() && socket == identity_of(&args.control) {
        let _ = fs::remove_file(&args.control);
    }
    match status {
        Some(status) if status.success() => return Ok(ExitCode::SUCCESS),
        Some(status) if status.code().is_some() => return Ok(ExitCode::FAILURE),
        Some(status) => {
            tracing::error!(%status, "the worker died; its connections are reset, new ones are plain TCP");
        }
        None => tracing::error!(
            "the kernel has kept the worker from ending for {} s; new connections are plain TCP",
            DEATH_LIMIT.as_secs()
        ),
    }
    remove_leftovers(&Config::default(), &sysctls)?;
    Ok(ExitCode::FAILURE)
}

/// Makes the kernel send SIGTERM to this process when the thread that started it ends.
fn end_with(parent: u32) -> Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("cannot ask the kernel for the parent's end")?;
    ensure!(getppid().as_raw().cast_unsigned() == parent, "the parent {parent} has already ended");
    Ok(())
}

/// Waits for the worker's end. Returns `None` after [`DEATH_LIMIT`], because the removal of the leftovers must not wait longer.
fn end_of(worker: &mut Child) -> Result<Option<ExitStatus>> {
    let mut left = DEATH_LIMIT;
    loop {
        if let Some(status) = worker.try_wait().context("cannot wait for the worker")? {
            return Ok(Some(status));
        }
        if left.is_zero() {
            return Ok(None);
        }
        // The poll only waits. A signal shortens the wait.
        let _ = poll(&mut [], PollTimeout::try_from(LOOK_AGAIN)?);
        left = left.saturating_sub(LOOK_AGAIN);
    }
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

/// Returns the device and inode of a file, which identify the file independently of its name.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|status| (status.dev(), status.ino()))
}

/// Reads or creates the host's key. If this fails, the daemon starts only if the setting `encryption` is off.
fn host_key(args: &DaemonArgs, settings: &Settings) -> Result<Result<HostKey, KeyFileError>> {
    let key = HostKey::load_or_create(&args.host_key_file());
    if let Err(error) = &key {
        ensure!(
            !settings.encryption.is_offered(),
            "no host key, and setting encryption={}: {error}",
            settings.encryption
        );
        tracing::warn!(%error, "no host key");
    }
    Ok(key)
}

/// Starts the threads that read and write files for the worker, and that sign. Separate threads are used because a slow disk
/// must delay no heartbeat.
fn keep_files(socket: UnixStream, args: &DaemonArgs, key: Result<HostKey, KeyFileError>) -> Result<()> {
    let args = args.clone();
    let keep = move || archive::serve(&socket, &args, &key);
    std::thread::Builder::new().name("files".to_owned()).spawn(keep)?;
    Ok(())
}

fn forward_signals(mut signals: Signals, worker: &Child) -> Result<()> {
    let worker = pid_of(worker)?;
    let forward = move || {
        for signal in signals.forever() {
            if let Ok(signal) = Signal::try_from(signal) {
                // An error means that the worker has already ended.
                let _ = kill(worker, signal);
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(forward)?;
    Ok(())
}

/// The kernel's statistics of the worker's first thread.
struct Vitals {
    stat: File,
    /// Statistics of the scheduler; `None` if the kernel does not provide them.
    schedstat: Option<File>,
}

/// The condition of a thread, according to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Condition {
    /// The thread waits in the kernel, and signals cannot interrupt the wait (`D` in proc_pid_stat(5)).
    is_in_kernel: bool,
    /// Total time since the thread's start in which the thread was runnable, but had no processor.
    run_delay: Duration,
}

impl Condition {
    /// Parses /proc/PID/task/TID/stat and /proc/PID/task/TID/schedstat.
    fn parse(stat: &str, schedstat: &str) -> Option<Condition> {
        // The process name in parentheses may contain any character, even a parenthesis.
        let (_, fields) = stat.rsplit_once(')')?;
        let is_in_kernel = fields.trim_start().starts_with('D');
        let run_delay = schedstat.split_ascii_whitespace().nth(1).and_then(|text| text.parse().ok());
        Some(Condition { is_in_kernel, run_delay: Duration::from_nanos(run_delay.unwrap_or(0)) })
    }

    /// Reports whether the kernel has kept the thread waiting since the earlier condition `before`. `passed` is the time
    /// between the two conditions. A thread that the kernel has released since then also counts as waiting, because it must
    /// work off a backlog before its next heartbeat.
    fn waits_since(self, before: Condition, passed: Duration) -> bool {
        let delayed = self.run_delay.saturating_sub(before.run_delay);
        self.is_in_kernel || before.is_in_kernel || delayed >= passed / 2
    }
}

impl Vitals {
    fn open(worker: &Child) -> Option<Vitals> {
        let id = worker.id();
        let open = |name| File::open(format!("/proc/{id}/task/{id}/{name}")).ok();
        Some(Vitals { stat: open("stat")?, schedstat: open("schedstat") })
    }

    fn condition(&self) -> Option<Condition> {
        let (mut stat, mut schedstat) = ([0; 1024], [0; 128]);
        let delays = self.schedstat.as_ref().and_then(|file| text_of(file, &mut schedstat));
        Condition::parse(text_of(&self.stat, &mut stat)?, delays.unwrap_or_default())
    }
}

fn text_of<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a str> {
    let length = file.read_at(buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..length]).ok()
}

/// Watches the worker's heartbeats. Returns `None` when the worker has closed its standard output. If the worker hangs, returns
/// the duration of its silence. Calls `on_first` at the first heartbeat.
fn watch(worker: &mut Child, vitals: Option<&Vitals>, on_first: impl FnOnce()) -> Result<Option<Duration>> {
    let mut on_first = Some(on_first);
    let mut beats = worker.stdout.take().context("the worker has no heartbeat")?;
    let mut silence_allowed = START_LIMIT;
    let condition = || vitals.and_then(Vitals::condition);
    let mut before = None;
    // Extra time that the worker has got in the present silence, beyond `silence_allowed`.
    let mut waited = None;
    let mut bytes = [0; 64];
    loop {
        let limit = if waited.is_some() { GRACE } else { silence_allowed };
        match poll(&mut [PollFd::new(beats.as_fd(), PollFlags::POLLIN)], PollTimeout::try_from(limit)?) {
            Ok(0) => {
                let now = condition();
                let kept = now.zip(before).is_some_and(|(now, before)| now.waits_since(before, GRACE));
                let longer = waited.map(|waited| waited + GRACE);
                if let Some(waited) = longer.filter(|waited| !kept || *waited >= WAITING_MAX) {
                    return Ok(Some(silence_allowed + waited));
                }
                (before, waited) = (now, Some(longer.unwrap_or_default()));
            }
            Ok(_) if beats.read(&mut bytes)? == 0 => return Ok(None),
            Ok(_) => {
                (silence_allowed, waited) = (HUNG_AFTER, None);
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
    use super::{Condition, GRACE};
    use std::time::Duration;

    fn condition(is_in_kernel: bool, run_delay_ms: u64) -> Condition {
        Condition { is_in_kernel, run_delay: Duration::from_millis(run_delay_ms) }
    }

    #[test]
    fn stat_and_schedstat_of_a_thread_are_parsed() {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/{name}")).unwrap();
        let delay: u64 = read("schedstat").split(' ').nth(1).unwrap().parse().unwrap();
        let of_this = Condition::parse(&read("stat"), &read("schedstat")).unwrap();
        assert!(!of_this.is_in_kernel && of_this.run_delay >= Duration::from_nanos(delay));
        let strange = Condition::parse("12 (a) R 3) D 1 2 3", "5000000 7000000 12");
        assert_eq!(strange, Some(condition(true, 7)));
        assert_eq!(Condition::parse("12 (a) R 1", ""), Some(condition(false, 0)));
        assert_eq!(Condition::parse("", ""), None);
    }

    #[test]
    fn a_thread_that_gets_no_processor_or_no_lock_is_kept_waiting() {
        let free = condition(false, 10);
        assert!(condition(false, 260).waits_since(free, GRACE), "no processor for half of the time");
        assert!(condition(true, 10).waits_since(free, GRACE), "waits for a lock");
        assert!(free.waits_since(condition(true, 10), GRACE), "has just got it");
    }

    #[test]
    fn a_sleeping_stopped_or_spinning_thread_counts_as_hung() {
        assert!(!condition(false, 10).waits_since(condition(false, 10), GRACE));
        assert!(!condition(false, 250).waits_since(condition(false, 10), GRACE));
    }
}

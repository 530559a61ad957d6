//! Starts and stops the daemon: `sctpify up` and `sctpify down`.

use std::env;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use control::{ClientError, Done, Request, Response};

use crate::session::{Session, unexpected};
use crate::{CliError, UpArgs, show};

/// Interval between checks whether the daemon has started or ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time limit on the daemon's start.
const START_LIMIT: Duration = Duration::from_secs(15);
/// Time limit on the daemon's stop.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Number of log lines that are shown if the daemon does not start.
const LOG_LINES: usize = 20;

const DAEMON: &str = "sctpifyd";

/// Starts the daemon, and returns when the daemon answers. With `--foreground`, this process becomes the daemon. If the daemon does not
/// start, the error contains the end of its log.
pub(crate) fn up(session: Session<'_>, args: &UpArgs) -> Result<(), CliError> {
    match running_pid(session) {
        Ok(pid) => return done(session, format!("sctpifyd is already running (pid {pid})")),
        Err(CliError::NoDaemon(_)) => {}
        Err(other) => return Err(other),
    }
    let program = find_daemon()?;
    let mut command = Command::new(&program);
    command.arg("--control").arg(session.control).arg("--config").arg(&args.config);
    command.arg("--state-dir").arg(&args.state_dir).arg("--log").arg(&args.log);
    if args.foreground {
        return Err(cannot_start(&program, &command.exec()));
    }
    let log = args.state_dir.join("sctpifyd.log");
    let error_output = make_log(&log)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(error_output).process_group(0);
    let mut child = command.spawn().map_err(|e| cannot_start(&program, &e))?;
    let pid = wait_until_up(session, &mut child, &log)?;
    done(session, format!("sctpifyd is up (pid {pid}); its log is {}", log.display()))
}

fn done(session: Session<'_>, message: String) -> Result<(), CliError> {
    session.print(&Response::Done(Done::new(message)), show::answer)
}

/// Calls `look` at intervals of `every` until it returns a value. Returns `None` if `limit` passes first.
#[allow(clippy::disallowed_methods, reason = "a program that waits for another")]
pub(crate) fn look_until<T>(
    limit: Duration,
    every: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        match look() {
            None if Instant::now() < end => sleep(every),
            seen => return seen,
        }
    }
}

fn running_pid(session: Session<'_>) -> Result<u32, CliError> {
    match session.ask(&Request::Status)? {
        Response::Status(status) => Ok(status.pid),
        other => Err(unexpected(&other)),
    }
}

/// Finds the daemon in the directory of this program, or else in PATH.
pub(crate) fn find_daemon() -> Result<PathBuf, CliError> {
    let beside = env::current_exe().ok().and_then(|me| me.parent().map(Path::to_path_buf));
    let path = env::var_os("PATH").unwrap_or_default();
    let places = beside.into_iter().chain(env::split_paths(&path));
    places.map(|p| p.join(DAEMON)).find(|p| p.is_file()).ok_or_else(|| {
        CliError::Failed(format!(
            "{DAEMON} is neither in this program's directory nor in PATH: install it there"
        ))
    })
}

fn cannot_start(program: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("cannot start {}: {error}", program.display()))
}

/// Renames an existing log file to `sctpifyd.log.old`, and creates an empty log file.
fn make_log(log: &Path) -> Result<File, CliError> {
    let failed = |e: io::Error| {
        let advice = if e.kind() == ErrorKind::PermissionDenied { " (run this as root)" } else { "" };
        CliError::Failed(format!("cannot write the log {}: {e}{advice}", log.display()))
    };
    if let Some(directory) = log.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    match fs::rename(log, log.with_extension("log.old")) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    File::options().append(true).create(true).open(log).map_err(failed)
}

fn wait_until_up(session: Session<'_>, child: &mut Child, log: &Path) -> Result<u32, CliError> {
    let outcome = look_until(START_LIMIT, LOOK_EVERY, || {
        if let Ok(pid) = running_pid(session) {
            return Some(Ok(pid));
        }
        let status = child.try_wait().ok()??;
        let text = format!("sctpifyd did not start ({status}). Its output:\n{}", end_of(log));
        Some(Err(CliError::Failed(text)))
    });
    if let Some(outcome) = outcome {
        return outcome;
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(CliError::Failed(format!(
        "sctpifyd did not answer on {} within {} s and was killed. Its log ends:\n{}",
        session.control.display(),
        START_LIMIT.as_secs(),
        end_of(log)
    )))
}

pub(crate) fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return format!("  (nothing; see {})", log.display());
    }
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    last.iter().map(|l| format!("  {l}")).collect::<Vec<_>>().join("\n")
}

/// Makes the daemon carry new connections over TCP, and waits up to `limit` for open connections to end.
fn drain(session: Session<'_>, limit: Duration) -> Result<(), CliError> {
    session.ask(&Request::Drain)?;
    let mut left = 0;
    let is_dry = look_until(limit, LOOK_EVERY, || match session.ask(&Request::Status) {
        Ok(Response::Status(status)) => {
            left = status.connections.len();
            (left == 0).then_some(())
        }
        // The daemon does not answer any more: another caller may have stopped it.
        _ => Some(()),
    });
    if is_dry.is_none() {
        let (connections, them) = if left == 1 { ("connection", "it") } else { ("connections", "them") };
        eprintln!("{left} {connections} still open after {} s; closing {them}", limit.as_secs());
    }
    Ok(())
}

/// Stops the daemon, and returns when its processes have ended and its socket no longer answers. `patience` limits the time that open
/// connections have to end before the stop; `None` means no wait.
pub(crate) fn down(session: Session<'_>, patience: Option<Duration>) -> Result<(), CliError> {
    let pid = match running_pid(session) {
        Ok(pid) => pid,
        Err(CliError::NoDaemon(_)) => {
            return done(session, format!("no daemon is listening on {}", session.control.display()));
        }
        Err(other) => return Err(other),
    };
    if let Some(limit) = patience {
        drain(session, limit)?;
    }
    let processes: Vec<u32> = [Some(pid), supervisor_of(pid)].into_iter().flatten().collect();
    match session.ask(&Request::Shutdown) {
        Ok(_) | Err(CliError::Client(ClientError::Closed { .. })) => {}
        Err(other) => return Err(other),
    }
    let gone = look_until(STOP_LIMIT, LOOK_EVERY, || {
        let is_silent = matches!(running_pid(session), Err(CliError::NoDaemon(_)));
        (is_silent && !processes.iter().any(|&p| is_alive(p))).then_some(())
    });
    if gone.is_some() {
        return done(session, format!("sctpifyd is down (pid {pid})"));
    }
    Err(CliError::Failed(format!(
        "sctpifyd (pid {pid}) has not stopped after {} s: end it with `kill -9 {pid}`; new connections then use plain TCP",
        STOP_LIMIT.as_secs()
    )))
}

/// Returns the process ID of the supervisor of the daemon's worker `pid`. The supervisor is the worker's parent process, if the parent's
/// name is also sctpifyd.
fn supervisor_of(pid: u32) -> Option<u32> {
    let (_, parent) = state_and_parent(&stat(pid)?)?;
    let is_daemon = stat(parent)?.starts_with(&format!("{parent} ({DAEMON}) "));
    is_daemon.then_some(parent)
}

/// Reports whether the process runs; a zombie does not count.
fn is_alive(pid: u32) -> bool {
    let state = stat(pid).and_then(|s| state_and_parent(&s));
    state.is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

fn stat(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// Parses the state letter and the parent's process ID in a line of `/proc/PID/stat`: `PID (NAME) STATE PARENT ...`.
fn state_and_parent(stat: &str) -> Option<(char, u32)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_parent_are_found_behind_any_name() {
        assert_eq!(state_and_parent("12 (a) b) S 7 12 0"), Some(('S', 7)));
        assert_eq!(state_and_parent("12 (cut"), None);
    }

    #[test]
    fn a_process_with_another_parent_has_no_supervisor() {
        assert_eq!(supervisor_of(std::process::id()), None);
    }

    #[test]
    fn this_process_is_alive_and_an_ended_one_is_not() {
        assert!(is_alive(std::process::id()));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }
}

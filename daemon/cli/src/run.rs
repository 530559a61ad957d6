//! `sctpify run`: runs one command with its connections over SCTP, without root.
//!
//! In a new user namespace, a process without root privileges may create a network namespace. The command runs in this network namespace.
//! The command's only connection to other hosts is a daemon, which is started for this command alone. The daemon runs without privileges in the
//! caller's network namespace. The steps are:
//!
//! 1. Enter a user namespace.
//! 2. Start the daemon.
//! 3. Enter a network namespace and a mount namespace.
//! 4. Run the command in a second user namespace, under the caller's user ID and without any capability ([`enter`]).
//!
//! If the system forbids user namespaces, the command is not run.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use control::{Request, STAND_IN_NAME_SERVER};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};
use ops::{RESOLV_CONF, loopback_name_server, with_name_server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

use crate::daemon::{end_of, find_daemon, look_until};
use crate::session::Session;
use crate::{CliError, RunArgs};

/// Time limit on the daemon's start.
const START_LIMIT: Duration = Duration::from_secs(15);
/// Interval between checks whether the daemon has started.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time limit on the daemon's shutdown of its associations.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// Base of the exit status for a command that a signal ended. Like a shell, sctpify adds the number of the signal.
pub(crate) const SIGNAL_BASE: i32 = 128;

/// Runs a command, and returns its exit status.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, CliError> {
    let program = find_daemon()?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let directory = RunDirectory::make(uid)?;
    enter_user_namespace(0, uid, 0, gid)?;
    let mut daemon = Daemon::start(&program, args, &directory)?;
    enter_network_namespace(&directory)?;
    daemon.wait_until_up(&directory)?;
    let status = run_to_its_end(args, &directory, uid, gid)?;
    daemon.stop();
    Ok(exit_code(status))
}

/// Returns the exit status of a command in the form that a shell uses.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| SIGNAL_BASE + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Directory of one run, with the control socket and the log. Dropping this value removes the directory.
struct RunDirectory {
    dir: PathBuf,
}

impl RunDirectory {
    fn make(uid: u32) -> Result<RunDirectory, CliError> {
        let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
        let base = base.unwrap_or_else(std::env::temp_dir);
        let dir = base.join(format!("sctpify-run-{uid}-{}", std::process::id()));
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(&dir)
            .map_err(|e| CliError::Failed(format!("cannot create {}: {e}", dir.display())))?;
        Ok(RunDirectory { dir })
    }

    fn control(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // If this fails, one small directory remains in the runtime directory.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Enters a new user namespace that maps only `uid` to `inner_uid` and `gid` to `inner_gid`.
fn enter_user_namespace(inner_uid: u32, uid: u32, inner_gid: u32, gid: u32) -> Result<(), CliError> {
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespaces)?;
    let write = |file: &str, text: String| {
        fs::write(Path::new("/proc/self").join(file), text)
            .map_err(|e| CliError::Failed(format!("cannot write /proc/self/{file} of a user namespace: {e}")))
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{inner_uid} {uid} 1"))?;
    write("gid_map", format!("{inner_gid} {gid} 1"))
}

/// Returns the error for a system that forbids user namespaces, with a remedy.
fn no_user_namespaces(errno: Errno) -> CliError {
    let remedy = match errno {
        Errno::ENOSPC => "raise the limit: sysctl user.max_user_namespaces=10000",
        Errno::EPERM => {
            "allow them: sysctl kernel.unprivileged_userns_clone=1 (Debian), or an AppArmor profile with `userns,` for \
             this program (Ubuntu); a container's host may forbid them"
        }
        _ => "use a kernel with CONFIG_USER_NS",
    };
    CliError::Failed(format!(
        "this system does not let unprivileged users create user namespaces ({errno}), which `sctpify run` requires: \
         {remedy}; or start the daemon for the whole host as root, with `sctpify up`"
    ))
}

/// Enters a network namespace and a mount namespace for the command. Provides a resolver configuration that works there.
fn enter_network_namespace(directory: &RunDirectory) -> Result<(), CliError> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).map_err(|errno| {
        CliError::Failed(format!(
            "this system does not let unprivileged users create network namespaces ({errno}): Ubuntu 24.04 needs an AppArmor profile \
             with `userns,` for this program, or sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        ))
    })?;
    let text = fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    if loopback_name_server(&text).is_none() {
        return Ok(());
    }
    let ours = directory.dir.join("resolv.conf");
    let failed = |e: io::Error| CliError::Failed(format!("cannot provide {RESOLV_CONF} to the command: {e}"));
    fs::write(&ours, with_name_server(&text, STAND_IN_NAME_SERVER.into())).map_err(failed)?;
    let target = fs::canonicalize(RESOLV_CONF).map_err(failed)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).map_err(|e| failed(e.into()))?;
    mount(Some(&ours), &target, none, MsFlags::MS_BIND, none).map_err(|e| failed(e.into()))
}

/// The daemon of one run. It ends when its standard input is closed, so it never outlives this process.
struct Daemon {
    child: Child,
}

impl Daemon {
    fn start(program: &Path, args: &RunArgs, directory: &RunDirectory) -> Result<Daemon, CliError> {
        let cannot = |e: io::Error| CliError::Failed(format!("cannot start {}: {e}", program.display()));
        let mut command = Command::new(program);
        command.arg("--inside").arg(format!("/proc/{}/ns/net", std::process::id()));
        command.arg("--control").arg(directory.control());
        command.arg("--config").arg(config_file(args));
        let state = args.state_dir.as_deref();
        command.arg("--state-dir").arg(home_file(state, "XDG_STATE_HOME", ".local/state", ""));
        let log = match &args.log {
            Some(filter) => {
                command.arg("--log").arg(filter);
                Stdio::inherit()
            }
            None => File::create(directory.log()).map_err(cannot)?.into(),
        };
        // Only the command gets the signals of the terminal, because the daemon has its own process group.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).process_group(0);
        Ok(Daemon { child: command.spawn().map_err(cannot)? })
    }

    /// Reports to the daemon that the network namespace exists, and waits until the daemon answers.
    fn wait_until_up(&mut self, directory: &RunDirectory) -> Result<(), CliError> {
        if let Some(stdin) = &mut self.child.stdin {
            // If the daemon has ended, its log states the reason.
            let _ = stdin.write_all(b".");
        }
        let control = directory.control();
        let session = Session { control: &control, json: false };
        let up = look_until(START_LIMIT, LOOK_EVERY, || {
            if session.ask(&Request::Settings).is_ok() {
                return Some(true);
            }
            self.child.try_wait().ok()?.map(|_| false)
        });
        match up {
            Some(true) => Ok(()),
            _ => Err(CliError::Failed(format!(
                "the daemon did not start. Its output:\n{}",
                end_of(&directory.log())
            ))),
        }
    }

    /// Makes the daemon end its open connections, and waits up to [`STOP_LIMIT`] until it has ended.
    fn stop(&mut self) {
        self.child.stdin = None;
        look_until(STOP_LIMIT, LOOK_EVERY, || self.child.try_wait().ok()?.map(|_| ()));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.stdin = None;
        // Errors are ignored, because the daemon may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config_file(args: &RunArgs) -> PathBuf {
    home_file(args.config.as_deref(), "XDG_CONFIG_HOME", ".config", "sctpify.toml")
}

/// Returns `named`, or else the default path in the caller's home directory. `variable` names the environment variable with the base
/// directory. If the variable is not set, the base directory is `below_home` in the home directory.
pub(crate) fn home_file(named: Option<&Path>, variable: &str, below_home: &str, name: &str) -> PathBuf {
    let of_home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(below_home);
    let base = || std::env::var_os(variable).map_or_else(of_home, PathBuf::from);
    named.map_or_else(|| base().join("sctpify").join(name), Path::to_path_buf)
}

/// Runs the command in the namespaces to its end. Forwards signals (see [`PassedSignals`]).
fn run_to_its_end(
    args: &RunArgs,
    directory: &RunDirectory,
    uid: u32,
    gid: u32,
) -> Result<ExitStatus, CliError> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["enter", &uid.to_string(), &gid.to_string(), "--"]).args(&args.command);
    command.env("SCTPIFY_CONTROL", directory.control()).env("SCTPIFY_CONFIG", config_file(args));
    wait_for(&mut command)
}

/// Runs a command to its end. Forwards signals (see [`PassedSignals`]).
pub(crate) fn wait_for(command: &mut Command) -> Result<ExitStatus, CliError> {
    let cannot = |e: io::Error| CliError::Failed(format!("cannot run the command: {e}"));
    let signals = PassedSignals::watch().map_err(cannot)?;
    let mut child = command.spawn().map_err(|error| not_run(command, error))?;
    let _passing = signals.pass_to(&child, drop).map_err(cannot)?;
    child.wait().map_err(cannot)
}

/// Returns the error for a command that could not be started.
pub(crate) fn not_run(command: &Command, error: io::Error) -> CliError {
    CliError::NotRun { program: command.get_program().to_string_lossy().into_owned(), error }
}

/// Signals that this process catches, and forwards to a command once the command runs.
pub(crate) struct PassedSignals(SignalsInfo<WithOrigin>);

/// Forwarding of signals, which ends when this value is dropped.
pub(crate) struct Passing(Handle);

impl PassedSignals {
    /// Catches the signals that usually end a command, except signals that the caller ignores (nohup). The command inherits the ignored
    /// signals, and ignores them too.
    pub(crate) fn watch() -> io::Result<PassedSignals> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        let is_taken = |signal: &i32| ignored & 1 << (signal - 1) == 0;
        let signals = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2].into_iter().filter(is_taken);
        SignalsInfo::new(signals).map(PassedSignals)
    }

    /// Forwards the signals that the command does not get itself (see [`reaches_command`]). Calls `late` for each signal that arrives
    /// after the command has ended.
    pub(crate) fn pass_to(mut self, command: &Child, late: fn(i32)) -> io::Result<Passing> {
        let pid = i32::try_from(command.id()).ok().and_then(Pid::from_raw);
        // After the command has ended, its process ID may belong to another process. A pidfd still refers to the command.
        let command = pidfd_open(pid.ok_or_else(|| io::Error::other("no process"))?, PidfdFlags::empty())?;
        let passing = Passing(self.0.handle());
        std::thread::spawn(move || {
            for origin in self.0.forever() {
                let signal = Signal::from_named_raw(origin.signal).filter(|_| !reaches_command(&origin));
                let passed = is_there(&command)
                    .and_then(|()| signal.map_or(Ok(()), |signal| pidfd_send_signal(&command, signal)));
                if passed.is_err() {
                    late(origin.signal);
                }
            }
        });
        Ok(passing)
    }
}

/// Reports whether a signal also reaches the command directly: the terminal signals its whole foreground process group (Ctrl-C, Ctrl-\\).
/// Signals of processes are always forwarded, because most of them reach only this process. A command may then get a signal twice, if a
/// process signals the group.
fn reaches_command(origin: &Origin) -> bool {
    matches!(origin.signal, SIGINT | SIGQUIT) && matches!(origin.cause, Cause::Kernel)
}

/// Checks that a process has not ended. Fails with ESRCH if it has.
fn is_there(process: &OwnedFd) -> Result<(), rustix::io::Errno> {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    match poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
        0 => Ok(()),
        _ => Err(rustix::io::Errno::SRCH),
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Replaces this process by the command, under the caller's user ID. Returns only on failure.
pub(crate) fn enter(uid: u32, gid: u32, words: &[String]) -> Result<Infallible, CliError> {
    enter_user_namespace(uid, 0, gid, 0)?;
    let Some((program, rest)) = words.split_first() else {
        return Err(CliError::Usage("no command to run".into()));
    };
    let error = Command::new(program).args(rest).exec();
    Err(CliError::NotRun { program: program.clone(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_forbid_user_namespaces_has_its_remedy() {
        let text = |errno| no_user_namespaces(errno).to_string();
        assert!(text(Errno::ENOSPC).contains("user.max_user_namespaces"));
        assert!(text(Errno::EPERM).contains("unprivileged_userns_clone"));
        assert!(text(Errno::EINVAL).contains("CONFIG_USER_NS"));
    }

    #[test]
    fn a_named_file_beats_the_one_at_home() {
        let named = home_file(Some(Path::new("/x/y")), "NO_SUCH_VARIABLE", ".config", "sctpify.toml");
        assert_eq!(named, Path::new("/x/y"));
        let at_home = home_file(None, "NO_SUCH_VARIABLE", ".config", "sctpify.toml");
        assert!(at_home.ends_with(".config/sctpify/sctpify.toml"));
    }
}

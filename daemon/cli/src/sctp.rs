//! `sctpify run --sctp`: provides SCTP sockets to an unmodified SCTP program.
//!
//! The program is started with the preloaded library `libsctpify.so`. The library gets sockets from a socket server, which belongs to the
//! user and runs in the same network namespace ([`sockserver`]). For a static program, for a musl program, and with `--seccomp`, this
//! process does the work of the library ([`usernotif`]). The first run starts the server. The server ends 2 s after all sockets are closed
//! and all runs have ended. If a program closes its sockets, their remaining data still reaches the peer.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{dup2_stderr, geteuid};
use sockserver::{AskError, Carriage, Client, Options, Row, SERVER_VARIABLE, Server};
use usernotif::SpawnError;

use crate::daemon::look_until;
use crate::executable::takes_no_library;
use crate::run::{PassedSignals, SIGNAL_BASE, exit_code, home_file, not_run, wait_for};
use crate::table::{Align, Table};
use crate::{CliError, RunArgs, SocketArgs, SocketCarriers};

const LIBRARY: &str = "libsctpify.so";
/// True if a release with this program has the library. A release of static programs has none.
const HAS_LIBRARY: bool = !cfg!(target_feature = "crt-static");
/// Directory in which packages install the library, relative to the directory of this program.
const LIBRARY_DIRECTORY: &str = "../lib/sctpify";
/// UDP port of SCTP in UDP (RFC 6951).
const UDP_PORT: u16 = 9899;
/// Time limit on the server's start.
const START_LIMIT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns the name of the user's socket server. The name ends with the user ID, which the library compares with the user ID of the server
/// process.
fn server_name() -> String {
    format!("sctpify-sockets-{}", geteuid())
}

/// Runs a command with SCTP sockets, and returns its exit status.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, CliError> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(CliError::Usage("no command to run".into()));
    };
    let mut command = Command::new(program);
    command.args(rest);
    if args.seccomp || !HAS_LIBRARY || takes_no_library(program) {
        return run_supervised(&mut command, args);
    }
    let mut preload = find_library()?.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let name = server_name();
    let _lease = lease(&name, args)?;
    command.env("LD_PRELOAD", preload).env(OsStr::from_bytes(SERVER_VARIABLE.to_bytes()), name);
    wait_for(&mut command).map(exit_code)
}

/// Runs a command, and performs its calls on SCTP sockets in this process. Returns when the command and all processes that it started have
/// ended.
fn run_supervised(command: &mut Command, args: &RunArgs) -> Result<ExitCode, CliError> {
    begin_without_library()?;
    let failed = |what: &str, error: &dyn std::fmt::Display| CliError::Failed(format!("{what}: {error}"));
    let name = server_name();
    let _lease = lease(&name, args)?;
    let name = CString::new(name).map_err(|e| failed("the server's name", &e))?;
    sockclient::ask::set_server(name);
    // Under Yama, only ancestors may access the memory of a process. As a subreaper, this process becomes the parent of orphaned programs,
    // and so remains an ancestor of all programs that the command starts.
    set_child_subreaper(true).map_err(|e| failed("cannot adopt processes", &e))?;
    let signals = PassedSignals::watch().map_err(|e| failed("cannot watch signals", &e))?;
    let (child, listener) = usernotif::spawn(command).map_err(|error| match error {
        SpawnError::Command(error) => not_run(command, error),
        SpawnError::Filter(error) => failed("cannot supervise the command", &error),
    })?;
    // A signal arrived after the command had ended, while programs that it started remain. The caller can end only this process, so the
    // signal ends this process.
    let end = |signal: i32| std::process::exit(SIGNAL_BASE + signal);
    let _passing = signals.pass_to(&child, end).map_err(|e| failed("cannot pass signals", &e))?;
    let (tell, status) = channel();
    std::thread::spawn(move || reap(child.id(), &tell));
    usernotif::supervise(&listener).map_err(|e| failed("cannot supervise the command", &e))?;
    let status = status.recv().map_err(|e| failed("the command's exit status is lost", &e))?;
    Ok(exit_code(status))
}

/// Executes this program again without the library, if the library is preloaded into this process. The library is preloaded if a command of
/// `sctpify run --sctp` started this process. With the library, the SCTP calls that this process makes for programs would be translated
/// twice.
fn begin_without_library() -> Result<(), CliError> {
    let preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let is_ours = |path: &&[u8]| path.ends_with(LIBRARY.as_bytes());
    let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
    if !preload.as_bytes().split(is_separator).any(|path| is_ours(&path)) {
        return Ok(());
    }
    let others: Vec<&[u8]> = preload.as_bytes().split(is_separator).filter(|path| !is_ours(path)).collect();
    let mut again = Command::new("/proc/self/exe");
    again.args(std::env::args_os().skip(1)).env("LD_PRELOAD", OsStr::from_bytes(&others.join(&b':')));
    Err(CliError::Failed(format!("cannot begin without {LIBRARY}: {}", again.exec())))
}

/// Reaps the command and the orphaned processes that this process has adopted. Sends the exit status of the command to `tell`.
fn reap(command: u32, tell: &Sender<ExitStatus>) {
    loop {
        let (process, raw) = match wait() {
            Ok(WaitStatus::Exited(process, code)) => (process, code << 8),
            Ok(WaitStatus::Signaled(process, signal, _)) => (process, signal as i32),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        if u32::try_from(process.as_raw()) == Ok(command) {
            // The send fails only if the supervisor has failed, and then nothing needs the status.
            let _ = tell.send(ExitStatus::from_raw(raw));
        }
    }
}

/// Finds the library in the directory of this program, or in [`LIBRARY_DIRECTORY`].
fn find_library() -> Result<PathBuf, CliError> {
    let exe =
        std::env::current_exe().map_err(|e| CliError::Failed(format!("cannot find this program: {e}")))?;
    let directory = exe.parent().unwrap_or(Path::new("/"));
    let installed = directory.join(LIBRARY_DIRECTORY).join(LIBRARY);
    let candidates = [Some(directory.join(LIBRARY)), Some(installed).filter(|path| is_safe(path))];
    candidates.into_iter().flatten().find(|path| path.is_file()).ok_or_else(|| {
        CliError::Failed(format!(
            "{LIBRARY} is neither in {0} nor in {0}/{LIBRARY_DIRECTORY}: install sctpify whole, or build it with \
             `cargo build --release -p libsctpify -p cli`",
            directory.display()
        ))
    })
}

/// Reports whether only root and this user can have written a file, and can replace it. For a program in `/tmp`, others could make
/// [`LIBRARY_DIRECTORY`].
fn is_safe(file: &Path) -> bool {
    let is_ours = |path: &Path| {
        let owner = std::fs::metadata(path);
        owner.is_ok_and(|of| [0, geteuid().as_raw()].contains(&of.uid()) && of.mode() & 0o022 == 0)
    };
    file.canonicalize().is_ok_and(|file| is_ours(&file) && file.parent().is_some_and(is_ours))
}

/// Takes a lease that keeps the socket server running. Starts the server if none runs.
fn lease(name: &str, args: &RunArgs) -> Result<Client, CliError> {
    let lease = || Client::connect(name).and_then(Client::lease);
    let failed = |error: AskError| CliError::Failed(error.to_string());
    let wanted = carriage(&args.sockets);
    match lease() {
        Ok((client, found)) if found == wanted || args.sockets.is_default() => return Ok(client),
        Ok(_) => {
            return Err(CliError::Usage(
                "a socket server runs already, with other options: leave out --carriers, --udp-port and --peer-udp-port, or wait until \
                 `sctpify sctp` shows no sockets and 2 s more"
                    .into(),
            ));
        }
        Err(AskError::NoServer(_)) => {}
        Err(other) => return Err(failed(other)),
    }
    let mut server = start_server(args)?;
    let started = look_until(START_LIMIT, LOOK_EVERY, || match lease() {
        Ok((client, _)) => Some(Ok(client)),
        Err(AskError::NoServer(_)) => server.try_wait().ok()?.map(|_| Err(())),
        Err(_) => None,
    });
    match started {
        Some(Ok(client)) => Ok(client),
        // Another run may have started the server first.
        _ => lease().map(|(client, _)| client).map_err(|_| {
            let mut why = String::new();
            if let Some(mut output) = server.stderr.take() {
                let _ = output.read_to_string(&mut why);
            }
            CliError::Failed(match why.trim() {
                "" => "the socket server did not start".to_owned(),
                why => why.trim_start_matches("sctpify: ").to_owned(),
            })
        }),
    }
}

fn start_server(args: &RunArgs) -> Result<Child, CliError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("serve-sockets");
    let SocketArgs { carriers, udp_port, peer_udp_port } = &args.sockets;
    if let Some(carriers) = carriers {
        let word = clap::ValueEnum::to_possible_value(carriers);
        command.arg("--carriers").args(word.iter().map(|word| word.get_name()));
    }
    for (option, port) in [("--udp-port", udp_port), ("--peer-udp-port", peer_udp_port)] {
        if let Some(port) = port {
            command.arg(option).arg(port.to_string());
        }
    }
    let errors = match &args.log {
        Some(filter) => {
            command.env("SCTPIFY_LOG", filter);
            Stdio::inherit()
        }
        None => Stdio::piped(),
    };
    // Only the command gets the signals of the terminal, because the server has its own process group.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).process_group(0);
    command.spawn().map_err(|e| CliError::Failed(format!("cannot start the socket server: {e}")))
}

/// Returns the carriers and ports that the options select.
fn carriage(args: &SocketArgs) -> Carriage {
    let carriers = args.carriers.unwrap_or(SocketCarriers::Udp);
    Carriage {
        udp_port: (carriers != SocketCarriers::Ip).then_some(args.udp_port.unwrap_or(UDP_PORT)),
        over_ip: carriers != SocketCarriers::Udp,
        peer_udp_port: args.peer_udp_port.unwrap_or(UDP_PORT),
    }
}

/// Runs the socket server until no program uses it.
pub(crate) fn serve(args: &SocketArgs) -> Result<(), CliError> {
    let filter = std::env::var("SCTPIFY_LOG");
    let is_watched = filter.is_ok();
    let filter = filter.unwrap_or_else(|_| "warn".to_owned());
    // If the reader of the log stops reading, the server must continue.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .init();
    let options = Options { name: server_name(), carriage: carriage(args), ends_when_idle: true };
    let mut server = Server::open(&options).map_err(|error| CliError::Failed(error.to_string()))?;
    if !is_watched {
        write_to_log()?;
    }
    server.run().map_err(|error| CliError::Failed(format!("the socket server: {error}")))
}

/// Redirects standard error to the server's log, because the run that started the server reads standard error only during the start.
/// Discards the output if the log cannot be created.
fn write_to_log() -> Result<(), CliError> {
    let directory = home_file(None, "XDG_STATE_HOME", ".local/state", "");
    let log = fs::create_dir_all(&directory).and_then(|()| File::create(directory.join("sockets.log")));
    let log = log.or_else(|_| File::options().write(true).open("/dev/null"));
    let log = log.map_err(|e| CliError::Failed(format!("cannot open a log: {e}")))?;
    dup2_stderr(log).map_err(|e| CliError::Failed(format!("cannot write to the log: {e}")))
}

/// Shows the sockets of the user's socket server.
pub(crate) fn show(json: bool) -> Result<(), CliError> {
    let rows = match Client::list(&server_name()) {
        Ok(rows) => rows,
        Err(AskError::NoServer(_)) => Vec::new(),
        Err(other) => return Err(CliError::Failed(other.to_string())),
    };
    let mut out = io::stdout().lock();
    if json {
        for row in &rows {
            let line = serde_json::to_string(row).map_err(|e| CliError::Failed(e.to_string()))?;
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    if rows.is_empty() {
        writeln!(out, "no SCTP sockets; `sctpify run --sctp -- COMMAND` gives a program some")?;
        return Ok(());
    }
    table(&rows).print(&mut out, "")?;
    Ok(())
}

/// Creates a table with the columns of ss(8) and the paths.
fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        ("State", Align::Left),
        ("Recv-Q", Align::Right),
        ("Send-Q", Align::Right),
        ("Local", Align::Left),
        ("Peer", Align::Left),
        ("Paths", Align::Left),
    ]);
    for row in rows {
        let paths = row.paths.iter().map(|path| {
            let mark = if path.in_use { "*" } else { "" };
            format!("{mark}{} > {} {} {}", path.local, path.remote, path.carrier, path.state)
        });
        table.row([
            row.state.clone(),
            row.receive_queue.to_string(),
            row.send_queue.to_string(),
            row.local.join(" "),
            row.peer.join(" "),
            paths.collect::<Vec<_>>().join(", "),
        ]);
    }
    table
}

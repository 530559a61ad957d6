//! Two hosts, and the SCTP programs that tests run on them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testbed::{Finished, Host, Lab, Link, Offloads, Process, Programs};

pub(crate) const PORT: &str = "7000";
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Id of a user that owns nothing.
pub(crate) const NOBODY: &str = "65534";
/// Id of another user that owns nothing.
pub(crate) const SOMEBODY: &str = "65533";
/// Length of a transfer, in octets. With the pauses of `preloaded::PACED`, the transfer lasts long enough for
/// a test to cut a link during it.
pub(crate) const LENGTH: usize = 4 << 20;

/// Prelude of each program: functions for sockets of protocol 132.
pub(crate) const PRELUDE: &str = "
import errno, os, select, socket, sys, time
def sctp(): return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
def listen(port, address=''):
    s = sctp(); s.bind((address, int(port))); s.listen(5)
    print('listening', flush=True)
    return s
def error(call, *arguments):
    try: return call(*arguments)
    except OSError as e: return errno.errorcode[e.errno]
";

/// Two hosts, joined by one or more links.
pub(crate) struct World {
    pub(crate) alpha: Host,
    pub(crate) beta: Host,
    pub(crate) links: Vec<Link>,
    pub(crate) programs: Programs,
    pub(crate) lab: Lab,
    /// Further options of `sctpify run --sctp`.
    options: &'static [&'static str],
}

impl World {
    /// Creates a world whose programs have the preloaded library.
    pub(crate) fn new(links: u8) -> World {
        World::with(links, &[])
    }

    /// Creates a world whose programs run under the seccomp supervisor.
    pub(crate) fn supervised(links: u8) -> World {
        World::with(links, &["--seccomp"])
    }

    fn with(links: u8, options: &'static [&'static str]) -> World {
        let lab = Lab::new().unwrap();
        let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
        let links =
            (1..=links).map(|number| lab.join(&alpha, &beta, number, Offloads::Off).unwrap()).collect();
        let programs = copy_for_all(lab.dir());
        World { alpha, beta, links, programs, lab, options }
    }

    /// Returns a command that runs `sctpify` on a host. The caller appends the arguments.
    pub(crate) fn sctpify(&self, host: &Host) -> Command {
        host.command(self.programs.path("sctpify"))
    }

    /// Returns a command that gives a program SCTP sockets. The caller appends the program and its arguments.
    pub(crate) fn sctp(&self, host: &Host) -> Command {
        let mut command = self.sctpify(host);
        command.args(["run", "--sctp"]);
        command.args(self.options).arg("--");
        command
    }

    /// Returns the command that runs a Python program with SCTP sockets.
    pub(crate) fn python(&self, host: &Host, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.sctp(host);
        command.args(["python3", "-c", &format!("{PRELUDE}{program}")]).args(arguments);
        command
    }

    /// Starts a Python program on beta, and waits until it listens.
    pub(crate) fn serve(&self, program: &str) -> Process {
        let mut process = self.beta.spawn("server", self.python(&self.beta, program, &[PORT])).unwrap();
        process.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
        process
    }

    pub(crate) fn to(&self) -> String {
        self.links[0].right_v4().to_string()
    }

    /// Runs a Python program on alpha until it ends. The program's arguments are the server's address, the server's
    /// port, and then `arguments`.
    pub(crate) fn ask(&self, program: &str, arguments: &[&str]) -> Finished {
        let to = self.to();
        let all = [&[to.as_str(), PORT], arguments].concat();
        self.alpha.run("client", self.python(&self.alpha, program, &all), LIMIT).unwrap()
    }

    /// Returns the rows of `sctpify sctp --json` on a host.
    pub(crate) fn rows(&self, host: &Host) -> Vec<serde_json::Value> {
        let mut command = self.sctpify(host);
        command.args(["--json", "sctp"]);
        let output = host.run("sctp", command, LIMIT).unwrap().good().unwrap().stdout;
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Copies programs and library to a place where every user can run them.
fn copy_for_all(dir: &Path) -> Programs {
    let found = Programs::find().unwrap();
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    for dir in [dir, &bin] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for name in ["sctpifyd", "sctpify", "shimrules", "libsctpify.so"] {
        fs::copy(found.path(name), bin.join(name)).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    Programs::in_dir(&bin).unwrap()
}

/// Returns a command that runs `command` on a host as another user.
pub(crate) fn as_user(user: &str, host: &Host, command: &Command) -> Command {
    let words = command.get_args().map(|word| word.to_owned()).collect::<Vec<_>>();
    let mut other = host.command("setpriv");
    other.args(["--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--"]);
    // The arguments of `command` up to the first "--" belong to `nsenter`. These arguments are skipped, because the
    // returned command has its own `nsenter`.
    let program = words.iter().position(|word| word == "--").map_or(0, |at| at + 1);
    other.args(&words[program..]);
    other
}

/// Returns the process ID of the socket server in a namespace; `None` without a server.
pub(crate) fn server_in(namespace: &str) -> Option<i32> {
    let output = Command::new("ip").args(["netns", "pids", namespace]).output().unwrap();
    let pids = String::from_utf8(output.stdout).unwrap();
    pids.split_whitespace().map(|pid| pid.parse().unwrap()).find(|pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"serve-sockets")
    })
}

//! Tests of access to the control socket: which users may query a daemon, and which users may change it.

use crate::world::LIMIT;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::{Finished, Host, Lab, Process, Programs};

/// Id of a user, and of a group, other than root.
const NOBODY: u32 = 65534;
/// Script that executes the daemon with another /etc/group. $1 is that file, and the other arguments are the
/// command.
const START: &str = "mount --bind \"$1\" /etc/group && shift && exec \"$@\"";
const START_LIMIT: Duration = Duration::from_secs(10);

/// Daemon and its control socket. The daemon itself creates the socket's directory. All users may enter the
/// parent of this directory.
struct Controlled {
    alpha: Host,
    programs: Programs,
    socket: PathBuf,
    _daemon: Process,
    _open: tempfile::TempDir,
    _lab: Lab,
}

impl Controlled {
    /// Starts the daemon on a host. `groups` is the content of the /etc/group that the daemon sees.
    fn start(groups: &str) -> Controlled {
        let (programs, lab) = (Programs::find().unwrap(), Lab::new().unwrap());
        let alpha = lab.host("alpha").unwrap();
        let file = alpha.dir().unwrap().join("group");
        fs::write(&file, groups).unwrap();
        let groups = file;
        let open = tempfile::Builder::new().prefix("sctpify-control").tempdir().unwrap();
        fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let socket = open.path().join("made/control.sock");
        let mut command = alpha.command("unshare");
        command.args(["--mount", "sh", "-c", START, "sh"]).arg(&groups).arg(programs.path("sctpifyd"));
        command.arg("--control").arg(&socket).arg("--state-dir").arg(alpha.dir().unwrap());
        command.arg("--config").arg(alpha.dir().unwrap().join("sctpify.toml"));
        let mut daemon = alpha.spawn("sctpifyd", command).unwrap();
        daemon.wait_until("socket", START_LIMIT, |_| socket.exists()).unwrap();
        Controlled { alpha, programs, socket, _daemon: daemon, _open: open, _lab: lab }
    }

    /// Runs `sctpify` as this user and group.
    fn sctpify(&self, user: u32, group: u32, words: &[&str]) -> Finished {
        let mut command = self.alpha.command("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".into()]);
        command.arg("--").arg(self.programs.path("sctpify")).args(words);
        command.env("SCTPIFY_CONTROL", &self.socket);
        self.alpha.run("sctpify", command, LIMIT).unwrap()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_control_socket_and_its_directory_are_closed_to_other_users() {
    let daemon = Controlled::start("root:x:0:\n");
    assert_eq!(mode(&daemon.socket), 0o660);
    assert_eq!(mode(daemon.socket.parent().unwrap()), 0o750);
    let output = daemon.sctpify(NOBODY, NOBODY, &["status"]);
    assert!(!output.status.success() && output.stderr.contains("ermission"), "{output:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn members_of_the_sctpify_group_may_query_but_not_change_the_daemon() {
    let daemon = Controlled::start(&format!("root:x:0:\nsctpify:x:{NOBODY}:\n"));
    for question in [&["status"][..], &["paths"], &["get"], &["explain", "192.0.2.1:22"]] {
        let output = daemon.sctpify(NOBODY, NOBODY, question);
        assert!(output.status.success(), "{question:?}: {output:?}");
    }
    for change in [&["set", "enable=0"][..], &["forget", "192.0.2.1"], &["reload"], &["down"]] {
        let output = daemon.sctpify(NOBODY, NOBODY, change);
        assert!(!output.status.success() && output.stderr.contains("has read access only"), "{output:?}");
    }
    assert!(daemon.sctpify(0, 0, &["set", "enable=0"]).status.success());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn rules_are_restored_whole_or_not_at_all() {
    let world = Controlled::start("root:x:0:\n");
    let rule = |words: &str| {
        let words: Vec<&str> = ["rule"].into_iter().chain(words.split(' ')).collect();
        world.sctpify(0, 0, &words)
    };
    rule("add 22,80 at any --name web").good().unwrap();
    rule("add any to 192.0.2.9 --tcp").good().unwrap();
    let saved = rule("save").good().unwrap().stdout;
    assert_eq!(saved.lines().count(), 3, "{saved}");
    let file = world.alpha.dir().unwrap().join("saved");
    let restore = |text: &str| {
        fs::write(&file, text).unwrap();
        rule(&format!("restore {}", file.display()))
    };
    let full: String = (1..=4096).fold(String::new(), |text, port| {
        text + &format!("-A -c local -p enable -P {port} --name service-{port} --comment \"number {port}\"\n")
    });
    restore(&full).good().unwrap();
    assert_eq!(rule("save").good().unwrap().stdout, full, "a full table is restored");
    restore(&saved).good().unwrap();
    for (text, reason) in [("", "no rule to restore"), ("-A -c local -p enable -P 1\n-A -c\n", "line 2")] {
        let refused = restore(text);
        assert!(!refused.status.success() && refused.stderr.contains(reason), "{refused:?}");
        assert_eq!(rule("save").good().unwrap().stdout, saved);
    }
    rule("flush").good().unwrap();
    rule("add 22 to 192.0.2.1 --require").good().unwrap();
    let warned = restore(&saved).good().unwrap();
    assert!(warned.stdout.contains("1 of the old rules refused"), "{warned:?}");
    assert_eq!(rule("save").good().unwrap().stdout, saved);
}

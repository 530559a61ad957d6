//! Tests with a full disk under the state directory. Changes of rules and settings are rejected without
//! effect. Connections and reports continue.

use crate::world::LIMIT;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testbed::{Finished, Host, Lab, Process, Programs};

const START_LIMIT: Duration = Duration::from_secs(10);
/// Script that mounts a small disk as the state directory, and then executes the daemon. $1 is the state
/// directory, and the other arguments are the command.
const START: &str = "mount -t tmpfs -o size=64k tmpfs \"$1\" && shift && exec \"$@\"";

struct SmallDisk {
    alpha: Host,
    programs: Programs,
    state: PathBuf,
    daemon: Process,
    _lab: Lab,
}

impl SmallDisk {
    fn start() -> SmallDisk {
        let (programs, lab) = (Programs::find().unwrap(), Lab::new().unwrap());
        let alpha = lab.host("alpha").unwrap();
        let dir = alpha.dir().unwrap();
        let state = dir.join("state");
        std::fs::create_dir(&state).unwrap();
        let mut command = alpha.command("unshare");
        command.args(["--mount", "sh", "-c", START, "sh"]).arg(&state).arg(programs.path("sctpifyd"));
        command.arg("--control").arg(dir.join("control.sock")).arg("--config").arg(dir.join("sctpify.toml"));
        command.arg("--state-dir").arg(&state);
        let mut daemon = alpha.spawn("sctpifyd", command).unwrap();
        let socket = dir.join("control.sock");
        daemon.wait_until("socket", START_LIMIT, |_| socket.exists()).unwrap();
        SmallDisk { alpha, programs, state, daemon, _lab: lab }
    }

    fn shimrules(&self, words: &str) -> Finished {
        let mut command = self.alpha.command(self.programs.path("shimrules"));
        command.args(words.split(' '));
        command.env("SCTPIFY_CONTROL", self.alpha.dir().unwrap().join("control.sock"));
        self.alpha.run("shimrules", command, LIMIT).unwrap()
    }

    /// Runs a script in the daemon's mount namespace, where the small disk is visible.
    fn on_its_disk(&self, script: &str) -> Finished {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.daemon.id()));
        command.args(["sh", "-c", script, "sh"]).arg(self.state.join("fill"));
        self.alpha.run("nsenter", command, LIMIT).unwrap()
    }

    /// Returns the names and checksums of the daemon's state files.
    fn files(&self) -> String {
        self.on_its_disk("cd \"${1%/*}\" && find . -type f ! -name fill -exec sha256sum {} + | sort").stdout
    }

    fn rules(&self) -> String {
        self.shimrules("-L --json").good().unwrap().stdout
    }
}

#[test]
#[ignore = "needs root: makes network and mount namespaces"]
fn a_rule_that_cannot_be_written_is_refused_and_not_in_force_until_there_is_room() {
    let host = SmallDisk::start();
    host.shimrules("-A -c remote -p enable -P 7001").good().unwrap();
    host.on_its_disk("cat /dev/zero > \"$1\"");
    let output = host.shimrules("-A -c remote -p enable -P 7002");
    assert!(!output.status.success() && output.stderr.contains("No space left"), "{output:?}");
    let rules = host.rules();
    assert!(rules.contains("7001") && !rules.contains("7002"), "{rules}");
    host.on_its_disk("rm \"$1\"");
    host.shimrules("-A -c remote -p enable -P 7002").good().unwrap();
    assert!(host.rules().contains("7002"));
}

/// The disk has room for only a part of the new rules file. An incomplete file must not replace the old file.
#[test]
#[ignore = "needs root: makes network and mount namespaces"]
fn if_the_disk_fills_while_rules_are_written_the_old_rules_file_remains() {
    const RULES: u16 = 100;
    const PAGE: u32 = 4096;
    let host = SmallDisk::start();
    for port in 1..=RULES {
        let name = "x".repeat(60);
        host.shimrules(&format!("-A -c remote -p enable -P {port} --name {name}{port}")).good().unwrap();
    }
    host.on_its_disk(&format!("cat /dev/zero > \"$1\"; truncate -s -{PAGE} \"$1\""));
    let before = host.files();
    assert!(before.contains("rules"), "{before}");
    let output = host.shimrules("-A -c remote -p enable -P 7002");
    assert!(!output.status.success() && output.stderr.contains("No space left"), "{output:?}");
    assert_eq!(host.files(), before);
    assert!(!host.rules().contains("7002"));
}

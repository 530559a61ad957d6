//! Two hosts, and a third host between these two. The third host has an interface to each of them.

use std::time::Duration;

use linkemu::Report;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testbed::{Finished, Host, Lab, Process};

/// Time limit on each step.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Two hosts that reach each other only through the middle host. Host alpha has the addresses 10.9.0.1 and fd09::1, and host beta has
/// 10.9.0.2 and fd09::2.
pub(crate) struct World {
    pub(crate) alpha: Host,
    beta: Host,
    pub(crate) middle: Host,
    lab: Lab,
}

impl World {
    pub(crate) fn new() -> World {
        let lab = Lab::new().unwrap();
        let [alpha, beta, middle] = ["alpha", "beta", "middle"].map(|name| lab.host(name).unwrap());
        for (host, far, number) in [(&alpha, "left", 1), (&beta, "right", 2)] {
            let there = middle.namespace();
            host.ip(&["link", "add", "e0", "type", "veth", "peer", "name", far, "netns", there]).unwrap();
            host.ip(&["addr", "add", &format!("10.9.0.{number}/24"), "dev", "e0"]).unwrap();
            host.ip(&["addr", "add", &format!("fd09::{number}/64"), "dev", "e0", "nodad"]).unwrap();
            host.ip(&["link", "set", "e0", "up"]).unwrap();
            middle.ip(&["link", "set", far, "up"]).unwrap();
        }
        World { alpha, beta, middle, lab }
    }

    fn program(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.middle.command(env!("CARGO_BIN_EXE_linkemu"));
        command.arg("--dir").arg(self.lab.dir().join("links")).args(words);
        command
    }

    /// Runs `linkemu` on the middle host.
    pub(crate) fn linkemu(&self, words: &[&str]) -> Finished {
        self.middle.run("linkemu", self.program(words), LIMIT).unwrap()
    }

    pub(crate) fn spawn_linkemu(&self, words: &[&str]) -> Process {
        self.middle.spawn("linkemu", self.program(words)).unwrap()
    }

    /// Starts link x in the background.
    pub(crate) fn add(&self, settings: &[&str]) {
        self.linkemu(&[&["add", "left", "right", "--name", "x"], settings].concat()).good().unwrap();
    }

    pub(crate) fn set(&self, settings: &[&str]) {
        self.linkemu(&[&["set", "x"], settings].concat()).good().unwrap();
    }

    pub(crate) fn show(&self) -> Report {
        let output = self.linkemu(&["--json", "show", "x"]).good().unwrap();
        serde_json::from_str(&output.stdout).unwrap()
    }

    /// Writes a file that describes link x with these additional settings. Returns its path.
    pub(crate) fn write_file(&self, name: &str, settings: &str) -> String {
        let path = self.lab.dir().join(name);
        let text = format!("[[link]]\nname = 'x'\na = 'left'\nb = 'right'\n{settings}");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs ping on host alpha. Returns the output of ping, even if no answer arrived.
    pub(crate) fn ping(&self, words: &[&str]) -> String {
        let mut command = self.alpha.command("ping");
        command.args(words);
        let finished = self.alpha.run("ping", command, LIMIT).unwrap();
        finished.stdout + &finished.stderr
    }

    /// Returns the rate that iperf3 measures at host beta, in bit/s.
    pub(crate) fn iperf_rate(&self, words: &[&str]) -> f64 {
        let mut server = self.beta.command("iperf3");
        server.args(["-s", "-1", "--forceflush"]);
        let mut server = self.beta.spawn("iperf3-server", server).unwrap();
        let listening = |process: &Process| process.stdout().contains("listening");
        server.wait_until("listening", LIMIT, listening).unwrap();
        let mut client = self.alpha.command("iperf3");
        client.args(["-c", "10.9.0.2", "-J"]).args(words);
        let output = self.alpha.run("iperf3", client, LIMIT).unwrap().good().unwrap().stdout;
        let output: serde_json::Value = serde_json::from_str(&output).unwrap();
        output["end"]["sum_received"]["bits_per_second"].as_f64().unwrap()
    }

    /// Returns the promiscuity counts of the middle host's two interfaces.
    pub(crate) fn promiscuity(&self) -> [u64; 2] {
        ["left", "right"].map(|interface| {
            let output = self.middle.ip(&["-d", "-j", "link", "show", interface]).unwrap();
            let output: serde_json::Value = serde_json::from_str(&output).unwrap();
            output[0]["promiscuity"].as_u64().unwrap()
        })
    }

    /// Kills a process, and waits until the kernel has released its files.
    pub(crate) fn kill(&self, pid: u32) {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
        // The kernel releases the process's interfaces before the process's claims on the interfaces, so the function waits for the
        // end of all threads. The process may remain a zombie, because no parent reaps it in this namespace. A zombie without other
        // threads has no open files.
        let process = format!("/proc/{pid}");
        let is_gone = || match (
            std::fs::read_dir(format!("{process}/task")),
            std::fs::read_to_string(format!("{process}/stat")),
        ) {
            (Ok(threads), Ok(stat)) => threads.count() == 1 && stat.contains(") Z "),
            _ => true,
        };
        assert!(testbed::process::wait_for(LIMIT, is_gone), "process {pid} is not gone");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let mut command = self.program(&["del", "--all"]);
        // The lab cannot end the links' processes, because each link's process has a separate session.
        let _ = command.output();
    }
}

/// Returns the round-trip times that ping reports, in milliseconds.
pub(crate) fn ping_times(world: &World, words: &[&str]) -> Vec<f64> {
    let said = world.ping(words);
    let times = said.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    times.collect()
}

/// Returns the median. If the number of values is even, returns the upper of the two middle values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

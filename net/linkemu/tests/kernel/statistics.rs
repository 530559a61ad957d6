//! Measurements of the kernel's netem and of linkemu with ping and iperf3.

use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::{Host, Lab, Process};

/// Time limit on each step.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// An emulated link between a near host and a far host. The settings apply to the direction from the near host to the far host.
pub(crate) trait EmulatedLink {
    /// Returns a command that runs `program` on the near host.
    fn near(&self, program: &str) -> Command;
    /// Returns a command that runs `program` on the far host.
    fn far(&self, program: &str) -> Command;
    /// Returns the far host's address.
    fn address(&self) -> &'static str;
    /// Applies these settings to the direction from the near host to the far host.
    fn set(&self, settings: &str);

    /// Sends `count` pings to the far host, with `interval` seconds between them.
    fn ping(&self, count: usize, interval: &str) -> Pings {
        let mut command = self.near("ping");
        command.args(["-c", &count.to_string(), "-i", interval, "-W", "1", self.address()]);
        Pings::parse(&output(&mut command), count)
    }

    /// Sends 3 Mbit/s in datagrams of 1,000 bytes. Returns the rate of the payload that arrives, in bit/s.
    ///
    /// The rate is computed from the share of lost datagrams. iperf3 also reports a rate, but this rate is sometimes too low:
    /// iperf3 can include a pause after the last datagram in the time of sending.
    fn udp_rate(&self) -> f64 {
        let mut server = self.far("iperf3");
        let mut server = server.args(["-s", "-1"]).stdout(Stdio::null()).spawn().expect("iperf3");
        let mut rate = None;
        // The client is repeated, because it fails until the server listens.
        let is_reported = testbed::process::wait_for(LIMIT, || {
            let mut client = self.near("iperf3");
            client.args(["-J", "-c", self.address(), "-u", "-b", "3m", "-l", "1000", "-t", "5"]);
            let output = client.output().expect("iperf3").stdout;
            let output: serde_json::Value = serde_json::from_slice(&output).unwrap_or_default();
            rate = output["end"]["sum"]["lost_percent"].as_f64().map(|lost| 3e6 * (1.0 - lost / 100.0));
            rate.is_some()
        });
        assert!(is_reported, "iperf3 reported no rate");
        server.wait().expect("iperf3 ends");
        rate.unwrap_or_default()
    }
}

/// Round-trip times in milliseconds, in the order of the pings' sequence numbers; `None` for a lost ping.
pub(crate) struct Pings {
    times: Vec<Option<f64>>,
}

impl Pings {
    fn parse(text: &str, count: usize) -> Pings {
        let mut times = vec![None; count];
        for line in text.lines().filter(|line| !line.contains("DUP")) {
            let word = |name: &str| line.split_once(name)?.1.split(' ').next();
            let (number, time) = (word("icmp_seq="), word("time="));
            if let (Some(Ok(number)), Some(Ok(time))) =
                (number.map(str::parse::<usize>), time.map(str::parse))
            {
                times[number - 1] = Some(time);
            }
        }
        Pings { times }
    }

    pub(crate) fn quartiles_ms(&self) -> [f64; 3] {
        let mut times: Vec<f64> = self.times.iter().flatten().copied().collect();
        times.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
    }

    pub(crate) fn lost_share(&self) -> f64 {
        self.times.iter().filter(|time| time.is_none()).count() as f64 / self.times.len() as f64
    }

    /// Returns the mean number of consecutive lost pings.
    pub(crate) fn mean_burst(&self) -> f64 {
        let lost = self.times.iter().filter(|time| time.is_none()).count();
        let ends = self.times.windows(2).filter(|pair| pair[0].is_none() && pair[1].is_some()).count();
        lost as f64 / ends.max(1) as f64
    }
}

/// Runs a command and returns its standard output. Ignores the exit status, because ping fails after losses, and the tests cause
/// losses on purpose.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two hosts, and a third host between these two. The third host runs linkemu.
pub(crate) struct World {
    alpha: Host,
    beta: Host,
    middle: Host,
    lab: Lab,
    _link: Process,
}

impl World {
    pub(crate) fn new() -> World {
        let lab = Lab::new().unwrap();
        let [alpha, beta, middle] = ["alpha", "beta", "middle"].map(|name| lab.host(name).unwrap());
        for (host, far, address) in [(&alpha, "left", "10.9.0.1/24"), (&beta, "right", "10.9.0.2/24")] {
            let there = middle.namespace();
            host.ip(&["link", "add", "e0", "type", "veth", "peer", "name", far, "netns", there]).unwrap();
            host.ip(&["addr", "add", address, "dev", "e0"]).unwrap();
            host.ip(&["link", "set", "e0", "up"]).unwrap();
            middle.ip(&["link", "set", far, "up"]).unwrap();
        }
        let mut command = linkemu(&middle, &lab);
        command.args(["run", "left", "right", "--name", "x", "--seed", "1"]);
        let mut link = middle.spawn("linkemu", command).unwrap();
        link.wait_until("a link", LIMIT, |process| process.stdout().contains("ready")).unwrap();
        World { alpha, beta, middle, lab, _link: link }
    }
}

fn linkemu(middle: &Host, lab: &Lab) -> Command {
    let mut command = middle.command(env!("CARGO_BIN_EXE_linkemu"));
    command.arg("--dir").arg(lab.dir().join("links"));
    command
}

impl EmulatedLink for World {
    fn near(&self, program: &str) -> Command {
        self.alpha.command(program)
    }

    fn far(&self, program: &str) -> Command {
        self.beta.command(program)
    }

    fn address(&self) -> &'static str {
        "10.9.0.2"
    }

    fn set(&self, settings: &str) {
        const NOTHING: &str =
            "rate=unlimited,delay=0,jitter=0,distribution=uniform,loss=none,overhead=0,queue=1000";
        let settings = format!("{NOTHING},{settings}");
        let mut command = linkemu(&self.middle, &self.lab);
        command.args(["set", "x", "--ab", &settings]);
        self.middle.run("linkemu", command, LIMIT).unwrap().good().unwrap();
    }
}

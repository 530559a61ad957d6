//! Two hosts with daemons, the programs that send between them, and a capture of the arriving packets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{Daemon, Host, Lab, Process, Programs};

/// Limit on the duration of any step.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The program under test.
pub(crate) const ROUTER: &str = env!("CARGO_BIN_EXE_sctpify-router");
/// Ports whose connections use SCTP.
const PORTS: &str = "5001:5009";
/// Port of most tests' connections.
pub(crate) const PORT: u16 = 5002;

pub(crate) struct Ends {
    pub(crate) alpha: Host,
    pub(crate) beta: Host,
    _daemons: [Daemon; 2],
    bulk: PathBuf,
    pub(crate) lab: Lab,
}

impl Ends {
    /// Starts daemons on both hosts. The daemons advertise in this `form`, use these carriers, and have this setting
    /// `encryption`.
    pub(crate) fn new(
        lab: Lab,
        [alpha, beta]: [Host; 2],
        carriers: &str,
        form: &str,
        encryption: &str,
    ) -> Ends {
        let programs = Programs::find().unwrap();
        let configuration =
            format!("carriers = \"{carriers}\"\nrace_timer_ms = 3000\nencryption = \"{encryption}\"\n");
        let daemons = [&alpha, &beta].map(|host| {
            let daemon = Daemon::start(host, &programs, &configuration).unwrap();
            for chain in ["local", "remote"] {
                let rule = ["-A", "-c", chain, "-p", "enable", "-P", PORTS, "--advertise", form];
                daemon.shimrules(&rule).unwrap().good().unwrap();
            }
            daemon
        });
        let bulk = programs.path("bulk");
        Ends { alpha, beta, _daemons: daemons, bulk, lab }
    }

    /// Starts a server on a host, and waits until it prints "listening".
    pub(crate) fn serve(&self, host: &Host, words: &[&str]) -> Process {
        let mut command = host.command(&self.bulk);
        command.args(words);
        let mut server = host.spawn("server", command).unwrap();
        server.wait_until("listening", LIMIT, |it| it.stdout().contains("listening")).unwrap();
        server
    }

    /// Starts the program `bulk` on a host.
    pub(crate) fn bulk(&self, host: &Host, words: &[&str]) -> Process {
        let mut command = host.command(&self.bulk);
        command.args(words);
        host.spawn("bulk", command).unwrap()
    }

    /// Sends from alpha to this address of beta for `seconds` seconds.
    pub(crate) fn send(&self, to: std::net::IpAddr, seconds: &str) {
        let receiver = self.serve(&self.beta, &["receive", &PORT.to_string()]);
        let target = std::net::SocketAddr::new(to, PORT).to_string();
        self.bulk(&self.alpha, &["send", &target, seconds, "65536"]).finish(LIMIT).unwrap().good().unwrap();
        receiver.finish(LIMIT).unwrap().good().unwrap();
    }

    /// Starts a capture of the packets that arrive at beta on this interface.
    pub(crate) fn tap(&self, interface: &str) -> Process {
        let mut tcpdump = self.beta.command("tcpdump");
        tcpdump.args(["--immediate-mode", "-U", "-B", "65536", "-Q", "in", "-i", interface, "-w"]);
        tcpdump.arg(self.lab.dir().join("tap.pcap"));
        let mut tap = self.beta.spawn("tcpdump", tcpdump).unwrap();
        tap.wait_until("capture", LIMIT, |it| it.stderr().contains("listening on")).unwrap();
        tap
    }

    /// Ends the capture, and returns the number of packets of each class. A packet's first chunk determines its class.
    pub(crate) fn captured(&self, tap: Process) -> BTreeMap<String, u64> {
        std::thread::sleep(Duration::from_millis(300));
        tap.signal(Signal::SIGINT).unwrap();
        let output = tap.finish(LIMIT).unwrap();
        assert!(output.stderr.contains("\n0 packets dropped by kernel"), "{}", output.stderr);
        let file = self.lab.dir().join("tap.pcap");
        let words = ["-n", "-r", file.to_str().unwrap(), "-Y", "sctp", "-T", "fields"];
        let fields = ["-e", "sctp.chunk_type", "-e", "sctp.chunk_flags"];
        let output = self.beta.tool("tshark", &[&words[..], &fields].concat()).unwrap();
        let mut classes = BTreeMap::new();
        for line in output.lines() {
            let (types, flags) = line.split_once('\t').unwrap();
            let first = |list: &str| list.split(',').next().unwrap_or_default().to_owned();
            if first(types) == "150" {
                let percent = u32::from_str_radix(first(flags).trim_start_matches("0x"), 16).unwrap();
                let class = format!("5ba:{}", (percent / 10 + 1).min(10) * 10);
                *classes.entry(class).or_default() += 1;
            }
        }
        classes
    }
}

/// Returns the number of packets of each class, from the output of `tc show --json`. Leaves out classes without packets, and the
/// class of packets without an advertisement.
pub(crate) fn counted(report: &str) -> BTreeMap<String, u64> {
    let report: Value = serde_json::from_str(report).unwrap();
    let classes = report["classes"].as_array().unwrap().iter();
    let all = classes.map(|c| (c["class"].as_str().unwrap().to_owned(), c["packets"].as_u64().unwrap()));
    all.filter(|(class, packets)| class != "5ba:1" && *packets > 0).collect()
}

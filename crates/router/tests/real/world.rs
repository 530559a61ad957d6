//! Two hosts with daemons and a router between them, where the program runs. A sender's own queues see whole trains (GSO), sorted by
//! their first packet; a router sees each packet.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{Daemon, Finished, Host, Lab, Link, Offloads, Process, Programs};

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// What is tested.
const ROUTER: &str = env!("CARGO_BIN_EXE_sctpify-router");
/// Ports that ride SCTP, and the one that most use.
const PORTS: &str = "5001:5009";
pub(crate) const PORT: u16 = 5002;

pub(crate) struct World {
    pub(crate) alpha: Host,
    pub(crate) beta: Host,
    pub(crate) middle: Host,
    /// From the router to beta.
    pub(crate) link: Link,
    _daemons: [Daemon; 2],
    bulk: std::path::PathBuf,
    lab: Lab,
}

impl World {
    /// The router forwards by the kernel. Programs advertise as `form` says, over these carriers.
    pub(crate) fn routed(carriers: &str, form: &str) -> World {
        let (lab, [alpha, beta, middle]) = hosts();
        let first = lab.join(&alpha, &middle, 1, Offloads::Off).unwrap();
        let link = lab.join(&middle, &beta, 2, Offloads::Off).unwrap();
        middle.tool("sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]).unwrap();
        for (host, to, via) in [
            (&alpha, link.right_v4().to_string(), first.right_v4().to_string()),
            (&alpha, link.right_v6().to_string(), first.right_v6().to_string()),
            (&beta, first.left_v4().to_string(), link.left_v4().to_string()),
            (&beta, first.left_v6().to_string(), link.left_v6().to_string()),
        ] {
            host.ip(&["route", "add", &to, "via", &via]).unwrap();
        }
        World::with(lab, [alpha, beta, middle], link, carriers, form)
    }

    /// Nothing passes between the router's interfaces `left` and `right` but by a program of ours.
    pub(crate) fn gap(carriers: &str, form: &str) -> World {
        let (lab, [alpha, beta, middle]) = hosts();
        let link = testbed::delay::gap(&alpha, &beta, 1, &middle).unwrap();
        World::with(lab, [alpha, beta, middle], link, carriers, form)
    }

    fn with(lab: Lab, [alpha, beta, middle]: [Host; 3], link: Link, carriers: &str, form: &str) -> World {
        let programs = Programs::find().unwrap();
        let configuration = format!("carriers = \"{carriers}\"\nrace_timer_ms = 3000\ninit_rtx_max = 5\n");
        let daemons = [&alpha, &beta].map(|host| {
            let daemon = Daemon::start(host, &programs, &configuration).unwrap();
            for chain in ["local", "remote"] {
                let rule = ["-A", "-c", chain, "-p", "enable", "-P", PORTS, "--advertise", form];
                daemon.shimrules(&rule).unwrap().good().unwrap();
            }
            daemon
        });
        let bulk = programs.path("bulk");
        World { alpha, beta, middle, link, _daemons: daemons, bulk, lab }
    }

    /// Runs `sctpify-router` on the router.
    pub(crate) fn router(&self, words: &[&str]) -> Finished {
        let mut command = self.middle.command(ROUTER);
        command.args(words);
        self.middle.run("router", command, LIMIT).unwrap()
    }

    /// Starts `sctpify-router` on the router, until it says that it runs.
    pub(crate) fn spawn_router(&self, words: &[&str]) -> Process {
        let mut command = self.middle.command(ROUTER);
        command.args(words);
        let mut router = self.middle.spawn("running", command).unwrap();
        router.wait_until("running", LIMIT, |it| it.stdout().contains("running")).unwrap();
        router
    }

    /// Ends it; what it tells then.
    pub(crate) fn stop(&self, router: Process) -> String {
        router.signal(Signal::SIGINT).unwrap();
        router.finish(LIMIT).unwrap().good().unwrap().stdout
    }

    /// A program on beta that prints "listening" when it does.
    pub(crate) fn serve(&self, host: &Host, words: &[&str]) -> Process {
        let mut command = host.command(&self.bulk);
        command.args(words);
        let mut server = host.spawn("server", command).unwrap();
        server.wait_until("listening", LIMIT, |it| it.stdout().contains("listening")).unwrap();
        server
    }

    /// A program on this host.
    pub(crate) fn bulk(&self, host: &Host, words: &[&str]) -> Process {
        let mut command = host.command(&self.bulk);
        command.args(words);
        host.spawn("bulk", command).unwrap()
    }

    /// A program on alpha sends for so many seconds to this address of beta.
    pub(crate) fn send(&self, to: std::net::IpAddr, seconds: &str) {
        let receiver = self.serve(&self.beta, &["receive", &PORT.to_string()]);
        let target = std::net::SocketAddr::new(to, PORT).to_string();
        self.bulk(&self.alpha, &["send", &target, seconds, "65536"]).finish(LIMIT).unwrap().good().unwrap();
        receiver.finish(LIMIT).unwrap().good().unwrap();
    }

    /// Begins to capture what reaches beta.
    pub(crate) fn tap(&self) -> Process {
        let mut tcpdump = self.beta.command("tcpdump");
        tcpdump.args(["--immediate-mode", "-U", "-B", "65536", "-Q", "in", "-i", &self.link.name(), "-w"]);
        tcpdump.arg(self.lab.dir().join("tap.pcap"));
        let mut tap = self.beta.spawn("tcpdump", tcpdump).unwrap();
        tap.wait_until("capture", LIMIT, |it| it.stderr().contains("listening on")).unwrap();
        tap
    }

    /// How many packets were of each class, by what their first chunk says.
    pub(crate) fn captured(&self, tap: Process) -> BTreeMap<String, u64> {
        std::thread::sleep(Duration::from_millis(300));
        tap.signal(Signal::SIGINT).unwrap();
        let told = tap.finish(LIMIT).unwrap();
        assert!(told.stderr.contains("\n0 packets dropped by kernel"), "{}", told.stderr);
        let file = self.lab.dir().join("tap.pcap");
        let words = ["-n", "-r", file.to_str().unwrap(), "-Y", "sctp", "-T", "fields"];
        let fields = ["-e", "sctp.chunk_type", "-e", "sctp.chunk_flags"];
        let told = self.beta.tool("tshark", &[&words[..], &fields].concat()).unwrap();
        let mut classes = BTreeMap::new();
        for line in told.lines() {
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

    /// How many packets went through each class that had some, but for the one of what says nothing.
    pub(crate) fn counted(&self) -> BTreeMap<String, u64> {
        let told = self.router(&["--json", "tc", "show", &self.link.name()]).good().unwrap().stdout;
        let told: Value = serde_json::from_str(&told).unwrap();
        let classes = told["classes"].as_array().unwrap().iter();
        let all = classes.map(|c| (c["class"].as_str().unwrap().to_owned(), c["packets"].as_u64().unwrap()));
        all.filter(|(class, packets)| class != "5ba:1" && *packets > 0).collect()
    }
}

fn hosts() -> (Lab, [Host; 3]) {
    let lab = Lab::new().unwrap();
    let hosts = ["alpha", "beta", "middle"].map(|name| lab.host(name).unwrap());
    (lab, hosts)
}

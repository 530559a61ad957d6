//! A guest with the Linux kernel's SCTP, two namespaces of this machine, and two paths that connect all
//! three.
//!
//! [`testbed::Guest`] creates and removes the guest and the namespaces. Begin with [`World::up`].

use crate::cell::Stack;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testbed::Guest;
use testbed::process::{now, wait_for};

/// Programs that the tests call, and their Debian packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("gcc", "gcc"),
    ("ip", "iproute2"),
    ("python3", "python3"),
    ("ethtool", "ethtool"),
    ("nft", "nftables"),
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("apt-get", "apt"),
];

/// The location of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TestHost {
    /// In the guest, on its kernel.
    Guest,
    /// In the first namespace.
    Peer,
    /// In the second namespace.
    Peer2,
}

impl TestHost {
    /// Returns the host's IPv4 addresses on the first and on the second path.
    pub(crate) fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::Guest => ["10.60.0.11", "10.60.1.11"],
            Self::Peer => ["10.60.0.1", "10.60.1.1"],
            Self::Peer2 => ["10.60.0.2", "10.60.1.2"],
        }
    }

    /// Returns the host's ports on the bridges of the first and of the second path.
    pub(crate) fn ports(self) -> [&'static str; 2] {
        match self {
            Self::Guest => ["t1.0", "t1.1"],
            Self::Peer => ["p1.0", "p1.1"],
            Self::Peer2 => ["p2.0", "p2.1"],
        }
    }
}

/// Expectation on the checksums of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// All checksums are correct.
    Checksum,
    /// Both ends send DATA with a zero checksum. Every nonzero checksum must be correct. Packets with INIT,
    /// COOKIE ECHO or ASCONF must have a correct checksum.
    ZeroChecksum,
}

/// Guest, namespaces and paths. All of them are removed when this value is dropped.
pub(crate) struct World {
    guest: Guest,
}

/// Describes the missing prerequisites of these tests; `None` if the tests can run.
pub(crate) fn missing() -> Option<String> {
    if !testbed::is_root() {
        return Some("SKIPPED: needs root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let mut lacks: Vec<&str> =
        PROGRAMS.iter().filter(|(name, _)| !has(name)).map(|(_, package)| *package).collect();
    if !Path::new("/usr/include/usrsctp.h").is_file() {
        lacks.push("libusrsctp-dev");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("SKIPPED: /dev/net/tun is missing".to_owned());
    }
    (!lacks.is_empty()).then(|| format!("SKIPPED: needs Debian's {}", lacks.join(", ")))
}

impl World {
    /// Boots the guest, and builds the programs of these stacks. The boot takes about 5 s. On a machine's
    /// first run, it takes a minute.
    pub(crate) fn up(stacks: &BTreeSet<Stack>) -> Result<Self> {
        let world = Self { guest: Guest::up("interop")? };
        stacks.iter().try_for_each(|stack| stack.make(world.dir()))?;
        world.without_offloads()?;
        world.prove_judge()?;
        Ok(world)
    }

    /// Checks that `judge.sh` reports a planted bad checksum. If the script accepted every packet, it would
    /// prove nothing.
    fn prove_judge(&self) -> Result<()> {
        let golden =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine/wire/tests/golden/kernel-raw.pcap");
        let mut octets =
            std::fs::read(&golden).with_context(|| format!("cannot read {}", golden.display()))?;
        *octets.last_mut().context("the golden capture is empty")? ^= 1;
        let planted = self.dir().join("planted.pcap");
        std::fs::write(&planted, octets)?;
        let output =
            Command::new(self.judge_script()).arg(&planted).output().context("cannot start judge.sh")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("bad packets"), "judge.sh did not notice a planted bad checksum: {text}");
        Ok(())
    }

    fn judge_script(&self) -> PathBuf {
        self.guest.scripts().join("../interop/judge.sh")
    }

    /// Turns off the offloads of the network cards. Captured packets then have their final checksums and
    /// lengths.
    fn without_offloads(&self) -> Result<()> {
        for namespace in ["peer", "peer2"] {
            for card in ["eth0", "eth1"] {
                self.guest
                    .boot(&[namespace, "ethtool", "-K", card, "tx", "off", "gso", "off", "gro", "off"])?;
            }
        }
        Ok(())
    }

    /// Runs a shell line in the guest, and returns its standard output.
    pub(crate) fn in_guest(&self, line: &str) -> Result<String> {
        self.guest.run(line)
    }

    /// Makes the guest's kernel carry SCTP in UDP if `on` is set, and over IP otherwise.
    pub(crate) fn kernel_over_udp(&self, on: bool) -> Result<()> {
        self.guest.carry_over_udp(on)
    }

    /// Returns a command that runs a program on a host for up to `limit`.
    pub(crate) fn command(&self, host: TestHost, program: &Path, limit: Duration) -> Command {
        let seconds = limit.as_secs().to_string();
        let is_python = program.extension().is_some_and(|extension| extension == "py");
        match host {
            TestHost::Guest => {
                let mut command = self.guest.program(limit.as_secs());
                command.args(is_python.then_some("python3")).arg(Guest::path_inside(program));
                command
            }
            TestHost::Peer | TestHost::Peer2 => {
                let peer = if host == TestHost::Peer { "peer" } else { "peer2" };
                let mut command = self.guest.command(&[peer, "timeout", &seconds]);
                command.args(is_python.then_some("python3")).arg(program);
                command
            }
        }
    }

    /// Interrupts the first path of a host while its links stay up, or restores the path if `works` is set.
    pub(crate) fn set_first_path(&self, host: TestHost, works: bool) -> Result<()> {
        let port = host.ports()[0];
        let words: &[&str] = if works { &["master", "br0"] } else { &["nomaster"] };
        output(self.in_net("ip").args(["link", "set", port]).args(words)).map(drop)
    }

    /// Sets the CE mark (RFC 3168) on every seventh ECN-capable packet to our stack, and on every seventh
    /// from our stack. The marking ends when the result is dropped.
    pub(crate) fn mark_packets_of_ours(&self) -> Result<Marks<'_>> {
        let rule = "ip protocol 132 ip ecn ect0 numgen inc mod 7 == 0 ip ecn set ce";
        let rules = format!(
            "table ip marks {{ \
             chain in {{ type filter hook prerouting priority -300; {rule}; }}; \
             chain out {{ type filter hook postrouting priority 300; {rule}; }}; }}"
        );
        self.guest.boot(&["peer", "nft", &rules])?;
        Ok(Marks(self))
    }

    fn in_net(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.guest.namespace("net"))).arg(program);
        command
    }

    /// Starts to capture SCTP at a port of a bridge.
    pub(crate) fn capture(&self, port: &str) -> Result<Running> {
        let file = self.dir().join(format!("{port}.pcap"));
        let mut command = self.in_net("tcpdump");
        command.args(["-Z", "root", "-U", "--immediate-mode", "-B", "16384", "-q", "-s0", "-i", port, "-w"]);
        command.arg(&file).arg("proto 132 or ip6 proto 132 or udp port 9899");
        let capture = Running::start(command, self.dir(), &format!("tcpdump-{port}"))?;
        capture.wait_for_line("listening on", Duration::from_secs(5))?;
        Ok(capture)
    }

    /// Ends a capture, evaluates it with tshark, and returns the observed chunk types.
    pub(crate) fn judge(&self, capture: Running, port: &str, rule: Rule) -> Result<String> {
        // During this pause, the last packets pass through the kernel to the capture.
        std::thread::sleep(Duration::from_millis(100));
        capture.terminate()?;
        let file = self.dir().join(format!("{port}.pcap"));
        let mut judge = Command::new(self.judge_script());
        judge.args((rule == Rule::ZeroChecksum).then_some("--zero-checksum"));
        let output = judge.arg(&file).output().context("cannot start judge.sh")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let kept = std::env::temp_dir().join(format!("{}-{port}.pcap", self.guest.namespace("net")));
            std::fs::copy(&file, &kept)?;
            bail!("{}, kept as {}", text.trim(), kept.display());
        }
        Ok(text)
    }

    /// Returns the directory of logs and captures.
    pub(crate) fn dir(&self) -> &Path {
        self.guest.dir()
    }
}

/// Guard that stops the marking of packets when dropped.
pub(crate) struct Marks<'a>(&'a World);

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.guest.boot(&["peer", "nft", "delete", "table", "ip", "marks"]) {
            println!("packets are marked for ever: {error:#}");
        }
    }
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed with {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Time for a process to obey SIGTERM before it is killed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Process whose output goes to a file, and which is ended when dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a command, whose output goes to the file `name`.log in `dir`.
    pub(crate) fn start(mut command: Command, dir: &Path, name: &str) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, log })
    }

    /// Returns the output of the process so far.
    pub(crate) fn text(&self) -> String {
        let mut text = Vec::new();
        // Only a failed disk makes this read fail. The returned output is then incomplete.
        let _ = std::fs::File::open(&self.log).and_then(|mut file| file.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits for up to `limit` until the output contains `part`.
    pub(crate) fn wait_for_line(&self, part: &str, limit: Duration) -> Result<()> {
        ensure!(wait_for(limit, || self.text().contains(part)), "no {part:?} in {limit:?}: {}", self.text());
        Ok(())
    }

    /// Returns true until the process has ended.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for up to `limit` until the process ends with status 0, and returns its output.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<String> {
        let start = now();
        let ended = wait_for(limit, || !matches!(self.child.try_wait(), Ok(None)));
        ensure!(ended, "still runs after {:?}: {}", start.elapsed(), self.text());
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {}", self.text());
        Ok(self.text())
    }

    /// Ends the process with SIGTERM.
    fn terminate(mut self) -> Result<()> {
        output(Command::new("kill").arg(self.child.id().to_string()))?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    /// Sends SIGTERM first. The process is usually timeout(1), which forwards SIGTERM to its program. After
    /// a SIGKILL of timeout(1), the program would survive and keep its ports.
    fn drop(&mut self) {
        // An error means that the process has already ended, as desired.
        if self.is_running() {
            let _ = output(Command::new("kill").arg(self.child.id().to_string()));
            let _ = wait_for(END_LIMIT, || !self.is_running());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Hosts with a proxy each, and the programs that call through the proxies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::process::wait_for;
use testbed::{Host, Lab, Process};

/// Time limit of any step.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Port at which SIPp answers calls.
const CALLEE_PORT: &str = "6666";

/// A host with a proxy for one domain, at port 5060 of one of its addresses.
pub(crate) struct Site {
    pub(crate) host: Host,
    pub(crate) dir: PathBuf,
    pub(crate) address: String,
    pub(crate) domain: &'static str,
}

/// Returns the path of a SIPp scenario.
pub(crate) fn scenario(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/real/scenarios", name].iter().collect()
}

/// Returns the configuration of a listener.
pub(crate) fn listen(transport: &str, address: &str) -> String {
    format!("[[listen]]\ntransport = \"{transport}\"\naddress = \"{address}:5060\"\n")
}

impl Site {
    pub(crate) fn new(lab: &Lab, name: &str, address: &str, domain: &'static str) -> Site {
        let dir: &Path = lab.dir();
        Site { host: lab.host(name).unwrap(), dir: dir.to_owned(), address: address.to_owned(), domain }
    }

    /// Creates a site on an existing host.
    pub(crate) fn at(host: Host, dir: &Path, address: &str, domain: &'static str) -> Site {
        Site { host, dir: dir.to_owned(), address: address.to_owned(), domain }
    }

    /// Creates the only site of a lab, at a loopback address.
    pub(crate) fn alone(lab: &Lab) -> Site {
        Site::new(lab, "sip", "127.0.0.1", "example.com")
    }

    /// Creates another site on the same host.
    pub(crate) fn beside(&self, address: &str, domain: &'static str) -> Site {
        Site { host: self.host.clone(), dir: self.dir.clone(), address: address.to_owned(), domain }
    }

    /// Returns the configuration of a listener at the site's address.
    pub(crate) fn listen(&self, transport: &str) -> String {
        listen(transport, &self.address)
    }

    /// Starts a proxy with these lines of configuration. Its bindings are in a file.
    pub(crate) fn proxy(&self, more: &[String]) -> Process {
        let store = self.dir.join(format!("{}.db", self.domain));
        self.proxy_with_store(&store.display().to_string(), more)
    }

    /// Starts a proxy with its bindings in this store. On a busy machine, the store's server may answer later than a proxy waits at its
    /// start. The start is then repeated, as systemd does.
    pub(crate) fn proxy_with_store(&self, store: &str, more: &[String]) -> Process {
        let start = || {
            let mut proxy = self.host.spawn(self.domain, self.proxy_command(store, more)).unwrap();
            let restored = |proxy: &Process| proxy.stderr().contains("bindings restored");
            proxy.wait_until("restored", LIMIT, restored).map(|_| proxy)
        };
        let is_late = |error: &anyhow::Error| error.to_string().contains("no answer in 2 s");
        let tries = std::iter::repeat_with(start).take(5);
        let mut ended = tries.filter(|started| !started.as_ref().is_err_and(is_late));
        ended.next().expect("the store answers").unwrap()
    }

    /// Returns the command that starts a proxy.
    pub(crate) fn proxy_command(&self, store: &str, more: &[String]) -> std::process::Command {
        let path = self.dir.join(format!("{}-{}.toml", self.domain, self.address));
        // All load comes from one address, so the rate is unlimited. A test of the rate has its own table `[access]`.
        let has_access = more.iter().any(|text| text.contains("[access]"));
        let access = if has_access { "" } else { "access.requests_per_s = 0\n" };
        let head = format!("domains = [\"{}\"]\nstore = \"{store}\"\n{access}", self.domain);
        std::fs::write(&path, head + &more.concat()).unwrap();
        let mut command = self.host.command(env!("CARGO_BIN_EXE_sctpify-sip"));
        command.arg("--config").arg(&path);
        command
    }

    /// Returns the path of the control socket. It exists if the configuration has the line of [`Site::with_control`].
    pub(crate) fn control(&self) -> PathBuf {
        self.dir.join(format!("control-{}", self.address))
    }

    /// Returns the line of configuration that sets the control socket.
    pub(crate) fn with_control(&self) -> String {
        format!("control = \"{}\"\n", self.control().display())
    }

    /// Returns a command of `sctpify-sip` that queries the running proxy.
    pub(crate) fn ask(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_sctpify-sip"));
        command.args(words).arg("--control").arg(self.control());
        command
    }

    /// Queries the running proxy, and returns its answer.
    pub(crate) fn told(&self, words: &[&str]) -> String {
        self.host.run("ask", self.ask(words), LIMIT).unwrap().good().unwrap().stdout
    }

    /// Returns the proxy's address and port.
    pub(crate) fn proxy_address(&self) -> String {
        format!("{}:5060", self.address)
    }

    /// Returns the output of sipsak for a request to the proxy. If sipsak acts for a user (`-U`), the user is alice.
    pub(crate) fn sipsak(&self, words: &[&str]) -> String {
        let user = if words.contains(&"-U") { "alice@" } else { "" };
        let mut command = self.host.command("sipsak");
        command.args(words).args(["-s", &format!("sip:{user}{}", self.proxy_address())]);
        let finished = self.host.run("sipsak", command, LIMIT).unwrap();
        finished.stdout + &finished.stderr
    }

    fn sipp(&self, name: &str, transport: &str, words: &[&str]) -> std::process::Command {
        let mut command = self.host.command("sipp");
        let kind = if transport == "tcp" { "t1" } else { "u1" };
        command.arg("-sf").arg(scenario(name)).args(["-t", kind, "-i", &self.address, "-nostdin"]);
        command.args(["-key", "from", self.domain]).args(words);
        command
    }

    /// Starts SIPp, which answers calls.
    pub(crate) fn callee(&self, transport: &str) -> Process {
        self.callee_by("answer.xml", transport, CALLEE_PORT)
    }

    /// Starts SIPp, which answers calls over UDP at this port. The scenario defines the answers.
    pub(crate) fn callee_of(&self, scenario: &str, port: &str) -> Process {
        self.callee_by(scenario, "udp", port)
    }

    fn callee_by(&self, scenario: &str, transport: &str, port: &str) -> Process {
        let command = self.sipp(scenario, transport, &["-p", port]);
        let callee = self.host.spawn("callee", command).unwrap();
        let list = if transport == "tcp" { "-Hltn" } else { "-Hlun" };
        let is_up = || self.host.tool("ss", &[list]).unwrap().contains(port);
        assert!(wait_for(LIMIT, is_up), "SIPp listens");
        callee
    }

    /// Starts SIPp with a scenario that sends requests to the proxy over UDP.
    pub(crate) fn spawn_scenario(&self, scenario: &str, words: &[&str]) -> Process {
        let proxy = self.proxy_address();
        let words = [words, &["-key", "to", self.domain, "-timeout", "50", &proxy]].concat();
        self.host.spawn(scenario, self.sipp(scenario, "udp", &words)).unwrap()
    }

    /// Makes SIPp register a user. The contact is the callee that [`Site::callee`] starts with this transport.
    pub(crate) fn register(&self, user: &str, transport: &str) {
        self.register_at(user, transport, CALLEE_PORT);
    }

    /// Makes SIPp register a user. The contact has this port.
    pub(crate) fn register_at(&self, user: &str, transport: &str, port: &str) {
        let contact = self.dir.join(format!("{}-contact.csv", self.domain));
        std::fs::write(&contact, format!("SEQUENTIAL\n{port};{transport}\n")).unwrap();
        let (contact, proxy) = (contact.display().to_string(), self.proxy_address());
        let words = ["-p", "6667", "-s", user, "-inf", &contact, "-m", "1", &proxy];
        let command = self.sipp("register.xml", "udp", &words);
        self.host.run("register", command, LIMIT).unwrap().good().unwrap();
    }

    /// Returns a command for SIPp, which makes this number of calls to a user, at `rate` calls per second.
    pub(crate) fn caller(
        &self,
        user: &str,
        domain: &str,
        transport: &str,
        calls: u32,
        rate: u32,
    ) -> std::process::Command {
        self.caller_by(&self.proxy_address(), user, domain, transport, calls, rate)
    }

    /// Returns a command for SIPp, which calls a user through the proxy at this address.
    pub(crate) fn caller_by(
        &self,
        proxy: &str,
        user: &str,
        domain: &str,
        transport: &str,
        calls: u32,
        rate: u32,
    ) -> std::process::Command {
        let (calls, rate) = (calls.to_string(), rate.to_string());
        let words = [
            "-key", "to", domain, "-p", "6668", "-s", user, "-r", &rate, "-m", &calls, "-timeout", "50",
            proxy,
        ];
        self.sipp("call.xml", transport, &words)
    }

    /// Calls a user with SIPp, at 100 calls per second. All calls must succeed.
    pub(crate) fn call(&self, user: &str, domain: &str, transport: &str, calls: u32) {
        let command = self.caller(user, domain, transport, calls, 100);
        self.host.run("call", command, LIMIT).unwrap().good().unwrap();
    }
}

//! A host with a proxy for example.com at 127.0.0.1:5060, and what calls by way of it.

use std::path::PathBuf;
use std::time::Duration;

use testbed::process::wait_for;
use testbed::{Host, Lab, Process};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Where those who answer calls listen.
const CALLEE_PORT: &str = "6666";

pub(crate) const LISTEN_UDP: &str = "[[listen]]\naddress = \"127.0.0.1:5060\"\n";
pub(crate) const LISTEN_TCP: &str = "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:5060\"\n";

pub(crate) struct World {
    host: Host,
    lab: Lab,
}

fn scenario(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/real/scenarios", name].iter().collect()
}

impl World {
    pub(crate) fn new() -> World {
        let lab = Lab::new().unwrap();
        World { host: lab.host("sip").unwrap(), lab }
    }

    /// Starts a proxy with these listeners; its bindings are in a file of its name.
    pub(crate) fn proxy(&self, name: &str, more: &[&str]) -> Process {
        let path = self.lab.dir().join(format!("{name}.toml"));
        let store = self.lab.dir().join(format!("{name}.db"));
        let head = format!("domains = [\"example.com\"]\nstore = \"{}\"\n", store.display());
        std::fs::write(&path, head + &more.concat()).unwrap();
        let mut command = self.host.command(env!("CARGO_BIN_EXE_sctpify-sip"));
        command.arg("--config").arg(&path);
        let mut proxy = self.host.spawn(name, command).unwrap();
        proxy.wait_until("restored", LIMIT, |proxy| proxy.stderr().contains("bindings restored")).unwrap();
        proxy
    }

    /// What sipsak says when it asks the proxy as alice.
    pub(crate) fn sipsak(&self, words: &[&str]) -> String {
        let user = if words.contains(&"-U") { "sip:alice@127.0.0.1:5060" } else { "sip:127.0.0.1:5060" };
        let mut command = self.host.command("sipsak");
        command.args(words).args(["-s", user]);
        let finished = self.host.run("sipsak", command, LIMIT).unwrap();
        finished.stdout + &finished.stderr
    }

    fn sipp(&self, name: &str, transport: &str, words: &[&str]) -> std::process::Command {
        let mut command = self.host.command("sipp");
        let kind = if transport == "tcp" { "t1" } else { "u1" };
        command.arg("-sf").arg(scenario(name)).args(["-t", kind, "-i", "127.0.0.1", "-nostdin"]).args(words);
        command
    }

    /// SIPp answers calls.
    pub(crate) fn callee(&self, transport: &str) -> Process {
        let callee =
            self.host.spawn("callee", self.sipp("answer.xml", transport, &["-p", CALLEE_PORT])).unwrap();
        let list = if transport == "tcp" { "-Hltn" } else { "-Hlun" };
        let is_up = || self.host.tool("ss", &[list]).unwrap().contains(CALLEE_PORT);
        assert!(wait_for(LIMIT, is_up), "SIPp listens");
        callee
    }

    /// SIPp registers a user at the callee of this transport.
    pub(crate) fn register(&self, user: &str, transport: &str) {
        let contact = self.lab.dir().join("contact.csv");
        std::fs::write(&contact, format!("SEQUENTIAL\n{CALLEE_PORT};{transport}\n")).unwrap();
        let contact = contact.display().to_string();
        let words = ["-p", "6667", "-s", user, "-inf", &contact, "-m", "1", "127.0.0.1:5060"];
        let command = self.sipp("register.xml", "udp", &words);
        self.host.run("register", command, LIMIT).unwrap().good().unwrap();
    }

    /// SIPp calls a user so many times; all calls must succeed.
    pub(crate) fn call(&self, user: &str, transport: &str, calls: u32) {
        let calls = calls.to_string();
        let words = ["-p", "6668", "-s", user, "-r", "100", "-m", &calls, "-timeout", "40", "127.0.0.1:5060"];
        let command = self.sipp("call.xml", transport, &words);
        self.host.run("call", command, LIMIT).unwrap().good().unwrap();
    }
}

//! A proxy under measurement: ours, or Kamailio with a minimal configuration for a stateful proxy with a registrar.

use anyhow::{Context, Result};
use serde_json::Value;
use std::time::Duration;
use testbed::pair::Tools;
use testbed::{Host, Process, cpu, kamailio};

/// URI of the called user.
pub(super) const CALLED: &str = "sip:bob@127.0.0.1";
const ADDRESS: &str = "127.0.0.1";
const START_LIMIT: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(120);

/// The proxies to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contender {
    /// `sctpify-sip`.
    Ours,
    /// Debian's Kamailio.
    Kamailio,
}

/// A running proxy.
pub(super) struct Running {
    contender: Contender,
    host: Host,
    _process: Process,
}

impl Contender {
    pub(super) fn name(self) -> &'static str {
        match self {
            Contender::Ours => "sctpify",
            Contender::Kamailio => "kamailio",
        }
    }

    /// Reports whether Kamailio can be measured over this transport. Kamailio uses the kernel's SCTP, which this host lacks.
    pub(super) fn has(transport: &str) -> bool {
        transport != "sctp"
    }

    /// Returns the name of the proxy's program.
    fn program(self) -> &'static str {
        match self {
            Contender::Ours => "sctpify-sip",
            Contender::Kamailio => kamailio::PROGRAM,
        }
    }

    /// Starts the proxy on `host`, on port 5060.
    pub(super) fn start(self, host: Host, tools: &Tools) -> Result<Running> {
        self.start_with(host, tools, "")
    }

    /// Starts the proxy like [`Contender::start`], with further keys in our proxy's configuration.
    pub(super) fn start_with(self, host: Host, tools: &Tools, keys: &str) -> Result<Running> {
        let command = match self {
            Contender::Ours => {
                let path = host.dir()?.join("sip.toml");
                std::fs::write(&path, keys.to_owned() + &ours())
                    .with_context(|| format!("cannot write {}", path.display()))?;
                let mut command = host.command(tools.programs.path("sctpify-sip"));
                command.args(["--log", "warn", "--config"]).arg(&path);
                command
            }
            Contender::Kamailio => kamailio::command(&host, ADDRESS)?,
        };
        let mut process = host.spawn(self.name(), command)?;
        let listens = |list| host.tool("ss", &[list]).is_ok_and(|output| output.contains(":5060"));
        process.wait_until("listening", START_LIMIT, |_| listens("-Hlun") && listens("-Hltn"))?;
        // Kamailio's workers start after its sockets exist, so wait for the workers.
        std::thread::sleep(Duration::from_millis(500));
        Ok(Running { contender: self, host, _process: process })
    }
}

/// Returns our proxy's configuration: a listener for each transport, no limit on requests per second, and defaults otherwise.
fn ours() -> String {
    let listen =
        |transport: &&str| format!("[[listen]]\ntransport = \"{transport}\"\naddress = \"{ADDRESS}:5060\"\n");
    let listeners = ["udp", "tcp", "sctp"].iter().map(listen).collect::<String>();
    format!("domains = [\"{ADDRESS}\"]\n{listeners}[access]\nrequests_per_s = 0\n")
}

impl Running {
    pub(super) fn name(&self) -> &'static str {
        self.contender.name()
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the processor time of the proxy's processes so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu::of_processes(&self.host, self.contender.program())
    }

    pub(super) fn memory_kib(&self) -> Result<u64> {
        cpu::memory_kib(&self.host, self.contender.program())
    }

    /// Starts a user agent for the user `name` on the proxy's host.
    pub(super) fn spawn(
        &self,
        tools: &Tools,
        transport: &str,
        name: &str,
        words: &[&str],
    ) -> Result<Process> {
        let mut command = self.host.command(tools.programs.path("sctpify-ua"));
        let (port, rtp) = match name {
            "alice" => ("5071", "4002"),
            "bob" => ("5072", "4004"),
            _ => ("5073", "4006"),
        };
        command.args(["--local", &format!("{ADDRESS}:{port}"), "--proxy", &format!("{ADDRESS}:5060")]);
        command.args(["--transport", transport, "--user", &format!("{name}@{ADDRESS}"), "--rtp-port", rtp]);
        command.args(words);
        self.host.spawn(name, command)
    }

    /// Runs a user agent to its end. Returns its report, even if some of its operations failed.
    pub(super) fn agent(&self, tools: &Tools, transport: &str, name: &str, words: &[&str]) -> Result<Value> {
        let finished = self.spawn(tools, transport, name, words)?.finish(LIMIT)?;
        serde_json::from_str(&finished.stdout)
            .with_context(|| format!("{name} reported nothing: {}", finished.stderr))
    }
}

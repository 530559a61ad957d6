//! `./x bench sip-memory [--quick]`: the growth of our SIP proxy's memory.
//!
//! The first part runs the proxy's engine and its SQLite store in virtual time (`examples/standing` of `sipproxy`). The
//! measurement covers an hour with 100,000 users and 10,500 concurrent calls.
//!
//! The second part sends 1,000,000 mutated messages of RFC 4475 to the running program, over UDP, TCP and SCTP (`examples/strangers`). The
//! program must answer throughout, and must carry calls at the end. The growth of the program's memory must not exceed [`GROWTH_GOAL`].
//!
//! The option `--quick` reduces the numbers of users, calls and messages.

use super::super::report::Report;
use crate::optimised;
use crate::tools::{cargo, succeeds};
use anyhow::{Context, Result, ensure};
use pages::stats::percentile;
use pages::{Limit, Table};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use testbed::pair::Tools;
use testbed::{Host, Lab, Link, Offloads, Process, cpu};

/// Limit on the median memory in the last quarter of the second part, as a multiple of the median memory in the second
/// quarter of this part.
const GROWTH_GOAL: f64 = 1.02;
/// Returns the configuration of the proxy. T1 is a tenth of its default value, so the state of a request expires after 3.2 s (RFC 3261 timer
/// J: 64 × T1) instead of 32 s. A registration lasts for a minute, and a user has up to three contacts. Without these two limits, the users
/// in mutated messages would accumulate contacts during the whole run. The proxy would forward a request for such a user to all these
/// contacts, and keep a transaction for each contact for up to 3.2 s.
fn configuration(address: Ipv4Addr) -> String {
    let listen =
        |transport: &&str| format!("[[listen]]\ntransport = \"{transport}\"\naddress = \"{address}:5060\"\n");
    let listeners = TRANSPORTS.iter().map(listen).collect::<String>();
    format!(
        "domains = [\"example.com\", \"{address}\"]\n{listeners}[access]\nrequests_per_s = 0\n[dns]\nenabled = false\n[timers]\nt1_ms = 50\n\
         [registration]\nmin_s = 60\ndefault_s = 60\nmax_s = 60\n[limits]\ncontacts = 3\n"
    )
}

const TRANSPORTS: [&str; 3] = ["udp", "tcp", "sctp"];
const PROGRAM: &str = "sctpify-sip";
const LIMIT: Duration = Duration::from_secs(60);

/// Runs and judges both parts.
///
/// # Errors
/// When a program does not build, or the proxy does not start.
pub(crate) fn run(lab: &Lab, is_quick: bool, tools: &Tools, report: &mut Report) -> Result<()> {
    let [standing, strangers] = examples()?;
    let mut command = Command::new(standing);
    if is_quick {
        command.args(["--users", "5000", "--calls", "500"]);
    }
    let done = command.stderr(Stdio::inherit()).output().context("cannot start standing")?;
    let mut table = Table::new("", ["the engine and its store during an hour of virtual time"]);
    let text = String::from_utf8_lossy(&done.stdout);
    print!("{text}");
    text.lines()
        .filter(|line| line.starts_with("met") || line.starts_with("MISSED"))
        .for_each(|line| table.row([line]));
    report.show(table);
    report.judge_fact(
        "the engine's memory stays constant during an hour of virtual time",
        done.status.success(),
    );
    let messages = if is_quick { "30000" } else { "1000000" };
    attacked(lab, tools, strangers, messages, report)
}

/// Builds both example programs, and returns their paths.
fn examples() -> Result<[PathBuf; 2]> {
    let names = ["standing", "strangers"];
    let words = ["build", "--quiet", "--release", "--package", "sipproxy"];
    let mut command = cargo(&words);
    names.iter().for_each(|name| _ = command.args(["--example", name]));
    ensure!(succeeds(&mut command)?, "the examples of sipproxy do not build");
    let dir = optimised::directory()?.join("examples");
    Ok(names.map(|name| dir.join(name)))
}

fn attacked(lab: &Lab, tools: &Tools, strangers: PathBuf, messages: &str, report: &mut Report) -> Result<()> {
    let (outside, host) = (lab.host("strangers")?, lab.host("attacked")?);
    let link = lab.join(&outside, &host, 1, Offloads::On)?;
    let path = host.dir()?.join("sip.toml");
    std::fs::write(&path, configuration(link.right_v4()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = host.command(tools.programs.path(PROGRAM));
    command.args(["--log", "info", "--config"]).arg(&path);
    let mut proxy = host.spawn("proxy", command)?;
    proxy.wait_until("listening", LIMIT, |proxy| proxy.stderr().matches("listening").count() == 3)?;
    let process = *cpu::processes(&host, PROGRAM)?.first().context("the proxy has ended")?;
    let mut command = outside.command(strangers);
    command.args(["--local", &link.left_v4().to_string(), "--proxy", &format!("{}:5060", link.right_v4())]);
    command.args(["--messages", messages, "--watch", &process.to_string()]);
    let finished = outside.run("strangers", command, Duration::from_secs(3000))?.good()?;
    let output: Value = serde_json::from_str(&finished.stdout).context("strangers reported nothing")?;
    let [second, last] = quarters(&output["resident_kib"])?;
    let head = ["messages sent", "asked again", "MiB resident in the second quarter", "in the last"];
    let mut table = Table::new("The program during mutated messages", head);
    let [second_mib, last_mib] = [second, last].map(|kib| format!("{:.1}", kib / 1024.0));
    table.row([output["sent"].to_string(), output["asked_again"].to_string(), second_mib, last_mib]);
    report.show(table);
    let figure = format!("memory during {messages} mutated messages: last quarter divided by second quarter");
    report.judge(figure, &[last / second], Limit::AtMost(GROWTH_GOAL));
    let carried = TRANSPORTS.into_iter().map(|transport| calls(&outside, &link, tools, transport));
    let carried = carried.collect::<Result<Vec<bool>>>()?.into_iter().all(|good| good);
    report.judge_fact(
        "calls over UDP, TCP and SCTP succeed after the mutated messages",
        carried && proxy.is_running(),
    );
    Ok(())
}

/// Returns the median memory in the second and in the last quarter of the samples, in KiB.
fn quarters(resident: &Value) -> Result<[f64; 2]> {
    let looks: Vec<f64> = resident.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let quarter = looks.len() / 4;
    ensure!(quarter > 1, "too few looks at the proxy's memory: {resident}");
    let (first, last) = (&looks[quarter..2 * quarter], &looks[looks.len() - quarter..]);
    Ok([percentile(first, 50), percentile(last, 50)])
}

/// Reports whether a hundred calls over `transport` succeed.
fn calls(host: &Host, link: &Link, tools: &Tools, transport: &str) -> Result<bool> {
    let (here, there) = (link.left_v4(), link.right_v4());
    let agent = |name: &str, number: u16, words: &[&str]| -> Result<Process> {
        let mut command = host.command(tools.programs.path("sctpify-ua"));
        command.args(["--local", &format!("{here}:{}", 5070 + number), "--proxy", &format!("{there}:5060")]);
        command.args(["--transport", transport, "--user", &format!("{name}@{there}"), "--log", "info"]);
        command.args(["--rtp-port", &(4000 + 2 * number).to_string()]).args(words);
        host.spawn(name, command)
    };
    let mut bob = agent("bob", 1, &[])?;
    bob.wait_until("registration", LIMIT, |bob| bob.stderr().contains("Registered"))?;
    let uri = format!("sip:bob@{there}");
    let words = ["--no-register", "--call", &uri, "--calls", "100", "--rate", "100", "--duration", "0"];
    let output = agent("alice", 2, &words)?.finish(LIMIT)?;
    bob.stop();
    Ok(output.good().is_ok())
}

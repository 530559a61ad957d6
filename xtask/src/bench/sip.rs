//! `./x bench sip [--quick]`: our SIP proxy compared with Kamailio on this machine. Each proxy has one worker, keeps its bindings in
//! memory, and gets the same calls from the same generator (`sctpify-ua`).
//!
//! A round measures every contender over each transport, one after the other:
//!
//! - concurrent registrations of many users,
//! - up to 16 concurrent calls, as fast as the proxy answers,
//! - calls at half of the slower contender's rate, for the percentiles of the calls' set-up time.
//!
//! A ratio compares two figures of the same round. The medians of the ratios are judged. A contender's cost is the processor time of all
//! its processes.

mod contender;
pub(super) mod memory;
pub(super) mod page;
mod verdict;

use super::report::Report;
use anyhow::{Context, Result, ensure};
use contender::{Contender, Running};
use serde_json::Value;
use std::time::Duration;
use testbed::pair::Tools;
use testbed::{Lab, Process};

/// Maximum number of concurrent calls, and of concurrent registrations.
const AT_ONCE: &str = "16";
/// Limit on the wait for the callee's registration.
const LIMIT: Duration = Duration::from_secs(120);

/// Size of a measurement.
#[derive(Clone, Copy, Debug)]
struct Size {
    rounds: usize,
    users: u32,
    calls: u32,
    /// Time in which calls are placed at half of the slower contender's rate, in seconds.
    half_s: f64,
}

const FULL: Size = Size { rounds: 5, users: 20_000, calls: 5_000, half_s: 3.0 };
const QUICK: Size = Size { rounds: 1, users: 3_000, calls: 1_000, half_s: 1.0 };

/// Figures of one contender over one transport in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    registrations_per_s: f64,
    registration_us: f64,
    /// Memory for each registered user, in bytes.
    user_bytes: f64,
    calls_per_s: f64,
    call_us: f64,
    /// Median set-up time at half of the slower contender's rate, in ms.
    half_p50_ms: f64,
    /// 99th percentile of the set-up time at half of the slower contender's rate, in ms.
    half_p99_ms: f64,
    failed: f64,
}

/// Figures of all contenders over one transport in one round: ours, and Kamailio's if Kamailio has the transport.
#[derive(Clone, Copy, Debug)]
struct Row {
    transport: &'static str,
    ours: Figures,
    theirs: Option<Figures>,
}

/// Measures and judges.
///
/// # Errors
/// When a program is missing or does not start.
pub(crate) fn run(lab: &Lab, is_quick: bool, tools: &Tools, report: &mut Report) -> Result<()> {
    let size = if is_quick { QUICK } else { FULL };
    let mut rows = Vec::new();
    for round in 0..size.rounds {
        let mut lower = f64::INFINITY;
        for transport in ["udp", "tcp", "sctp"] {
            lower = if transport == "sctp" { lower } else { f64::INFINITY };
            let row = measure(lab, tools, round, transport, size, &mut lower)?;
            println!("{}", verdict::line(&row));
            rows.push(row);
        }
    }
    verdict::judge(&rows, report);
    Ok(())
}

/// Measures all contenders over a transport. Updates `lower` to the lowest rate of calls so far, in calls per second. All contenders can
/// sustain this rate.
fn measure(
    lab: &Lab,
    tools: &Tools,
    round: usize,
    transport: &'static str,
    size: Size,
    lower: &mut f64,
) -> Result<Row> {
    let begin = |contender: Contender| {
        let host = lab.host(&format!("{}-{transport}-{round}", contender.name()))?;
        contender.start(host, tools)
    };
    let ours = begin(Contender::Ours)?;
    let theirs = Contender::has(transport).then(|| begin(Contender::Kamailio)).transpose()?;
    let mut measured = (Figures::default(), theirs.as_ref().map(|_| Figures::default()));
    at_full_rate(&ours, tools, transport, size, &mut measured.0)?;
    if let (Some(theirs), Some(figures)) = (&theirs, &mut measured.1) {
        at_full_rate(theirs, tools, transport, size, figures)?;
    }
    let theirs_per_s = measured.1.map_or(f64::INFINITY, |theirs| theirs.calls_per_s);
    *lower = lower.min(theirs_per_s).min(measured.0.calls_per_s);
    at_rate(&ours, tools, transport, *lower / 2.0, size, &mut measured.0)?;
    if let (Some(theirs), Some(figures)) = (&theirs, &mut measured.1) {
        at_rate(theirs, tools, transport, *lower / 2.0, size, figures)?;
    }
    Ok(Row { transport, ours: measured.0, theirs: measured.1 })
}

fn number(report: &Value, path: &str) -> Result<f64> {
    report.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path} in {report}"))
}

/// Registers many users. Then `alice` calls `bob` through the proxy, as fast as possible.
fn at_full_rate(
    proxy: &Running,
    tools: &Tools,
    transport: &str,
    size: Size,
    into: &mut Figures,
) -> Result<()> {
    let (cpu, memory) = (proxy.cpu()?, proxy.memory_kib()?);
    let users = size.users.to_string();
    let report = proxy.agent(tools, transport, "many", &["--users", &users, "--at-once", AT_ONCE])?;
    into.registrations_per_s = number(&report, "/registrations_per_s")?;
    into.failed += number(&report, "/registrations_failed")?;
    into.registration_us = micros(proxy.cpu()? - cpu, size.users);
    into.user_bytes = (proxy.memory_kib()? as f64 - memory as f64) * 1024.0 / f64::from(size.users);
    let bob = callee(proxy, tools, transport)?;
    let cpu = proxy.cpu()?;
    let calls = size.calls.to_string();
    let report =
        calling(proxy, tools, transport, &["--calls", &calls, "--calls-max", AT_ONCE, "--rate", "100000"])?;
    bob.stop();
    into.calls_per_s = number(&report, "/calls_per_s")?;
    into.failed += number(&report, "/calls_failed")?;
    into.call_us = micros(proxy.cpu()? - cpu, size.calls);
    Ok(())
}

/// Places calls at `rate`, in calls per second, and measures their set-up times.
fn at_rate(
    proxy: &Running,
    tools: &Tools,
    transport: &str,
    rate: f64,
    size: Size,
    into: &mut Figures,
) -> Result<()> {
    ensure!(rate.is_finite() && rate > 1.0, "{} carried no calls by {transport}", proxy.name());
    let bob = callee(proxy, tools, transport)?;
    let calls = format!("{:.0}", rate * size.half_s);
    let report = calling(proxy, tools, transport, &["--calls", &calls, "--rate", &format!("{rate:.1}")])?;
    bob.stop();
    into.half_p50_ms = number(&report, "/calls_answered/ms_p50")?;
    into.half_p99_ms = number(&report, "/calls_answered/ms_p99")?;
    into.failed += number(&report, "/calls_failed")?;
    Ok(())
}

fn callee(proxy: &Running, tools: &Tools, transport: &str) -> Result<Process> {
    let mut bob = proxy.spawn(tools, transport, "bob", &["--log", "info"])?;
    bob.wait_until("registration", LIMIT, |bob| bob.stderr().contains("Registered"))?;
    Ok(bob)
}

fn calling(proxy: &Running, tools: &Tools, transport: &str, words: &[&str]) -> Result<Value> {
    let words = [&["--no-register", "--call", contender::CALLED, "--duration", "0"], words].concat();
    proxy.agent(tools, transport, "alice", &words)
}

fn micros(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count)
}

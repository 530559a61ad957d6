//! `sip-load`: the highest rate of operations at which a proxy has no failure (RFC 7502), over UDP, TCP and
//! SCTP.
//!
//! The experiment compares our proxy with Kamailio. The proxy and emulated agents (`sctpify-ua`) share one
//! host and its processors. A session is an INVITE, its answer, ACK and BYE through the proxy. An operation
//! that takes longer than [`THRESHOLD_MS`] has failed. A trial fails if one of its operations fails, or if
//! the agents cannot send at the given rate.

use super::agent_report::AgentReport;
use super::search::{Search, Trial};
use super::world::{LIMIT, listen, proxy};
use super::{TRANSPORTS, transport_of};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Host, Lab, Process, cpu, kamailio};

const PANEL: &str = "sessions";
const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Port of the called agent. Without a proxy, the caller uses this agent as its proxy.
const CALLED_PORT: u16 = 5072;
/// RFC 7501's Establishment Threshold Time, in milliseconds. Over UDP, RFC 3261's timer A also has this
/// value, so an operation with a lost message has failed.
const THRESHOLD_MS: f64 = 500.0;
/// Minimum ratio of the agents' achieved rate to the requested rate. With a lower ratio, a trial has
/// failed.
const KEPT: f64 = 0.9;
/// Duration of a long trial, as a multiple of a short one: the RFC's N divided by its n.
const LONG: f64 = 2.0;
/// Minimum number of operations in a trial.
const OPERATIONS_MIN: f64 = 20.0;

/// Series of our proxy.
const OURS: &str = "sctpify";
/// Series of Kamailio.
const KAMAILIO: &str = "Kamailio";
/// Series of the agents without a proxy (RFC 7502 section 6.1).
const TESTBED: &str = "no proxy";
/// Series of our proxy with a limit on requests. The limit bounds the correct result, so the series is a
/// control.
const LIMITED: &str = "limited";
/// Limit on requests per second from one source in the series [`LIMITED`]. A session has two requests. If
/// sessions end as fast as they begin, the rate of sessions is thus half of the limit.
const LIMITED_REQUESTS_PER_S: u32 = 300;

/// The quantity that a search determines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Metric {
    /// Rate of sessions (Section 6.2 of the RFC).
    Sessions,
    /// Rate of first registrations (Section 6.7).
    Registrations,
    /// Rate of repeated registrations (Section 6.8).
    Reregistrations,
    /// Number of concurrent sessions, up to `capacity_max`.
    Capacity,
}

impl Metric {
    /// Reports whether a series has this metric. Without a proxy, users cannot register. With the limited
    /// proxy, only the rate of sessions is measured.
    fn concerns(self, series: &str) -> bool {
        self == Metric::Sessions || !matches!(series, TESTBED | LIMITED)
    }

    /// Returns the names of the metric's measures.
    fn measures(self) -> &'static [&'static str] {
        match self {
            Metric::Sessions => &["sessions_per_s"],
            Metric::Registrations => &["registrations_per_s"],
            Metric::Reregistrations => &["reregistrations_per_s"],
            Metric::Capacity => &["capacity", "session_bytes"],
        }
    }
}

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Load {
    repetitions: u32,
    series: Vec<String>,
    metrics: Vec<Metric>,
    first_rate: f64,
    granularity: f64,
    rate_max: f64,
    /// Duration of a short trial, in seconds.
    trial_s: f64,
    /// Maximum number of concurrent sessions to try.
    capacity_max: f64,
}

impl Experiment for Load {
    fn points(&self) -> Vec<Planned> {
        let of = |series: &String| {
            let has = |transport: &str| transport != "sctp" || series != KAMAILIO;
            let xs = TRANSPORTS.iter().enumerate().filter(|(_, (_, transport))| has(transport));
            // The limit of the series [`LIMITED`] does not depend on the transport, so one transport is
            // enough.
            let xs = xs.filter(|(x, _)| series != LIMITED || *x == 0);
            let planned = xs.map(|(x, _)| Planned {
                point: Point::new(PANEL, series, x as f64),
                repetitions: self.repetitions,
                seconds: 20.0 * self.trial_s * self.metrics.len() as f64,
                measures: self.metrics_of(series).flat_map(|metric| metric.measures()).copied().collect(),
            });
            planned.collect::<Vec<_>>()
        };
        self.series.iter().flat_map(of).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let series = TRANSPORTS.get(cell.point.x as usize).context("no such transport")?.0;
        let bench = Bench::new(environment, &cell.point.series, transport_of(series)?)?;
        let search = Search { first: self.first_rate, granularity: self.granularity, most: self.rate_max };
        let mut measures = Measures::new();
        for metric in self.metrics_of(&cell.point.series) {
            match metric {
                Metric::Sessions => {
                    let rate = search
                        .run(|rate, trial| bench.carries_sessions(self.operations(rate, trial), rate))?;
                    measures.insert("sessions_per_s".to_owned(), rate);
                }
                Metric::Registrations => {
                    let rate =
                        search.run(|rate, trial| bench.registers(self.operations(rate, trial), rate, 1))?;
                    measures.insert("registrations_per_s".to_owned(), rate);
                }
                Metric::Reregistrations => {
                    let rate =
                        search.run(|rate, trial| bench.registers(self.operations(rate, trial), rate, 2))?;
                    measures.insert("reregistrations_per_s".to_owned(), rate);
                }
                Metric::Capacity => measures.extend(self.capacity(&bench)?),
            }
        }
        Ok(measures)
    }
}

impl Load {
    fn metrics_of<'a>(&'a self, series: &'a str) -> impl Iterator<Item = &'a Metric> {
        self.metrics.iter().filter(|metric| metric.concerns(series))
    }

    fn operations(&self, rate: f64, trial: Trial) -> f64 {
        let seconds = if trial == Trial::Long { LONG * self.trial_s } else { self.trial_s };
        (rate * seconds).round().max(OPERATIONS_MIN)
    }

    /// Returns the largest number of concurrent sessions in a successful trial, and the proxy's memory per
    /// session. The number doubles from trial to trial, until a trial fails or `capacity_max` is reached.
    fn capacity(&self, bench: &Bench<'_>) -> Result<Measures> {
        let (mut sessions, mut found) = ((self.capacity_max / 8.0).floor().max(1.0), Measures::new());
        while let Some(bytes) = bench.holds(sessions)? {
            found.insert("capacity".to_owned(), sessions);
            found.insert("session_bytes".to_owned(), bytes);
            if sessions >= self.capacity_max {
                break;
            }
            sessions = (2.0 * sessions).min(self.capacity_max);
        }
        found.entry("capacity".to_owned()).or_insert(0.0);
        Ok(found)
    }
}

/// One host with an agent that answers calls, and with a proxy in most series.
struct Bench<'a> {
    environment: &'a Environment,
    host: Host,
    transport: &'static str,
    /// Name of the proxy's program, if the series has a proxy.
    proxy: Option<&'static str>,
    _running: Vec<Process>,
    /// The last field, because its drop removes the namespaces of the other fields.
    _lab: Lab,
}

impl<'a> Bench<'a> {
    fn new(environment: &'a Environment, series: &str, transport: &'static str) -> Result<Self> {
        let lab = Lab::new()?;
        let host = lab.host("load")?;
        let (program, process) = match series {
            TESTBED => (None, None),
            KAMAILIO => (Some(kamailio::PROGRAM), Some(start_kamailio(&host)?)),
            _ => (
                Some("sctpify-sip"),
                Some(proxy(environment, &host, &configuration(series)?, TRANSPORTS.len())?),
            ),
        };
        let running = process.into_iter().collect();
        let mut bench = Self { environment, host, transport, proxy: program, _running: running, _lab: lab };
        let register = if bench.proxy.is_some() { &[][..] } else { &["--no-register"] };
        let words = [&["--calls-max", "20000", "--log", "info"], register].concat();
        let mut bob = bench.agent("bob", CALLED_PORT, &words)?;
        match bench.proxy {
            Some(_) => bob.wait_until("registration", LIMIT, |bob| bob.stderr().contains("Registered"))?,
            // An agent without registration does not report that its socket is open. A pause gives the
            // agent time to open it.
            None => std::thread::sleep(Duration::from_millis(300)),
        }
        bench._running.push(bob);
        Ok(bench)
    }

    fn agent(&self, name: &str, port: u16, words: &[&str]) -> Result<Process> {
        let mut command = self.host.command(self.environment.tools.programs.path("sctpify-ua"));
        // Without a proxy, the caller uses the called agent as its proxy.
        let proxy = if self.proxy.is_some() || name == "bob" { 5060 } else { CALLED_PORT };
        command.args(["--local", &format!("{ADDRESS}:{port}"), "--proxy", &format!("{ADDRESS}:{proxy}")]);
        command.args(["--transport", self.transport, "--user", &format!("{name}@{ADDRESS}")]);
        command.args(["--rtp-port", &(port - 1000).to_string()]).env("NO_COLOR", "1").args(words);
        self.host.spawn(name, command)
    }

    /// Starts an agent that makes `calls` calls, at `rate` calls per second. Each call lasts `duration_s`
    /// seconds.
    fn caller(&self, calls: f64, rate: f64, duration_s: f64) -> Result<Process> {
        let words = ["--no-register", "--call", &format!("sip:bob@{ADDRESS}"), "--calls-max", "20000"];
        let (calls, rate, duration) = (calls.to_string(), format!("{rate:.3}"), duration_s.to_string());
        let words = [&words[..], &["--calls", &calls, "--rate", &rate, "--duration", &duration]].concat();
        self.agent("alice", 5071, &words)
    }

    /// Reports whether all of `calls` sessions succeed at a rate.
    fn carries_sessions(&self, calls: f64, rate: f64) -> Result<bool> {
        let limit = LIMIT + Duration::from_secs_f64(calls / rate) + Duration::from_secs(45);
        let report = AgentReport::of(&self.caller(calls, rate, 0.0)?.finish(limit)?)?;
        let is_whole = report.number("calls_failed")? == 0.0 && report.number("calls_completed")? == calls;
        Ok(is_whole
            && report.number("calls_answered/ms_max")? <= THRESHOLD_MS
            && report.number("calls_per_s")? >= KEPT * rate)
    }

    /// Reports whether `users` users can all register at a rate, in each of `rounds` rounds. The limits on
    /// time and rate apply only to the last round.
    fn registers(&self, users: f64, rate: f64, rounds: u32) -> Result<bool> {
        let (users, rate_text, rounds_text) = (users.to_string(), format!("{rate:.3}"), rounds.to_string());
        let words = ["--users", &users, "--rate", &rate_text, "--registrations", &rounds_text];
        let report = AgentReport::of(&self.agent("many", 5073, &words)?.finish(LIMIT * 3)?)?;
        let last = if rounds > 1 { "again/0/" } else { "" };
        let failed =
            report.number("registrations_failed")? + report.number(&format!("{last}registrations_failed"))?;
        Ok(failed == 0.0
            && report.number(&format!("{last}registrations/ms_max"))? <= THRESHOLD_MS
            && report.number(&format!("{last}registrations_per_s"))? >= KEPT * rate)
    }

    /// Returns the proxy's memory per session, in bytes. Returns `None` if not all of `sessions` concurrent
    /// sessions succeed.
    fn holds(&self, sessions: f64) -> Result<Option<f64>> {
        // Calls begin at this rate, which every proxy under test can handle.
        let rate = 500.0_f64.min(sessions);
        let stand_s = sessions / rate + 1.0;
        let before = self.memory()?;
        let caller = self.caller(sessions, rate, stand_s)?;
        std::thread::sleep(Duration::from_secs_f64(stand_s - 0.5));
        let with = self.memory()?;
        let report = AgentReport::of(&caller.finish(LIMIT + Duration::from_secs_f64(2.0 * stand_s + 45.0))?)?;
        let is_whole = report.number("calls_failed")? == 0.0 && report.number("calls_completed")? == sessions;
        Ok(is_whole.then(|| (with - before) / sessions))
    }

    /// Returns the memory of the proxy, in bytes.
    fn memory(&self) -> Result<f64> {
        let kib = self.proxy.map_or(Ok(0), |program| cpu::memory_kib(&self.host, program))?;
        Ok(kib as f64 * 1024.0)
    }
}

fn configuration(series: &str) -> Result<String> {
    let listeners: String = TRANSPORTS.map(|(_, transport)| listen(transport, ADDRESS)).concat();
    let access = match series {
        OURS => "[access]\nrequests_per_s = 0\n".to_owned(),
        LIMITED => format!("[access]\nrequests_per_s = {LIMITED_REQUESTS_PER_S}\nburst = 10\n"),
        _ => anyhow::bail!("unknown series {series:?}"),
    };
    Ok(format!("domains = [\"{ADDRESS}\"]\n{listeners}{access}"))
}

fn start_kamailio(host: &Host) -> Result<Process> {
    let command = kamailio::command(host, &ADDRESS.to_string())?;
    let process = host.spawn(kamailio::PROGRAM, command);
    let process = process.context("Kamailio is missing: scripts/setup.sh installs it")?;
    let listens = |list| host.tool("ss", &[list]).is_ok_and(|output| output.contains(":5060"));
    ensure!(wait_for(LIMIT, || listens("-Hlun") && listens("-Hltn")), "Kamailio does not listen");
    // Kamailio starts its workers after its sockets listen.
    std::thread::sleep(Duration::from_millis(500));
    Ok(process)
}

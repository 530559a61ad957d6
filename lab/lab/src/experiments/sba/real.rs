//! `sba-router`: the report's tables in real time, with fewer flows than in the report.
//!
//! Unmodified programs send over the shim, through a router that runs `sctpify-router run`. For comparison,
//! other series run the same flows in virtual time.

use super::{Dice, Setup, Sum, kbit_per_s};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use crate::experiments::virtual_daemon;
use crate::settings::{DaemonSettings, FellBack};
use crate::ttcp;
use anyhow::{Context, Result};
use sctp::{AssociationConfig, CongestionAlgorithm};
use serde::Deserialize;
use sim::dumbbell::{Dumbbell, FlowPlan, Load, run};
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{Daemons, Pair};
use testbed::{Lab, Link, Process};

const PANEL: &str = "rates";
/// Suffix in the names of the series in virtual time.
const VIRTUAL: &str = ", virtual time";
/// The policies. Each entry has the policy's name in `sctpify-router`, its name in virtual time, and the
/// advertisement that the daemons send.
const POLICIES: [(&str, &str, &str); 5] = [
    ("sfq", "SFQ", "economical"),
    ("fq-codel", "fq_codel", "economical"),
    ("ltf", "LTF", "economical"),
    ("htb-seed", "seed's HTB", "seed-compat"),
    ("htb", "HTB, rising rates", "percent"),
];
/// Length of LTF's queue in virtual time, in packets. The other policies have fixed lengths.
const PACKETS: usize = 1000;
/// Round-trip time in virtual time, not including the wait in the router's queue.
const ROUND_TRIP: Duration = Duration::from_micros(400);
/// Length of the interval in which all flows begin in virtual time, in seconds. In real time, the programs
/// are started one after another.
const SPREAD_S: f64 = 1.0;
/// Port of the first flow. The other flows have the ports after it.
const FIRST_PORT: u16 = 5101;
/// Number of bytes that a program writes at once.
const WRITE_BYTES: &str = "65536";
/// Time of a cell, not including its load, in seconds.
const OVERHEAD_S: f64 = 4.0;
/// Limit on the time of a cell, not including its load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Router {
    repetitions: u32,
    /// Rate of the link, in bit/s.
    rate: u64,
    /// Time that each receiver reads, from its first byte, in seconds.
    seconds: f64,
    /// Initial part of `seconds` whose bytes a receiver does not count, in seconds. All flows begin in this
    /// part.
    after: f64,
    flows: Vec<u16>,
    /// Policies, by their names in `sctpify-router`. A series in virtual time has the suffix [`VIRTUAL`]
    /// after the name.
    series: Vec<String>,
    daemon: DaemonSettings,
}

impl Experiment for Router {
    fn points(&self) -> Vec<Planned> {
        let point = |flows: u16, series: &String| Planned {
            point: Point::new(PANEL, series, f64::from(flows)),
            repetitions: self.repetitions,
            seconds: self.seconds + OVERHEAD_S,
            measures: vec!["mean_kbit", "deviation_kbit", "cv", "jain", "used"],
        };
        let of_flows =
            |&flows| self.series.iter().map(move |series| point(flows, series)).collect::<Vec<_>>();
        self.flows.iter().flat_map(of_flows).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let flows = cell.point.x as u16;
        let rates = match cell.point.series.strip_suffix(VIRTUAL) {
            Some(policy) => self.simulated_rates(policy, flows, cell.seed)?,
            None => {
                let hosts = self.hosts(environment, &cell.point.series, flows)?;
                let rates = hosts.rates(self.seconds, self.after, flows)?;
                hosts.ensure_over_sctp(flows)?;
                rates
            }
        };
        let all = Sum::of(&rates)?;
        Ok(Measures::from([
            ("mean_kbit".to_owned(), all.mean),
            ("deviation_kbit".to_owned(), all.deviation),
            ("cv".to_owned(), all.deviation / all.mean),
            ("jain".to_owned(), all.jain),
            ("used".to_owned(), all.mean * all.count * 1000.0 / self.rate as f64),
        ]))
    }
}

impl Router {
    fn hosts(&self, environment: &Environment, policy: &str, flows: u16) -> Result<Hosts> {
        Hosts::new(environment, policy, self.rate, flows, &self.daemon.configuration(policy))
    }

    /// Runs the same flows in virtual time, without programs, daemons and hosts. Returns the rate of each
    /// flow's receiver, in kbit/s.
    fn simulated_rates(&self, policy: &str, flows: u16, seed: u64) -> Result<Vec<f64>> {
        let setup = Setup::named(names(policy)?.1, PACKETS)?;
        let mut dice = Dice::new(seed);
        let lasting = Duration::from_secs_f64(self.seconds);
        let flow = |_| FlowPlan {
            start: Duration::from_secs_f64(dice.between(0.0, SPREAD_S)),
            round_trip: ROUND_TRIP,
            load: Load::Bulk { lasting, write: 0, low: 0 },
            lie: None,
        };
        let report = run(&Dumbbell {
            rate: self.rate,
            burst: 0,
            policy: setup.policy,
            association: AssociationConfig {
                advertisement: setup.advertisement,
                ..virtual_daemon::association(CongestionAlgorithm::Cubic)
            },
            flows: (0..flows).map(flow).collect(),
            window: (Duration::from_secs_f64(self.after), lasting),
            sampling: None,
            limit: lasting + PATIENCE,
            seed,
        });
        Ok(report.flows.iter().map(|flow| kbit_per_s(flow.in_window, self.seconds - self.after)).collect())
    }
}

/// Returns the entry of a policy in [`POLICIES`].
fn names(policy: &str) -> Result<(&'static str, &'static str, &'static str)> {
    let found = POLICIES.into_iter().find(|(name, ..)| *name == policy);
    found.with_context(|| format!("unknown policy {policy:?}"))
}

/// Returns the common arguments of the sender and the receiver of a port.
fn common(port: &str) -> [&str; 6] {
    ["-s", "-l", WRITE_BYTES, "-p", port, "--json"]
}

/// Two hosts with daemons, and the router between them.
struct Hosts {
    daemons: Daemons,
    _router: Process,
    link: Link,
    pair: Pair,
    _lab: Lab,
}

impl Hosts {
    fn new(
        environment: &Environment,
        policy: &str,
        rate: u64,
        flows: u16,
        configuration: &str,
    ) -> Result<Hosts> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let middle = lab.host("middle")?;
        let link = testbed::delay::gap(&pair.alpha, &pair.beta, 1, &middle)?;
        let mut command = middle.command(environment.tools.programs.path("sctpify-router"));
        let rate = format!("{rate}bit");
        command.args(["run", "left", "right", "--rate", &rate, "--policy", policy]);
        let mut router = middle.spawn("router", command)?;
        router.wait_until("running", PATIENCE, |it| it.stdout().contains("running"))?;
        let daemons = pair.start_daemons_with(&environment.tools, configuration)?;
        // With advertisements, each connection has a separate association, which is a flow for the router.
        let ports = format!("{FIRST_PORT}:{}", FIRST_PORT + flows - 1);
        let (.., advertisement) = names(policy)?;
        for (daemon, chain) in [(&daemons.alphas, "remote"), (&daemons.betas, "local")] {
            let rule = ["-A", "-c", chain, "-p", "enable", "-P", &ports, "--advertise", advertisement];
            daemon.shimrules(&rule)?.good()?;
        }
        Ok(Hosts { daemons, _router: router, link, pair, _lab: lab })
    }

    /// Returns the rate of each flow's receiver, in kbit/s.
    fn rates(&self, seconds: f64, after: f64, flows: u16) -> Result<Vec<f64>> {
        let (alpha, beta) = (&self.pair.alpha, &self.pair.beta);
        let ports: Vec<String> = (FIRST_PORT..FIRST_PORT + flows).map(|port| port.to_string()).collect();
        let to = IpAddr::V4(self.link.right_v4()).to_string();
        let long = (seconds + PATIENCE.as_secs_f64()).to_string();
        let [seconds_word, after_word] = [seconds, after].map(|it| it.to_string());

        let receive = |port: &String| {
            let limits = ["-r", "--for", &seconds_word, "--after", &after_word];
            ttcp::listening(beta, ttcp::command(beta, &[&common(port)[..], &limits].concat())?)
        };
        let receivers = ports.iter().map(receive).collect::<Result<Vec<_>>>()?;
        let send = |port: &String| {
            let words = [&common(port)[..], &["-t", &to, "--for", &long]].concat();
            alpha.spawn("sender", ttcp::command(alpha, &words)?)
        };
        let senders = ports.iter().map(send).collect::<Result<Vec<_>>>()?;
        let rates = receivers.into_iter().map(|receiver| {
            let output = receiver.finish(Duration::from_secs_f64(seconds) + PATIENCE)?.good()?.stdout;
            let report: ttcp::Report =
                serde_json::from_str(output.trim()).context("ttcp reported no figures")?;
            // The divisor is the planned time of counting. If a flow delivers nothing at the end of this
            // time, its receiver stops the clock later.
            Ok(kbit_per_s(report.bytes, seconds - after))
        });
        let rates = rates.collect();
        senders.into_iter().for_each(Process::stop);
        rates
    }

    /// Fails unless SCTP carried all connections. A connection over TCP would change the flows that share
    /// the router.
    fn ensure_over_sctp(&self, flows: u16) -> Result<()> {
        let over_sctp = self.daemons.connects_sctp()?;
        let why = || self.daemons.recent_fallbacks().unwrap_or_default();
        if over_sctp == u64::from(flows) {
            return Ok(());
        }
        Err(FellBack(format!("{over_sctp} of {flows} connections were carried over SCTP: {}", why())).into())
    }
}

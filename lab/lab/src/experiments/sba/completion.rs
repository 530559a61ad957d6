//! `sba-completion`: completion times of files, with and without long flows on the same link.

use super::{Dice, Setup, Sum, Traffic, kbit_per_s, p99};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned};
use anyhow::{Context, Result};
use base::Time;
use sctp::{AssociationConfig, SendBufferConfig};
use serde::Deserialize;
use sim::dumbbell::{Dumbbell, DumbbellReport, FlowPlan, Load, run};
use std::time::Duration;

const PANEL: &str = "completion";
/// Time from which long flows are measured, in seconds.
const WARM_S: f64 = 10.0;
/// Time at the end of a run in which no files begin, but running files may finish, in seconds.
const PATIENCE_S: f64 = 60.0;

/// Measures of files.
pub(super) const MEASURES: &[&str] = &["unfinished", "files", "mean_s", "p99_s"];
/// Measures of files and of the long flows next to them.
const BESIDE_LONG: &[&str] = &["unfinished", "files", "mean_s", "p99_s", "long_kbit"];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Completion {
    repetitions: u32,
    #[serde(flatten)]
    traffic: Traffic,
    series: Vec<String>,
    chosen: Vec<usize>,
    scenarios: Vec<Scenario>,
}

/// The senders of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// Number of long flows, which send until the end of the run.
    long: usize,
    /// Load of the files: their mean bytes per second, as a share (0 to 1) of the link's rate.
    load: f64,
    /// Smallest size of a file, in bytes.
    least: f64,
    /// Largest size of a file, in bytes.
    most: f64,
    /// Exponent of the bounded Pareto distribution of the sizes. Without an exponent, the sizes are
    /// uniformly distributed.
    power: Option<f64>,
    /// Initial congestion window, in packets. 0 selects RFC 9260's initial window.
    #[serde(default)]
    initial_packets: u8,
}

impl Scenario {
    /// Returns a quantile of the files' sizes, in bytes: the size below which the share `share` (0 to 1) of
    /// the files lies.
    fn size(&self, share: f64) -> f64 {
        match self.power {
            None => self.least + share * (self.most - self.least),
            Some(power) => {
                let tail = (self.least / self.most).powf(power);
                self.least / (1.0 - share * (1.0 - tail)).powf(1.0 / power)
            }
        }
    }

    fn mean(&self) -> f64 {
        let steps = 100_000;
        (0..steps).map(|n| self.size((f64::from(n) + 0.5) / f64::from(steps))).sum::<f64>() / f64::from(steps)
    }

    /// Returns the plan of a run. The long flows come first, then the files.
    pub(super) fn plan(&self, traffic: &Traffic, setup: Setup, seed: u64) -> Dumbbell {
        let mut dice = Dice::new(seed);
        let round_trip = Duration::from_millis(traffic.round_trip_ms);
        let limit = Duration::from_secs_f64(traffic.seconds + PATIENCE_S);
        let long = Load::Bulk { lasting: limit, write: 0, low: 0 };
        let flow = |start, load| FlowPlan { start, round_trip, load, lie: None };
        let mut flows: Vec<_> =
            (0..self.long).map(|_| flow(Duration::from_secs_f64(dice.share()), long)).collect();
        let per_second = self.load * traffic.rate as f64 / 8.0 / self.mean();
        let mut at = dice.pause(per_second);
        while at.as_secs_f64() < traffic.seconds {
            flows.push(flow(at, Load::File(self.size(dice.share()) as u64)));
            at += dice.pause(per_second);
        }
        Dumbbell {
            rate: traffic.rate,
            burst: 0,
            policy: setup.policy,
            association: AssociationConfig {
                initial_packets: self.initial_packets,
                ..setup.association(traffic.buffer)
            },
            flows,
            window: (Duration::from_secs_f64(WARM_S), Duration::from_secs_f64(traffic.seconds)),
            sampling: None,
            limit,
            seed,
        }
    }
}

/// Returns the plan and the completion time in seconds of each file. The completion time begins with the
/// flow, and ends when the receiving program has the last byte. The time of an unfinished file ends with
/// the run.
pub(super) fn seconds_of_files(plan: &Dumbbell, report: &DumbbellReport) -> Vec<(FlowPlan, f64)> {
    let flows = plan.flows.iter().zip(&report.flows);
    let files = flows.filter(|(plan, _)| matches!(plan.load, Load::File(_)));
    let limit = Time::ZERO + plan.limit;
    files
        .map(|(plan, report)| {
            let took = report.finished.unwrap_or(limit).since(Time::ZERO + plan.start);
            (plan.clone(), took.as_secs_f64())
        })
        .collect()
}

/// Returns the mean and the 99th percentile of the files' completion times. If the run has long flows, also
/// returns the long flows' mean rate.
pub(super) fn measures(plan: &Dumbbell, report: &DumbbellReport) -> Result<Measures> {
    let mut seconds: Vec<f64> = seconds_of_files(plan, report).into_iter().map(|it| it.1).collect();
    let unfinished = report.flows.iter().zip(&plan.flows);
    let unfinished =
        unfinished.filter(|(it, plan)| matches!(plan.load, Load::File(_)) && it.finished.is_none());
    let mut measures = Measures::from([
        ("unfinished".to_owned(), unfinished.count() as f64),
        ("files".to_owned(), seconds.len() as f64),
        ("mean_s".to_owned(), Sum::of(&seconds)?.mean),
        ("p99_s".to_owned(), p99(&mut seconds)?),
    ]);
    let window_s = (plan.window.1 - plan.window.0).as_secs_f64();
    let long = plan.flows.iter().zip(&report.flows).filter(|(plan, _)| !matches!(plan.load, Load::File(_)));
    let long: Vec<f64> = long.map(|(_, report)| kbit_per_s(report.in_window, window_s)).collect();
    if !long.is_empty() {
        measures.insert("long_kbit".to_owned(), long.iter().sum::<f64>() / long.len() as f64);
    }
    Ok(measures)
}

/// Runs a scenario, and returns its measures. `advertisement`, if present, replaces the advertisement of
/// `setup`.
pub(super) fn measured(
    scenario: &Scenario,
    traffic: &Traffic,
    setup: Setup,
    advertisement: Option<SendBufferConfig>,
    seed: u64,
) -> Result<Measures> {
    let setup = Setup { advertisement: advertisement.or(setup.advertisement), ..setup };
    let plan = scenario.plan(traffic, setup, seed);
    measures(&plan, &run(&plan))
}

impl Experiment for Completion {
    fn points(&self) -> Vec<Planned> {
        let is_long = |&scenario: &usize| self.scenarios.get(scenario).is_some_and(|it| it.long > 0);
        let (beside, alone): (Vec<usize>, Vec<usize>) = self.chosen.iter().copied().partition(is_long);
        let points = |indices: &[usize], measures| {
            self.traffic.points(PANEL, indices, &self.series, self.repetitions, measures)
        };
        [points(&beside, BESIDE_LONG), points(&alone, MEASURES)].concat()
    }

    fn measure(&self, _environment: &Environment, cell: &Cell) -> Result<Measures> {
        let scenario = self.scenarios.get(cell.point.x as usize).context("no such scenario")?;
        let setup = Setup::named(&cell.point.series, self.traffic.packets)?;
        measured(scenario, &self.traffic, setup, None, cell.seed)
    }
}

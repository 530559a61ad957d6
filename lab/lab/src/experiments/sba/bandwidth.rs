//! `sba-bandwidth`: mean and spread of the rates of many flows (Tables 4.1 and 4.2 of the 2016 report).

use super::{Dice, Setup, Sum, kbit_per_s};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::{Context, Result};
use serde::Deserialize;
use sim::dumbbell::{Dumbbell, DumbbellReport, FlowPlan, Load, run};
use std::collections::BTreeMap;
use std::time::Duration;
use testbed::process::now;

/// Set-up time beyond which a flow counts as late, in seconds.
const LATE_S: f64 = 5.0;
/// Time of a run in addition to the flows' time, in seconds. The set-up of a late flow may take up to four
/// minutes.
const PATIENCE_S: f64 = 400.0;

/// Names of the measures.
const MEASURES: &[&str] = &[
    "sender_mean_kbit",
    "sender_deviation_kbit",
    "own_mean_kbit",
    "own_deviation_kbit",
    "mean_kbit",
    "deviation_kbit",
    "cv",
    "jain",
    "late",
    "duplicates_percent",
    "lost_percent",
    "used",
    "packets",
    "simulated_in_s",
];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Bandwidth {
    repetitions: u32,
    rate: u64,
    /// Panels, each with its shortest and its longest round-trip time, in milliseconds.
    round_trips_ms: BTreeMap<String, [f64; 2]>,
    flows: Vec<usize>,
    series: Vec<String>,
    /// Length of the interval in which all flows begin, in seconds.
    spread_s: f64,
    /// Duration of each flow, in seconds.
    lasting_s: f64,
    /// Bytes that a program writes at once.
    write: usize,
    /// Number of unacknowledged bytes at which the program writes again.
    low: usize,
    /// Size of the send buffer, in bytes.
    buffer: usize,
    /// Length of LTF's queue, in packets. The other policies have fixed lengths.
    packets: usize,
}

/// Returns the list without the first hundredth and the last hundredth of its values, as in the report's
/// tables. The function does not sort the list.
fn trimmed(rates: &[f64]) -> &[f64] {
    let cut = rates.len() / 100;
    &rates[cut..rates.len() - cut]
}

impl Experiment for Bandwidth {
    fn points(&self) -> Vec<Planned> {
        let mut points = Vec::new();
        for panel in self.round_trips_ms.keys() {
            for flows in &self.flows {
                for series in &self.series {
                    let point = Point::new(panel, series, *flows as f64);
                    let seconds = self.lasting_s / 15.0;
                    let repetitions = self.repetitions;
                    points.push(Planned { point, repetitions, seconds, measures: MEASURES.to_vec() });
                }
            }
        }
        points
    }

    fn measure(&self, _environment: &Environment, cell: &Cell) -> Result<Measures> {
        let setup = Setup::named(&cell.point.series, self.packets)?;
        let round_trips = self.round_trips_ms.get(&cell.point.panel).context("no such panel")?;
        let plan = self.plan(setup, cell.point.x as usize, *round_trips, cell.seed);
        let began = now();
        let report = run(&plan);
        let mut measures = self.measures(&plan, &report)?;
        measures.insert("simulated_in_s".to_owned(), began.elapsed().as_secs_f64());
        Ok(measures)
    }
}

impl Bandwidth {
    fn plan(&self, setup: Setup, flows: usize, round_trips: [f64; 2], seed: u64) -> Dumbbell {
        let mut dice = Dice::new(seed);
        let lasting = Duration::from_secs_f64(self.lasting_s);
        let load = Load::Bulk { lasting, write: self.write, low: self.low };
        let flow = |_| FlowPlan {
            start: Duration::from_secs_f64(dice.between(0.0, self.spread_s)),
            round_trip: Duration::from_secs_f64(dice.between(round_trips[0], round_trips[1]) / 1000.0),
            load,
            lie: None,
        };
        Dumbbell {
            rate: self.rate,
            burst: 0,
            policy: setup.policy,
            association: setup.association(self.buffer),
            flows: (0..flows).map(flow).collect(),
            window: (Duration::from_secs_f64(self.spread_s), lasting),
            sampling: None,
            limit: Duration::from_secs_f64(self.spread_s + self.lasting_s + PATIENCE_S),
            seed,
        }
    }

    fn measures(&self, plan: &Dumbbell, report: &DumbbellReport) -> Result<Measures> {
        let window_s = (plan.window.1 - plan.window.0).as_secs_f64();
        let common: Vec<_> = report.flows.iter().map(|it| kbit_per_s(it.in_window, window_s)).collect();
        let own = || report.flows.iter().filter(|it| it.established.is_some());
        let sent: Vec<_> = own().map(|it| kbit_per_s(it.handed_over, self.lasting_s)).collect();
        let own: Vec<_> = own().map(|it| kbit_per_s(it.in_own_time, self.lasting_s)).collect();
        let (common, sent, own) = (Sum::of(&common)?, Sum::of(trimmed(&sent))?, Sum::of(&own)?);
        let is_late = |(flow, plan): &(&sim::dumbbell::FlowReport, &FlowPlan)| {
            let after = flow.established.map(|at| at.since(base::Time::ZERO + plan.start).as_secs_f64());
            after.is_none_or(|after| after > LATE_S)
        };
        let late = report.flows.iter().zip(&plan.flows).filter(is_late).count();
        let data: u64 = report.flows.iter().map(|it| it.data).sum();
        let duplicates: u64 = report.flows.iter().map(|it| it.duplicates).sum();
        let all_kbit = common.mean * common.count;
        Ok([
            ("sender_mean_kbit", sent.mean),
            ("sender_deviation_kbit", sent.deviation),
            ("own_mean_kbit", own.mean),
            ("own_deviation_kbit", own.deviation),
            ("mean_kbit", common.mean),
            ("deviation_kbit", common.deviation),
            ("cv", common.deviation / common.mean),
            ("jain", common.jain),
            ("late", late as f64),
            ("duplicates_percent", 100.0 * duplicates as f64 / data.max(1) as f64),
            ("lost_percent", 100.0 * report.queue.dropped as f64 / report.queue.offered.max(1) as f64),
            ("used", all_kbit * 1000.0 / plan.rate as f64),
            ("packets", report.packets as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_hundredth_of_the_rates_are_left_out() {
        let rates: Vec<f64> = (0..200).rev().map(f64::from).collect();
        let kept = trimmed(&rates);
        assert_eq!((kept.len(), kept[0], kept[kept.len() - 1]), (196, 197.0, 2.0));
        assert_eq!(trimmed(&rates[..20]).len(), 20);
    }
}

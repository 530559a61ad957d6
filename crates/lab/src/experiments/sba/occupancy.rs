//! `sba-occupancy`: the seed's Figures 4.1 and 4.2: the send buffers of two flows over a slow link.

use super::Setup;
use crate::experiment::{Cell, Experiment, Measures, Place, Planned, Point};
use anyhow::{Context, Result};
use sched::Policy;
use sctp::{AssociationConfig, SendBufferConfig};
use serde::Deserialize;
use sim::dumbbell::{Dumbbell, DumbbellReport, FlowPlan, Load, Sample, run};
use std::sync::OnceLock;
use std::time::Duration;

const TBF: &str = "token bucket";
const SFQ: &str = "SFQ";
const POLICIES: [&str; 2] = [TBF, SFQ];
const SUMMARY: &str = "summary";
/// Measures in the summary.
const OF_ALL: &[&str] = &["rates_ratio", "least_percent", "most_percent", "mean_percent", "write_s"];
/// What the kernel of the seed's time counts for a byte that waits: its own bookkeeping included.
const KERNEL_FACTOR: f64 = 1.36;
/// How often buffers are looked at for the summary.
const STEP: Duration = Duration::from_millis(100);
/// When flows are measured from, in seconds.
const WARM_S: u64 = 10;

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Occupancy {
    repetitions: u32,
    rate: u64,
    round_trip_ms: u64,
    seconds: u64,
    /// What a program writes at once, with what still unacknowledged, and the send buffer.
    write: usize,
    low: usize,
    buffer: usize,
    /// The receiver's window: the kernel announces half of its buffer.
    window: usize,
    /// The token bucket's bytes, and its queue.
    burst: usize,
    packets: usize,
    /// At which seconds the buffers are shown.
    every: usize,
    /// What came of each policy, once it was run: all its points are of one run.
    #[serde(skip)]
    runs: [OnceLock<DumbbellReport>; 2],
}

impl Experiment for Occupancy {
    fn points(&self) -> Vec<Planned> {
        let planned = |point, measures: &[_]| Planned {
            point,
            repetitions: self.repetitions,
            seconds: 0.5,
            measures: measures.to_vec(),
        };
        let mut points: Vec<_> =
            POLICIES.iter().map(|series| planned(Point::new(SUMMARY, series, 0.0), OF_ALL)).collect();
        for panel in POLICIES {
            for second in (1..self.seconds).step_by(self.every) {
                for flow in ["flow 1", "flow 2"] {
                    points.push(planned(Point::new(panel, flow, second as f64), &["percent"]));
                }
            }
        }
        points
    }

    fn measure(&self, _place: &Place, cell: &Cell) -> Result<Measures> {
        let Point { panel, series, x } = &cell.point;
        if panel == SUMMARY {
            return self.summary(self.run(series)?);
        }
        let report = self.run(panel)?;
        let flow = usize::from(series == "flow 2");
        let at = (*x * 1000.0) as u64;
        let sample = report.flows[flow].samples.iter().find(|it| it.at.as_millis() >= at);
        Ok(Measures::from([("percent".to_owned(), percent(sample.context("no sample")?))]))
    }
}

/// By the seed's formula, of all that the kernel counts as used: what exceeds the windows, of which the receiver's is what is left of it
/// beside all that is in flight.
fn percent(sample: &Sample) -> f64 {
    let held_back = sample.buffered.saturating_sub(sample.cwnd.min(sample.peer_rwnd));
    100.0 * held_back as f64 / (sample.buffered.max(1) as f64 * KERNEL_FACTOR)
}

impl Occupancy {
    fn run(&self, policy: &str) -> Result<&DumbbellReport> {
        let at = POLICIES.iter().position(|name| *name == policy);
        let at = at.with_context(|| format!("there is no policy {policy:?}"))?;
        let plan = self.plan(policy)?;
        Ok(self.runs[at].get_or_init(|| run(&plan)))
    }

    fn plan(&self, policy: &str) -> Result<Dumbbell> {
        let setup = match policy {
            TBF => Setup { policy: Policy::Fifo(self.packets), advertisement: None, ecn: false },
            _ => Setup::named(policy, self.packets)?,
        };
        let setup = Setup { advertisement: Some(SendBufferConfig::seed()), ..setup };
        let lasting = Duration::from_secs(self.seconds);
        let flow = |n: u32| FlowPlan {
            start: Duration::from_millis(300 * u64::from(n)),
            round_trip: Duration::from_millis(self.round_trip_ms),
            load: Load::Bulk { lasting, write: self.write, low: self.low },
            lie: None,
        };
        Ok(Dumbbell {
            rate: self.rate,
            burst: if policy == TBF { self.burst } else { 0 },
            policy: setup.policy,
            association: AssociationConfig { receive_buffer: self.window, ..setup.association(self.buffer) },
            flows: (0..2_u32).map(flow).collect(),
            window: (Duration::from_secs(WARM_S), lasting),
            sampling: Some(STEP),
            limit: lasting,
            seed: self.rate,
        })
    }

    /// Ratio of the rates; least, greatest and mean percent; and how long one write lasts.
    fn summary(&self, report: &DumbbellReport) -> Result<Measures> {
        let mut percents = Vec::new();
        let mut writes = 0;
        for flow in &report.flows {
            let late: Vec<_> = flow.samples.iter().filter(|it| it.at.as_millis() >= WARM_S * 1000).collect();
            // Once a second, as the seed looked.
            percents.extend(late.iter().filter(|it| it.at.as_millis() % 1000 == 0).map(|it| percent(it)));
            writes += late.windows(2).filter(|it| it[1].buffered > it[0].buffered + self.write / 2).count();
        }
        anyhow::ensure!(!percents.is_empty() && writes > 0, "nothing was sampled");
        let [one, other] = [0, 1].map(|n| report.flows[n].in_window as f64);
        let flow_seconds = 2.0 * (self.seconds - WARM_S) as f64;
        Ok(Measures::from([
            ("rates_ratio".to_owned(), one.max(other) / one.min(other)),
            ("least_percent".to_owned(), percents.iter().copied().fold(f64::MAX, f64::min)),
            ("most_percent".to_owned(), percents.iter().copied().fold(0.0, f64::max)),
            ("mean_percent".to_owned(), percents.iter().sum::<f64>() / percents.len() as f64),
            ("write_s".to_owned(), flow_seconds / writes as f64),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::one;
    use crate::manifest::Form;

    #[test]
    fn all_points_of_a_policy_are_of_one_run_and_no_other_policy_has_it() {
        let parameters = one("sba-occupancy").unwrap().manifest.parameters(Form::Quick);
        let it: Occupancy = parameters.try_into().unwrap();
        let at = |policy| std::ptr::from_ref(it.run(policy).unwrap());
        assert_eq!((at(SFQ), at(TBF)), (at(SFQ), at(TBF)));
        assert_ne!(at(SFQ), at(TBF));
        assert!(it.run("LTF").is_err());
    }
}

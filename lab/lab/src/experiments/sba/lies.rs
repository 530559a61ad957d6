//! `sba-lies`: the gain of a sender whose advertisements are false.

use super::completion::{Scenario, seconds_of_files};
use super::{Setup, Traffic, kbit_per_s};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned};
use anyhow::{Context, Result};
use sched::Said;
use serde::Deserialize;
use sim::dumbbell::{FlowPlan, FlowReport, Load, run};
use std::time::Duration;

const PANEL: &str = "lies";
/// Time from which flows are measured, in seconds.
const WARM_S: u64 = 20;
/// Advertisement of a send buffer that is always full.
const FULL: Said = Said { occupancy: 100, backlog: Some(u32::MAX) };
/// Advertisement of a flow that always has one byte left to send.
const DONE: Said = Said { occupancy: 1, backlog: Some(1) };

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Lies {
    repetitions: u32,
    traffic: Traffic,
    series: Vec<String>,
    kinds: Vec<Kind>,
    chosen: Vec<usize>,
    /// The files' scenario. Some of the files have lying senders.
    files: Scenario,
}

/// A lie, and the flows whose senders tell it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    /// Number of long flows. If the number is 0, the flows are files instead.
    flows: usize,
    /// Number of flows per lying flow: in each group of `one_in` flows, the sender of one flow lies.
    one_in: usize,
    lie: Lie,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Lie {
    Full,
    Done,
    /// No sender lies. As a control, the flows that lie under the other variants are compared with the
    /// remaining flows.
    None,
}

impl Lie {
    fn said(self) -> Option<Said> {
        match self {
            Lie::Full => Some(FULL),
            Lie::Done => Some(DONE),
            Lie::None => None,
        }
    }
}

impl Experiment for Lies {
    fn points(&self) -> Vec<Planned> {
        self.traffic.points(PANEL, &self.chosen, &self.series, self.repetitions, &["gain"])
    }

    fn measure(&self, _environment: &Environment, cell: &Cell) -> Result<Measures> {
        let kind = self.kinds.get(cell.point.x as usize).context("no such lie")?;
        let setup = Setup::named(&cell.point.series, self.traffic.packets)?;
        let gain = match kind.flows {
            0 => self.among_files(setup, kind, cell.seed),
            _ => self.among_long_flows(setup, kind, cell.seed),
        };
        Ok(Measures::from([("gain".to_owned(), gain?)]))
    }
}

/// Returns the mean value of the lying senders and the mean value of the honest senders.
fn means(values: impl Iterator<Item = (bool, f64)>) -> Result<(f64, f64)> {
    let (liars, honest): (Vec<_>, Vec<_>) = values.partition(|it| it.0);
    let mean = |of: &[(bool, f64)]| of.iter().map(|it| it.1).sum::<f64>() / of.len() as f64;
    anyhow::ensure!(!liars.is_empty() && !honest.is_empty(), "all lie, or none does");
    Ok((mean(&liars), mean(&honest)))
}

impl Lies {
    /// Returns the gain: the mean rate of the lying senders, divided by the mean rate of the honest senders.
    fn among_long_flows(&self, setup: Setup, kind: &Kind, seed: u64) -> Result<f64> {
        let seconds = Duration::from_secs_f64(self.traffic.seconds);
        let is_liar = |n: usize| n % kind.one_in == kind.one_in / 2;
        let flow = |n| FlowPlan {
            start: Duration::from_millis(10_000 * n as u64 / kind.flows as u64),
            round_trip: Duration::from_millis(self.traffic.round_trip_ms),
            load: Load::Bulk { lasting: seconds, write: 0, low: 0 },
            lie: kind.lie.said().filter(|_| is_liar(n)),
        };
        let flows = (0..kind.flows).map(flow).collect();
        let plan = self.traffic.dumbbell(setup, flows, WARM_S, seed);
        let report = run(&plan);
        let rate = |flow: &FlowReport| kbit_per_s(flow.in_window, (seconds.as_secs_f64()) - WARM_S as f64);
        let (liars, honest) =
            means(report.flows.iter().enumerate().map(|(n, flow)| (is_liar(n), rate(flow))))?;
        Ok(liars / honest)
    }

    /// Returns the gain: the mean slowdown of honest senders' files, divided by the mean slowdown of lying
    /// senders' files. The slowdown of a file is its completion time, divided by the file's shortest
    /// possible time on an idle link.
    fn among_files(&self, setup: Setup, kind: &Kind, seed: u64) -> Result<f64> {
        let mut plan = self.files.plan(&self.traffic, setup, seed);
        let is_file = |flow: &FlowPlan| matches!(flow.load, Load::File(_));
        let first = plan.flows.iter().position(is_file).context("no files")?;
        let is_liar = |n: usize| n % kind.one_in == kind.one_in / 2;
        for (n, flow) in plan.flows.iter_mut().skip(first).enumerate() {
            flow.lie = kind.lie.said().filter(|_| is_liar(n));
        }
        let report = run(&plan);
        let rate = self.traffic.rate as f64 / 8.0;
        let slowdown = |(flow, took): (FlowPlan, f64)| {
            let bytes = if let Load::File(bytes) = flow.load { bytes as f64 } else { 0.0 };
            // The handshake takes two round trips, and the first byte arrives half a round trip later.
            took / (bytes / rate + 2.5 * flow.round_trip.as_secs_f64())
        };
        let files = seconds_of_files(&plan, &report).into_iter().map(slowdown).enumerate();
        let (liars, honest) = means(files.map(|(n, slowdown)| (is_liar(n), slowdown)))?;
        Ok(honest / liars)
    }
}

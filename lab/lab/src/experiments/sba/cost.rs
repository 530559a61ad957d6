//! `sba-cost`: cost and benefit of each form of the advertisement.
//!
//! The cost appears in two measures of long flows: their goodput, and the percentage of packets that carry an
//! advertisement. The benefit appears in the completion times of files, compared with a run without
//! advertisements.

use super::completion::{self, Scenario, measured};
use super::{BACKLOG, Setup, Sum, Traffic, kbit_per_s};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::{Context, Result, bail};
use sctp::{SendBufferCadence, SendBufferConfig, SendBufferForm};
use serde::Deserialize;
use sim::dumbbell::{FlowPlan, Load, run};
use std::time::Duration;

const COST: &str = "cost";
const USE: &str = "use";
const SERIES: &str = "least left first";
/// Time from which flows are measured, in seconds.
const WARM_S: u64 = 5;
/// Number of flows that share the link when the cost is measured.
const FLOWS: u64 = 20;

/// Measures of the cost.
const OF_COST: &[&str] = &["mbit_per_s", "packets_with_percent"];

/// The forms of the advertisement, in the order of the manifest's categories.
const FORMS: [Option<SendBufferConfig>; 8] = [
    None,
    Some(SendBufferConfig { form: SendBufferForm::Percent, ..BACKLOG }),
    Some(SendBufferConfig {
        form: SendBufferForm::Percent,
        cadence: SendBufferCadence::Economical,
        precision: 10,
        ..BACKLOG
    }),
    Some(SendBufferConfig { form: SendBufferForm::SeedTenths, ..BACKLOG }),
    Some(BACKLOG),
    Some(SendBufferConfig { cadence: SendBufferCadence::Economical, ..BACKLOG }),
    Some(SendBufferConfig { cadence: SendBufferCadence::Every(Duration::from_millis(100)), ..BACKLOG }),
    Some(SendBufferConfig { cadence: SendBufferCadence::Every(Duration::from_secs(5)), ..BACKLOG }),
];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Cost {
    repetitions: u32,
    traffic: Traffic,
    scenario: Scenario,
}

impl Experiment for Cost {
    fn points(&self) -> Vec<Planned> {
        let point = |panel: &str, x: usize| Planned {
            point: Point::new(panel, SERIES, x as f64),
            repetitions: self.repetitions,
            seconds: self.traffic.seconds / 10.0,
            measures: if panel == COST { OF_COST } else { completion::MEASURES }.to_vec(),
        };
        let used = (0..FORMS.len())
            .filter(|x| FORMS[*x] != Some(SendBufferConfig { form: SendBufferForm::SeedTenths, ..BACKLOG }));
        (0..FORMS.len()).map(|x| point(COST, x)).chain(used.map(|x| point(USE, x))).collect()
    }

    fn measure(&self, _environment: &Environment, cell: &Cell) -> Result<Measures> {
        let form = *FORMS.get(cell.point.x as usize).context("no such form")?;
        match &*cell.point.panel {
            COST => self.cost(form, cell.seed),
            USE => {
                let setup = Setup { advertisement: None, ..Setup::named("finish", self.traffic.packets)? };
                measured(&self.scenario, &self.traffic, setup, form, cell.seed)
            }
            other => bail!("unknown panel {other:?}"),
        }
    }
}

impl Cost {
    fn cost(&self, form: Option<SendBufferConfig>, seed: u64) -> Result<Measures> {
        let setup = Setup { advertisement: form, ..Setup::named("LTF", self.traffic.packets)? };
        let seconds = Duration::from_secs_f64(self.traffic.seconds);
        let flow = |n| FlowPlan {
            start: Duration::from_millis(50 * n),
            round_trip: Duration::from_millis(self.traffic.round_trip_ms),
            load: Load::Bulk { lasting: seconds, write: 0, low: 0 },
            lie: None,
        };
        let flows = (0..FLOWS).map(flow).collect();
        let plan = self.traffic.dumbbell(setup, flows, WARM_S, seed);
        let report = run(&plan);
        let window_s = (plan.window.1 - plan.window.0).as_secs_f64();
        let rates: Vec<f64> = report.flows.iter().map(|it| kbit_per_s(it.in_window, window_s)).collect();
        let all = Sum::of(&rates)?;
        Ok(Measures::from([
            ("mbit_per_s".to_owned(), all.mean * all.count / 1000.0),
            (
                "packets_with_percent".to_owned(),
                100.0 * report.advertisements as f64 / report.queue.offered as f64,
            ),
        ]))
    }
}

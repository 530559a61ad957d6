//! `sba-messages`: latency of messages. The sending programs use less than their share of the link.
//!
//! At the same time, bulk flows send as much as they can.

use super::{Setup, Sum, Traffic, kbit_per_s, p99};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::Result;
use serde::Deserialize;
use sim::dumbbell::{FlowPlan, Load, run};
use std::time::Duration;

const PANEL: &str = "messages";
/// Time at which the measurement of the bulk flows' rates begins, in seconds. Latencies of all messages count.
const WARM_S: u64 = 5;

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Messages {
    repetitions: u32,
    traffic: Traffic,
    series: Vec<String>,
    /// Number of flows of each kind: flows of messages, and bulk flows.
    flows: usize,
    /// Length of a message, in bytes.
    length: usize,
    /// Pause between two messages of a flow, in milliseconds.
    every_ms: u64,
}

impl Experiment for Messages {
    fn points(&self) -> Vec<Planned> {
        let point = |series: &String| Planned {
            point: Point::new(PANEL, series, 0.0),
            repetitions: self.repetitions,
            seconds: self.traffic.seconds / 10.0,
            measures: vec!["mean_ms", "p99_ms", "bulk_kbit"],
        };
        self.series.iter().map(point).collect()
    }

    fn measure(&self, _environment: &Environment, cell: &Cell) -> Result<Measures> {
        let setup = Setup::named(&cell.point.series, self.traffic.packets)?;
        let seconds = Duration::from_secs_f64(self.traffic.seconds);
        let messages = Load::Messages {
            length: self.length,
            every: Duration::from_millis(self.every_ms),
            until: seconds,
        };
        let bulk = Load::Bulk { lasting: seconds, write: 0, low: 0 };
        let flow = |n: usize| FlowPlan {
            start: Duration::from_millis(4000 * n as u64 / self.flows as u64 / 2),
            round_trip: Duration::from_millis(self.traffic.round_trip_ms),
            load: if n.is_multiple_of(2) { messages } else { bulk },
            lie: None,
        };
        let flows = (0..2 * self.flows).map(flow).collect();
        let plan = self.traffic.dumbbell(setup, flows, WARM_S, cell.seed);
        let report = run(&plan);
        let mut latencies: Vec<f64> = report
            .flows
            .iter()
            .flat_map(|it| it.latencies.iter().map(|it| it.as_secs_f64() * 1000.0))
            .collect();
        let window_s = (plan.window.1 - plan.window.0).as_secs_f64();
        let bulk: Vec<f64> =
            report.flows.iter().skip(1).step_by(2).map(|it| kbit_per_s(it.in_window, window_s)).collect();
        Ok(Measures::from([
            ("mean_ms".to_owned(), Sum::of(&latencies)?.mean),
            ("p99_ms".to_owned(), p99(&mut latencies)?),
            ("bulk_kbit".to_owned(), Sum::of(&bulk)?.mean),
        ]))
    }
}

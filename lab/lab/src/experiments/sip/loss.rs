//! `sip-loss`: number of completed calls between user agents through a proxy, in a fixed time and over
//! links that lose packets (Table 5.3 of the thesis).

use super::agent_report::AgentReport;
use super::world::{LIMIT, Star, bob, stop};
use super::{TRANSPORTS, transport_of};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::Result;
use serde::Deserialize;
use std::time::Duration;

const PANEL: &str = "calls completed";
/// Estimated time of a cell, not including its calls, in seconds.
const OVERHEAD_S: f64 = 8.0;

/// Names of the measures.
const MEASURES: &[&str] = &["calls", "failed", "calls_per_minute"];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Loss {
    repetitions: u32,
    /// Number of user agents on each side of the proxy. Each caller repeatedly calls the agent that has the
    /// caller's number on the other side.
    agents: u16,
    /// Loss rates of packets on each link in each direction, in percent.
    loss: Vec<u16>,
    /// Round-trip time between a user agent and the proxy, in milliseconds.
    rtt_ms: f64,
    /// Time for which a called agent rings before it answers, in seconds.
    ring_s: f64,
    /// Time between the answer and the end of a call, in seconds.
    hold_s: f64,
    /// Time after which the callers stop, even during calls, in seconds.
    seconds: f64,
}

impl Experiment for Loss {
    fn points(&self) -> Vec<Planned> {
        let of = |&loss: &u16| {
            TRANSPORTS.map(|(series, _)| Planned {
                point: Point::new(PANEL, series, f64::from(loss)),
                repetitions: self.repetitions,
                seconds: OVERHEAD_S + self.seconds,
                measures: MEASURES.to_vec(),
            })
        };
        self.loss.iter().flat_map(of).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let delay = format!("{}us", self.rtt_ms * 500.0);
        let star =
            Star::new(environment, transport_of(&cell.point.series)?, &["--delay", &delay], cell.seed)?;
        let numbers = 0..self.agents;
        let ring = ["--ring", &self.ring_s.to_string()];
        let callees = numbers
            .clone()
            .map(|n| star.callee(n).registered(environment, &ring, 1))
            .collect::<Result<Vec<_>>>()?;
        // All agents register before the loss begins, so the loss does not affect the set-up of their
        // connections.
        let (hold, stop_after) = (self.hold_s.to_string(), self.seconds.to_string());
        let caller = |number| {
            let words = [
                "--call",
                &bob(number),
                "--calls",
                "1000000",
                "--calls-max",
                "1",
                "--rate",
                "1000",
                "--duration",
                &hold,
                "--stop-after",
                &stop_after,
            ];
            star.caller(number).registered(environment, &words, 1)
        };
        let callers = numbers.map(caller).collect::<Result<Vec<_>>>()?;
        star.set(&["--loss", &format!("{}%", cell.point.x)])?;
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let (mut completed, mut failed) = (0.0, 0.0);
        for caller in callers {
            let report = AgentReport::of(&caller.finish(LIMIT)?)?;
            completed += report.number("calls_completed")?;
            failed += report.number("calls_failed")?;
        }
        star.set(&["--loss", "0%"])?;
        callees.into_iter().try_for_each(|callee| stop(callee).map(drop))?;
        Ok(Measures::from([
            ("calls".to_owned(), completed),
            ("failed".to_owned(), failed),
            ("calls_per_minute".to_owned(), completed * 60.0 / self.seconds),
        ]))
    }
}

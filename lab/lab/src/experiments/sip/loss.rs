//! `sip-loss`: Table 5.3 of the thesis: eight user agents on each side of a proxy, calls completed in a fixed time under loss.

use super::agent_report::AgentReport;
use super::world::{LIMIT, Star, bob, stop};
use super::{TRANSPORTS, transport_of};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::Result;
use serde::Deserialize;
use std::time::Duration;

const PANEL: &str = "calls completed";
/// Time of a cell beyond its calls, in seconds.
const OVERHEAD_S: f64 = 8.0;

/// The measures.
const MEASURES: &[&str] = &["calls", "failed", "calls_per_minute"];

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Loss {
    repetitions: u32,
    /// User agents on each side; each calls one of the other side again and again.
    agents: u16,
    /// Of each packet on each link and in each direction, in percent.
    loss: Vec<u16>,
    /// Between a user agent and the proxy.
    rtt_ms: f64,
    /// Until a call is answered, and until it is hung up.
    ring_s: f64,
    hold_s: f64,
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
        // All have registered before anything gets lost.
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

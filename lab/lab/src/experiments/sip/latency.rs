//! `sip-latency`: durations of registrations, of calls' set-up, and of calls' end.
//!
//! The experiment compares UDP, TCP and SCTP, each with a new and with an established connection.

use super::diagram;
use super::world::{Star, bob, stop};
use super::{TRANSPORTS, transport_of};
use crate::experiment::{Cell, Drawing, Environment, Experiment, Measures, Planned, Point};
use anyhow::{Result, ensure};
use serde::Deserialize;
use std::time::Duration;

const PANEL: &str = "registration on a new connection";
/// Time of a cell, not including its operations, in seconds.
const OVERHEAD_S: f64 = 2.0;

/// Names of the measures.
const MEASURES: &[&str] = &[
    "register_new_ms",
    "register_standing_ms",
    "set_up_new_ms",
    "set_up_standing_ms",
    "end_ms",
    "register_new_round_trips",
    "register_standing_round_trips",
];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Latency {
    repetitions: u32,
    /// Round-trip times between a user agent and the proxy, in milliseconds.
    rtt_ms: Vec<u16>,
    /// Number of registrations by one agent, which is also the number of calls by another agent. The first
    /// operation of each agent opens a connection. The agent's other operations use this connection.
    operations: u32,
    /// Round-trip time in the packet diagrams, in milliseconds. If absent, no diagrams are drawn.
    drawn_rtt_ms: Option<u16>,
}

fn star(environment: &Environment, transport: &'static str, rtt_ms: f64, seed: u64) -> Result<Star> {
    let delay = format!("{}us", rtt_ms * 500.0);
    Star::new(environment, transport, &["--delay", &delay], seed)
}

impl Experiment for Latency {
    fn points(&self) -> Vec<Planned> {
        let of = |&rtt_ms: &u16| {
            TRANSPORTS.map(|(series, _)| Planned {
                point: Point::new(PANEL, series, f64::from(rtt_ms)),
                repetitions: self.repetitions,
                seconds: OVERHEAD_S + 0.02 * f64::from(rtt_ms) * f64::from(self.operations),
                measures: MEASURES.to_vec(),
            })
        };
        self.rtt_ms.iter().flat_map(of).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let star = star(environment, transport_of(&cell.point.series)?, cell.point.x, cell.seed)?;
        let callee = star.callee(0).registered(environment, &[], 1)?;
        let count = self.operations.to_string();
        let limit = Duration::from_secs(60);
        let words = ["--registrations", &count];
        let registering = stop(star.caller(0).registered(environment, &words, self.operations)?)?;
        // Caller 1 has a different port from caller 0, so the first call of caller 1 needs a new
        // connection.
        let words =
            ["--no-register", "--call", &bob(0), "--calls", &count, "--rate", "4", "--duration", "0.1"];
        let calling = star.caller(1).run(environment, &words, limit)?;
        stop(callee)?;
        let answered = calling.number("calls_answered/count")?;
        ensure!(answered == f64::from(self.operations), "{answered} of {count} calls were answered");
        let mut measures = registering.measures(&[
            ("register_new_ms", "registrations/ms_first"),
            ("register_standing_ms", "registrations/ms_p50"),
        ])?;
        measures.extend(calling.measures(&[
            ("set_up_new_ms", "calls_answered/ms_first"),
            ("set_up_standing_ms", "calls_answered/ms_p50"),
            ("end_ms", "calls_hung_up/ms_p50"),
        ])?);
        let rtt_ms = cell.point.x;
        measures.insert("register_new_round_trips".to_owned(), measures["register_new_ms"] / rtt_ms);
        measures
            .insert("register_standing_round_trips".to_owned(), measures["register_standing_ms"] / rtt_ms);
        Ok(measures)
    }

    fn drawings(&self, environment: &Environment) -> Result<Vec<Drawing>> {
        let Some(rtt_ms) = self.drawn_rtt_ms else { return Ok(Vec::new()) };
        let mut drawings = Vec::new();
        for (series, transport) in TRANSPORTS {
            let star = star(environment, transport, f64::from(rtt_ms), 1)?;
            drawings.extend(diagram::drawn(environment, &star, series)?);
        }
        Ok(drawings)
    }
}

//! `sip-failover`: set-up times and lost calls when the cable of the primary path between two proxies is
//! pulled (Figure 5.9).

use super::agent_report::AgentReport;
use super::world::{Between, Joined};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::Result;
use serde::Deserialize;
use std::time::Duration;

const PANEL: &str = "longest set-up";
/// Time of a cell, not including its calls, in seconds.
const OVERHEAD_S: f64 = 4.0;

const SERIES: [(&str, Between); 5] = [
    ("UDP", Between::by("udp")),
    ("TCP", Between::by("tcp")),
    ("SCTP, one path", Between::by("sctp")),
    ("SCTP, two paths", Between { links: 2, ..Between::by("sctp") }),
    ("SCTP, redundant", Between { links: 2, sctp: "multipath = \"redundant\"", ..Between::by("sctp") }),
];

/// Names of the measures.
const MEASURES: &[&str] =
    &["set_up_ms_p50", "set_up_ms_p99", "set_up_ms_max", "end_ms_max", "added_ms", "lost", "switches"];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Failover {
    repetitions: u32,
    rtt_ms: f64,
    /// Rates of calls, in calls per second.
    rate: Vec<f64>,
    /// Time from the first call until the cable is pulled, in seconds.
    before_s: f64,
    /// Time for which the cable is pulled during the calls, in seconds.
    pulled_s: f64,
    /// Time from the return of the cable to the last call, in seconds.
    after_s: f64,
}

impl Experiment for Failover {
    fn points(&self) -> Vec<Planned> {
        let seconds = OVERHEAD_S + self.before_s + 2.0 * self.pulled_s + self.after_s;
        let of = |&rate: &f64| {
            SERIES.map(|(series, _)| Planned {
                point: Point::new(PANEL, series, rate),
                repetitions: self.repetitions,
                seconds,
                measures: MEASURES.to_vec(),
            })
        };
        self.rate.iter().flat_map(of).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let joined = Joined::of_cell(environment, &SERIES, cell, self.rtt_ms)?;
        let (rate, seconds) = (cell.point.x, self.before_s + self.pulled_s + self.after_s);
        let calls = (rate * seconds).round();
        let caller = joined.begin_calls(environment, rate, calls as u32)?;
        std::thread::sleep(Duration::from_secs_f64(self.before_s));
        joined.links[0].link.silence()?;
        std::thread::sleep(Duration::from_secs_f64(self.pulled_s));
        joined.links[0].link.restore()?;
        // An unanswered call fails after 32 s (RFC 3261 timer B).
        let report = AgentReport::of(&caller.finish(Duration::from_secs_f64(self.after_s + 45.0))?)?;
        let mut measures = report.measures(&[
            ("set_up_ms_p50", "calls_answered/ms_p50"),
            ("set_up_ms_p99", "calls_answered/ms_p99"),
            ("set_up_ms_max", "calls_answered/ms_max"),
            ("end_ms_max", "calls_hung_up/ms_max"),
        ])?;
        measures.insert("added_ms".to_owned(), measures["set_up_ms_max"] - measures["set_up_ms_p50"]);
        measures.insert("lost".to_owned(), calls - report.number("calls_completed")?);
        measures.insert("switches".to_owned(), joined.switches() as f64);
        Ok(measures)
    }
}

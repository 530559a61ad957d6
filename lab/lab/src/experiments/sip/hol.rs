//! `sip-hol`: set-up time of calls between two proxies, over one connection whose link loses packets
//! (chapter 6 of the thesis).

use super::agent_report::AgentReport;
use super::world::{Between, Joined};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::Result;
use serde::Deserialize;
use std::time::Duration;

const PANEL: &str = "mean set-up";
/// Time of a cell, not including its calls, in seconds.
const OVERHEAD_S: f64 = 4.0;

const SERIES: [(&str, Between); 6] = [
    ("UDP", Between::by("udp")),
    ("TCP, CUBIC", Between::by("tcp")),
    ("TCP, BBR", Between { tcp_control: "bbr", ..Between::by("tcp") }),
    ("SCTP, a stream for each dialog", Between::by("sctp")),
    ("SCTP, one stream", Between { sctp: "streams = 1", ..Between::by("sctp") }),
    ("SCTP, loss-tolerant", Between { sctp: "congestion = \"loss-tolerant\"", ..Between::by("sctp") }),
];

/// Names of the measures.
const MEASURES: &[&str] = &[
    "set_up_ms_mean",
    "set_up_ms_p50",
    "set_up_ms_p90",
    "set_up_ms_p99",
    "set_up_ms_max",
    "added_ms",
    "lost",
];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Hol {
    repetitions: u32,
    series: Vec<String>,
    rtt_ms: f64,
    /// Rate of calls, in calls per second.
    rate: f64,
    seconds: f64,
    /// Loss rates of packets in each direction, in percent.
    loss: Vec<f64>,
}

impl Experiment for Hol {
    fn points(&self) -> Vec<Planned> {
        let seconds = OVERHEAD_S + self.seconds;
        let of = |&loss: &f64| {
            self.series.iter().map(move |series| Planned {
                point: Point::new(PANEL, series, loss),
                repetitions: self.repetitions,
                seconds,
                measures: MEASURES.to_vec(),
            })
        };
        self.loss.iter().flat_map(of).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let joined = Joined::of_cell(environment, &SERIES, cell, self.rtt_ms)?;
        joined.links[0].set(&["--loss", &format!("{}%", cell.point.x)])?;
        let calls = (self.rate * self.seconds).round();
        let caller = joined.begin_calls(environment, self.rate, calls as u32)?;
        let report = AgentReport::of(&caller.finish(Duration::from_secs_f64(self.seconds + 45.0))?)?;
        let mut measures = report.measures(&[
            ("set_up_ms_mean", "calls_answered/ms_mean"),
            ("set_up_ms_p50", "calls_answered/ms_p50"),
            ("set_up_ms_p90", "calls_answered/ms_p90"),
            ("set_up_ms_p99", "calls_answered/ms_p99"),
            ("set_up_ms_max", "calls_answered/ms_max"),
        ])?;
        measures.insert("added_ms".to_owned(), measures["set_up_ms_mean"] - self.rtt_ms);
        measures.insert("lost".to_owned(), calls - report.number("calls_answered/count")?);
        Ok(measures)
    }
}

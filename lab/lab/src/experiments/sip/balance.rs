//! `sip-balance`: two proxies use two links to carry more calls than one link can carry.

use super::agent_report::AgentReport;
use super::world::{Between, Joined};
use crate::experiment::{Cell, Environment, Experiment, Measures, Planned, Point};
use anyhow::Result;
use serde::Deserialize;
use std::time::Duration;

const PANEL: &str = "set-up";
/// Time of a cell, not including its calls, in seconds.
const OVERHEAD_S: f64 = 4.0;

/// The series. Two addresses at each end make four paths. Three paths use the second link, because packets
/// of the two paths between different subnets also leave over this link. For equal shares of the links, the
/// only path over the first link thus has weight 3.
const SERIES: [(&str, Between); 5] = [
    ("one link", Between::by("sctp")),
    ("two links, one at a time", Between { links: 2, ..Between::by("sctp") }),
    (
        "two links, lowest-rtt",
        Between { links: 2, sctp: "multipath = \"lowest-rtt\"", ..Between::by("sctp") },
    ),
    (
        "two links, equal shares",
        Between {
            links: 2,
            sctp: "multipath = \"weighted\"\nmultipath_weights = \"10.77.2.0/24=1 10.77.1.0/24=3\"",
            ..Between::by("sctp")
        },
    ),
    (
        "two links, 3 to 1",
        Between {
            links: 2,
            sctp: "multipath = \"weighted\"\nmultipath_weights = \"10.77.2.0/24=1 10.77.1.0/24=9\"",
            ..Between::by("sctp")
        },
    ),
];

/// Names of the measures.
const MEASURES: &[&str] = &["set_up_ms_p50", "set_up_ms_p99", "lost", "second_link"];

/// Parameters of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiments) struct Balance {
    repetitions: u32,
    rtt_ms: f64,
    /// Rate of each link in each direction, in kbit/s.
    link_kbit: u32,
    /// Rates of calls, in calls per second.
    rate: Vec<f64>,
    seconds: f64,
}

impl Experiment for Balance {
    fn points(&self) -> Vec<Planned> {
        let of = |&rate: &f64| {
            SERIES.map(|(series, _)| Planned {
                point: Point::new(PANEL, series, rate),
                repetitions: self.repetitions,
                seconds: OVERHEAD_S + 2.0 * self.seconds,
                measures: MEASURES.to_vec(),
            })
        };
        self.rate.iter().flat_map(of).collect()
    }

    fn measure(&self, environment: &Environment, cell: &Cell) -> Result<Measures> {
        let joined = Joined::of_cell(environment, &SERIES, cell, self.rtt_ms)?;
        let rate = format!("{}kbit", self.link_kbit);
        joined.links.iter().try_for_each(|link| link.set(&["--rate", &rate]))?;
        let before = joined.sent_bytes()?;
        let calls = (cell.point.x * self.seconds).round();
        let caller = joined.begin_calls(environment, cell.point.x, calls as u32)?;
        // An unanswered call fails after 32 s (RFC 3261 timer B).
        let report = AgentReport::of(&caller.finish(Duration::from_secs_f64(self.seconds + 45.0))?)?;
        let after = joined.sent_bytes()?;
        let mut measures = report.measures(&[
            ("set_up_ms_p50", "calls_answered/ms_p50"),
            ("set_up_ms_p99", "calls_answered/ms_p99"),
        ])?;
        let sent: Vec<f64> =
            after.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
        let second = sent.get(1).copied().unwrap_or_default();
        measures.insert("second_link".to_owned(), second / sent.iter().sum::<f64>());
        measures.insert("lost".to_owned(), calls - report.number("calls_completed")?);
        Ok(measures)
    }
}

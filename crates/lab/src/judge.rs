//! Holds what was measured against the bands that are expected.

use crate::experiment::Point;
use crate::manifest::{Expectation, Form, Manifest};
use crate::results::Results;
use serde::Serialize;

/// How an expectation came out at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Met,
    Missed,
    /// Something that it speaks of was not measured.
    Unmeasured,
}

/// One expectation at one point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) id: String,
    pub(crate) what: String,
    /// The panel and x.
    pub(crate) at: String,
    /// The figure, or its ratio to what it is compared with.
    pub(crate) value: Option<f64>,
    /// The band.
    pub(crate) band: String,
    pub(crate) outcome: Outcome,
    pub(crate) control: bool,
    pub(crate) source: String,
}

/// Judges all that is expected in a form.
pub(crate) fn judge(manifest: &Manifest, form: Form, results: &Results) -> Vec<Verdict> {
    let applies = |it: &&Expectation| it.forms.is_empty() || it.forms.contains(&form);
    let expectations = manifest.expectations.iter().filter(applies);
    expectations.flat_map(|expectation| verdicts(manifest, expectation, results)).collect()
}

fn verdicts(manifest: &Manifest, expectation: &Expectation, results: &Results) -> Vec<Verdict> {
    let panels: Vec<&str> = match &expectation.panel {
        Some(panel) => vec![panel],
        None => {
            manifest.panels.iter().filter(|panel| panel.of() == panel.id).map(|panel| panel.of()).collect()
        }
    };
    let mut verdicts = Vec::new();
    for panel in panels {
        let xs = match &*expectation.x {
            [] => results.xs(panel, &expectation.series),
            xs => xs.to_vec(),
        };
        verdicts.extend(xs.into_iter().map(|x| verdict(manifest, expectation, panel, x, results)));
    }
    if verdicts.is_empty() {
        verdicts.push(told(expectation, "nowhere".to_owned(), None));
    }
    verdicts
}

fn verdict(
    manifest: &Manifest,
    expectation: &Expectation,
    panel: &str,
    x: f64,
    results: &Results,
) -> Verdict {
    let x_name = manifest.panel(panel).map_or(x.to_string(), |panel| panel.x_name(x));
    told(expectation, format!("{panel}, {x_name}"), value(expectation, panel, x, results))
}

fn value(expectation: &Expectation, panel: &str, x: f64, results: &Results) -> Option<f64> {
    let point = Point::new(panel, &expectation.series, x);
    let figure = results.figure(&point, &expectation.measure, expectation.statistic)?.value;
    let Some(against) = &expectation.against else { return Some(figure) };
    let other =
        Point::new(against.panel.as_deref().unwrap_or(panel), &against.series, against.x.unwrap_or(x));
    let measure = against.measure.as_deref().unwrap_or(&expectation.measure);
    let statistic = against.statistic.unwrap_or(expectation.statistic);
    Some(figure / results.figure(&other, measure, statistic)?.value)
}

fn told(expectation: &Expectation, at: String, value: Option<f64>) -> Verdict {
    let is_in_band = |value: f64| {
        expectation.at_most.is_none_or(|most| value <= most)
            && expectation.at_least.is_none_or(|least| value >= least)
    };
    Verdict {
        id: expectation.id.clone(),
        what: expectation.what.clone(),
        at,
        value,
        band: band(expectation),
        outcome: match value {
            None => Outcome::Unmeasured,
            Some(value) if is_in_band(value) => Outcome::Met,
            Some(_) => Outcome::Missed,
        },
        control: expectation.control,
        source: expectation.source.clone(),
    }
}

/// "<= 0.7 x tcp-cubic".
fn band(expectation: &Expectation) -> String {
    let bounds = [(">=", expectation.at_least), ("<=", expectation.at_most)];
    let bounds: Vec<String> =
        bounds.iter().filter_map(|(sign, bound)| bound.map(|bound| format!("{sign} {bound}"))).collect();
    let times =
        expectation.against.as_ref().map_or(String::new(), |against| format!(" x {}", against.series));
    bounds.join(", ") + &times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Against, Statistic};
    use crate::results::tests::done;

    fn expectation(series: &str, against: Option<&str>) -> Expectation {
        let against = against.map(|series| Against {
            panel: None,
            series: series.to_owned(),
            x: None,
            measure: None,
            statistic: None,
        });
        Expectation {
            id: "e".into(),
            what: String::new(),
            panel: Some("p".into()),
            series: series.into(),
            x: vec![],
            measure: "seconds".into(),
            statistic: Statistic::Mean,
            against,
            at_most: Some(0.7),
            at_least: None,
            source: String::new(),
            control: false,
            forms: vec![],
        }
    }

    fn outcomes(expectation: &Expectation) -> Vec<(Option<f64>, Outcome)> {
        let manifest = Manifest::read(include_str!("../experiments/handshake.toml")).unwrap();
        let results = Results(vec![
            done("p", "ours", 3.0, 0, 6.0),
            done("p", "ours", 10.0, 0, 8.0),
            done("p", "tcp", 3.0, 0, 10.0),
            done("p", "tcp", 10.0, 0, 10.0),
        ]);
        let verdicts = verdicts(&manifest, expectation, &results).into_iter();
        verdicts.map(|verdict| (verdict.value, verdict.outcome)).collect()
    }

    #[test]
    fn a_ratio_is_judged_at_each_x_that_was_measured() {
        let ratios = outcomes(&expectation("ours", Some("tcp")));
        assert_eq!(ratios, [(Some(0.6), Outcome::Met), (Some(0.8), Outcome::Missed)]);
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(outcomes(&expectation("theirs", None)), [(None, Outcome::Unmeasured)]);
        assert_eq!(outcomes(&expectation("ours", Some("theirs"))), [(None, Outcome::Unmeasured); 2]);
    }
}

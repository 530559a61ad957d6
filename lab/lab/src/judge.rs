//! Comparison of measurements with the expected bands.

use crate::experiment::{Only, Planned, Point};
use crate::manifest::{Expectation, Form, Manifest};
use crate::results::Results;
use serde::Serialize;

/// The outcome of an expectation at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Met,
    Missed,
    /// A required measure is missing.
    Unmeasured,
    /// A required measure is missing, because the run did not request its point.
    LeftOut,
}

/// The verdict on one expectation at one point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) id: String,
    pub(crate) what: String,
    /// Names of the panel and of the x value.
    pub(crate) at: String,
    /// The figure, or the ratio of the figure to the divisor that the expectation names.
    pub(crate) value: Option<f64>,
    /// Text of the expected band.
    pub(crate) band: String,
    pub(crate) outcome: Outcome,
    pub(crate) control: bool,
    pub(crate) source: String,
}

/// The run to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) form: Form,
    /// All points of the form.
    pub(crate) points: &'a [Planned],
    /// The selection of requested points.
    pub(crate) only: &'a Only,
}

/// Judges all expectations of a form.
pub(crate) fn judge(run: &Judged<'_>, results: &Results) -> Vec<Verdict> {
    let expectations = run.manifest.expectations.iter().filter(|it| it.applies(run.form));
    expectations.flat_map(|expectation| run.verdicts(expectation, results)).collect()
}

impl Judged<'_> {
    fn verdicts(&self, expectation: &Expectation, results: &Results) -> Vec<Verdict> {
        let points = self.points(expectation);
        if points.is_empty() {
            let band = band(expectation, String::new());
            return vec![verdict_on(expectation, "nowhere".to_owned(), None, band, Outcome::Unmeasured)];
        }
        points.iter().map(|point| self.verdict(expectation, point, results)).collect()
    }

    /// Returns the points at which an expectation applies. If the expectation names x values, it applies at
    /// these values. Otherwise, it applies at all planned points of its series.
    pub(crate) fn points(&self, expectation: &Expectation) -> Vec<Point> {
        let is_panels = |name: &str| expectation.panel.as_deref().is_none_or(|panel| panel == name);
        let planned = self.points.iter().map(|planned| &planned.point);
        let planned: Vec<&Point> =
            planned.filter(|it| it.series == expectation.series && is_panels(&it.panel)).collect();
        if expectation.x.is_empty() {
            return planned.into_iter().cloned().collect();
        }
        let mut panels: Vec<&str> = planned.iter().map(|point| &*point.panel).collect();
        panels.extend(expectation.panel.as_deref());
        panels.sort_unstable();
        panels.dedup();
        let at = |panel| expectation.x.iter().map(move |&x| Point::new(panel, &expectation.series, x));
        panels.into_iter().flat_map(at).collect()
    }

    fn verdict(&self, expectation: &Expectation, point: &Point, results: &Results) -> Verdict {
        let panel = &point.panel;
        let x_name =
            |panel: &str, x: f64| self.manifest.panel(panel).map_or(x.to_string(), |panel| panel.x_name(x));
        let other = expectation.against.as_ref().map_or_else(String::new, |against| match against.x {
            Some(x) => format!("{}, {}", against.series, x_name(panel, x)),
            None => against.series.clone(),
        });
        let at = format!("{panel}, {}", x_name(panel, point.x));
        let needed = expectation.needs(point);
        let is_wanted = needed.iter().all(|(point, _)| self.only.wants(point));
        let unmeasured = if is_wanted { Outcome::Unmeasured } else { Outcome::LeftOut };
        let band = band(expectation, other);
        verdict_on(expectation, at, value(expectation, point, results), band, unmeasured)
    }
}

fn value(expectation: &Expectation, point: &Point, results: &Results) -> Option<f64> {
    let figures: Option<Vec<f64>> = expectation
        .needs(point)
        .iter()
        .zip(expectation.statistics())
        .map(|((point, measure), statistic)| Some(results.figure(point, measure, statistic)?.value))
        .collect();
    match figures?[..] {
        [figure, other] => Some(figure / other),
        [figure] => Some(figure),
        _ => None,
    }
}

fn verdict_on(
    expectation: &Expectation,
    at: String,
    value: Option<f64>,
    band: String,
    unmeasured: Outcome,
) -> Verdict {
    let is_in_band = |value: f64| {
        expectation.at_most.is_none_or(|most| value <= most)
            && expectation.at_least.is_none_or(|least| value >= least)
    };
    Verdict {
        id: expectation.id.clone(),
        what: expectation.what.clone(),
        at,
        value,
        band,
        outcome: match value {
            None => unmeasured,
            Some(value) if is_in_band(value) => Outcome::Met,
            Some(_) => Outcome::Missed,
        },
        control: expectation.control,
        source: expectation.source.clone(),
    }
}

/// Formats a band, such as "<= 0.7 x TCP CUBIC". `other` names the divisor of a ratio, or is empty.
fn band(expectation: &Expectation, other: String) -> String {
    let bounds = [(">=", expectation.at_least), ("<=", expectation.at_most)];
    let bounds: Vec<String> =
        bounds.iter().filter_map(|(sign, bound)| bound.map(|bound| format!("{sign} {bound}"))).collect();
    let times = if other.is_empty() { other } else { format!(" x {other}") };
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

    fn outcomes(expectation: &Expectation, only: &[&str]) -> Vec<(Option<f64>, Outcome)> {
        let manifest = Manifest::read(include_str!("../experiments/handshake.toml")).unwrap();
        let results = Results(vec![
            done("p", "ours", 3.0, 0, 6.0),
            done("p", "ours", 10.0, 0, 8.0),
            done("p", "tcp", 3.0, 0, 10.0),
            done("p", "tcp", 10.0, 0, 10.0),
        ]);
        let planned = |x| Planned {
            point: Point::new("p", &expectation.series, x),
            repetitions: 1,
            seconds: 1.0,
            measures: vec!["seconds"],
        };
        let (points, only) = ([planned(3.0), planned(10.0)], Only::of(only));
        let run = Judged { manifest: &manifest, form: Form::Full, points: &points, only: &only };
        let verdicts = run.verdicts(expectation, &results).into_iter();
        verdicts.map(|verdict| (verdict.value, verdict.outcome)).collect()
    }

    #[test]
    fn a_ratio_is_judged_at_each_x_that_is_planned() {
        assert_eq!(band(&expectation("ours", None), "tcp, none".to_owned()), "<= 0.7 x tcp, none");
        let ratios = outcomes(&expectation("ours", Some("tcp")), &[]);
        assert_eq!(ratios, [(Some(0.6), Outcome::Met), (Some(0.8), Outcome::Missed)]);
    }

    #[test]
    fn an_unmeasured_expectation_is_neither_met_nor_missed() {
        assert_eq!(outcomes(&expectation("theirs", None), &[]), [(None, Outcome::Unmeasured); 2]);
        assert_eq!(outcomes(&expectation("ours", Some("theirs")), &[]), [(None, Outcome::Unmeasured); 2]);
    }

    #[test]
    fn an_unrequested_series_is_left_out_unless_it_was_measured_before() {
        let theirs = outcomes(&expectation("theirs", None), &["theirs/10"]);
        assert_eq!(theirs, [(None, Outcome::LeftOut), (None, Outcome::Unmeasured)]);
        let against = outcomes(&expectation("ours", Some("theirs")), &["ours"]);
        assert_eq!(against, [(None, Outcome::LeftOut); 2]);
        assert_eq!(outcomes(&expectation("ours", None), &["theirs"])[0].1, Outcome::Missed);
    }
}

//! The list of experiments. A new experiment needs a manifest, a runner, and a line in [`ENTRIES`].

mod cmt;
mod drt;
mod exchange;
mod failover;
mod guests;
mod handshake;
mod icecast;
mod sba;
mod shim_loss;
mod shim_overhead;
mod sip;
mod streams;
mod transport_throughput;
mod virtual_daemon;

use crate::experiment::Experiment;
use crate::manifest::{Form, Manifest};
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

/// Function that constructs a runner from a manifest's parameters.
type Make = fn(toml::Table) -> Result<Box<dyn Experiment>>;

/// Manifest of each experiment, and constructor of its runner.
const ENTRIES: &[(&str, Make)] = &[
    (include_str!("../experiments/cmt.toml"), made::<cmt::Cmt>),
    (include_str!("../experiments/drt.toml"), made::<drt::Drt>),
    (include_str!("../experiments/failover.toml"), made::<failover::Failover>),
    (include_str!("../experiments/handshake.toml"), made::<handshake::Handshake>),
    (include_str!("../experiments/icecast.toml"), made::<icecast::IcecastStream>),
    (include_str!("../experiments/sba-bandwidth.toml"), made::<sba::bandwidth::Bandwidth>),
    (include_str!("../experiments/sba-completion.toml"), made::<sba::completion::Completion>),
    (include_str!("../experiments/sba-cost.toml"), made::<sba::cost::Cost>),
    (include_str!("../experiments/sba-lies.toml"), made::<sba::lies::Lies>),
    (include_str!("../experiments/sba-messages.toml"), made::<sba::messages::Messages>),
    (include_str!("../experiments/sba-occupancy.toml"), made::<sba::occupancy::Occupancy>),
    (include_str!("../experiments/sba-router.toml"), made::<sba::real::Router>),
    (include_str!("../experiments/shim-loss.toml"), made::<shim_loss::ShimLoss>),
    (include_str!("../experiments/shim-overhead.toml"), made::<shim_overhead::ShimOverhead>),
    (include_str!("../experiments/sip-balance.toml"), made::<sip::balance::Balance>),
    (include_str!("../experiments/sip-failover.toml"), made::<sip::failover::Failover>),
    (include_str!("../experiments/sip-hol.toml"), made::<sip::hol::Hol>),
    (include_str!("../experiments/sip-latency.toml"), made::<sip::latency::Latency>),
    (include_str!("../experiments/sip-load.toml"), made::<sip::load::Load>),
    (include_str!("../experiments/sip-loss.toml"), made::<sip::loss::Loss>),
    (include_str!("../experiments/streams.toml"), made::<streams::Streams>),
    (
        include_str!("../experiments/transport-throughput.toml"),
        made::<transport_throughput::TransportThroughput>,
    ),
];

/// An experiment with its parsed manifest.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) manifest: Manifest,
    /// The manifest's source text.
    pub(crate) text: &'static str,
    make: Make,
}

impl Entry {
    /// Constructs the experiment's runner for `form`.
    ///
    /// # Errors
    /// Fails if the runner cannot parse the parameters.
    pub(crate) fn runner(&self, form: Form) -> Result<Box<dyn Experiment>> {
        let made = (self.make)(self.manifest.parameters(form));
        made.with_context(|| format!("{}: parameters of the {form} form", self.manifest.id))
    }
}

fn made<E: Experiment + DeserializeOwned + 'static>(parameters: toml::Table) -> Result<Box<dyn Experiment>> {
    Ok(Box::new(parameters.try_into::<E>()?))
}

/// Returns all experiments.
///
/// # Errors
/// Fails if a manifest is invalid.
pub(crate) fn all() -> Result<Vec<Entry>> {
    let entries = ENTRIES.iter();
    entries.map(|&(text, make)| Ok(Entry { manifest: Manifest::read(text)?, text, make })).collect()
}

/// Returns the experiment with this ID.
///
/// # Errors
/// Fails if no experiment has this ID, or if a manifest is invalid.
pub(crate) fn one(id: &str) -> Result<Entry> {
    let all = all()?;
    let ids: Vec<String> = all.iter().map(|entry| entry.manifest.id.clone()).collect();
    match all.into_iter().find(|entry| entry.manifest.id == id) {
        Some(entry) => Ok(entry),
        None => bail!("unknown experiment {id:?}; available: {}", ids.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Only, Planned, Point};
    use crate::judge::Judged;

    #[test]
    fn each_manifest_is_good_and_its_runner_plans_points_of_its_plots_in_both_forms() {
        for entry in all().unwrap() {
            for form in [Form::Quick, Form::Full] {
                let points = entry.runner(form).unwrap().points();
                assert!(!points.is_empty(), "{} has nothing to measure", entry.manifest.id);
                for planned in points {
                    entry.manifest.panel(&planned.point.panel).unwrap();
                    assert!(planned.repetitions > 0 && planned.seconds > 0.0, "{planned:?}");
                }
            }
        }
    }

    /// Reports whether `points` contains `point` with the measure `measure`.
    fn is_planned(points: &[Planned], point: &Point, measure: &str) -> bool {
        points.iter().any(|it| it.point.key() == point.key() && it.measures.contains(&measure))
    }

    #[test]
    fn runners_plan_every_measure_that_their_manifests_expect_in_each_form() {
        let mut faults = Vec::new();
        for Entry { manifest, .. } in &all().unwrap() {
            for form in [Form::Quick, Form::Full] {
                let points = one(&manifest.id).unwrap().runner(form).unwrap().points();
                let run = Judged { manifest, form, points: &points, only: &Only::default() };
                for expectation in manifest.expectations.iter().filter(|it| it.applies(form)) {
                    let at = run.points(expectation);
                    let needed = at.iter().flat_map(|point| expectation.needs(point));
                    let stray = needed.into_iter().filter(|(point, name)| !is_planned(&points, point, name));
                    let name = format!("{}, {form}: {}", manifest.id, expectation.id);
                    faults.extend(
                        stray.map(|(point, measure)| format!("{name}: {measure} of {}", point.key())),
                    );
                    faults.extend(at.is_empty().then(|| format!("{name}: nowhere")));
                }
            }
        }
        assert!(faults.is_empty(), "not planned:\n{}", faults.join("\n"));
    }

    #[test]
    fn daemon_settings_in_manifests_are_valid_explained_and_for_planned_series() {
        for entry in all().unwrap() {
            for form in [Form::Quick, Form::Full] {
                let Some(settings) = entry.manifest.daemon(form).unwrap() else { continue };
                let full = entry.runner(Form::Full).unwrap().points();
                let series: Vec<&str> = full.iter().map(|planned| &*planned.point.series).collect();
                for changed in settings.changed().unwrap() {
                    let is_there = changed.series.as_deref().is_none_or(|name| series.contains(&name));
                    assert!(is_there, "{}: {changed:?}", entry.manifest.id);
                }
            }
        }
    }

    #[test]
    fn each_plot_shows_a_measure_that_its_points_have() {
        for entry in all().unwrap() {
            let forms = [Form::Quick, Form::Full];
            let points: Vec<Planned> =
                forms.into_iter().flat_map(|form| entry.runner(form).unwrap().points()).collect();
            for panel in &entry.manifest.panels {
                let Some(measure) = panel.measure.as_deref() else {
                    let published = entry.manifest.published.iter();
                    let mut published = published.filter(|published| published.panel == panel.id);
                    assert!(published.next().is_some(), "{}: panel {:?}", entry.manifest.id, panel.id);
                    continue;
                };
                let shown = |it: &&Planned| it.point.panel == panel.of() && it.measures.contains(&measure);
                let shown: Vec<&str> = points.iter().filter(shown).map(|it| &*it.point.series).collect();
                let mut wanted = panel.ratio_to.iter();
                let has_all = !shown.is_empty() && wanted.all(|series| shown.contains(&series.as_str()));
                assert!(has_all, "{}: nothing in panel {:?}", entry.manifest.id, panel.id);
            }
        }
    }

    #[test]
    fn the_error_for_an_unknown_experiment_lists_the_known_experiments() {
        let error = one("hand-shake").unwrap_err().to_string();
        assert!(error.contains("handshake"), "{error}");
    }
}

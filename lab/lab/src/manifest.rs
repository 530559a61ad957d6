//! The manifest of an experiment, in TOML.
//!
//! A manifest has the experiment's claims, purpose, sources, parameters and plots, the papers' figures, and
//! the expected bands. [`Manifest::read`] rejects unknown keys, and references to missing items. Each
//! runner parses the parameters of its experiment.

mod claim;
mod published;

pub(crate) use claim::{Claim, Piece};
pub(crate) use published::{Origin, Published};

use crate::experiment::Point;
use crate::settings::DaemonSettings;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The extent of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// Enough cells to check that everything works.
    Quick,
    /// As many cells as in the paper.
    Full,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quick => "quick",
            Self::Full => "full",
        })
    }
}

/// The content of a manifest file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) id: String,
    pub(crate) title: String,
    /// Name of the experiment's page in `docs/results`, without `.md`.
    page: String,
    pub(crate) question: String,
    pub(crate) topology: String,
    pub(crate) source: Source,
    /// True if no other cell may run at the same time.
    #[serde(default)]
    pub(crate) alone: bool,
    pub(crate) seed: u64,
    /// Third-party programs that the experiment needs.
    #[serde(default)]
    programs: Vec<String>,
    #[serde(default)]
    parameters: toml::Table,
    #[serde(default)]
    quick: Overlay,
    #[serde(default)]
    full: Overlay,
    /// Claims of papers or of this project, with the expectations that decide each of them.
    #[serde(default, rename = "claim")]
    pub(crate) claims: Vec<Claim>,
    #[serde(default, rename = "panel")]
    pub(crate) panels: Vec<Panel>,
    #[serde(default)]
    pub(crate) published: Vec<Published>,
    #[serde(default, rename = "expect")]
    pub(crate) expectations: Vec<Expectation>,
}

/// The publication that describes the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) document: String,
    /// Sections, figures and tables of the document.
    #[serde(default)]
    pub(crate) part: Option<String>,
}

/// Parameters of one form, which override the common parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overlay {
    #[serde(default)]
    parameters: toml::Table,
}

/// A plot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Panel {
    pub(crate) id: String,
    /// ID of another panel. If present, the plot shows the points of that panel, with the measure of this
    /// panel.
    #[serde(default)]
    of: Option<String>,
    pub(crate) title: String,
    /// The measure on the y axis. If absent, the plot shows only published values.
    #[serde(default)]
    pub(crate) measure: Option<String>,
    /// Name of the series that is the divisor: the figures of all other series are divided by the figure of
    /// this series at the same x.
    #[serde(default)]
    pub(crate) ratio_to: Option<String>,
    /// Ends of the y axis. If absent, the values determine the ends.
    #[serde(default)]
    pub(crate) y_range: Option<[f64; 2]>,
    #[serde(default)]
    pub(crate) statistic: Statistic,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    #[serde(default)]
    pub(crate) x_log: bool,
    #[serde(default)]
    pub(crate) y_log: bool,
    /// Names of the x values 0, 1, and so on. A plot has bars if the x values have names, and lines
    /// otherwise.
    #[serde(default)]
    pub(crate) categories: Vec<String>,
}

/// The statistic that summarizes a point's measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Statistic {
    #[default]
    Mean,
    Median,
    P95,
    Max,
    Min,
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::P95 => "p95",
            Self::Max => "max",
            Self::Min => "min",
        })
    }
}

/// The expected band of a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    pub(crate) id: String,
    pub(crate) what: String,
    /// The panel of the expectation. If absent, the expectation applies to all panels.
    #[serde(default)]
    pub(crate) panel: Option<String>,
    pub(crate) series: String,
    /// The x values of the expectation. If empty, the expectation applies to each planned x.
    #[serde(default)]
    pub(crate) x: Vec<f64>,
    pub(crate) measure: String,
    #[serde(default)]
    pub(crate) statistic: Statistic,
    /// The divisor of the figure. If absent, the band applies to the figure itself.
    #[serde(default)]
    pub(crate) against: Option<Against>,
    #[serde(default)]
    pub(crate) at_most: Option<f64>,
    #[serde(default)]
    pub(crate) at_least: Option<f64>,
    pub(crate) source: String,
    /// True for a control. A control that fails shows that the measurement itself is wrong.
    #[serde(default)]
    pub(crate) control: bool,
    /// The forms in which the expectation is judged. An empty list selects both forms.
    #[serde(default)]
    pub(crate) forms: Vec<Form>,
}

/// The divisor of an expectation's figure. Absent fields have the values of the expectation's fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Against {
    #[serde(default)]
    pub(crate) panel: Option<String>,
    pub(crate) series: String,
    #[serde(default)]
    pub(crate) x: Option<f64>,
    #[serde(default)]
    pub(crate) measure: Option<String>,
    #[serde(default)]
    pub(crate) statistic: Option<Statistic>,
}

impl Expectation {
    /// Reports whether the expectation is judged in a form.
    pub(crate) fn applies(&self, form: Form) -> bool {
        self.forms.is_empty() || self.forms.contains(&form)
    }

    /// Returns the point and the measure that the expectation needs at `at`. A ratio also needs the point
    /// and the measure of its divisor.
    pub(crate) fn needs(&self, at: &Point) -> Vec<(Point, &str)> {
        let mut needed = vec![(at.clone(), &*self.measure)];
        if let Some(against) = &self.against {
            let panel = against.panel.as_deref().unwrap_or(&at.panel);
            let point = Point::new(panel, &against.series, against.x.unwrap_or(at.x));
            needed.push((point, against.measure.as_deref().unwrap_or(&self.measure)));
        }
        needed
    }

    /// Returns the statistic for each pair in [`Expectation::needs`].
    pub(crate) fn statistics(&self) -> impl Iterator<Item = Statistic> {
        let of_other = self.against.as_ref().map(|against| against.statistic.unwrap_or(self.statistic));
        std::iter::once(self.statistic).chain(of_other)
    }
}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// Fails if a key is unknown, invalid or missing, or if a name refers to nothing.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let manifest: Self = toml::from_str(text)?;
        let id = &manifest.id;
        let is_panel = |name: &str| manifest.panels.iter().any(|panel| panel.id == name);
        for panel in &manifest.panels {
            ensure!(
                is_panel(panel.of()),
                "{id}: panel {:?} shows points of none: {:?}",
                panel.id,
                panel.of()
            );
        }
        for published in &manifest.published {
            let panel = manifest.panel(&published.panel)?;
            published.check(panel.categories.len()).context(id.clone())?;
        }
        for expectation in &manifest.expectations {
            let name = format!("{id}: expectation {}", expectation.id);
            let panels = [
                expectation.panel.as_deref(),
                expectation.against.as_ref().and_then(|against| against.panel.as_deref()),
            ];
            for panel in panels.into_iter().flatten() {
                ensure!(is_panel(panel), "{name}: unknown panel {panel:?}");
            }
            ensure!(expectation.at_most.is_some() || expectation.at_least.is_some(), "{name} has no bound");
        }
        ensure!(manifest.expectations.iter().any(|it| it.control), "{id} has no negative control");
        let count = |name: &str| manifest.expectations.iter().filter(|it| it.id == name).count();
        for expectation in &manifest.expectations {
            ensure!(count(&expectation.id) == 1, "{id}: two expectations are called {}", expectation.id);
        }
        ensure!(!manifest.claims.is_empty(), "{id} answers no claim");
        for claim in &manifest.claims {
            ensure!(!claim.judged_by.is_empty(), "{id}: nothing decides about {:?}", claim.claim);
            for name in claim.named() {
                ensure!(count(name) == 1, "{id}: {:?} names no expectation: {name}", claim.claim);
            }
        }
        Ok(manifest)
    }

    /// Returns the runner's parameters in a form.
    pub(crate) fn parameters(&self, form: Form) -> toml::Table {
        let overlay = match form {
            Form::Quick => &self.quick,
            Form::Full => &self.full,
        };
        let mut all = self.parameters.clone();
        all.extend(overlay.parameters.clone());
        all
    }

    /// Returns the path of the page in `docs/results` that shows the experiment's figures.
    pub(crate) fn page(&self) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(""));
        root.join("docs/results").join(format!("{}.md", self.page))
    }

    /// Returns the daemons' settings in a form, or `None` if the experiment has no daemons.
    ///
    /// # Errors
    /// Fails if the settings are invalid.
    pub(crate) fn daemon(&self, form: Form) -> Result<Option<DaemonSettings>> {
        DaemonSettings::of(&self.parameters(form)).with_context(|| self.id.clone())
    }

    /// Returns the first needed program that this host lacks.
    pub(crate) fn missing(&self) -> Option<&str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_here = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
        self.programs.iter().map(String::as_str).find(|name| !is_here(name))
    }

    /// Returns the plot with this ID.
    ///
    /// # Errors
    /// Fails if the manifest has no such plot.
    pub(crate) fn panel(&self, id: &str) -> Result<&Panel> {
        let found = self.panels.iter().find(|panel| panel.id == id);
        found.with_context(|| format!("{} has no panel {id:?}", self.id))
    }
}

impl Panel {
    /// Returns the ID of the panel whose points the plot shows.
    pub(crate) fn of(&self) -> &str {
        self.of.as_deref().unwrap_or(&self.id)
    }

    /// Returns the label of an x value.
    pub(crate) fn x_name(&self, x: f64) -> String {
        let category = (x >= 0.0 && x.fract() == 0.0).then(|| self.categories.get(x as usize)).flatten();
        category.cloned().unwrap_or_else(|| x.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        id = "x"
        title = "t"
        page = "p"
        question = "q"
        topology = "w"
        source = { document = "d" }
        seed = 1
        parameters = { repetitions = 30, size = 1 }
        quick.parameters = { repetitions = 1 }
        claim = [{ claim = "c", by = "b", answer = "{e}", judged_by = ["e"] }]
        [[panel]]
        id = "p"
        title = "t"
        measure = "seconds"
        x_label = "x"
        y_label = "y"
        [[expect]]
        id = "e"
        what = "w"
        panel = "p"
        series = "s"
        measure = "seconds"
        at_most = 1
        source = "s"
        control = true
    "#;

    #[test]
    fn a_form_lays_its_parameters_over_the_common_ones() {
        let manifest = Manifest::read(GOOD).unwrap();
        let of = |form, key: &str| manifest.parameters(form)[key].as_integer();
        assert_eq!((of(Form::Quick, "repetitions"), of(Form::Quick, "size")), (Some(1), Some(1)));
        assert_eq!(of(Form::Full, "repetitions"), Some(30));
    }

    #[test]
    fn names_that_lead_nowhere_bands_without_bounds_and_experiments_without_control_are_refused() {
        let faults = [
            ("panel = \"p\"", "panel = \"q\"", "unknown panel \"q\""),
            (
                "measure = \"seconds\"\n        x_label",
                "of = \"q\"\nmeasure = \"s\"\nx_label",
                "points of none: \"q\"",
            ),
            ("at_most = 1", "", "has no bound"),
            ("control = true", "", "no negative control"),
            ("answer = \"{e}\"", "answer = \"{f}\"", "names no expectation: f"),
            ("judged_by = [\"e\"]", "judged_by = []", "nothing decides"),
            ("title = \"t\"", "tile = \"t\"", "unknown field `tile`"),
        ];
        for (good, bad, problem) in faults {
            let error = Manifest::read(&GOOD.replace(good, bad)).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}

//! The interface of an experiment: its points, and the measurement of one point.

use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use testbed::pair::Tools;

/// Measured values by name, such as `seconds` or `gap_ms`. The name includes the unit.
pub(crate) type Measures = BTreeMap<String, f64>;

/// One point of a figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    /// The plot that contains the point.
    pub(crate) panel: String,
    /// The curve that contains the point.
    pub(crate) series: String,
    /// Position on the x axis.
    pub(crate) x: f64,
}

impl Point {
    pub(crate) fn new(panel: &str, series: &str, x: f64) -> Self {
        Self { panel: panel.to_owned(), series: series.to_owned(), x }
    }

    /// Formats the point as `panel/series/x`, the form in messages and in `--only`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}/{}", self.panel, self.series, self.x)
    }
}

/// Texts that select points. A point is selected if its [`Point::key`] contains one of the texts. Without
/// texts, all points are selected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Only(Vec<String>);

impl Only {
    pub(crate) fn of<T: AsRef<str>>(texts: &[T]) -> Self {
        Self(texts.iter().map(|text| text.as_ref().to_owned()).collect())
    }

    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn wants(&self, point: &Point) -> bool {
        self.is_all() || self.0.iter().any(|text| point.key().contains(text))
    }
}

/// A point to measure, with the plan of its measurements.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Planned {
    pub(crate) point: Point,
    /// Number of measurements of the point.
    pub(crate) repetitions: u32,
    /// Approximate duration of one measurement, in seconds, for the estimate of the remaining time.
    pub(crate) seconds: f64,
    /// Names of the measures. A cell has no measures with other names. If an application fails, some
    /// measures may be missing.
    pub(crate) measures: Vec<&'static str>,
}

/// One repetition of a point.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) point: Point,
    pub(crate) repetition: u32,
    /// Seed of all randomness in the cell.
    pub(crate) seed: u64,
}

impl Cell {
    /// Creates a cell. Its seed depends on the experiment's seed, the panel, x and the repetition, but not on
    /// the series. All series thus see the same random events.
    pub(crate) fn new(point: &Point, repetition: u32, seed: u64) -> Self {
        let mut hasher = SipHasher13::new_with_keys(seed, 0);
        (&point.panel, point.x.to_bits(), repetition).hash(&mut hasher);
        // Keeps 53 bits, which JSON readers of all languages represent exactly.
        Self { point: point.clone(), repetition, seed: hasher.finish() >> 11 }
    }
}

/// Environment in which experiments run.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The programs under measurement.
    pub(crate) tools: Tools,
}

/// A picture other than a plot, shown with an experiment's plots in the report.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Drawing {
    /// Name of the file, without `.svg`.
    pub(crate) name: String,
    /// The picture as SVG, including its title.
    pub(crate) svg: String,
}

/// The runner of an experiment, deserialized from the manifest's parameters.
pub(crate) trait Experiment: Send + Sync {
    /// Returns all points of the experiment.
    fn points(&self) -> Vec<Planned>;

    /// Measures a point once, on hosts and links that only this measurement uses. If an application fails,
    /// a measure reports the failure. The function returns an error only if it could not measure.
    ///
    /// # Errors
    /// Fails if the hosts cannot be created, or if a program of the measurement itself fails.
    fn measure(&self, environment: &Environment, cell: &Cell) -> anyhow::Result<Measures>;

    /// Draws pictures of the measured subject. The caller calls this function once, after all cells.
    ///
    /// # Errors
    /// Fails under the same conditions as [`Experiment::measure`].
    fn drawings(&self, _environment: &Environment) -> anyhow::Result<Vec<Drawing>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_at_the_same_x_share_a_seed_and_repetitions_have_different_seeds() {
        let of = |series, x, repetition| Cell::new(&Point::new("p", series, x), repetition, 1).seed;
        assert_eq!(of("a", 1.0, 0), of("b", 1.0, 0));
        assert_ne!(of("a", 1.0, 0), of("a", 1.0, 1));
        assert_ne!(of("a", 1.0, 0), of("a", 2.0, 0));
    }
}

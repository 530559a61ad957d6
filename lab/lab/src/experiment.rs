//! An experiment as the lab sees it: points to measure, and a way to measure each of them once.

use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use testbed::pair::Tools;

/// The measured values by name: `seconds`, `gap_ms`. The name includes the unit.
pub(crate) type Measures = BTreeMap<String, f64>;

/// One point of a figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    /// The plot that contains it.
    pub(crate) panel: String,
    /// The curve that contains it.
    pub(crate) series: String,
    /// Position on the x axis.
    pub(crate) x: f64,
}

impl Point {
    pub(crate) fn new(panel: &str, series: &str, x: f64) -> Self {
        Self { panel: panel.to_owned(), series: series.to_owned(), x }
    }

    /// Formats it as `panel/series/x`, the form in messages and in `--only`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}/{}", self.panel, self.series, self.x)
    }
}

/// The selected points: those whose [`Point::key`] contains one of these texts, or all if the list is empty.
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

/// A point to measure, with its cost.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Planned {
    pub(crate) point: Point,
    /// Number of measurements.
    pub(crate) repetitions: u32,
    /// Approximate duration of one measurement, in seconds, for the estimate of the remaining time.
    pub(crate) seconds: f64,
    /// Names of the measures. A cell may lack one at which an application failed, but has no others.
    pub(crate) measures: Vec<&'static str>,
}

/// One repetition of a point.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) point: Point,
    pub(crate) repetition: u32,
    /// Seeds all randomness in the cell.
    pub(crate) seed: u64,
}

impl Cell {
    /// The seed depends on the experiment's seed, the panel, x and the repetition, but not on the series: all
    /// series see the same random events.
    pub(crate) fn new(point: &Point, repetition: u32, seed: u64) -> Self {
        let mut hasher = SipHasher13::new_with_keys(seed, 0);
        (&point.panel, point.x.to_bits(), repetition).hash(&mut hasher);
        // 53 bits, which JSON readers of all languages represent exactly.
        Self { point: point.clone(), repetition, seed: hasher.finish() >> 11 }
    }
}

/// The environment of a runner.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The programs under measurement.
    pub(crate) tools: Tools,
}

/// A picture other than a plot, shown with an experiment's plots in the report.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Drawing {
    /// Its file's name, without `.svg`.
    pub(crate) name: String,
    /// The picture, with its title.
    pub(crate) svg: String,
}

/// A runner, constructed from its manifest's parameters.
pub(crate) trait Experiment: Send + Sync {
    /// All points.
    fn points(&self) -> Vec<Planned>;

    /// Measures a point once, in its own world. A failed application is a measure; an error means that nothing
    /// could be measured.
    ///
    /// # Errors
    /// When the world cannot be made, or a program of the measurement itself fails.
    fn measure(&self, environment: &Environment, cell: &Cell) -> anyhow::Result<Measures>;

    /// Draws pictures of the measured subject, once, after all cells.
    ///
    /// # Errors
    /// As [`Experiment::measure`].
    fn drawings(&self, _environment: &Environment) -> anyhow::Result<Vec<Drawing>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_point_share_its_chance_and_repetitions_do_not() {
        let of = |series, x, repetition| Cell::new(&Point::new("p", series, x), repetition, 1).seed;
        assert_eq!(of("a", 1.0, 0), of("b", 1.0, 0));
        assert_ne!(of("a", 1.0, 0), of("a", 1.0, 1));
        assert_ne!(of("a", 1.0, 0), of("a", 2.0, 0));
    }
}

//! What an experiment is to the lab: points to measure, and a way to measure one of them once.

use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use testbed::pair::Tools;

/// What was measured, by name: `seconds`, `gap_ms`. The unit is part of the name.
pub(crate) type Measures = BTreeMap<String, f64>;

/// One point of a figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    /// The plot it is in.
    pub(crate) panel: String,
    /// The curve it is on.
    pub(crate) series: String,
    /// Where on the x axis.
    pub(crate) x: f64,
}

impl Point {
    pub(crate) fn new(panel: &str, series: &str, x: f64) -> Self {
        Self { panel: panel.to_owned(), series: series.to_owned(), x }
    }

    /// `panel/series/x`, as messages and `--only` name it.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}/{}", self.panel, self.series, self.x)
    }
}

/// Which points a run is asked for: those whose [`Point::key`] has one of these texts in it, or all if there is none.
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

/// A point to be measured, and what that takes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Planned {
    pub(crate) point: Point,
    /// How often.
    pub(crate) repetitions: u32,
    /// How long once takes, about, for the time left that is shown.
    pub(crate) seconds: f64,
    /// Names of what is measured there. One that an application failed at may be missing from a cell; there is no other.
    pub(crate) measures: Vec<&'static str>,
}

/// A point, once.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) point: Point,
    pub(crate) repetition: u32,
    /// Of all chance in it.
    pub(crate) seed: u64,
}

impl Cell {
    /// The seed comes of the experiment's, the panel, x and the repetition, not of the series: all series meet the same chance.
    pub(crate) fn new(point: &Point, repetition: u32, seed: u64) -> Self {
        let mut hasher = SipHasher13::new_with_keys(seed, 0);
        (&point.panel, point.x.to_bits(), repetition).hash(&mut hasher);
        // 53 bits, so that JSON readers of all languages keep it whole.
        Self { point: point.clone(), repetition, seed: hasher.finish() >> 11 }
    }
}

/// What a runner works with.
#[derive(Debug)]
pub(crate) struct Place {
    /// The programs under measurement.
    pub(crate) tools: Tools,
}

/// A picture that is no plot, beside an experiment's plots in the report.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Drawing {
    /// Its file's name, without `.svg`.
    pub(crate) name: String,
    /// The picture, with its title.
    pub(crate) svg: String,
}

/// A runner: it is made of the parameters of its manifest.
pub(crate) trait Experiment: Send + Sync {
    /// All points.
    fn points(&self) -> Vec<Planned>;

    /// Measures a point once, in a world of its own. That an application failed is a measure; an error means that nothing could be
    /// measured.
    ///
    /// # Errors
    /// When the world cannot be made, or a program of the measurement itself fails.
    fn measure(&self, place: &Place, cell: &Cell) -> anyhow::Result<Measures>;

    /// Pictures of what is measured, made once after all cells.
    ///
    /// # Errors
    /// As [`Experiment::measure`].
    fn drawings(&self, _place: &Place) -> anyhow::Result<Vec<Drawing>> {
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

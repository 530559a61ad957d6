//! The measured cells, and the figures of each point.

use crate::experiment::{Cell, Measures, Planned, Point};
use crate::manifest::{Manifest, Panel, Statistic};
use crate::statistics::{Figure, Sample};
use serde::{Deserialize, Serialize};

/// A measured cell, which is a line of the results file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) panel: String,
    pub(crate) series: String,
    pub(crate) x: f64,
    pub(crate) repetition: u32,
    pub(crate) seed: u64,
    /// Duration of the measurement, in seconds.
    pub(crate) took_s: f64,
    /// Number of repeats of the cell. A repeat follows if a connection that should use SCTP falls back to
    /// plain TCP.
    #[serde(default)]
    pub(crate) fallbacks: u32,
    pub(crate) measures: Measures,
}

impl Done {
    pub(crate) fn point(&self) -> Point {
        Point::new(&self.panel, &self.series, self.x)
    }

    /// Reports whether this is the result of `cell`. The x values are compared as text.
    pub(crate) fn is(&self, cell: &Cell) -> bool {
        self.repetition == cell.repetition && self.point().key() == cell.point.key()
    }
}

/// The figure of a point, with the number of measurements.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) panel: String,
    pub(crate) series: String,
    pub(crate) x: f64,
    pub(crate) x_name: String,
    pub(crate) measurements: usize,
    #[serde(flatten)]
    pub(crate) figure: Figure,
}

/// All measured cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results(pub(crate) Vec<Done>);

impl Results {
    /// Sorts the cells into the order of the plan, because concurrent cells end in any order.
    pub(crate) fn ordered_as(mut self, plan: &[Planned]) -> Self {
        let position = |done: &Done| plan.iter().position(|planned| planned.point == done.point());
        self.0.sort_by_cached_key(|done| (position(done).unwrap_or(usize::MAX), done.repetition));
        self
    }

    /// Returns the measurements of a point, or `None` if it has none.
    pub(crate) fn sample(&self, point: &Point, measure: &str) -> Option<Sample> {
        let done = self.0.iter().filter(|done| done.point() == *point);
        Sample::new(done.filter_map(|done| done.measures.get(measure).copied()))
    }

    /// Returns one statistic of a point's measurements.
    pub(crate) fn figure(&self, point: &Point, measure: &str, statistic: Statistic) -> Option<Figure> {
        self.sample(point, measure).map(|sample| sample.figure(statistic))
    }

    /// Returns the value that a plot shows for a series at x. The value is the series' figure. In a panel
    /// with a divisor, the value is the ratio of this figure to the divisor's figure, without an interval.
    pub(crate) fn shown(&self, panel: &Panel, series: &str, x: f64) -> Option<Figure> {
        let measure = panel.measure.as_deref()?;
        let figure = |series: &str| self.figure(&Point::new(panel.of(), series, x), measure, panel.statistic);
        let Some(other) = &panel.ratio_to else { return figure(series) };
        let value = figure(series)?.value / figure(other)?.value;
        (series != other).then_some(Figure { value, interval: None })
    }

    /// Returns the series of a panel, in the order of their first cells.
    pub(crate) fn series(&self, panel: &str) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for done in self.0.iter().filter(|done| done.panel == panel) {
            if !names.contains(&done.series.as_str()) {
                names.push(&done.series);
            }
        }
        names
    }

    /// Returns the measured x values of a series, in ascending order.
    pub(crate) fn xs(&self, panel: &str, series: &str) -> Vec<f64> {
        let of_it = self.0.iter().filter(|done| done.panel == panel && done.series == series);
        let mut xs: Vec<f64> = of_it.map(|done| done.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// Returns the figures of all plots.
    pub(crate) fn rows(&self, manifest: &Manifest) -> Vec<Row> {
        manifest.panels.iter().flat_map(|panel| self.rows_of(panel)).collect()
    }

    /// Returns the figures of a plot.
    pub(crate) fn rows_of(&self, panel: &Panel) -> Vec<Row> {
        let mut rows = Vec::new();
        for series in self.series(panel.of()) {
            for x in self.xs(panel.of(), series) {
                let point = Point::new(panel.of(), series, x);
                let Some(figure) = self.shown(panel, series, x) else { continue };
                let sample = panel.measure.as_deref().and_then(|measure| self.sample(&point, measure));
                rows.push(Row {
                    panel: panel.id.clone(),
                    series: series.to_owned(),
                    x,
                    x_name: panel.x_name(x),
                    measurements: sample.map_or(0, |sample| sample.len()),
                    figure,
                });
            }
        }
        rows
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a cell with the single measure `seconds`.
    pub(crate) fn done(panel: &str, series: &str, x: f64, repetition: u32, seconds: f64) -> Done {
        let measures = Measures::from([("seconds".to_owned(), seconds)]);
        let (panel, series) = (panel.into(), series.into());
        Done { panel, series, x, repetition, seed: 0, took_s: 0.0, fallbacks: 0, measures }
    }

    #[test]
    fn a_points_sample_is_of_that_point_alone() {
        let results = Results(vec![
            done("p", "a", 1.0, 0, 3.0),
            done("p", "a", 1.0, 1, 5.0),
            done("p", "b", 1.0, 0, 9.0),
        ]);
        let of = |series, measure| {
            results.figure(&Point::new("p", series, 1.0), measure, Statistic::Mean).map(|figure| figure.value)
        };
        assert_eq!((of("a", "seconds"), of("b", "seconds")), (Some(4.0), Some(9.0)));
        assert_eq!((of("c", "seconds"), of("a", "gap_ms")), (None, None));
        assert_eq!(results.series("p"), ["a", "b"]);
    }

    #[test]
    fn a_panel_that_reuses_the_points_of_another_panel_shows_its_own_measure() {
        const MANIFEST: &str = r#"
            id = "x"
            title = "t"
            page = "p"
            question = "q"
            topology = "w"
            source = { document = "d" }
            seed = 1
            claim = [{ claim = "c", by = "b", answer = "a", judged_by = ["e"] }]
            expect = [{ id = "e", what = "w", series = "s", measure = "m", at_most = 1, source = "s", control = true }]
            [[panel]]
            id = "times"
            of = "points"
            title = "t"
            measure = "seconds"
            x_label = "x"
            y_label = "y"
            [[panel]]
            id = "points"
            title = "t"
            measure = "bytes"
            x_label = "x"
            y_label = "y"
        "#;
        let rows = Results(vec![done("points", "a", 1.0, 0, 3.0)]).rows(&Manifest::read(MANIFEST).unwrap());
        let rows: Vec<_> = rows.iter().map(|row| (row.panel.as_str(), row.figure.value)).collect();
        assert_eq!(rows, [("times", 3.0)]);
    }
}

//! Values from other sources, which a plot shows next to our measured values. Each series of values has a
//! source and an origin.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Files of published samples: name in manifests, and content.
const FILES: &[(&str, &str)] =
    &[("sba-occupancy.csv", include_str!("../../experiments/data/sba-occupancy.csv"))];

/// The origin of a value from another source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Stated in the document or in its authors' data.
    Published,
    /// Derived from published values by a rule, for example read from an axis.
    Derived,
    /// Predicted by this project.
    Predicted,
}

impl Origin {
    /// Returns the label that follows the name of a series.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Derived => "derived",
            Self::Predicted => "our prediction",
        }
    }
}

/// A series of published or predicted values. It consists of single values, of ranges in which values lie,
/// or of samples from a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    pub(crate) panel: String,
    pub(crate) series: String,
    pub(crate) origin: Origin,
    pub(crate) document: String,
    #[serde(default)]
    pub(crate) figure: Option<String>,
    #[serde(default)]
    pub(crate) page: Option<u32>,
    /// Rule of the derivation, or basis of the prediction. Absent for published values.
    #[serde(default)]
    pub(crate) rule: Option<String>,
    /// Single values: x and y.
    #[serde(default)]
    points: Vec<[f64; 2]>,
    /// Ranges: x, and the smallest and the greatest possible y.
    #[serde(default)]
    pub(crate) ranges: Vec<[f64; 3]>,
    #[serde(default)]
    samples: Option<Samples>,
}

/// The columns of a file that give x and y.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Samples {
    file: String,
    x: String,
    y: String,
}

impl Published {
    /// Checks that all required fields are present, and no others.
    ///
    /// # Errors
    /// Fails in these cases:
    ///
    /// - The series has no values, or values of several kinds.
    /// - Its file is missing or unreadable.
    /// - Its values are published, but it has a rule. Or its values are derived or predicted, but it has no
    ///   rule.
    /// - A range is empty.
    /// - `categories`, the number of the plot's categories, is not 0, and an x is not the index of a
    ///   category.
    pub(super) fn check(&self, categories: usize) -> Result<()> {
        let name = format!("series {:?} of panel {:?}", self.series, self.panel);
        let kinds = [!self.points.is_empty(), !self.ranges.is_empty(), self.samples.is_some()];
        let kinds = kinds.into_iter().filter(|it| *it).count();
        ensure!(kinds == 1, "{name} must have points, ranges or samples, one of them");
        let has_rule = self.rule.is_some();
        ensure!(
            has_rule == (self.origin != Origin::Published),
            "{name} must have a rule exactly if it is derived or predicted"
        );
        ensure!(self.ranges.iter().all(|[_, low, high]| low < high), "{name} has a range without width");
        let points = self.points().with_context(|| name.clone())?;
        let mut xs = points.iter().map(|[x, _]| *x).chain(self.ranges.iter().map(|[x, ..]| *x));
        let is_category =
            |x: f64| categories == 0 || (x.fract() == 0.0 && (0.0..categories as f64).contains(&x));
        ensure!(xs.all(is_category), "{name} has an x that is no category");
        Ok(())
    }

    /// Returns the single values, or the file's samples, as pairs of x and y.
    ///
    /// # Errors
    /// Fails if the file or one of its columns is missing, or if a value is not a number.
    pub(crate) fn points(&self) -> Result<Vec<[f64; 2]>> {
        self.samples.as_ref().map_or_else(|| Ok(self.points.clone()), Samples::read)
    }

    /// Formats the source of the values.
    pub(crate) fn credit(&self) -> String {
        let figure = self.figure.iter().map(|figure| format!(", {figure}"));
        let page = self.page.iter().map(|page| format!(", page {page}"));
        self.document.clone() + &figure.chain(page).collect::<String>()
    }
}

impl Samples {
    fn read(&self) -> Result<Vec<[f64; 2]>> {
        let file = FILES.iter().find(|(name, _)| *name == self.file);
        let (name, text) = file.with_context(|| format!("no file {:?}", self.file))?;
        let mut rows = csv::Reader::from_reader(text.as_bytes());
        let header = rows.headers()?.clone();
        let column = |wanted: &str| {
            let found = header.iter().position(|it| it == wanted);
            found.with_context(|| format!("{name} has no column {wanted:?}"))
        };
        let (x, y) = (column(&self.x)?, column(&self.y)?);
        rows.records()
            .map(|row| {
                let row = row?;
                let number = |at: usize| -> Result<f64> { Ok(row.get(at).unwrap_or_default().parse()?) };
                Ok([number(x)?, number(y)?])
            })
            .collect::<Result<_>>()
            .with_context(|| format!("{name} cannot be read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(rest: &str) -> Published {
        let text = format!("panel = \"p\"\nseries = \"s\"\ndocument = \"d\"\n{rest}");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_series_has_values_of_one_kind_and_says_how_they_came_about_unless_they_are_published() {
        let good = [
            "origin = \"published\"\npoints = [[1, 2]]",
            "origin = \"derived\"\nrule = \"r\"\nranges = [[1, 2, 3]]",
            "origin = \"predicted\"\nrule = \"r\"\npoints = [[1, 2]]",
        ];
        for text in good {
            published(text).check(0).unwrap();
        }
        let bad = [
            ("origin = \"published\"", "one of them"),
            ("origin = \"published\"\npoints = [[1, 2]]\nranges = [[1, 2, 3]]", "one of them"),
            ("origin = \"derived\"\npoints = [[1, 2]]", "must have a rule"),
            ("origin = \"published\"\nrule = \"r\"\npoints = [[1, 2]]", "must have a rule"),
            ("origin = \"derived\"\nrule = \"r\"\nranges = [[1, 3, 2]]", "without width"),
            ("origin = \"published\"\npoints = [[3, 2]]", "no category"),
            ("origin = \"published\"\nsamples = { file = \"f\", x = \"x\", y = \"y\" }", "s"),
        ];
        for (text, problem) in bad {
            let error = published(text).check(3).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn samples_of_a_file_are_its_columns() {
        let samples =
            "samples = { file = \"sba-occupancy.csv\", x = \"tbf_flow_a_s\", y = \"tbf_flow_a_percent\" }";
        let published = published(&format!("origin = \"published\"\n{samples}"));
        let points = published.points().unwrap();
        assert_eq!((points.len(), points[0], points[1]), (299, [0.0, 73.0], [1.002, 73.0]));
    }
}

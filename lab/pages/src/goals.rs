//! The judged figures of a run, each with its goal.

use crate::Table;
use crate::digits::{digits, grouped};
use crate::stats::percentile;

/// Number of significant digits of figures. With fewer digits, a figure near its goal could look equal to
/// the goal.
const DIGITS: u8 = 4;

/// The limit on a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// This value or less.
    AtMost(f64),
    /// Less than this value.
    Below(f64),
    /// This value or more.
    AtLeast(f64),
    /// Between these two values, or equal to one of them.
    Within(f64, f64),
}

impl Limit {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::Below(end) => value < end,
            Self::AtLeast(least) => value >= least,
            Self::Within(least, most) => (least..=most).contains(&value),
        }
    }

    fn text(self) -> String {
        let text = |bound: f64| grouped(&bound.to_string());
        match self {
            Self::AtMost(most) => format!("{} or less", text(most)),
            Self::Below(end) => format!("below {}", text(end)),
            Self::AtLeast(least) => format!("{} or more", text(least)),
            Self::Within(least, most) => format!("{} to {}", text(least), text(most)),
        }
    }
}

/// One judged figure.
#[derive(Clone, Debug)]
struct Goal {
    /// The figure, with its unit.
    figure: String,
    samples: Vec<f64>,
    limit: Limit,
}

impl Goal {
    /// Reports whether the median meets the limit. Returns `None` if the median is not finite or does not
    /// exist.
    fn is_met(&self) -> Option<bool> {
        let median = percentile(&self.samples, 50);
        (!self.samples.is_empty() && median.is_finite()).then(|| self.limit.is_met(median))
    }

    fn cells(&self) -> [String; 6] {
        let verdict = match self.is_met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "**not measured**",
        };
        let of = |percent| match self.is_met() {
            Some(_) => digits(percentile(&self.samples, percent), DIGITS),
            None => String::new(),
        };
        let [least, greatest] = if self.samples.len() > 1 { [of(0), of(100)] } else { Default::default() };
        [self.figure.clone(), of(50), least, greatest, self.limit.text(), verdict.to_owned()]
    }
}

/// All judged figures of a run. An empty list counts as met.
#[derive(Clone, Debug, Default)]
pub struct Goals(Vec<Goal>);

impl Goals {
    /// Adds a figure with its samples and the limit on their median. The name of the figure includes the
    /// unit. If the median does not exist or is not finite, the goal counts as not measured.
    pub fn judge(&mut self, figure: impl Into<String>, samples: &[f64], limit: Limit) {
        self.0.push(Goal { figure: figure.into(), samples: samples.to_vec(), limit });
    }

    /// Reports whether all goals are met.
    #[must_use]
    pub fn are_met(&self) -> bool {
        self.0.iter().all(|goal| goal.is_met() == Some(true))
    }

    /// Returns the names of the figures that were not measured.
    #[must_use]
    pub fn unmeasured(&self) -> Vec<&str> {
        self.0.iter().filter(|goal| goal.is_met().is_none()).map(|goal| &*goal.figure).collect()
    }

    /// Returns the table of all goals. A row has the median, the least and the greatest sample, the goal, and
    /// the verdict.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new("Goals", ["figure", "median", "least", "greatest", "goal", "verdict"]);
        self.0.iter().for_each(|goal| table.row(goal.cells()));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::{Goals, Limit};

    fn judged(samples: &[f64], limit: Limit) -> Goals {
        let mut goals = Goals::default();
        goals.judge("time, us", samples, limit);
        goals
    }

    #[test]
    fn a_row_has_the_median_its_range_the_goal_and_the_verdict() {
        let row = |goals: Goals| goals.table().markdown().lines().last().unwrap_or_default().to_owned();
        let met = row(judged(&[3.0, 1.0, 2.0], Limit::AtMost(2.0)));
        assert_eq!(met, "| time, us | 2 | 1 | 3 | 2 or less | met |");
        let missed = row(judged(&[0.97641], Limit::AtLeast(0.98)));
        assert_eq!(missed, "| time, us | 0.9764 |  |  | 0.98 or more | **missed** |");
        let unmeasured = row(judged(&[], Limit::Within(0.9, 1.1)));
        assert_eq!(unmeasured, "| time, us |  |  |  | 0.9 to 1.1 | **not measured** |");
    }

    #[test]
    fn a_goal_without_a_number_is_neither_met_nor_measured() {
        for samples in [&[][..], &[f64::NAN], &[f64::INFINITY]] {
            let goals = judged(samples, Limit::AtMost(5.0));
            assert_eq!((goals.are_met(), goals.unmeasured()), (false, vec!["time, us"]));
        }
        assert!(judged(&[5.0], Limit::AtMost(5.0)).are_met() && !judged(&[5.0], Limit::Below(5.0)).are_met());
    }
}

//! Judges one figure: its medians, their ratios, and the goals.

use super::contender::Contender;
use super::table::{Figure, Goal};
use crate::bench::report::Report;
use pages::stats::{percentile, spread};
use pages::{Limit, Table};

/// One contender's row.
#[derive(Debug)]
struct Row {
    contender: Contender,
    samples: Vec<f64>,
    /// Our median as a multiple of this contender's median.
    ratio: f64,
    goal: Option<Goal>,
}

/// The rows of one figure.
#[derive(Debug)]
pub(crate) struct Verdict<'a> {
    figure: &'a Figure,
    rows: Vec<Row>,
}

/// Returns the table for the rows of all figures.
pub(crate) fn table() -> Table {
    Table::new("Ours and others", ["figure", "unit", "of", "median (least-greatest)", "ours/it"])
}

impl<'a> Verdict<'a> {
    /// Computes the rows from the samples of each contender. The first contender is ours.
    pub(crate) fn of(figure: &'a Figure, contenders: &[Contender], samples: &[Vec<f64>]) -> Self {
        let ours = samples.first().map_or(0.0, |samples| percentile(samples, 50));
        let row = |(contender, samples): (&Contender, &Vec<f64>)| Row {
            contender: *contender,
            samples: samples.clone(),
            ratio: ours / percentile(samples, 50),
            goal: figure.goals.iter().find(|goal| goal.rival() == *contender).copied(),
        };
        Self { figure, rows: contenders.iter().zip(samples).map(row).collect() }
    }

    /// Adds the rows to the table, and the goals to the report.
    pub(crate) fn add(&self, table: &mut Table, report: &mut Report) {
        let Figure { name, unit, .. } = self.figure;
        for it in &self.rows {
            let ratio = (it.contender != Contender::Ours).then_some(it.ratio);
            row(table, [name, unit, &it.contender.to_string()], &it.samples, ratio);
            if let Some(goal) = it.goal {
                report.judge(format!("{name}, by {}'s", it.contender), &[it.ratio], goal.limit());
            }
        }
    }
}

/// Adds a row to the table. Prints the row at once, because the whole table is printed minutes later.
pub(crate) fn row(table: &mut Table, names: [&str; 3], samples: &[f64], ratio: Option<f64>) {
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
    let cells = names.map(str::to_owned).into_iter().chain([spread(samples), ratio]);
    let cells: Vec<String> = cells.collect();
    println!("{}", cells.join("  ").trim_end());
    table.row(cells);
}

impl Goal {
    fn rival(self) -> Contender {
        match self {
            Goal::AtLeast(rival, _) | Goal::AtMost(rival, _) => rival,
        }
    }

    fn limit(self) -> Limit {
        match self {
            Goal::AtLeast(_, factor) => Limit::AtLeast(factor),
            Goal::AtMost(_, factor) => Limit::AtMost(factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, table};
    use crate::bench::report::Report;
    use crate::bench::sctp::contender::Contender;
    use crate::bench::sctp::table::{Figure, Goal};

    const ENDS: &[Contender] = &[Contender::Ours, Contender::Tcp];

    fn is_good(goals: &'static [Goal], ours: f64, tcp: f64) -> bool {
        let figure = Figure { name: "speed", unit: "1/s", goals };
        let (mut report, mut table) = (Report::default(), table());
        Verdict::of(&figure, ENDS, &[vec![ours], vec![tcp]]).add(&mut table, &mut report);
        assert!(table.markdown().contains("| speed | 1/s | tcp |"));
        report.verdict()
    }

    #[test]
    fn goals_are_met_at_or_above_a_minimum_ratio_or_up_to_a_maximum_ratio() {
        assert!(!is_good(&[Goal::AtLeast(Contender::Tcp, 2.0)], 3.0, 2.0));
        assert!(is_good(&[Goal::AtLeast(Contender::Tcp, 2.0)], 4.0, 2.0));
        assert!(is_good(&[Goal::AtMost(Contender::Tcp, 2.0)], 3.0, 2.0));
        assert!(!is_good(&[Goal::AtMost(Contender::Tcp, 1.0)], 3.0, 2.0));
    }

    #[test]
    fn a_contender_that_measured_nothing_meets_no_goal() {
        assert!(!is_good(&[Goal::AtLeast(Contender::Tcp, 2.0)], 0.0, 0.0));
    }
}

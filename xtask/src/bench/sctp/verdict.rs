//! Judges one figure: medians, their ratios, and the goals met.

use super::contender::Contender;
use super::table::{Figure, Goal};
use crate::bench::stats::{percentile, spread};

/// Number of goals, and the missed ones.
#[derive(Debug, Default)]
pub(crate) struct Score {
    goals: usize,
    missed: Vec<String>,
}

impl Score {
    /// Reports whether every goal is met.
    pub(crate) fn is_good(&self) -> bool {
        self.missed.is_empty()
    }

    /// Returns the last line of output.
    pub(crate) fn summary(&self) -> String {
        let met = self.goals - self.missed.len();
        let goals = self.goals;
        if self.is_good() {
            return format!("sctp: all {goals} goals met");
        }
        format!("sctp: {met} of {goals} goals met; missed: {}", self.missed.join("; "))
    }

    /// Counts a goal as met or missed.
    pub(crate) fn count(&mut self, is_met: bool, what: impl FnOnce() -> String) {
        self.goals += 1;
        if !is_met {
            self.missed.push(what());
        }
    }
}

/// One contender's row.
#[derive(Debug)]
struct Row {
    contender: Contender,
    samples: Vec<f64>,
    /// Our median as a multiple of this one's.
    ratio: f64,
    goal: Option<Goal>,
}

/// The rows of one figure.
#[derive(Debug)]
pub(crate) struct Verdict<'a> {
    figure: &'a Figure,
    rows: Vec<Row>,
}

impl<'a> Verdict<'a> {
    /// The table's first line.
    pub(crate) const HEAD: &'static str =
        "\nfigure                          unit    of       median (range)             ours/it   goal";

    /// Judges samples of contenders; the first contender is ours.
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

    /// Prints the rows and adds them to the score.
    pub(crate) fn print(&self, score: &mut Score) {
        for row in &self.rows {
            let verdict = row.goal.map_or(String::new(), |goal| {
                let is_met = goal.is_met(row.ratio);
                let (name, rival, ratio) = (self.figure.name, row.contender, row.ratio);
                score.count(is_met, || format!("{name} {ratio:.2} x {rival} ({})", goal.text()));
                format!("{:<9} {}", goal.text(), if is_met { "met" } else { "MISSED" })
            });
            let ratio =
                if row.contender == Contender::Ours { String::new() } else { format!("{:.2}", row.ratio) };
            let (name, unit) = (self.figure.name, self.figure.unit);
            println!("{}", self::row(name, unit, &row.contender.to_string(), &row.samples, &ratio, &verdict));
        }
    }
}

/// Formats one line of the table.
pub(crate) fn row(name: &str, unit: &str, of: &str, samples: &[f64], ratio: &str, verdict: &str) -> String {
    let line = format!("{name:<31} {unit:<7} {of:<8} {:<26} {ratio:<9} {verdict}", spread(samples));
    line.trim_end().to_owned()
}

impl Goal {
    fn rival(self) -> Contender {
        match self {
            Goal::AtLeast(rival, _) | Goal::AtMost(rival, _) => rival,
        }
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Goal::AtLeast(_, factor) => ratio >= factor,
            Goal::AtMost(_, factor) => ratio <= factor,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(_, factor) => format!(">= {factor}"),
            Goal::AtMost(_, factor) => format!("<= {factor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Score, Verdict};
    use crate::bench::sctp::contender::Contender;
    use crate::bench::sctp::table::{Figure, Goal};

    const ENDS: &[Contender] = &[Contender::Ours, Contender::Tcp];

    fn judged(goals: &'static [Goal], ours: f64, tcp: f64) -> Score {
        let figure = Figure { name: "speed", unit: "1/s", goals };
        let mut score = Score::default();
        Verdict::of(&figure, ENDS, &[vec![ours], vec![tcp]]).print(&mut score);
        score
    }

    #[test]
    fn a_ratio_that_falls_short_misses_its_goal_and_is_named() {
        let score = judged(&[Goal::AtLeast(Contender::Tcp, 2.0)], 3.0, 2.0);
        assert_eq!(score.summary(), "sctp: 0 of 1 goals met; missed: speed 1.50 x tcp (>= 2)");
    }

    #[test]
    fn a_goal_may_be_a_limit() {
        assert!(judged(&[Goal::AtMost(Contender::Tcp, 2.0)], 3.0, 2.0).is_good());
        assert!(!judged(&[Goal::AtMost(Contender::Tcp, 1.0)], 3.0, 2.0).is_good());
    }

    #[test]
    fn a_contender_that_measured_nothing_meets_no_goal() {
        assert!(!judged(&[Goal::AtLeast(Contender::Tcp, 2.0)], 0.0, 0.0).is_good());
    }
}

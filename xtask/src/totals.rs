//! Counts of passed, failed, skipped and flaky, over all parts of a run, and the one closing line.

use std::fmt;
use std::ops::AddAssign;

/// Counts of single checks or tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Judged right.
    pub(crate) passed: u64,
    /// Judged wrong, or could not be judged.
    pub(crate) failed: u64,
    /// Not run here.
    pub(crate) skipped: u64,
    /// Passed, but only at a second attempt; these are among the passed ones.
    pub(crate) flaky: u64,
}

impl Totals {
    /// Counts one judgement.
    pub(crate) fn of(good: bool) -> Self {
        Self { passed: u64::from(good), failed: u64::from(!good), ..Self::default() }
    }

    /// Recounts `count` passed ones as skipped.
    pub(crate) fn skip(&mut self, count: u64) {
        let count = count.min(self.passed);
        self.passed -= count;
        self.skipped += count;
    }

    /// Parses cargo's `test result:` line; `None` for any other line.
    pub(crate) fn from_cargo_line(line: &str) -> Option<Self> {
        let counts = line.trim().strip_prefix("test result: ")?;
        let number = |label: &str| {
            counts.split([';', '.']).find_map(|part| part.trim().strip_suffix(label)?.trim().parse().ok())
        };
        let (passed, failed, skipped) = (number("passed")?, number("failed")?, number("ignored")?);
        Some(Self { passed, failed, skipped, flaky: 0 })
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.flaky += other.flaky;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        if self.flaky > 0 { write!(f, ", {} flaky", self.flaky) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn a_result_line_of_cargo_is_read_whole() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 1 filtered out; finished in 0.02s";
        assert_eq!(
            Totals::from_cargo_line(line),
            Some(Totals { passed: 12, failed: 3, skipped: 4, flaky: 0 })
        );
    }

    #[test]
    fn what_was_skipped_is_not_passed() {
        let mut totals = Totals { passed: 12, failed: 0, skipped: 4, flaky: 0 };
        totals.skip(5);
        assert_eq!(totals, Totals { passed: 7, failed: 0, skipped: 9, flaky: 0 });
    }

    #[test]
    fn other_lines_of_cargo_count_nothing() {
        assert_eq!(Totals::from_cargo_line("test tests::a_test ... ok"), None);
    }

    #[test]
    fn the_closing_line_has_the_agreed_words() {
        let totals = Totals { passed: 12, failed: 0, skipped: 4, flaky: 0 };
        assert_eq!(totals.to_string(), "12 passed, 0 failed, 4 skipped");
    }
}

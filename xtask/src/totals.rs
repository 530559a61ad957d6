//! Counts of passed, failed, skipped and flaky checks and tests, over all parts of a run, and the closing lines.

use crate::Outcome;
use std::fmt;
use std::ops::AddAssign;

/// Counts of single checks or tests.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Number of checks and tests judged right.
    pub(crate) passed: u64,
    /// Number of checks and tests judged wrong, or not judged because of an error.
    pub(crate) failed: u64,
    /// Number of checks and tests that did not run on this host.
    pub(crate) skipped: u64,
    /// Number of tests that passed only at a second attempt. `passed` includes these tests.
    pub(crate) flaky: u64,
    /// Names of the failed checks and tests, as far as known.
    pub(crate) failures: Vec<String>,
    /// Last lines that each failed or flaky test printed, below a heading for each test.
    pub(crate) details: Vec<String>,
}

impl Totals {
    /// Returns the totals of the single check or part `name`: one passed if `good` is true, one failed otherwise.
    pub(crate) fn of(name: &str, good: bool) -> Self {
        let failures = if good { Vec::new() } else { vec![name.to_owned()] };
        Self { passed: u64::from(good), failed: u64::from(!good), failures, ..Self::default() }
    }

    /// Prints the details, then the names of failed checks and tests, then the counts. Returns the outcome of the command.
    pub(crate) fn close(&self) -> Outcome {
        self.details.iter().for_each(|line| println!("{line}"));
        for name in &self.failures {
            println!("failed: {name}");
        }
        println!("{self}");
        if self.failed == 0 { Outcome::Good } else { Outcome::Bad }
    }

    /// Reports whether the name of each failed check and test is known. A test program that died reports no names.
    pub(crate) fn has_all_names(&self) -> bool {
        self.failures.len() as u64 == self.failed
    }

    /// Counts `count` of the passed checks and tests as skipped. If fewer have passed, counts all of them as skipped.
    pub(crate) fn skip(&mut self, count: u64) {
        let count = count.min(self.passed);
        self.passed -= count;
        self.skipped += count;
    }

    /// Parses cargo's `test result:` line. Returns `None` for any other line.
    pub(crate) fn from_cargo_line(line: &str) -> Option<Self> {
        let counts = line.trim().strip_prefix("test result: ")?;
        let number = |label: &str| {
            counts.split([';', '.']).find_map(|part| part.trim().strip_suffix(label)?.trim().parse().ok())
        };
        let (passed, failed, skipped) = (number("passed")?, number("failed")?, number("ignored")?);
        Some(Self { passed, failed, skipped, ..Self::default() })
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.flaky += other.flaky;
        self.failures.extend(other.failures);
        self.details.extend(other.details);
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
            Some(Totals { passed: 12, failed: 3, skipped: 4, ..Totals::default() })
        );
    }

    #[test]
    fn skipped_tests_do_not_count_as_passed() {
        let mut totals = Totals { passed: 12, failed: 0, skipped: 4, ..Totals::default() };
        totals.skip(5);
        assert_eq!(totals, Totals { passed: 7, failed: 0, skipped: 9, ..Totals::default() });
    }

    #[test]
    fn other_lines_of_cargo_count_nothing() {
        assert_eq!(Totals::from_cargo_line("test tests::a_test ... ok"), None);
    }

    #[test]
    fn the_closing_line_has_the_agreed_words() {
        let totals = Totals { passed: 12, failed: 0, skipped: 4, ..Totals::default() };
        assert_eq!(totals.to_string(), "12 passed, 0 failed, 4 skipped");
    }
}

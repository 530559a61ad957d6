//! One run of cargo's tests: displayed live, counted, and parsed for the names of passed and failed tests.

use crate::skipped::Skipped;
use crate::totals::Totals;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// The result of a run of cargo's tests.
#[derive(Default)]
pub(crate) struct Run {
    /// The sums of cargo's result lines; a bad exit status without a failed test counts as one failure.
    pub(crate) totals: Totals,
    /// Names of the tests that passed.
    pub(crate) passed: BTreeSet<String>,
    /// Names of the tests that failed.
    pub(crate) failed: BTreeSet<String>,
}

impl Run {
    /// Runs a cargo command, and displays its output live.
    pub(crate) fn of(command: &mut Command) -> Result<Self> {
        let skipped = Skipped::of(command)?;
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
        let mut run = Self::default();
        if let Some(stdout) = child.stdout.take() {
            run.read(stdout)?;
        }
        let status = child.wait()?;
        run.totals.skip(skipped.shown()?);
        if !status.success() && run.totals.failed == 0 {
            println!("test: cargo failed with {status}: a part did not build, or a test program died");
            run.totals.failed = 1;
        }
        Ok(run)
    }

    fn read(&mut self, output: impl Read) -> Result<()> {
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot read cargo's output")?;
            self.totals += Totals::from_cargo_line(&line).unwrap_or_default();
            match outcome(&line) {
                Some((name, true)) => self.passed.insert(name.to_owned()),
                Some((name, false)) => self.failed.insert(name.to_owned()),
                None => false,
            };
            if is_worth_showing(&line) {
                println!("{line}");
            }
        }
        Ok(())
    }
}

/// Returns the test whose end a line reports, and whether it passed.
fn outcome(line: &str) -> Option<(&str, bool)> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
    match end.split([' ', ',']).next()? {
        "ok" => Some((name, true)),
        "FAILED" => Some((name, false)),
        _ => None,
    }
}

/// Hides empty results and blank lines; keeps each test's line as progress.
fn is_worth_showing(line: &str) -> bool {
    let is_empty_result = line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored");
    !(line.is_empty() || line == "running 0 tests" || is_empty_result)
}

#[cfg(test)]
mod tests {
    use super::outcome;

    #[test]
    fn a_line_tells_which_test_ended_and_how() {
        assert_eq!(outcome("test rules::a_rule_holds ... ok"), Some(("rules::a_rule_holds", true)));
        assert_eq!(outcome("test over_udp ... ok (5 associations)"), Some(("over_udp", true)));
        assert_eq!(outcome("test over_udp ... FAILED"), Some(("over_udp", false)));
        assert_eq!(outcome("test over_udp ... ignored, needs root"), None);
        assert_eq!(outcome("test result: ok. 1 passed; 0 failed"), None);
    }
}

//! One run of cargo's tests. Its output is displayed live, counted, and parsed for the names of failed tests.

use crate::skipped::Skipped;
use crate::totals::Totals;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Limit on the lines of each failed test's output that `./x test` shows when it ends. It shows the last lines of the output.
const DETAILS_MAX: usize = 20;

/// Runs a cargo command and displays its output live. Returns the sums of the counts in cargo's result lines, and the names of failed
/// tests. If no test failed, a bad exit status counts as one failure.
pub(crate) fn counted(command: &mut Command) -> Result<Totals> {
    let skipped = Skipped::of(command)?;
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let (mut totals, mut details) = (Totals::default(), Details::default());
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.context("cannot read cargo's output")?;
        totals += Totals::from_cargo_line(&line).unwrap_or_default();
        totals.failures.extend(failed(&line).map(str::to_owned));
        details.read(&line);
        if is_worth_showing(&line) {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    totals.skip(skipped.shown()?);
    totals.details = details.lines;
    if !status.success() && totals.failed == 0 {
        println!("test: cargo failed with {status}: a part did not build, or a test program died");
        totals += Totals::of(&format!("{command:?}"), false);
    }
    Ok(totals)
}

/// Returns the name of the test whose failure a line reports.
fn failed(line: &str) -> Option<&str> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (end.split([' ', ',']).next() == Some("FAILED")).then_some(name)
}

/// Output of failed tests. After the last test of a program, cargo shows the output of each failed test under a heading.
#[derive(Default)]
struct Details {
    /// The headings, each with the last lines of its output.
    lines: Vec<String>,
    /// Number of lines that are kept of the current test's output, or `None` outside of such an output.
    length: Option<usize>,
}

impl Details {
    fn read(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            self.lines.push(line.to_owned());
            self.length = Some(0);
        } else if line == "failures:" {
            self.length = None;
        } else if let Some(length) = &mut self.length
            && !line.trim().is_empty()
        {
            if *length == DETAILS_MAX {
                let oldest = self.lines.len() - *length;
                self.lines.remove(oldest);
                *length -= 1;
            }
            self.lines.push(line.to_owned());
            *length += 1;
        }
    }
}

/// Reports whether a line is worth showing: any line except empty results and blank lines. The line of each test shows the progress.
fn is_worth_showing(line: &str) -> bool {
    let is_empty_result = line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored");
    !(line.is_empty() || line == "running 0 tests" || is_empty_result)
}

#[cfg(test)]
mod tests {
    use super::{DETAILS_MAX, Details, failed};

    #[test]
    fn a_line_tells_which_test_failed() {
        assert_eq!(failed("test rules::a_rule_holds ... FAILED"), Some("rules::a_rule_holds"));
        assert_eq!(failed("test rules::a_rule_holds ... ok"), None);
        assert_eq!(failed("test over_udp ... ok (5 associations)"), None);
        assert_eq!(failed("test over_udp ... ignored, needs root"), None);
        assert_eq!(failed("test result: FAILED. 1 passed; 1 failed"), None);
    }

    #[test]
    fn the_last_lines_of_a_failed_test_are_kept_under_its_name() {
        let mut details = Details::default();
        let long: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
        let before = ["running 2 tests", "test a ... FAILED", "", "failures:", "", "---- a stdout ----"];
        let after = ["", "---- b stdout ----", "one line", "", "failures:", "    a", "    b"];
        for line in before.into_iter().chain(long.iter().map(String::as_str)).chain(after) {
            details.read(line);
        }
        let mut expected = vec!["---- a stdout ----".to_owned()];
        expected.extend_from_slice(&long[100 - DETAILS_MAX..]);
        expected.extend(["---- b stdout ----".to_owned(), "one line".to_owned()]);
        assert_eq!(details.lines, expected);
    }
}

//! `./x test`: the checks, the engine's instruction counts, every test of the workspace, then the tests that need root and make network
//! namespaces (those marked `#[ignore]` in the sources), some of others' suites
//! ([`transparency`]), and the lab's experiments in their quick form ([`lab`]). Ends with one line of counts over all parts.
//!
//! Namespace tests run two at a time: they mostly wait, and more of them would be late for one another.

use crate::bench::instructions;
use crate::tally::Tally;
use crate::tools::cargo;
use crate::{Outcome, check, lab, transparency};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use testbed::skip::SKIPPED_VARIABLE;

/// `./x test`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    if let Some((_, suites)) = words.split_first().filter(|(first, _)| *first == "--transparency") {
        return transparency::run(suites);
    }
    let mut tally = check::all()?;
    println!("test: building everything");
    let everything = ["build", "--quiet", "--workspace", "--lib", "--bins", "--tests", "--examples"];
    tally += counted(&mut cargo(&everything), Counting::Status)?;
    println!("test: instruction counts");
    tally += instructions::judged()?;
    println!("test: every test that needs no root");
    let mut plain = counted(&mut cargo(&["test", "--workspace", "--no-fail-fast"]), Counting::Tests)?;
    if testbed::is_root() {
        plain.skipped = 0;
        println!("test: tests that need root and make network namespaces");
        let words = [
            "test",
            "--workspace",
            "--no-fail-fast",
            "--lib",
            "--bins",
            "--tests",
            "--",
            "--ignored",
            "--test-threads=2",
        ];
        tally += counted(&mut cargo(&words), Counting::Tests)?;
        println!(
            "test: others' tests, with all their connections over SCTP (some of them; --transparency: all)"
        );
        tally += transparency::quick()?;
        println!("test: the lab's experiments, in their quick form");
        tally += lab::quick()?;
    } else if plain.skipped > 0 {
        println!("test: {} tests need root and were skipped: run `sudo ./x test`", plain.skipped);
    }
    tally += plain;
    println!("{tally}");
    Ok(if tally.failed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// How a command's outcome becomes counts.
enum Counting {
    /// One judgement: its exit status.
    Status,
    /// The sums of cargo's result lines; a bad exit status without a failed test counts as one failure.
    Tests,
}

/// Runs a command, shows its output as it comes, and counts.
fn counted(command: &mut Command, counting: Counting) -> Result<Tally> {
    let skipped = tempfile::NamedTempFile::new().context("cannot make the file of skipped tests")?;
    command.env(SKIPPED_VARIABLE, skipped.path());
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("cannot read cargo's output")?;
            tally += Tally::from_cargo_line(&line).unwrap_or_default();
            if is_worth_showing(&line) {
                println!("{line}");
            }
        }
    }
    let status = child.wait()?;
    let skipped = std::fs::read_to_string(&skipped).context("cannot read which tests were skipped")?;
    skipped.lines().for_each(|test| println!("test: skipped {test}"));
    tally.skip(skipped.lines().count() as u64);
    match counting {
        Counting::Status => Ok(Tally::of(status.success())),
        Counting::Tests if !status.success() && tally.failed == 0 => {
            println!("test: cargo failed with {status}: a part did not build, or a test program died");
            Ok(Tally { failed: 1, ..tally })
        }
        Counting::Tests => Ok(tally),
    }
}

/// Hides empty results and blank lines; keeps each test's line as progress.
fn is_worth_showing(line: &str) -> bool {
    let is_empty_result = line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored");
    !(line.is_empty() || line == "running 0 tests" || is_empty_result)
}

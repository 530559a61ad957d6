//! `./x test --transparency`: others' test suites, once over plain TCP and once with every connection forced over SCTP, must
//! come to the same result, test by test.
//!
//! Two kinds of world. Suites that speak to 127.0.0.1 run in a namespace whose one daemon carries connections of the host to
//! itself (setting `loopback`), so that each crosses it twice; suites of programs and servers run between two hosts with a
//! daemon each. Control and trial differ in the daemons alone. That the connections rode SCTP is proven by the daemons' own
//! counters. What differs must stand in `tests/transparency/exceptions.toml` with its reason, and what stands there must differ.
//!
//! Begin with [`suites::SUITES`], then [`judge`].

mod exceptions;
mod field;
mod results;
mod suites;

use crate::tally::Tally;
use crate::tools::{root, succeeds};
use crate::{Outcome, optimised};
use anyhow::{Context, Result, anyhow, ensure};
use exceptions::Exceptions;
use field::Field;
use results::{Results, Verdict};
use std::process::Command;
use std::sync::Mutex;
use suites::{SUITES, Suite};
use testbed::Programs;
use testbed::process::now;

/// Suites that `./x test` runs at once, as it does namespace tests. Theirs are servers and clients that wait for one another.
const QUICK_AT_ONCE: usize = 2;

/// `./x test --transparency [SUITE ...]`: all suites, or those whose names contain one of the words.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    ensure!(testbed::is_root(), "making network namespaces needs root");
    let setup = root().join("scripts/setup.sh");
    ensure!(succeeds(Command::new(setup).arg("--transparency"))?, "packages are missing");
    let programs = optimised::daemon_and_commands()?;
    let is_wanted = |suite: &&Suite| words.is_empty() || words.iter().any(|word| suite.name.contains(word));
    let chosen: Vec<&Suite> = SUITES.iter().filter(is_wanted).collect();
    ensure!(!chosen.is_empty(), "no suite has such a name");
    let tally = judged(&chosen, &programs, 1)?;
    println!("{tally}");
    Ok(if tally.failed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// The quick suites, for `./x test`, with the programs built beside this one.
pub(crate) fn quick() -> Result<Tally> {
    let chosen: Vec<&Suite> = SUITES.iter().filter(|suite| suite.is_quick).collect();
    judged(&chosen, &Programs::find()?, QUICK_AT_ONCE)
}

/// Runs these suites, so many of them at once, the first ones first.
fn judged(chosen: &[&Suite], programs: &Programs, at_once: usize) -> Result<Tally> {
    let exceptions = Exceptions::read()?;
    let left = Mutex::new(chosen.iter());
    let next = || left.lock().ok()?.next();
    let take_turns = || {
        let mut tally = Tally::default();
        while let Some(suite) = next() {
            tally += told(suite, programs, &exceptions);
        }
        tally
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(take_turns)).collect();
        let mut tally = Tally::default();
        for thread in threads {
            tally += thread.join().map_err(|_| anyhow!("a thread that ran suites panicked"))?;
        }
        Ok(tally)
    })
}

/// Judges a suite and tells all of it at its end.
fn told(suite: &Suite, programs: &Programs, exceptions: &Exceptions) -> Tally {
    if let Some(missing) = suite.missing() {
        println!("skipped {}: there is no {missing} here (scripts/setup.sh)", suite.name);
        return Tally { skipped: 1, ..Tally::default() };
    }
    let start = now();
    let mut told = Vec::new();
    let outcome = judge(suite, programs, exceptions, &mut told);
    let outcome = outcome.with_context(|| format!("suite {}", suite.name));
    let faults = outcome.unwrap_or_else(|error| vec![format!("{error:#}")]);
    told.extend(faults.iter().map(|fault| format!("  wrong: {fault}")));
    told.push(format!("{:<14} {:.0} s", suite.name, start.elapsed().as_secs_f64()));
    println!("{}", told.join("\n"));
    Tally::of(faults.is_empty())
}

/// Runs a suite twice and says what is wrong; what else is to be told goes to `told`.
fn judge(
    suite: &Suite,
    programs: &Programs,
    exceptions: &Exceptions,
    told: &mut Vec<String>,
) -> Result<Vec<String>> {
    let control = suite.run(&Field::plain(suite.world)?)?;
    let field = Field::with_daemons(suite.world, programs)?;
    let trial = suite.run(&field)?;
    let mut faults = differences(suite, &control, &trial, exceptions, told);
    let rode = field.rode()?;
    faults.extend(rode.fault(suite.connections_min));
    told.push(format!(
        "{:<14} {} tests, {} passed over TCP, {} over SCTP; {rode}",
        suite.name,
        control.len(),
        passed(&control),
        passed(&trial)
    ));
    Ok(faults)
}

fn passed(results: &Results) -> usize {
    results.values().filter(|verdict| **verdict == Verdict::Passed).count()
}

/// Tests that came to different ends without an exception, and exceptions without a difference.
fn differences(
    suite: &Suite,
    control: &Results,
    trial: &Results,
    exceptions: &Exceptions,
    told: &mut Vec<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if passed(control) < suite.passed_min {
        faults
            .push(format!("only {} tests passed over plain TCP: does it run here at all?", passed(control)));
    }
    for (test, before) in control {
        let after = trial.get(test).copied().unwrap_or(Verdict::Missing);
        match (*before == after, exceptions.reason(suite.name, test)) {
            (false, None) => faults.push(format!("{test}: {before} over TCP, {after} over SCTP")),
            (true, Some((_, false))) if *before == Verdict::Passed => {
                faults.push(format!("{test}: an exception, but it passes: strike it from the list"));
            }
            (false, Some((reason, _))) => told.push(format!("  excepted: {test}: {reason}")),
            (true, _) => {}
        }
    }
    faults.extend(
        exceptions.unknown(suite.name, control).map(|test| format!("{test}: an exception for no test")),
    );
    faults
}

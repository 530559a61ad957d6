//! `./x test --transparency`: runs third-party test suites once over plain TCP, and once with every connection forced over SCTP. Both runs
//! must have the same result, test by test.
//!
//! There are two kinds of worlds. Suites that talk to 127.0.0.1 run on a single host, in one namespace. The host's daemon carries
//! connections from the host to itself (setting `loopback`), so each connection crosses this daemon twice. Suites of clients and servers
//! run between two hosts with a daemon each. The first run, the control, has no daemons. The second run, the trial, has daemons. The runs
//! differ in nothing else.
//!
//! The daemons' own counters prove that the connections used SCTP. Each test whose results differ must be in
//! `tests/transparency/exceptions.toml` with a reason. An entry whose test passes in both runs is a fault, unless the entry allows it
//! (`passes_sometimes`). An entry without a test is a fault too.
//!
//! Begin with [`suites::SUITES`], then [`judge`].

mod exceptions;
mod field;
mod results;
mod suites;

use crate::test::again;
use crate::totals::Totals;
use crate::{Outcome, optimised};
use anyhow::{Context, Result, anyhow, ensure};
use exceptions::Exceptions;
use field::Field;
use results::{Results, Verdict};
use std::sync::Mutex;
use suites::{SUITES, Suite};
use testbed::Programs;
use testbed::process::now;

/// Number of suites that `./x test` runs at once. Suites can run concurrently, because their servers and clients mostly wait for each
/// other.
const QUICK_AT_ONCE: usize = 2;

/// Runs `./x test --transparency [SUITE ...]`: all suites, or those whose names contain one of the words.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    ensure!(testbed::is_root(), "making network namespaces needs root");
    let programs = optimised::daemon_and_commands()?;
    let is_wanted = |suite: &&Suite| words.is_empty() || words.iter().any(|word| suite.name.contains(word));
    let chosen: Vec<&Suite> = SUITES.iter().filter(is_wanted).collect();
    ensure!(!chosen.is_empty(), "no suite has such a name");
    let totals = judged(&chosen, &programs, 1)?;
    Ok(totals.close())
}

/// Runs the quick suites for `./x test`, with the programs built next to this one. A suite that failed gets a second attempt.
pub(crate) fn quick() -> Result<Totals> {
    let programs = Programs::find()?;
    let chosen: Vec<&Suite> = SUITES.iter().filter(|suite| suite.is_quick).collect();
    again::attempted(judged(&chosen, &programs, QUICK_AT_ONCE)?, |failed| {
        let has_failed = |suite: &&Suite| failed.contains(&suite.label());
        let chosen: Vec<&Suite> = chosen.iter().copied().filter(has_failed).collect();
        judged(&chosen, &programs, 1)
    })
}

/// Runs these suites in order, `at_once` of them concurrently.
fn judged(chosen: &[&Suite], programs: &Programs, at_once: usize) -> Result<Totals> {
    let exceptions = Exceptions::read()?;
    let left = Mutex::new(chosen.iter());
    let next = || left.lock().ok()?.next();
    let take_turns = || {
        let mut totals = Totals::default();
        while let Some(suite) = next() {
            totals += judge_and_print(suite, programs, &exceptions);
        }
        totals
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(take_turns)).collect();
        let mut totals = Totals::default();
        for thread in threads {
            totals += thread.join().map_err(|_| anyhow!("a thread that ran suites panicked"))?;
        }
        Ok(totals)
    })
}

/// Judges a suite. Prints all messages about the suite when it has ended.
fn judge_and_print(suite: &Suite, programs: &Programs, exceptions: &Exceptions) -> Totals {
    if let Some(missing) = suite.missing() {
        println!("skipped {}: {missing} is missing (scripts/setup.sh)", suite.name);
        return Totals { skipped: 1, ..Totals::default() };
    }
    let start = now();
    let mut messages = Vec::new();
    let outcome = judge(suite, programs, exceptions, &mut messages);
    let outcome = outcome.with_context(|| format!("suite {}", suite.name));
    let faults = outcome.unwrap_or_else(|error| vec![format!("{error:#}")]);
    messages.extend(faults.iter().map(|fault| format!("  wrong: {fault}")));
    messages.push(format!("{:<14} {:.0} s", suite.name, start.elapsed().as_secs_f64()));
    println!("{}", messages.join("\n"));
    Totals::of(&suite.label(), faults.is_empty())
}

/// Runs a suite without daemons and with daemons. Returns the faults, and adds other messages to `messages`.
fn judge(
    suite: &Suite,
    programs: &Programs,
    exceptions: &Exceptions,
    messages: &mut Vec<String>,
) -> Result<Vec<String>> {
    let control = suite.run(&Field::plain(suite.world)?)?;
    let field = Field::with_daemons(suite.world, programs)?;
    let trial = suite.run(&field)?;
    let mut faults = differences(suite, &control, &trial, exceptions, messages);
    let counts = field.connection_counts()?;
    faults.extend(counts.fault(suite.connections_min));
    messages.push(format!(
        "{:<14} {} tests, {} passed over TCP, {} over SCTP; {counts}",
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

/// Returns a message for each fault. These are the faults: too few tests passed over TCP, a test without an exception ended differently
/// over SCTP, an exception is not needed, or an exception has no test.
fn differences(
    suite: &Suite,
    control: &Results,
    trial: &Results,
    exceptions: &Exceptions,
    messages: &mut Vec<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if passed(control) < suite.passed_min {
        faults.push(format!(
            "only {} tests passed over plain TCP: the suite may not work on this host",
            passed(control)
        ));
    }
    for (test, before) in control {
        let after = trial.get(test).copied().unwrap_or(Verdict::Missing);
        match (*before == after, exceptions.reason(suite.name, test)) {
            (false, None) => faults.push(format!("{test}: {before} over TCP, {after} over SCTP")),
            (true, Some((_, false))) if *before == Verdict::Passed => {
                faults.push(format!("{test}: an exception, but it passes: remove it from the list"));
            }
            (false, Some((reason, _))) => messages.push(format!("  excepted: {test}: {reason}")),
            (true, _) => {}
        }
    }
    faults.extend(
        exceptions.unknown(suite.name, control).map(|test| format!("{test}: an exception without a test")),
    );
    faults
}

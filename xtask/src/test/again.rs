//! A second attempt, alone, for failed tests and experiments with real packets. Such tests use namespaces, guests and real time, so their
//! results depend on other activity of the machine. A test that passes at the second attempt is flaky: the test has a fault, or it reveals
//! a fault of the code.
//!
//! `tests/flaky.txt` lists the tests that have been flaky in an earlier run. A run adds newly flaky tests to this list. A flaky test that
//! is already listed counts as failed. Remove its line with the change that mends the test.

use super::run::counted;
use crate::tools::{cargo, root};
use crate::totals::Totals;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// List of the tests that have been flaky in an earlier run.
const LEDGER: &str = "tests/flaky.txt";
/// Maximum number of failures in a run with second attempts. With more failures, no test gets a second attempt, because chance does not
/// explain so many failures.
const MOST: usize = 5;

/// Returns the counts of a run of `cargo WORDS`, after a second attempt for each failed test.
pub(crate) fn judged(first: Totals, words: &[&str]) -> Result<Totals> {
    attempted(first, |failed| counted(cargo(words).args(["--exact", "--test-threads=1"]).args(failed)))
}

/// Returns the counts of a run after a second attempt for its failures. `again` gets the names of the failures, runs them one at a time,
/// and returns the counts of this second run.
pub(crate) fn attempted(
    mut totals: Totals,
    again: impl FnOnce(&[String]) -> Result<Totals>,
) -> Result<Totals> {
    let failed = totals.failures.clone();
    if failed.is_empty() || failed.len() > MOST || !totals.has_all_names() {
        return Ok(totals);
    }
    println!("test: second attempt of what failed: {}", failed.join(", "));
    let second = again(&failed)?;
    let are_all_judged = second.has_all_names() && second.passed + second.failed >= failed.len() as u64;
    let has_passed = |name: &&str| are_all_judged && !second.failures.iter().any(|failure| failure == name);
    let flaky: Vec<_> = failed.iter().map(String::as_str).filter(has_passed).collect();
    let new = noted(&root().join(LEDGER), &flaky)?;
    for name in flaky {
        if !new.contains(name) {
            println!("test: {name} passed at its second attempt, but is already in {LEDGER}: fix it");
            continue;
        }
        println!("test: {name} failed, and passed at its second attempt, alone; noted in {LEDGER}");
        totals.failed -= 1;
        totals.failures.retain(|failure| failure != name);
        totals.passed += 1;
        totals.flaky += 1;
    }
    Ok(totals)
}

/// Adds names to a ledger. Returns the names that the ledger did not have.
fn noted<'a>(ledger: &Path, names: &[&'a str]) -> Result<BTreeSet<&'a str>> {
    let context = || ledger.display().to_string();
    if names.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut text = fs::read_to_string(ledger).with_context(context)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let known: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let new: BTreeSet<&str> = names.iter().copied().filter(|name| !known.contains(*name)).collect();
    new.iter().for_each(|name| text.extend([*name, "\n"]));
    if !new.is_empty() {
        fs::write(ledger, text).with_context(context)?;
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaky_test_is_added_to_the_ledger_once() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("flaky.txt");
        fs::write(&ledger, "# Tests\nover_ip\n").unwrap();
        assert_eq!(noted(&ledger, &["over_ip", "over_udp"]).unwrap(), BTreeSet::from(["over_udp"]));
        assert_eq!(fs::read_to_string(&ledger).unwrap(), "# Tests\nover_ip\nover_udp\n");
        assert!(noted(&ledger, &["over_ip", "over_udp"]).unwrap().is_empty());
        fs::write(&ledger, "over_ip").unwrap();
        noted(&ledger, &["over_udp"]).unwrap();
        assert_eq!(fs::read_to_string(&ledger).unwrap(), "over_ip\nover_udp\n", "edited by hand");
        assert!(noted(&dir.path().join("none"), &[]).unwrap().is_empty(), "nothing to note");
    }
}

//! A second attempt, alone, for failed tests with real packets. Namespaces, guests and real time depend on
//! other activity of the machine. A test that then passes is flaky: it has a fault, or reveals one.
//!
//! `tests/flaky.txt` lists the tests that have been flaky once. A run adds to it; a test that is listed already fails. Remove
//! its line with the change that mends it.

use super::run::Run;
use crate::tools::{cargo, root};
use crate::totals::Totals;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tests that were flaky once.
const LEDGER: &str = "tests/flaky.txt";
/// More failures than this are not a coincidence.
const MOST: usize = 5;

/// Returns the counts of a run of `cargo WORDS`, after a second attempt for each failed test.
pub(crate) fn judged(first: &Run, words: &[&str]) -> Result<Totals> {
    let mut totals = first.totals;
    // A test program that died names no failed test.
    let is_all_named = first.failed.len() as u64 == totals.failed;
    if first.failed.is_empty() || first.failed.len() > MOST || !is_all_named {
        return Ok(totals);
    }
    println!("test: second attempt of failed tests, one at a time");
    let second = Run::of(cargo(words).args(["--exact", "--test-threads=1"]).args(&first.failed))?;
    let flaky: Vec<_> = first.failed.intersection(&second.passed).map(String::as_str).collect();
    let new = noted(&root().join(LEDGER), &flaky)?;
    for name in flaky {
        if !new.contains(name) {
            println!("test: {name} passed at its second attempt, but is already in {LEDGER}: fix it");
            continue;
        }
        println!("test: {name} failed, and passed at its second attempt, alone; noted in {LEDGER}");
        totals.failed -= 1;
        totals.passed += 1;
        totals.flaky += 1;
    }
    Ok(totals)
}

/// Adds names to a ledger; returns those that it did not have.
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
    fn a_test_is_new_to_the_ledger_once() {
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

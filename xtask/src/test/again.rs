//! A second attempt, alone, for failed tests with real packets. Namespaces, guests and real time depend on
//! other activity of the machine. Tests that then pass are listed by name: a frequently listed test often has a
//! fault, or reveals one.

use super::run::Run;
use crate::tools::cargo;
use crate::totals::Totals;
use anyhow::Result;

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
    println!("test: what failed once more, alone");
    let second = Run::of(cargo(words).args(["--exact", "--test-threads=1"]).args(&first.failed))?;
    for name in first.failed.intersection(&second.passed) {
        println!("test: {name} failed, and passed at its second attempt, alone");
        totals.failed -= 1;
        totals.passed += 1;
    }
    Ok(totals)
}

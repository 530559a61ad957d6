//! A second attempt, alone, for tests with real packets that failed. Namespaces, guests and real time depend on what else the
//! machine does. What passes then is told by name: a test that is named often has a fault, or finds one.

use super::run::Run;
use crate::tally::Tally;
use crate::tools::cargo;
use anyhow::Result;

/// More failures than this are no chance.
const MOST: usize = 5;

/// The counts of a run of `cargo WORDS`, after each of its failed tests had its second attempt.
pub(crate) fn judged(first: &Run, words: &[&str]) -> Result<Tally> {
    let mut tally = first.tally;
    // A test program that died names no test that failed.
    let is_all_named = first.failed.len() as u64 == tally.failed;
    if first.failed.is_empty() || first.failed.len() > MOST || !is_all_named {
        return Ok(tally);
    }
    println!("test: what failed once more, alone");
    let second = Run::of(cargo(words).args(["--exact", "--test-threads=1"]).args(&first.failed))?;
    for name in first.failed.intersection(&second.passed) {
        println!("test: {name} failed, and passed at its second attempt, alone");
        tally.failed -= 1;
        tally.passed += 1;
    }
    Ok(tally)
}

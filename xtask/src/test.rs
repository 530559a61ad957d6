//! `./x test`: the checks, the engine's instruction counts, every test of the workspace, then the tests that need root and make network
//! namespaces (those marked `#[ignore]` in the sources), some of others' suites
//! ([`transparency`]), and the lab's experiments in their quick form ([`lab`]). Ends with one line of counts over all parts.
//!
//! Namespace tests run two at a time: they mostly wait, and more of them would be late for one another. Those that fail are
//! run a second time ([`again`]).

mod again;
mod run;

use crate::bench::instructions;
use crate::tally::Tally;
use crate::tools::{cargo, succeeds};
use crate::{Outcome, check, lab, transparency};
use anyhow::Result;
use run::Run;

/// `./x test`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    if let Some((_, suites)) = words.split_first().filter(|(first, _)| *first == "--transparency") {
        return transparency::run(suites);
    }
    let mut tally = check::all()?;
    println!("test: building everything");
    let everything = ["build", "--quiet", "--workspace", "--lib", "--bins", "--tests", "--examples"];
    tally += Tally::of(succeeds(&mut cargo(&everything))?);
    println!("test: instruction counts");
    tally += instructions::judged()?;
    println!("test: every test that needs no root");
    let mut plain = Run::of(&mut cargo(&["test", "--workspace", "--no-fail-fast"]))?.tally;
    if testbed::is_root() {
        plain.skipped = 0;
        println!("test: tests that need root and make network namespaces");
        let words =
            ["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests", "--", "--ignored"];
        tally += again::judged(&Run::of(cargo(&words).arg("--test-threads=2"))?, &words)?;
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

//! `./x test`: runs all checks and tests. Each part starts with a line that reports the time so far. The last line has the total counts of
//! all parts.
//!
//! 1. The checks ([`check`]).
//! 2. The engine's instruction counts ([`instructions`]).
//! 3. Every test of the workspace that needs no root.
//! 4. The engine's worlds once more, with sealed packets ([`sealed`]).
//! 5. With root only: the tests that create network namespaces ([`in_namespaces`]). The sources mark these tests with `#[ignore]`.
//! 6. With root only: the quick test suites of other projects ([`transparency`]).
//! 7. With root only: the lab's experiments in their quick form ([`lab`]).
//!
//! The packages that the tests need are installed during the checks and the build ([`packages`]). Tests with namespaces mostly wait, so up
//! to five of these tests run at a time. Failed tests of parts 5 to 7 get a second attempt ([`again`]).

pub(crate) mod again;
mod packages;
mod run;

use crate::bench::instructions;
use crate::sealed::run_sealed;
use crate::tools::{cargo, succeeds};
use crate::totals::Totals;
use crate::{Outcome, check, lab, transparency};
use anyhow::{Result, anyhow};
use packages::Packages;
use run::counted;
use testbed::process::now;

/// Cargo's arguments for the tests that create network namespaces. The caller adds the choice of packages.
const IN_NAMESPACES: [&str; 5] = ["test", "--no-fail-fast", "--lib", "--bins", "--tests"];

/// Runs `./x test`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    if let Some((_, suites)) = words.split_first().filter(|(first, _)| *first == "--transparency") {
        return transparency::run(suites);
    }
    let began = now();
    let part = |what: &str| println!("test: {:.0} s: {what}", began.elapsed().as_secs_f64());
    let packages = Packages::begin()?;
    let mut totals = check::without_licences()?;
    part("building everything");
    let everything = ["build", "--quiet", "--workspace", "--lib", "--bins", "--tests", "--examples"];
    totals += Totals::of("building everything", succeeds(&mut cargo(&everything))?);
    packages.wait()?;
    totals += check::licences()?;
    part("instruction counts");
    totals += instructions::judged()?;
    part("every test that needs no root");
    let mut plain = counted(&mut cargo(&["test", "--workspace", "--no-fail-fast"]))?;
    part("the engine's worlds with sealed packets");
    plain += sealed()?;
    if testbed::is_root() {
        plain.skipped = 0;
        part("tests that require root and create network namespaces");
        let words = [&IN_NAMESPACES[..], &["--workspace", "--", "--ignored"]].concat();
        totals += again::judged(in_namespaces()?, &words)?;
        part("other projects' tests, with all their connections over SCTP (a part; --transparency: all)");
        totals += transparency::quick()?;
        part("the lab's experiments, in their quick form");
        totals += lab::quick()?;
    } else if plain.skipped > 0 {
        println!("test: {} tests need root and were skipped: run `sudo ./x test`", plain.skipped);
    }
    totals += plain;
    part("the end");
    Ok(totals.close())
}

/// Runs the tests that create network namespaces. The tests of `testbed` run at the same time as the tests of most other packages. The
/// tests with guests (`peer`, `linkemu`) run afterwards, because a guest's clock is late while no processor is free.
fn in_namespaces() -> Result<Totals> {
    let group = |packages: &[&str], at_once: usize| {
        // One word: the tests without cargo's harness take other words for names of tests.
        let at_once = format!("--test-threads={at_once}");
        let words = [&IN_NAMESPACES[..], packages, &["--", "--ignored", &at_once]].concat();
        counted(&mut cargo(&words))
    };
    let mut totals = std::thread::scope(|scope| {
        let others = ["--workspace", "--exclude", "testbed", "--exclude", "peer", "--exclude", "linkemu"];
        let others = scope.spawn(move || group(&others, 2));
        let mut totals = group(&["--package", "testbed"], 3)?;
        totals += others.join().map_err(|_| anyhow!("a thread of tests has failed"))??;
        anyhow::Ok(totals)
    })?;
    totals += group(&["--package", "peer", "--package", "linkemu"], 2)?;
    Ok(totals)
}

/// Runs the engine's tests with sealed packets.
fn sealed() -> Result<Totals> {
    let mut command = cargo(&["test", "--package", "sctp-engine", "--test", "engine", "--"]);
    let mut totals = counted(run_sealed(&mut command))?;
    totals.skipped = 0;
    Ok(totals)
}

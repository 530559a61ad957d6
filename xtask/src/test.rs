//! `./x test`: the checks; the engine's instruction counts; every test of the workspace; the engine's worlds once
//! more with sealed packets ([`sealed`]); then the tests that need root and create network namespaces (marked
//! `#[ignore]` in the sources), some third-party suites ([`transparency`]), and the lab's experiments in their quick
//! form ([`lab`]). Their packages are installed meanwhile ([`packages`]). Each part starts with a line that reports
//! the time so far. Ends with one line of counts over all parts.
//!
//! Namespace tests mostly wait, so four of them run at a time ([`in_namespaces`]). Failed ones are run a second time ([`again`]).

pub(crate) mod again;
mod packages;
mod run;

use crate::bench::instructions;
use crate::tools::{cargo, succeeds};
use crate::totals::Totals;
use crate::{Outcome, check, lab, transparency};
use anyhow::{Result, anyhow};
use packages::Packages;
use run::counted;
use testbed::process::now;

/// Modules of the engine's tests that are left out: they look into packets to a large part, seal them by themselves, or
/// take long and learn little from sealed packets.
const NOT_SEALED: [&str; 14] = [
    "addresses::",
    "advertising::",
    "alternating::",
    "attacks::",
    "authentication::",
    "data::",
    "keyed::",
    "obeyed::",
    "pr_sctp::",
    "protection::",
    "reconfig::",
    "reflection::",
    "size_holes::",
    "takeover::",
];

/// Cargo's arguments for the tests that create network namespaces, without the packages.
const IN_NAMESPACES: [&str; 5] = ["test", "--no-fail-fast", "--lib", "--bins", "--tests"];

/// `./x test`.
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

/// Runs the tests that create network namespaces: those of `testbed` together with all others, and then those of guests with another
/// kernel, whose clocks need a processor.
fn in_namespaces() -> Result<Totals> {
    let group = |packages: &[&str]| {
        let words = [&IN_NAMESPACES[..], packages, &["--", "--ignored", "--test-threads=2"]].concat();
        counted(&mut cargo(&words))
    };
    let mut totals = std::thread::scope(|scope| {
        let others = ["--workspace", "--exclude", "testbed", "--exclude", "peer", "--exclude", "linkemu"];
        let others = scope.spawn(move || group(&others));
        let mut totals = group(&["--package", "testbed"])?;
        totals += others.join().map_err(|_| anyhow!("a thread of tests has failed"))??;
        anyhow::Ok(totals)
    })?;
    totals += group(&["--package", "peer", "--package", "linkemu"])?;
    Ok(totals)
}

/// Plays the engine's worlds with sealed packets (`SIM_PROTECTED`), except [`NOT_SEALED`].
fn sealed() -> Result<Totals> {
    let mut command = cargo(&["test", "--package", "sctp-engine", "--test", "engine", "--"]);
    for module in NOT_SEALED {
        command.args(["--skip", module]);
    }
    let mut totals = counted(command.env("SIM_PROTECTED", "1"))?;
    totals.skipped = 0;
    Ok(totals)
}

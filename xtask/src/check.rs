//! `./x check [--fast]`: checks the sources, the documents and the published crates.
//!
//! - [`fast`] runs the parts that compile nothing: layers, module docs, comments, `unsafe`, planted bugs, papers, prose, links, cited
//!   tests, results, compliance tables and formatting.
//! - [`without_licences`] adds lints, the documentation of the published crates, the reference, the public API and the packages.
//! - [`all`] adds the licences.
//!
//! Prints a line per part. Later parts run even if an earlier part has a fault.

use crate::tools::{cargo, has, root, succeeds};
use crate::totals::Totals;
use crate::{
    Outcome, cited, compliance, layers, links, papers, planted, prose, published, reference, results, sources,
};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// Directory of the programs that `scripts/setup.sh` builds.
const OWN_PROGRAMS: &str = "/usr/local/lib/sctpify-tests/bin";

/// Runs `./x check [--fast]`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let totals = match words {
        [] => all()?,
        [word] if word == "--fast" => fast()?,
        _ => bail!("usage: ./x check [--fast]"),
    };
    Ok(totals.close())
}

/// Runs every part and counts the results.
fn all() -> Result<Totals> {
    let mut totals = without_licences()?;
    totals += licences()?;
    Ok(totals)
}

/// Runs the parts that need no tools except the compiler's tools.
pub(crate) fn without_licences() -> Result<Totals> {
    let mut totals = fast()?;
    totals += part("lints", || {
        succeeds(&mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    totals += part("documentation of published crates", published::documents)?;
    totals += part("reference", || listed(reference::faults()?))?;
    totals += part("public API", || listed(published::api_faults()?))?;
    totals += part("packages", published::packages_serve_a_user)?;
    Ok(totals)
}

/// Runs the parts that compile nothing.
fn fast() -> Result<Totals> {
    let mut totals = Totals::default();
    totals += part("layers", || Ok(layers::run(&[])? == Outcome::Good))?;
    totals += part("module docs", || listed(sources::module_docs()?))?;
    totals += part("comments", || listed(sources::comments()?))?;
    totals += part("unsafe", || listed(sources::unsafe_code()?))?;
    totals += part("planted bugs apply", || listed(planted::faults()?))?;
    totals += part("papers", || listed(papers::faults()?))?;
    totals += part("prose", || listed(prose::faults()?))?;
    totals += part("links", || listed(links::faults()?))?;
    totals += part("cited tests", || listed(cited::faults()?))?;
    totals += part("results", || listed(results::faults()?))?;
    totals += part("compliance", || Ok(compliance::run(&["--check".to_owned()])? == Outcome::Good))?;
    totals += part("formatting", || succeeds(&mut cargo(&["fmt", "--all", "--check"])))?;
    Ok(totals)
}

/// Checks the licences and sources of all dependencies with cargo-deny, which `./x setup` installs. Without cargo-deny, counts the part as
/// skipped.
pub(crate) fn licences() -> Result<Totals> {
    let ours = Path::new(OWN_PROGRAMS).join("cargo-deny");
    let program = if ours.exists() { ours } else { "cargo-deny".into() };
    if !has(&program.to_string_lossy()) {
        println!("check licences: skipped, cargo-deny is not installed: run ./x setup");
        return Ok(Totals { skipped: 1, ..Totals::default() });
    }
    let words = ["--log-level", "error", "check", "licenses", "bans", "sources"];
    part("licences", || succeeds(Command::new(&program).args(words).current_dir(root())))
}

fn part(name: &str, judge: impl FnOnce() -> Result<bool>) -> Result<Totals> {
    let good = judge()?;
    println!("check {name}: {}", if good { "ok" } else { "FAILED" });
    Ok(Totals::of(&format!("check {name}"), good))
}

fn listed(faults: Vec<String>) -> Result<bool> {
    for fault in &faults {
        eprintln!("{fault}");
    }
    Ok(faults.is_empty())
}

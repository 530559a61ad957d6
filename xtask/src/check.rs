//! `./x check`: formatting, lints, layers, module docs, comments, unsafe, compliance tables, names on the page of the
//! papers, links of the documents, licences. Prints a line per part; every part runs even after a fault in an earlier one.

use crate::tally::Tally;
use crate::tools::{cargo, has, succeeds};
use crate::{Outcome, compliance, layers, links, papers, planted, sources};
use anyhow::Result;

/// `./x check`.
pub(crate) fn run(_: &[String]) -> Result<Outcome> {
    let tally = all()?;
    println!("{tally}");
    Ok(if tally.failed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// Runs every part and counts the results.
pub(crate) fn all() -> Result<Tally> {
    let mut tally = Tally::default();
    tally += part("layers", || Ok(layers::run(&[])? == Outcome::Good))?;
    tally += part("module docs", || listed(sources::module_docs()?))?;
    tally += part("comments", || listed(sources::comments()?))?;
    tally += part("unsafe", || listed(sources::unsafe_code()?))?;
    tally += part("planted bugs apply", || listed(planted::faults()?))?;
    tally += part("papers", || listed(papers::faults()?))?;
    tally += part("links", || listed(links::faults()?))?;
    tally += part("compliance", || Ok(compliance::run(&["--check".to_owned()])? == Outcome::Good))?;
    tally += part("formatting", || succeeds(&mut cargo(&["fmt", "--all", "--check"])))?;
    tally += part("lints", || {
        succeeds(&mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    tally += licences()?;
    Ok(tally)
}

fn licences() -> Result<Tally> {
    if has("cargo-deny") {
        return part("licences", || {
            succeeds(&mut cargo(&["deny", "--offline", "check", "licenses", "bans", "sources"]))
        });
    }
    println!("check licences: skipped, cargo-deny is not installed (cargo install cargo-deny)");
    Ok(Tally { skipped: 1, ..Tally::default() })
}

fn part(name: &str, judge: impl FnOnce() -> Result<bool>) -> Result<Tally> {
    let good = judge()?;
    println!("check {name}: {}", if good { "ok" } else { "FAILED" });
    Ok(Tally::of(good))
}

fn listed(faults: Vec<String>) -> Result<bool> {
    for fault in &faults {
        eprintln!("{fault}");
    }
    Ok(faults.is_empty())
}

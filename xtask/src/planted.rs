//! `./x planted`: plants bugs, one at a time, in a scratch copy of the sources. The engine's tests must catch each bug.
//!
//! Each bug is a patch in `tests/planted`, so the shipped code has no trace of it. The command prints a table with each bug and the first
//! test that fails because of it. The exit status is 1 if a bug survives. A bug proves nothing if its patch does not apply, if the code
//! with the bug does not build, or if a test hangs. Such a bug is an error.
//!
//! With `--sealed`, the tests run with sealed packets. A patch for which this makes no sense names the reason in its head. Begin with
//! [`run`].

mod patch;
mod tree;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use patch::Patch;
use tree::{Choice, Tree, Verdict};

use crate::Outcome;
use crate::tools::root;

/// Limit on the time of one run of the engine's tests.
const RUN_MAX: Duration = Duration::from_mins(5);

/// Minimum number of bugs. Fewer bugs prove too little.
const BUGS_MIN: usize = 10;

/// Runs `./x planted [--sealed]`: all bugs, or those whose file names contain one of the words.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let (options, words): (Vec<&String>, Vec<&String>) = words.iter().partition(|w| w.starts_with('-'));
    let is_sealed = !options.is_empty();
    ensure!(options.iter().all(|o| *o == "--sealed"), "usage: ./x planted [--sealed] [NAME ...]");
    let is_wanted = |p: &Patch| words.is_empty() || words.iter().any(|w| p.name.contains(*w));
    let (patches, left_out): (Vec<Patch>, Vec<Patch>) =
        patches()?.into_iter().filter(is_wanted).partition(|p| !is_sealed || p.not_sealed.is_none());
    for (patch, reason) in left_out.iter().filter_map(|p| Some((p, p.not_sealed.as_ref()?))) {
        println!("planted: {} is left out: {reason}", patch.name);
    }
    ensure!(!patches.is_empty(), "no bug in tests/planted has this name and can be tested so");
    println!("planted: building the engine's tests without a bug");
    let tree = Tree::new(&scratch()?)?;
    let filters: Vec<&str> = patches.iter().flat_map(|p| &p.filters).map(String::as_str).collect();
    let sound = tree.judge(if is_sealed { Choice::Sealed } else { Choice::Named(&filters) }, RUN_MAX)?;
    ensure!(sound == Verdict::AllPassed, "without a bug: {sound}; fix that first");
    let mut survivors = 0;
    println!("{:<38} first failing test", "bug");
    for patch in &patches {
        let verdict = judge(&tree, patch, is_sealed).with_context(|| patch.name.clone())?;
        survivors += usize::from(verdict == Verdict::AllPassed);
        println!("{:<38} {verdict}", patch.name);
    }
    println!("planted: {} of {} bugs were caught", patches.len() - survivors, patches.len());
    Ok(if survivors == 0 { Outcome::Good } else { Outcome::Bad })
}

/// Runs the tests with sealed packets, or the tests that the patch names. If the bug survives the latter, runs all tests.
fn judge(tree: &Tree, patch: &Patch, is_sealed: bool) -> Result<Verdict> {
    let planted = tree.plant(patch)?;
    let filters: Vec<&str> = patch.filters.iter().map(String::as_str).collect();
    let first = if is_sealed { Choice::Sealed } else { Choice::Named(&filters) };
    let mut verdict = tree.judge(first, RUN_MAX)?;
    if verdict == Verdict::AllPassed && !is_sealed {
        verdict = tree.judge(Choice::Named(&[]), RUN_MAX)?;
    }
    planted.remove()?;
    ensure!(verdict != Verdict::Endless, "{verdict}: unknown whether the tests catch it");
    Ok(verdict)
}

/// Checks for `./x check` that every patch still applies. Builds nothing.
pub(crate) fn faults() -> Result<Vec<String>> {
    let patches = patches()?;
    let mut faults: Vec<String> = Vec::new();
    if patches.len() < BUGS_MIN {
        faults.push(format!("tests/planted: {} bugs, fewer than {BUGS_MIN}", patches.len()));
    }
    for patch in &patches {
        if let Err(error) = patch.applied(&root()) {
            faults.push(format!("tests/planted/{}.patch: {error:#}: rewrite the patch", patch.name));
        }
    }
    Ok(faults)
}

fn patches() -> Result<Vec<Patch>> {
    let dir = root().join("tests/planted");
    let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "patch"));
    paths.sort();
    paths.iter().map(|path| Patch::read(path)).collect()
}

/// Returns the directory of the sources' copy and the copy's builds. This directory is next to the builds of the sources themselves.
fn scratch() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot determine this program's path")?;
    let target = exe.parent().and_then(Path::parent).context("this program's path has no directory")?;
    Ok(target.join("planted"))
}

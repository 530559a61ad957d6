//! `./x lab`: the published experiments, with `sctpify-lab` and all measured programs, built optimised. `./x
//! test` runs their quick forms, with the programs built for tests.

use crate::skipped::Skipped;
use crate::tools::root;
use crate::totals::Totals;
use crate::{Outcome, optimised};
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

const PROGRAM: &str = "sctpify-lab";
/// Exit status for a missed expectation, which can happen on a busy machine: tests only check that everything
/// works and that the negative controls hold.
const MISSED: i32 = 3;

/// `./x lab WORDS`: executes `sctpify-lab WORDS`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let measures = words.first().is_some_and(|word| word == "run");
    let dir = if measures { optimised::lab_and_programs()? } else { optimised::lab()? };
    let mut command = Command::new(dir.join(PROGRAM));
    Err(command.args(words).current_dir(root()).exec()).context("cannot start sctpify-lab")
}

/// Runs the quick form of each experiment.
pub(crate) fn quick() -> Result<Totals> {
    let exe = std::env::current_exe().context("cannot determine this program's path")?;
    let out = tempfile::tempdir().context("cannot create a directory for results")?;
    let mut command = Command::new(exe.with_file_name(PROGRAM));
    command.args(["run", "--all", "--quick", "--out"]).arg(out.path());
    let skipped = Skipped::of(&mut command)?;
    let status = command.status().context("cannot start sctpify-lab")?;
    let mut totals = Totals::of(status.success() || status.code() == Some(MISSED));
    totals += Totals { skipped: skipped.shown()?, ..Totals::default() };
    Ok(totals)
}

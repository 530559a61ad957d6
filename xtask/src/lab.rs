//! `./x lab`: runs the published experiments with `sctpify-lab` and all measured programs, in optimised builds. `./x test` runs the quick
//! forms of the experiments, with the programs built for tests.

use crate::skipped::Skipped;
use crate::test::again;
use crate::tools::root;
use crate::totals::Totals;
use crate::{Outcome, optimised};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = "sctpify-lab";
/// Prefix of an experiment's name among the results of `./x test`.
const EXPERIMENT: &str = "experiment ";
/// Exit status for a missed expectation. A busy machine can cause such a miss, so `./x test` does not count it as a failure. `./x test`
/// only checks that every experiment runs, and that its controls are met.
const MISSED: i32 = 3;

/// Runs `./x lab WORDS`: executes `sctpify-lab WORDS` in place of this program.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let measures = words.first().is_some_and(|word| word == "run");
    let dir = if measures { optimised::lab_and_programs()? } else { optimised::lab()? };
    let mut command = Command::new(dir.join(PROGRAM));
    Err(command.args(words).current_dir(root()).exec()).context("cannot start sctpify-lab")
}

/// Runs the quick form of each experiment. An experiment that failed gets a second attempt.
pub(crate) fn quick() -> Result<Totals> {
    let out = tempfile::tempdir().context("cannot create a directory for results")?;
    again::attempted(measured(out.path(), &["--all"])?, |failed| {
        let ids = failed.iter().filter_map(|name| name.strip_prefix(EXPERIMENT));
        measured(out.path(), &ids.chain(["--fresh"]).collect::<Vec<_>>())
    })
}

/// Runs `sctpify-lab run --quick WORDS`, displays its output live, and counts the experiments.
fn measured(out: &Path, words: &[&str]) -> Result<Totals> {
    let exe = std::env::current_exe().context("cannot determine this program's path")?;
    let mut command = Command::new(exe.with_file_name(PROGRAM));
    command.args(["run", "--quick", "--out"]).arg(out).args(words).stdout(Stdio::piped());
    let skipped = Skipped::of(&mut command)?;
    let mut child = command.spawn().context("cannot start sctpify-lab")?;
    let mut totals = Totals::default();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.context("cannot read the output of sctpify-lab")?;
        println!("{line}");
        totals += ended(&line).unwrap_or_default();
    }
    let status = child.wait()?;
    if !matches!(status.code(), Some(0 | MISSED)) && totals.failed == 0 {
        totals += Totals::of(&format!("{PROGRAM}: {status}"), false);
    }
    totals.skip(skipped.shown()?);
    Ok(totals)
}

/// If a line reports the end of an experiment, counts this experiment. Returns `None` for any other line.
fn ended(line: &str) -> Option<Totals> {
    let (word, id) = line.split_once(": ")?;
    let good = match word {
        "met" | "missed" => true,
        "failed" => false,
        _ => return None,
    };
    Some(Totals::of(&format!("{EXPERIMENT}{id}"), good))
}

#[cfg(test)]
mod tests {
    use super::ended;

    #[test]
    fn a_closing_line_counts_its_experiment() {
        let count = |line| ended(line).map(|totals| (totals.passed, totals.failed, totals.failures));
        assert_eq!(count("met: streams"), Some((1, 0, vec![])));
        assert_eq!(count("missed: streams"), Some((1, 0, vec![])), "a busy machine misses expectations");
        assert_eq!(count("failed: streams"), Some((0, 1, vec!["experiment streams".into()])));
        assert_eq!(count("  met   1.0 (<= 2)  connects: all"), None);
        assert_eq!(count("streams, quick: Connections as streams of one association"), None);
    }
}

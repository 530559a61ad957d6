//! `./x bench instructions`: the engine's cost in instructions, compared with the counts in the repository.
//!
//! Unlike times, counts do not depend on other activity of the machine. Valgrind executes the same instructions in each run, and shows the
//! program the same processor (with AVX2) on every machine. Counts do depend on the compiler, which `rust-toolchain.toml` pins, and
//! slightly on the C library. Each count is the difference between two runs. The second run has twice as many units of work as the first
//! run. So the instructions of start and warm-up cancel out. `--update` stores the counts.

use crate::tools::{cargo, has, root, succeeds};
use crate::totals::Totals;
use crate::{Outcome, optimised};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;

/// The file of stored counts, relative to the root.
const KEPT_IN: &str = "engine/sctp/benches/instructions.toml";
/// Tolerated difference between a count and the stored count, in percent of the stored count.
const TOLERANCE: f64 = 3.0;
/// Rows: name, number of units of work in the shorter run, and description of a unit. The counts include both ends of an association.
const ROWS: &[(&str, u64, &str)] = &[
    ("bulk-1100", 5_000, "a packet with one message of 1,100 bytes, acknowledgements included"),
    ("bulk-65536", 5_060, "a packet of a message of 65,536 bytes, acknowledgements included"),
    ("bulk-64", 20_000, "a message of 64 bytes that shares packets with others"),
    ("ping-pong-64", 1_000, "a message of 64 bytes there and one back"),
    ("set-up", 100, "an association set up and shut down"),
    ("idle-1000", 60, "a second of 1,000 idle associations with four paths each, heartbeats included"),
];

/// Runs `./x bench instructions [--update]`.
pub(super) fn run(words: &[String]) -> Result<Outcome> {
    let update = match words {
        [] => false,
        [word] if word == "--update" => true,
        _ => bail!("usage: ./x bench instructions [--update]"),
    };
    ensure!(
        has("valgrind"),
        "valgrind counts the instructions and is not installed: run  ./x setup  as root"
    );
    let counts = count_all()?;
    let path = root().join(KEPT_IN);
    if update {
        std::fs::write(&path, written(&counts)).with_context(|| format!("cannot write {KEPT_IN}"))?;
        println!("instructions: written to {KEPT_IN}");
        return Ok(Outcome::Good);
    }
    let totals = compared(&counts, &path)?;
    Ok(if totals.failed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// Runs the comparison as a part of `./x test`. If valgrind is missing, prints a message and counts all rows as skipped.
pub(crate) fn judged() -> Result<Totals> {
    if !has("valgrind") {
        println!("test: instruction counts skipped, valgrind is not installed: run  ./x setup  as root");
        return Ok(Totals { skipped: ROWS.len() as u64, ..Totals::default() });
    }
    compared(&count_all()?, &root().join(KEPT_IN))
}

/// Counts all rows concurrently. Concurrency does not affect the counts.
fn count_all() -> Result<Vec<(&'static str, u64)>> {
    let program = &workloads()?;
    std::thread::scope(|scope| {
        let rows: Vec<_> = ROWS
            .iter()
            .map(|&(name, count, _)| scope.spawn(move || count_row(program, name, count)))
            .collect();
        let counted =
            |row: ScopedJoinHandle<'_, _>| row.join().unwrap_or_else(|_| bail!("a thread panicked"));
        rows.into_iter().map(counted).collect()
    })
}

fn count_row(program: &Path, name: &'static str, count: u64) -> Result<(&'static str, u64)> {
    let (less, more) = (instructions(program, name, count)?, instructions(program, name, 2 * count)?);
    ensure!(more > less, "{name}: twice the work takes no more instructions");
    Ok((name, (more - less) / count))
}

/// Builds the program with the workloads, and returns its path.
fn workloads() -> Result<PathBuf> {
    let words = ["build", "--quiet", "--release", "--package", "sctp-engine", "--example", "workloads"];
    ensure!(succeeds(&mut cargo(&words))?, "the example `workloads` does not build");
    Ok(optimised::directory()?.join("examples/workloads"))
}

/// Returns the number of instructions of one run, which does `count` units of work.
fn instructions(program: &Path, row: &str, count: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args([row, &count.to_string()])
        .output()
        .context("cannot start valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind {row}: {}\n{said}", output.status);
    total(&said).with_context(|| format!("valgrind names no total:\n{said}"))
}

/// Extracts the total from cachegrind's closing lines: `==42== I   refs:      1,234`.
fn total(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("refs:"))?;
    line.rsplit(':').next()?.trim().replace(',', "").parse().ok()
}

/// Prints each row with its stored count. A deviation beyond [`TOLERANCE`], in either direction, is a fault.
fn compared(counts: &[(&str, u64)], path: &Path) -> Result<Totals> {
    let kept = std::fs::read_to_string(path).with_context(|| format!("cannot read {KEPT_IN}"))?;
    let mut totals = Totals::default();
    println!("instructions      kept       now");
    for (name, now) in counts {
        let then = read(&kept, name).with_context(|| format!("{KEPT_IN} has no row {name}"))?;
        let change = (*now as f64 / then as f64 - 1.0) * 100.0;
        let good = change.abs() <= TOLERANCE;
        println!("{name:<14} {then:>7} {now:>9} {change:>+6.1} % {}", if good { "ok" } else { "FAILED" });
        totals += Totals::of(&format!("instructions of {name}"), good);
    }
    if totals.failed > 0 {
        println!(
            "instructions: if the change is meant, run  ./x bench instructions --update  and commit {KEPT_IN}"
        );
    }
    Ok(totals)
}

fn read(kept: &str, name: &str) -> Option<u64> {
    kept.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('=')?.trim().parse().ok())
}

fn written(counts: &[(&str, u64)]) -> String {
    let mut text = String::from(
        "# Instructions that the engine takes, both ends together, on x86-64 as valgrind shows it. `./x test` compares;\n\
         # `./x bench instructions --update` writes this file.\n",
    );
    for ((name, now), (_, _, what)) in counts.iter().zip(ROWS) {
        text += &format!("\n# {what}\n{name} = {now}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_out_of_what_cachegrind_says() {
        let said = "==42== Command: x\n==42== \n==42== I   refs:      1,234,567\n";
        assert_eq!(total(said), Some(1_234_567));
        assert_eq!(total("==42== Command: x"), None);
    }

    #[test]
    fn counts_that_were_written_are_read_again() {
        let counts: Vec<_> = ROWS.iter().zip(1..).map(|(row, n)| (row.0, n * 1000)).collect();
        let text = written(&counts);
        for (name, count) in counts {
            assert_eq!(read(&text, name), Some(count), "{name}");
        }
        assert_eq!(read(&text, "bulk"), None);
    }
}

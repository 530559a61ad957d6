//! `./x fuzz`: fuzzes the SCTP and SIP engines for a given time, guided by coverage, with cargo-fuzz and the nightly compiler.
//!
//! New inputs go to a separate directory next to the builds. `./x fuzz keep` stores inputs in `fuzz/corpus`. Together, the stored inputs
//! have the coverage of all inputs. The plain tests of `lab/fuzzing` replay the inputs of `fuzz/corpus`. If an input fails, it is
//! written to `fuzz/artifacts`, and the exit status is 1. The fuzzer runs as one job, at low priority. Begin with [`run`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::Outcome;
use crate::tools::{has, output, root, succeeds};

/// Names of the targets, as in `fuzzing::TARGETS`.
const TARGETS: &[&str] = &["packet", "endpoint", "pair", "sealed", "operations", "mux", "sip"];

/// Version of cargo-fuzz to install if none is installed.
const CARGO_FUZZ: &str = "0.13.2";

/// Default duration for each target, in seconds.
const SECONDS: &str = "60";

/// Maximum length of an input, in bytes.
const INPUT_MAX: u32 = 1500;

/// Maximum number of inputs kept for each target.
const KEPT_MAX: usize = 100;

/// Runs `./x fuzz [TARGET ...] [SECONDS]`, or `./x fuzz keep`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    if words == ["keep"] {
        install()?;
        TARGETS.iter().try_for_each(|target| keep(target))?;
        return Ok(Outcome::Good);
    }
    let (times, names): (Vec<&str>, Vec<&str>) =
        words.iter().map(String::as_str).partition(|word| word.parse::<u32>().is_ok());
    for name in &names {
        ensure!(TARGETS.contains(name), "no target `{name}`; available: {}, and `keep`", TARGETS.join(", "));
    }
    install()?;
    let mut outcome = Outcome::Good;
    for target in TARGETS.iter().filter(|target| names.is_empty() || names.contains(target)) {
        println!("fuzz {target}");
        let found = found(target)?;
        let time = format!("-max_total_time={}", times.first().unwrap_or(&SECONDS));
        let length = format!("-max_len={INPUT_MAX}");
        let mut command = cargo_fuzz(target, &[&found, &kept(target)])?;
        command.args([time.as_str(), length.as_str(), "-timeout=60", "-print_final_stats=1"]);
        if !succeeds(&mut command)? {
            println!("fuzz {target}: FAILED; the input is in fuzz/artifacts/{target}");
            outcome = Outcome::Bad;
        }
    }
    Ok(outcome)
}

/// Returns the directory of a target's committed inputs.
fn kept(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// Returns the directory of the fuzzer's builds, tools and new inputs. This directory is next to the builds of the sources.
fn scratch() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot determine this program's path")?;
    let target = exe.parent().and_then(Path::parent).context("this program's path has no directory")?;
    Ok(target.join("fuzz"))
}

/// Creates and returns the directory of the inputs that were found on this machine.
fn found(target: &str) -> Result<PathBuf> {
    let dir = scratch()?.join("found").join(target);
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    Ok(dir)
}

/// Installs cargo-fuzz next to the builds if none is installed.
fn install() -> Result<()> {
    let toolchains = output(Command::new("rustup").args(["toolchain", "list"]))?;
    if !toolchains.lines().any(|line| line.starts_with("nightly")) {
        bail!("fuzzing needs the nightly compiler: run  rustup toolchain install nightly");
    }
    let tools = scratch()?.join("tools");
    if has("cargo-fuzz") || tools.join("bin/cargo-fuzz").is_file() {
        return Ok(());
    }
    println!("fuzz: installing cargo-fuzz into {}", tools.display());
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "install", "--quiet", "--locked", "cargo-fuzz"]);
    command.args(["--version", CARGO_FUZZ, "--root"]).arg(&tools);
    ensure!(succeeds(&mut command)?, "cargo-fuzz could not be installed");
    Ok(())
}

/// Returns the command that runs a target with these directories of inputs. The first directory receives new inputs. The command uses no
/// sanitizer, because the engines have no unsafe code. The engines' assertions detect faults.
fn cargo_fuzz(target: &str, inputs: &[&Path]) -> Result<Command> {
    let scratch = scratch()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(scratch.join("tools/bin")).chain(std::env::split_paths(&path));
    let mut command = Command::new("nice");
    command.args(["rustup", "run", "nightly", "cargo", "fuzz", "run", "--release", "--debug-assertions"]);
    command.args(["--sanitizer", "none", target]).args(inputs).arg("--");
    command.current_dir(root().join("fuzz")).env("CARGO_TARGET_DIR", scratch.join("build"));
    command.env("PATH", std::env::join_paths(paths)?);
    Ok(command)
}

/// Replaces the committed inputs of a target with a set that has the coverage of all inputs. If the set exceeds [`KEPT_MAX`], keeps only
/// the longest inputs, because they are the most informative.
fn keep(target: &str) -> Result<()> {
    let (kept, found) = (kept(target), found(target)?);
    let chosen = scratch()?.join("chosen").join(target);
    if chosen.exists() {
        fs::remove_dir_all(&chosen)?;
    }
    fs::create_dir_all(&chosen)?;
    let mut command = cargo_fuzz(target, &[&chosen, &found, &kept])?;
    ensure!(succeeds(command.arg("-set_cover_merge=1"))?, "the inputs of {target} could not be merged");
    let mut inputs = Vec::new();
    for entry in fs::read_dir(&chosen)? {
        let entry = entry?;
        inputs.push((entry.metadata()?.len(), entry.path()));
    }
    inputs.sort_by(|a, b| b.cmp(a));
    inputs.truncate(KEPT_MAX);
    fs::remove_dir_all(&kept)?;
    fs::create_dir_all(&kept)?;
    for (_, path) in &inputs {
        fs::copy(path, kept.join(path.file_name().context("an input without name")?))?;
    }
    println!("fuzz {target}: {} inputs kept", inputs.len());
    Ok(())
}

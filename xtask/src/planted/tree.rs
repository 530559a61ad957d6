//! Scratch copy of the sources, which is built and tested with one bug or without a bug.
//!
//! Unchanged files are not rewritten in the copy, so cargo rebuilds only the parts that a bug affects. Invariant: the copy equals the
//! sources, except between [`Tree::plant`] and [`Planted::remove`]. Begin at [`Tree::new`].

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::patch::Patch;
use crate::sealed::{SEALED, run_sealed};
use crate::tools::{PRODUCTS, cargo, root};

/// Parts of the sources that cargo needs to build the engine's tests, in addition to the products' folders.
const COPIED: [&str; 4] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "xtask"];

/// Result of a run of the engine's tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing failed.
    AllPassed,
    /// The first test that failed.
    Failed(String),
    /// The test program ended with this bad exit status, and reported no failed test.
    Died(String),
    /// The tests did not end within the time limit.
    Endless,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::AllPassed => f.write_str("NONE"),
            Verdict::Failed(test) => f.write_str(test),
            Verdict::Died(status) => write!(f, "the test program died: {status}"),
            Verdict::Endless => f.write_str("the tests did not end in time"),
        }
    }
}

/// A choice of the engine's tests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// The tests whose names contain one of these words. Without words, all tests.
    Named(&'a [&'a str]),
    /// All tests that run with sealed packets, with sealed packets.
    Sealed,
}

/// A copy of the sources.
pub(crate) struct Tree {
    sources: PathBuf,
    build: PathBuf,
    /// Lock that is held while the copy is in use.
    _lock: File,
}

/// A bug that is planted in the copy.
#[must_use = "a bug that is not removed spoils the next"]
pub(crate) struct Planted {
    originals: Vec<(PathBuf, String)>,
}

impl Planted {
    /// Restores the text that the bug replaced.
    pub(crate) fn remove(self) -> Result<()> {
        for (path, text) in &self.originals {
            fs::write(path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

impl Tree {
    /// Creates the copy under `scratch`, or updates an existing one.
    pub(crate) fn new(scratch: &Path) -> Result<Tree> {
        let sources = scratch.join("sources");
        fs::create_dir_all(&sources).with_context(|| sources.display().to_string())?;
        let lock = File::create(scratch.join("lock"))?;
        lock.try_lock().context("another run of this command uses the copy")?;
        for name in COPIED.into_iter().chain(PRODUCTS) {
            mirror(&root().join(name), &sources.join(name)).with_context(|| (*name).to_owned())?;
        }
        Ok(Tree { sources, build: scratch.join("build"), _lock: lock })
    }

    /// Applies a bug to the copy.
    pub(crate) fn plant(&self, patch: &Patch) -> Result<Planted> {
        let mut originals = Vec::new();
        for (path, text) in patch.applied(&self.sources)? {
            originals.push((path.clone(), fs::read_to_string(&path)?));
            fs::write(&path, text)?;
        }
        Ok(Planted { originals })
    }

    /// Builds the copy, and runs these tests of the engine. Stops at the first failure, or after `limit`.
    pub(crate) fn judge(&self, tests: Choice<'_>, limit: Duration) -> Result<Verdict> {
        let mut command = Command::new(self.built()?);
        command.env_remove(SEALED);
        match tests {
            Choice::Named(words) => command.args(words),
            Choice::Sealed => run_sealed(&mut command),
        };
        let mut child = command
            .current_dir(self.sources.join("engine/sctp"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the engine's tests")?;
        let stdout = child.stdout.take().context("no output of the engine's tests")?;
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || _ = sender.send(read(stdout)));
        let seen = receiver.recv_timeout(limit);
        if !matches!(seen, Ok(Seen::Ended { .. })) {
            _ = child.kill();
        }
        let status = child.wait().context("the engine's tests")?;
        _ = reader.join();
        Ok(match seen {
            Ok(Seen::Failure(test)) => Verdict::Failed(test),
            Ok(Seen::Ended { passed }) if status.success() => {
                ensure!(passed > 0, "no test ran for {tests:?}");
                Verdict::AllPassed
            }
            Ok(Seen::Ended { .. }) => Verdict::Died(status.to_string()),
            Err(_) => Verdict::Endless,
        })
    }

    /// Returns the engine's test program, built from the copy.
    fn built(&self) -> Result<PathBuf> {
        let words =
            ["test", "--quiet", "--offline", "--locked", "--package", "sctp-engine", "--test", "engine"];
        let mut command = cargo(&words);
        command.args(["--no-run", "--message-format=json-render-diagnostics"]);
        command.current_dir(&self.sources).env("CARGO_TARGET_DIR", &self.build);
        let output = command.output().context("cannot start cargo")?;
        // A bug may leave code unused, so warnings matter only together with errors.
        ensure!(output.status.success(), "it does not build:\n{}", String::from_utf8_lossy(&output.stderr));
        for line in output.stdout.split(|byte| *byte == b'\n') {
            let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
            let is_engine = message["target"]["name"] == "engine" && message["profile"]["test"] == true;
            if let (true, Some(program)) = (is_engine, message["executable"].as_str()) {
                return Ok(program.into());
            }
        }
        bail!("cargo names no test program `engine`")
    }
}

/// An event in the output of a test program.
enum Seen {
    /// This test failed. More output may follow.
    Failure(String),
    /// The output ended, with this number of passed tests.
    Ended { passed: usize },
}

fn read(stdout: impl std::io::Read) -> Seen {
    let mut passed = 0;
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let Some(rest) = line.strip_prefix("test ") else { continue };
        if let Some(test) = rest.strip_suffix(" ... FAILED") {
            return Seen::Failure(test.to_owned());
        }
        passed += usize::from(rest.ends_with(" ... ok"));
    }
    Seen::Ended { passed }
}

/// Makes `to` equal to `from`, but does not rewrite files that are equal already.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        let new = fs::read(from)?;
        if fs::read(to).ok().as_ref() != Some(&new) {
            fs::write(to, new)?;
        }
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        mirror(&from.join(&name), &to.join(&name))?;
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Seen, read};

    #[test]
    fn the_first_failed_test_is_found_and_a_passed_should_panic_test_is_no_failure() {
        let text = "running 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... FAILED\n";
        assert!(matches!(read(text.as_bytes()), Seen::Failure(test) if test == "d"));
        assert!(matches!(read(&text.as_bytes()[..33]), Seen::Ended { passed: 1 }));
    }
}

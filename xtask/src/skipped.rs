//! Tests and experiments that a program reports as skipped ([`testbed::skip`]). The names are printed, and the skipped tests are counted.

use anyhow::{Context, Result};
use std::process::Command;
use tempfile::NamedTempFile;
use testbed::skip::SKIPPED_VARIABLE;

/// File to which a program and its children append a line for each skipped test.
pub(crate) struct Skipped(NamedTempFile);

impl Skipped {
    /// Creates the file, and passes its path to a command that has not started yet.
    pub(crate) fn of(command: &mut Command) -> Result<Self> {
        let file = NamedTempFile::new().context("cannot create the file of skipped tests")?;
        command.env(SKIPPED_VARIABLE, file.path());
        Ok(Self(file))
    }

    /// Prints the skipped tests, and returns their number. The command must have ended.
    pub(crate) fn shown(&self) -> Result<u64> {
        let lines = std::fs::read_to_string(&self.0).context("cannot read which tests were skipped")?;
        lines.lines().for_each(|test| println!("test: skipped {test}"));
        Ok(lines.lines().count() as u64)
    }
}

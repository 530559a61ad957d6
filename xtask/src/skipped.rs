//! Tests and experiments that a program told to be skipped ([`testbed::skip`]): shown by name, and counted.

use anyhow::{Context, Result};
use std::process::Command;
use tempfile::NamedTempFile;
use testbed::skip::SKIPPED_VARIABLE;

/// The file to which a program, and those that it starts, add a line for each.
pub(crate) struct Skipped(NamedTempFile);

impl Skipped {
    /// Those of this command, which has not begun yet.
    pub(crate) fn of(command: &mut Command) -> Result<Self> {
        let file = NamedTempFile::new().context("cannot make the file of skipped tests")?;
        command.env(SKIPPED_VARIABLE, file.path());
        Ok(Self(file))
    }

    /// Shows them; how many there are. The command has ended.
    pub(crate) fn shown(&self) -> Result<u64> {
        let lines = std::fs::read_to_string(&self.0).context("cannot read which tests were skipped")?;
        lines.lines().for_each(|test| println!("test: skipped {test}"));
        Ok(lines.lines().count() as u64)
    }
}

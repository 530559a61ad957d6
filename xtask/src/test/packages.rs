//! The packages that tests need, installed while everything is built: one waits for the network, the other for the processors.

use crate::tools::root;
use anyhow::{Context, Result, ensure};
use std::process::{Child, Command, Stdio};

/// `scripts/setup.sh` at work, as root; nothing otherwise.
pub(crate) struct Packages(Option<Child>);

impl Packages {
    /// Begins.
    pub(crate) fn begin() -> Result<Self> {
        let mut setup = Command::new(root().join("scripts/setup.sh"));
        setup.arg("--quiet").stdin(Stdio::null());
        let child = testbed::is_root().then(|| setup.spawn().context("cannot start scripts/setup.sh"));
        child.transpose().map(Self)
    }

    /// Waits until all are there.
    pub(crate) fn wait(mut self) -> Result<()> {
        let Some(mut child) = self.0.take() else { return Ok(()) };
        let status = child.wait()?;
        ensure!(status.success(), "scripts/setup.sh failed with {status}");
        Ok(())
    }
}

impl Drop for Packages {
    /// What has begun comes to its end: a package manager is not left half way.
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // There is nobody to tell of a failure: another one comes first.
            let _ = child.wait();
        }
    }
}

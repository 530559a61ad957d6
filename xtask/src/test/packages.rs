//! Installs the packages that the tests need, while the checks and the build run. The network limits the installation, and the processors
//! limit the build, so the installation and the build hardly disturb each other.

use crate::tools::root;
use anyhow::{Context, Result, ensure};
use std::process::{Child, Command, Stdio};

/// A running `scripts/setup.sh`, or `None` without root.
pub(crate) struct Packages(Option<Child>);

impl Packages {
    /// Starts the installation if this process has root.
    pub(crate) fn begin() -> Result<Self> {
        let mut setup = Command::new(root().join("scripts/setup.sh"));
        setup.arg("--quiet").stdin(Stdio::null());
        let child = testbed::is_root().then(|| setup.spawn().context("cannot start scripts/setup.sh"));
        child.transpose().map(Self)
    }

    /// Waits until all packages are installed.
    pub(crate) fn wait(mut self) -> Result<()> {
        let Some(mut child) = self.0.take() else { return Ok(()) };
        let status = child.wait()?;
        ensure!(status.success(), "scripts/setup.sh failed with {status}");
        Ok(())
    }
}

impl Drop for Packages {
    /// Waits for a running installation, because a package manager must not be interrupted.
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // A failure is ignored here: an earlier error is already being reported.
            let _ = child.wait();
        }
    }
}

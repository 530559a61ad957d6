//! Functions that run other programs, and that locate the project.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of the workspace's crates, one for each product.
pub(crate) const PRODUCTS: [&str; 7] = ["engine", "net", "daemon", "sockets", "sip", "common", "lab"];

/// Returns the workspace's root directory.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns a command that runs the cargo which built this program, in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a program to its end, with our own standard output and error. Returns true for exit status 0.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    Ok(status.success())
}

/// Returns the standard output of a program, which must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    anyhow::ensure!(output.status.success(), "{:?} failed with {}", command.get_program(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reports whether a command of this name is in PATH.
pub(crate) fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Builds all programs as the tests use them. Returns their directory, which is also this program's directory.
pub(crate) fn built_programs() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot determine this program's path")?;
    anyhow::ensure!(
        succeeds(&mut cargo(&["build", "--quiet", "--workspace", "--bins"]))?,
        "the programs were not built"
    );
    Ok(exe.parent().unwrap_or(Path::new("/")).to_path_buf())
}

//! Builds the small C programs of `programs/c` with the host's compiler.

use crate::host::output_of;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `programs/c/<name>.c` into `dir`, linked with `libraries`; gives the program's path.
///
/// # Errors
/// When there is no compiler, a library is missing, or it does not build.
pub fn build(name: &str, dir: &Path, libraries: &[&str]) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/c").join(format!("{name}.c"));
    let binary = dir.join(name);
    let mut command = Command::new("gcc");
    command.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&binary).arg(source);
    command.args(libraries.iter().map(|library| format!("-l{library}")));
    output_of(command)?;
    Ok(binary)
}

//! Builds the small C programs of `programs/c` with the host's compiler.

use crate::host::output_of;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `programs/c/<name>.c` into `dir`, linked with `libraries`; returns the program's path.
///
/// # Errors
/// When there is no compiler, a library is missing, or it does not build.
pub fn build(name: &str, dir: &Path, libraries: &[&str]) -> Result<PathBuf> {
    let libraries: Vec<String> = libraries.iter().map(|library| format!("-l{library}")).collect();
    compile(name, dir.join(name), &libraries)
}

/// Builds `programs/c/<name>.c` into `dir` as a library to preload; returns its path.
///
/// # Errors
/// When there is no compiler, or it does not build.
pub fn build_preload(name: &str, dir: &Path) -> Result<PathBuf> {
    compile(name, dir.join(format!("{name}.so")), &["-shared".to_owned(), "-fPIC".to_owned()])
}

fn compile(name: &str, binary: PathBuf, words: &[String]) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/c").join(format!("{name}.c"));
    let mut command = Command::new("gcc");
    command.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&binary).arg(source).args(words);
    output_of(command)?;
    Ok(binary)
}

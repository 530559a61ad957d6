//! Builds the small C programs of `programs/c` with the host's compiler.

use crate::host::output_of;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `programs/c/<name>.c` into `dir`, links it with `libraries`, and returns the program's path.
///
/// # Errors
/// When the compiler or a library is missing, or the program does not build.
pub fn build(name: &str, dir: &Path, libraries: &[&str]) -> Result<PathBuf> {
    let libraries: Vec<String> = libraries.iter().map(|library| format!("-l{library}")).collect();
    compile(name, dir.join(name), &libraries)
}

/// Builds `programs/c/<name>.c` into `dir` as a library for `LD_PRELOAD`, and returns its path.
///
/// # Errors
/// When the compiler is missing, or the library does not build.
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

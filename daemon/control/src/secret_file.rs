//! Reads files that hold secrets, which only the daemon's own user and root may read. Begin with [`read_secret`].

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// Reasons why a file with secrets was not read.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The file cannot be read.
    #[error("{}: {error} (setting {setting})", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failure.
        error: std::io::Error,
        /// The setting that names the file.
        setting: &'static str,
    },
    /// Others may read the file.
    #[error("{}: others may read or change this file: chown root, chmod 600", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
}

/// Returns the first `bytes_max` bytes of the file, which `setting` names.
///
/// # Errors
/// If the file cannot be read, is not UTF-8, belongs to another user, or gives others any right.
pub(crate) fn read_secret(
    path: &Path,
    bytes_max: u64,
    setting: &'static str,
) -> Result<String, SecretFileError> {
    let io = |error| SecretFileError::Io { path: path.into(), error, setting };
    let file = File::open(path).map_err(io)?;
    let status = file.metadata().map_err(io)?;
    let is_ours = [0, geteuid().as_raw()].contains(&status.uid());
    if !is_ours || status.mode() & 0o077 != 0 {
        return Err(SecretFileError::Exposed { path: path.into() });
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

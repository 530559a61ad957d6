//! Reads files that hold secrets, which only the daemon's own user and root may read. Begin with [`read_secret`].

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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
    /// The file belongs to another user than root and this process's user, or other users have rights to it.
    #[error("{}: others may read or change this file: chown root, chmod 600", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file is a directory, a pipe or a device, or is too long.
    #[error("{}: not a regular file of up to {bytes_max} bytes (setting {setting})", .path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Maximum length, in bytes.
        bytes_max: u64,
        /// The setting that names the file.
        setting: &'static str,
    },
}

/// Returns the contents of the file, which `setting` names.
///
/// # Errors
/// Fails if the file cannot be read, is not a regular file of up to `bytes_max` bytes, or is not UTF-8. Also fails in the case
/// [`SecretFileError::Exposed`].
pub(crate) fn read_secret(
    path: &Path,
    bytes_max: u64,
    setting: &'static str,
) -> Result<String, SecretFileError> {
    let io = |error| SecretFileError::Io { path: path.into(), error, setting };
    // Without O_NONBLOCK, opening a pipe would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).map_err(io)?;
    let status = file.metadata().map_err(io)?;
    if !status.is_file() || status.len() > bytes_max {
        return Err(SecretFileError::Unfit { path: path.into(), bytes_max, setting });
    }
    let is_ours = [0, geteuid().as_raw()].contains(&status.uid());
    if !is_ours || status.mode() & 0o077 != 0 {
        return Err(SecretFileError::Exposed { path: path.into() });
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

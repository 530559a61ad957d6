//! Storage of a host's key in a file that only its owner may read.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::identity::{HostKey, IdentityError};

/// Limit on the bytes that are read from a key file. Every Ed25519 key in PKCS #8 is shorter.
const LENGTH_MAX: u64 = 4096;
/// Value of the flag `O_NONBLOCK`.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// Reasons why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Path of the key file.
        path: PathBuf,
        /// Reason why the key file cannot be used.
        error: io::Error,
    },
    /// Other users could read or replace the key.
    #[error(
        "{path}: this key belongs to user {owner} and has mode {mode:03o}: it must belong to user {us} and have mode 600"
    )]
    Exposed {
        /// Path of the key file.
        path: PathBuf,
        /// User ID of the file's owner.
        owner: u32,
        /// Effective user ID of this program.
        us: u32,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file holds no key, or no key can be made.
    #[error("{path}: {error}")]
    Key {
        /// Path of the key file.
        path: PathBuf,
        /// Reason why the key file cannot be used.
        error: IdentityError,
    },
}

impl HostKey {
    /// Reads a key from a PKCS #8 file. If the file does not exist, makes a key and writes it to the file
    /// with mode 600.
    ///
    /// # Errors
    /// See [`KeyFileError`].
    pub fn load_or_create(path: &Path) -> Result<HostKey, KeyFileError> {
        let fault = |error| KeyFileError::File { path: path.to_owned(), error };
        let unfit = |error| KeyFileError::Key { path: path.to_owned(), error };
        // Without `O_NONBLOCK`, opening a FIFO would wait until another process writes to the FIFO.
        let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let key = HostKey::generate().map_err(unfit)?;
                match write_new(path, &key.to_pkcs8().map_err(unfit)?) {
                    // Another process has made the file between the check and the creation.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists && path.exists() => {
                        return HostKey::load_or_create(path);
                    }
                    written => return written.map(|()| key).map_err(fault),
                }
            }
            Err(error) => return Err(fault(error)),
        };
        let (status, us) = (file.metadata().map_err(fault)?, rustix::process::geteuid().as_raw());
        let (owner, mode) = (status.uid(), status.mode() & 0o777);
        if owner != us || mode & 0o077 != 0 {
            return Err(KeyFileError::Exposed { path: path.to_owned(), owner, us, mode });
        }
        if !status.is_file() {
            return Err(fault(io::Error::other("not a regular file")));
        }
        let mut der = Zeroizing::new(Vec::new());
        file.take(LENGTH_MAX).read_to_end(&mut der).map_err(fault)?;
        HostKey::from_pkcs8(&der).map_err(unfit)
    }
}

/// Writes a new file at `path`, and fails if `path` exists. The bytes first go to a temporary file, which
/// a hard link then makes visible at `path`. No process therefore ever finds a partial key at `path`,
/// even after a crash.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut number = [0; 8];
    SystemRandom::new().fill(&mut number).map_err(io::Error::other)?;
    let part = path.with_extension(format!("new-{:016x}", u64::from_ne_bytes(number)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let mut write = || {
        file.write_all(bytes)?;
        file.sync_all()?;
        // A hard link fails if another process has created `path` in the meantime. A rename would replace
        // that file.
        std::fs::hard_link(&part, path)
    };
    let written = write();
    let removed = std::fs::remove_file(&part);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.key");
        let made = HostKey::load_or_create(&path).unwrap().public();
        assert_eq!(HostKey::load_or_create(&path).unwrap().public(), made);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(write_new(&path, b"x").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn processes_that_create_the_key_at_once_get_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| HostKey::load_or_create(&path).unwrap().public())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_file_that_other_users_can_access_or_that_is_invalid_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.key");
        HostKey::load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o602] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = HostKey::load_or_create(&path).unwrap_err();
            assert!(matches!(refused, KeyFileError::Exposed { .. }), "{refused}");
            assert!(refused.to_string().contains("mode 600"), "{refused}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, b"not a key").unwrap();
        let refused = HostKey::load_or_create(&path).unwrap_err();
        assert!(matches!(refused, KeyFileError::Key { error: IdentityError::Private, .. }), "{refused}");
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let refused = HostKey::load_or_create(&fifo).unwrap_err();
        assert!(refused.to_string().contains("not a regular file"), "{refused}");
        let nowhere = dir.path().join("none").join("host.key");
        assert!(matches!(HostKey::load_or_create(&nowhere), Err(KeyFileError::File { .. })));
    }
}

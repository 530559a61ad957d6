//! The host's key: its file, and those who sign with it.
//!
//! The key is an Ed25519 key in PKCS #8, made at the first start. Refused: a file that others may read or change, or that belongs to
//! another user, and symbolic links. Where a supervisor exists, only the supervisor reads the file, and the worker asks it for signatures of
//! handshakes. Begin with [`Signer`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::DaemonArgs;
use keying::{HostKey, IdentityError, PublicKey, sign_handshake};
use nix::unistd::geteuid;

use super::ArchiveError;
use super::line::Line;

/// Length of the longest file that is read, in bytes.
const FILE_MAX: u64 = 4096;

/// The reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostKeyError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: another user owns this file, or others may read or change it: chown it to the daemon's user, chmod 600. If others \
             may have read it, remove it: the daemon makes a new key", .path.display())]
    Exposed { path: PathBuf },
    #[error("{}: {error}", .path.display())]
    NoKey { path: PathBuf, error: IdentityError },
}

/// Reads the key of a file; makes it if there is no file.
pub(crate) fn load_or_make(path: &Path) -> Result<HostKey, HostKeyError> {
    let failed = |error| HostKeyError::Io { path: path.into(), error };
    match open(path) {
        Ok(file) => read(path, file),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make(path).map_err(failed)?;
            // Another daemon may have been faster.
            read(path, open(path).map_err(failed)?)
        }
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            Err(failed(io::Error::other("is a symbolic link, which is not followed")))
        }
        Err(error) => Err(failed(error)),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

fn read(path: &Path, file: File) -> Result<HostKey, HostKeyError> {
    let failed = |error| HostKeyError::Io { path: path.into(), error };
    let status = file.metadata().map_err(failed)?;
    if !status.is_file() || status.uid() != geteuid().as_raw() || status.mode() & 0o077 != 0 {
        return Err(HostKeyError::Exposed { path: path.into() });
    }
    let mut der = zeroize::Zeroizing::new(Vec::with_capacity(FILE_MAX as usize));
    file.take(FILE_MAX).read_to_end(&mut der).map_err(failed)?;
    HostKey::from_pkcs8(&der).map_err(|error| HostKeyError::NoKey { path: path.into(), error })
}

/// Writes a new key to a file that did not exist; does nothing if it exists by now.
fn make(path: &Path) -> io::Result<()> {
    const OWNERS_ALONE: u32 = 0o600;
    let der = HostKey::generate().and_then(|key| key.to_pkcs8()).map_err(io::Error::other)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = directory.join(name);
    // A process with our process id may have died while writing it.
    let _ = fs::remove_file(&new);
    let written =
        OpenOptions::new().write(true).create_new(true).mode(OWNERS_ALONE).open(&new).and_then(|mut file| {
            file.write_all(&der)?;
            file.sync_all()
        });
    // Unlike a renaming, a link replaces no file.
    let linked = written.and_then(|()| fs::hard_link(&new, path));
    let _ = fs::remove_file(&new);
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked.and_then(|()| File::open(directory)?.sync_all()),
    }
}

/// Signs handshakes with the host's key, wherever that is.
#[derive(Clone)]
pub(crate) enum Signer {
    /// This process has the key.
    Own(Arc<HostKey>),
    /// The supervisor has it.
    Asked(Arc<Line>),
    /// There is none, for this reason.
    Lacking(Arc<HostKeyError>),
}

impl Signer {
    /// Reads or makes the key of a process that holds it itself.
    pub(crate) fn own(args: &DaemonArgs) -> Signer {
        match load_or_make(&args.host_key_file()) {
            Ok(key) => Signer::Own(Arc::new(key)),
            Err(error) => Signer::Lacking(Arc::new(error)),
        }
    }

    /// Returns the public key.
    pub(crate) fn public(&self) -> Result<PublicKey, ArchiveError> {
        match self {
            Signer::Own(key) => Ok(key.public()),
            Signer::Asked(line) => line.public_key(),
            Signer::Lacking(error) => Err(ArchiveError::Failed(error.to_string())),
        }
    }

    /// Signs the content of a CertificateVerify message of TLS 1.3; refuses everything else.
    pub(crate) fn sign(&self, content: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        match self {
            Signer::Own(key) => sign_handshake(key, content)
                .ok_or_else(|| ArchiveError::Refused("only handshakes of TLS 1.3 are signed".to_owned())),
            Signer::Asked(line) => line.sign(content),
            Signer::Lacking(error) => Err(ArchiveError::Failed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state/host.key");
        let first = load_or_make(&path).expect("made").public();
        assert_eq!(load_or_make(&path).expect("read").public(), first);
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(path.parent().expect("one")).expect("listed").count(), 1, "no other file");
    }

    #[test]
    fn a_file_that_others_may_read_a_link_and_rubbish_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("host.key");
        load_or_make(&path).expect("made");
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        for open in [0o640, 0o604, 0o620] {
            mode(open);
            assert!(matches!(load_or_make(&path), Err(HostKeyError::Exposed { .. })), "{open:o}");
        }
        mode(0o600);
        let link = dir.path().join("link");
        symlink(&path, &link).expect("linked");
        let refused = load_or_make(&link).expect_err("a link").to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        fs::write(&path, "rubbish").expect("written");
        let refused = load_or_make(&path).expect_err("no key").to_string();
        assert!(refused.contains("damaged"), "{refused}");
        assert_eq!(fs::read(&path).expect("read"), b"rubbish", "it is left alone");
    }

    #[test]
    #[ignore = "needs root: gives a file away"]
    fn a_key_of_another_user_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("host.key");
        load_or_make(&path).expect("made");
        std::os::unix::fs::chown(&path, Some(1), None).expect("given away");
        assert!(matches!(load_or_make(&path), Err(HostKeyError::Exposed { .. })));
    }
}

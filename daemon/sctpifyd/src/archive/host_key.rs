//! The host's key, and those who sign with it.
//!
//! The key is made at the first start. Where a supervisor exists, only the supervisor reads its file, and the worker asks it for signatures of
//! handshakes. Begin with [`Signer`].

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use control::DaemonArgs;
use keying::{HostKey, KeyFileError, PublicKey, sign_handshake};

use super::ArchiveError;
use super::line::Line;

/// Reads the key of a file; makes it if there is no file.
pub(crate) fn load_or_make(path: &Path) -> Result<HostKey, KeyFileError> {
    match HostKey::load_or_create(path) {
        // Another daemon has made it at this moment.
        Err(KeyFileError::File { error, .. }) if error.kind() == ErrorKind::AlreadyExists => {
            HostKey::load_or_create(path)
        }
        other => other,
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
    Lacking(Arc<KeyFileError>),
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

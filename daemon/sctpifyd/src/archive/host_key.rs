//! The host key, and the signers that use it.
//!
//! The key is made at the first start. If a supervisor exists, only the supervisor reads the key's file. The worker then asks the
//! supervisor to sign handshakes. Begin with [`Signer`].

use std::sync::Arc;

use control::DaemonArgs;
use keying::{HostKey, KeyFileError, PublicKey, sign_handshake};

use super::ArchiveError;
use super::line::Line;

/// Signer of handshakes. It uses the host key, which this process or the supervisor has.
#[derive(Clone)]
pub(crate) enum Signer {
    /// This process has the key.
    Own(Arc<HostKey>),
    /// The supervisor has the key.
    Asked(Arc<Line>),
    /// No key is available. The error gives the reason.
    Lacking(Arc<KeyFileError>),
}

impl Signer {
    /// Returns the signer of a process that holds the key itself; reads or makes the key.
    pub(crate) fn own(args: &DaemonArgs) -> Signer {
        match HostKey::load_or_create(&args.host_key_file()) {
            Ok(key) => Signer::Own(Arc::new(key)),
            Err(error) => Signer::Lacking(Arc::new(error)),
        }
    }

    /// Returns the public part of the host key.
    pub(crate) fn public(&self) -> Result<PublicKey, ArchiveError> {
        match self {
            Signer::Own(key) => Ok(key.public()),
            Signer::Asked(line) => line.public_key(),
            Signer::Lacking(error) => Err(ArchiveError::Failed(error.to_string())),
        }
    }

    /// Signs the content of a CertificateVerify message of TLS 1.3. Refuses all other content.
    pub(crate) fn sign(&self, content: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        match self {
            Signer::Own(key) => sign_handshake(key, content)
                .ok_or_else(|| ArchiveError::Refused("only handshakes of TLS 1.3 are signed".to_owned())),
            Signer::Asked(line) => line.sign(content),
            Signer::Lacking(error) => Err(ArchiveError::Failed(error.to_string())),
        }
    }
}

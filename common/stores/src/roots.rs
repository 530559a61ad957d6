//! The roots of certificates, from a PEM file, and what is told when a server's certificate does not come from them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// The roots that Debian keeps (package ca-certificates).
pub const USUAL_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The roots of a file, read once.
#[derive(Clone, Debug)]
pub struct Roots {
    path: PathBuf,
    store: Arc<RootCertStore>,
}

impl Roots {
    /// Reads a PEM file; certificates in it that are none of a root are passed over.
    ///
    /// # Errors
    /// A sentence with the file, where it cannot be read or has no root.
    pub fn read(path: &Path) -> Result<Roots, String> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(certificates(path)?);
        if added == 0 {
            return Err(format!("{}: it contains no root certificate", path.display()));
        }
        Ok(Roots { path: path.to_owned(), store: Arc::new(store) })
    }

    /// For whoever judges certificates by rules of its own.
    pub fn store(&self) -> &Arc<RootCertStore> {
        &self.store
    }

    /// For TLS 1.2 and 1.3 with servers that prove to be the host that is connected to; we show no certificate.
    ///
    /// # Errors
    /// A sentence, where the library has no such TLS.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        Ok(Arc::new(builder.with_root_certificates(self.store.clone()).with_no_client_auth()))
    }

    /// Why a handshake has failed, for people.
    pub fn explain(&self, error: &io::Error) -> String {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match of_tls {
            // The latter where a root has the issuer's name and another key.
            Some(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => {
                format!("its certificate is signed by none of the roots in {}", self.path.display())
            }
            Some(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => "its certificate does not match the host name".to_owned(),
            Some(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => "its certificate has expired".to_owned(),
            Some(Error::InvalidMessage(_)) => "it does not use TLS on this port".to_owned(),
            _ => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    "it does not answer TLS on this port".to_owned()
                }
                io::ErrorKind::UnexpectedEof => {
                    "it does not accept TLS on this port: it closed the connection".to_owned()
                }
                _ => format!("no TLS: {error}"),
            },
        }
    }
}

/// All certificates of a PEM file, one at least.
///
/// # Errors
/// A sentence with the file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("{}: no certificates: {error}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect();
    match found.map_err(wrong)? {
        none if none.is_empty() => Err(format!("{}: it contains no certificate", path.display())),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_root_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roots.pem");
        for text in [None, Some(""), Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let error = Roots::read(&path).unwrap_err();
            assert!(error.starts_with(&path.display().to_string()), "{error}");
        }
    }
}

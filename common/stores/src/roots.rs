//! Reads root certificates from a PEM file, and explains why a TLS handshake with a server failed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// File with the root certificates of Debian (package ca-certificates).
pub const USUAL_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Root certificates of a file, read once.
#[derive(Clone, Debug)]
pub struct Roots {
    path: PathBuf,
    store: Arc<RootCertStore>,
}

impl Roots {
    /// Reads a PEM file. Skips certificates that cannot be parsed.
    ///
    /// # Errors
    /// A sentence with the path, if the file cannot be read or contains no usable certificate.
    pub fn read(path: &Path) -> Result<Roots, String> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(certificates(path)?);
        if added == 0 {
            return Err(format!("{}: it contains no root certificate", path.display()));
        }
        Ok(Roots { path: path.to_owned(), store: Arc::new(store) })
    }

    /// Returns the root certificates, for callers with their own verification rules.
    pub fn store(&self) -> &Arc<RootCertStore> {
        &self.store
    }

    /// Returns the configuration of a TLS client, for TLS 1.2 and 1.3. The server must prove that it is the host to which the client
    /// connects. The client presents no certificate.
    ///
    /// # Errors
    /// The error text of the library, if it does not support these versions.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        Ok(Arc::new(builder.with_root_certificates(self.store.clone()).with_no_client_auth()))
    }

    /// Explains in words why a handshake failed.
    pub fn explain(&self, error: &io::Error) -> String {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match of_tls {
            // `BadSignature` occurs if a root has the issuer's name but another key.
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

/// Returns all certificates of a PEM file, which must contain at least one.
///
/// # Errors
/// A sentence with the path, if the file cannot be read or contains no certificate.
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

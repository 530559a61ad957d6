//! TLS for SIP: this program's certificate, and the identity that a peer must prove (RFC 5922).
//!
//! The files are PEM, and are read again at SIGHUP. The peer of an outgoing connection must prove the domain to which the first message is
//! addressed. The subjectAltName of its certificate must have a `sip:` URI with this domain. If the certificate has no `sip:` URIs, a DNS
//! name suffices. Names are compared without regard to case, and wildcards are not supported (RFC 5922 section 7).
//!
//! TLS 1.2 and 1.3 are supported. Clients need no certificate, because users have passwords. A certificate of a client has no effect. Begin
//! with [`TlsContext::load`].

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme,
};
use stores::Roots;

/// Paths of the PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsFiles {
    /// This program's certificate chain without the root, and its key. `None`: incoming connections are not accepted.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
    /// File with the trusted roots of the peers' certificates.
    pub(crate) roots: PathBuf,
}

/// The TLS configuration of connections.
#[derive(Clone, Debug)]
pub(crate) struct TlsContext {
    server: Option<Arc<ServerConfig>>,
    client: Arc<ClientConfig>,
    /// Domain that the peer of an outgoing connection must prove if the message names no domain.
    pub(crate) domain: Option<Arc<str>>,
}

impl TlsContext {
    /// Reads all files.
    ///
    /// # Errors
    /// A sentence that names the faulty file.
    pub(crate) fn load(files: &TlsFiles) -> Result<TlsContext, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let own = files.own.as_ref().map(|(certificate, key)| chain(certificate, key)).transpose()?;
        let own_path = || files.own.as_ref().map(|(path, _)| path.display().to_string()).unwrap_or_default();
        let wrong = |error: Error| format!("{}: {error}", own_path());
        let server = own
            .as_ref()
            .map(|(chain, key)| {
                let builder = ServerConfig::builder_with_provider(provider.clone())
                    .with_safe_default_protocol_versions()?
                    .with_no_client_auth();
                builder.with_single_cert(chain.clone(), key.clone_key()).map(Arc::new)
            })
            .transpose()
            .map_err(wrong)?;
        let roots = Roots::read(&files.roots)?.store().clone();
        let verifier = Arc::new(Verifier { roots, provider: provider.clone() });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        // Other proxies may require a certificate of this client.
        let client = match own {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(wrong)?,
            None => builder.with_no_client_auth(),
        };
        Ok(TlsContext { server, client: Arc::new(client), domain: None })
    }

    /// Creates a session for an incoming connection. Returns `None` without a certificate.
    pub(super) fn accept(&self) -> Option<rustls::Connection> {
        ServerConnection::new(self.server.clone()?).ok().map(Into::into)
    }

    /// Creates a session for an outgoing connection. The peer must prove `domain`, or `address` if there is no domain. Returns `None` if
    /// the domain is not a valid name.
    pub(super) fn connect(&self, domain: Option<&str>, address: IpAddr) -> Option<rustls::Connection> {
        let name = match domain {
            Some(domain) => ServerName::try_from(domain.to_owned()).ok()?,
            None => ServerName::IpAddress(address.into()),
        };
        ClientConnection::new(self.client.clone(), name).ok().map(Into::into)
    }
}

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn chain(certificate: &Path, key: &Path) -> Result<Chain, String> {
    let certificates = stores::certificates(certificate)?;
    let key_der = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("{}: no private key: {error}", key.display()))?;
    Ok((certificates, key_der))
}

/// Verifies the certificates of the peers that we connect to.
#[derive(Debug)]
struct Verifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        match server_name {
            ServerName::DnsName(domain) => check_domain(end_entity, domain.as_ref())?,
            name => verify_server_name(&parsed, name)?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks that a certificate proves a domain (RFC 5922 section 7.1). The identities are "sip" URIs without a user part. DNS names count
/// "if and only if" there are no such URIs.
fn check_domain(end_entity: &CertificateDer<'_>, domain: &str) -> Result<(), Error> {
    let bad = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
    let parsed = webpki::EndEntityCert::try_from(end_entity).map_err(bad)?;
    let uris: Vec<&str> = parsed.valid_uri_names().filter_map(domain_of_uri).collect();
    let names: Vec<&str> = if uris.is_empty() { parsed.valid_dns_names().collect() } else { uris };
    match names.iter().any(|name| name.eq_ignore_ascii_case(domain)) {
        true => Ok(()),
        false => Err(Error::InvalidCertificate(CertificateError::NotValidForName)),
    }
}

fn domain_of_uri(uri: &str) -> Option<&str> {
    let (scheme, domain) = uri.split_once(':')?;
    (scheme.eq_ignore_ascii_case("sip") && !domain.contains('@')).then_some(domain)
}

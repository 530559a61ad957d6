//! TLS 1.3 settings of this crate: one version, raw public keys instead of certificates at both ends, no resumption.

use std::fmt;
use std::sync::{Arc, Mutex};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, KeyLog, ServerConfig, SignatureAlgorithm,
    SignatureScheme,
};
use zeroize::Zeroizing;

use crate::identity::PublicKey;

/// Application protocol (ALPN). The agreed name prevents an attacker from using a handshake of another protocol.
pub(crate) const ALPN: &[u8] = b"sctpify/1";

/// Function that signs with the host's private key, which another process may hold. Returns `None` if it cannot sign.
pub(crate) type Sign = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// Makes the settings of a client and of a server.
pub(crate) fn configs(public: PublicKey, sign: Sign) -> Result<(ClientConfig, ServerConfig), Error> {
    let provider = Arc::new(provider());
    let spki = public.to_spki();
    let key = Arc::new(RemoteKey { spki: spki.clone(), sign });
    let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], key));
    let verifier = Arc::new(AnyKey(provider.signature_verification_algorithms));
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified.clone())));
    client.enable_sni = false;
    client.resumption = Resumption::disabled();
    client.alpn_protocols = vec![ALPN.to_vec()];
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![ALPN.to_vec()];
    Ok((client, server))
}

/// Returns the algorithms in order of preference. The key exchanges are the hybrid X25519MLKEM768, X25519 and secp256r1. The first cipher
/// is AES-128 if the processor has AES instructions, and ChaCha20-Poly1305 otherwise. AES-256 is the last cipher.
fn provider() -> CryptoProvider {
    use aws_lc_rs::{cipher_suite, kx_group};
    let [aes, chacha] =
        [cipher_suite::TLS13_AES_128_GCM_SHA256, cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let first = if has_aes() { [aes, chacha] } else { [chacha, aes] };
    let cipher_suites = first.into_iter().chain([cipher_suite::TLS13_AES_256_GCM_SHA384]).collect();
    let kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1];
    CryptoProvider { cipher_suites, kx_groups, ..aws_lc_rs::default_provider() }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// A host's key whose private part another process may hold.
struct RemoteKey {
    spki: Vec<u8>,
    sign: Sign,
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteKey")
    }
}

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let sign = self.sign.clone();
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(RemoteSigner(sign)) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(&self.spki[..]))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

struct RemoteSigner(Sign);

impl fmt::Debug for RemoteSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteSigner")
    }
}

impl Signer for RemoteSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        (self.0)(message).ok_or_else(|| Error::General("the host's key cannot be used".to_owned()))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Verifier that accepts any Ed25519 key with which the peer has signed the handshake. The caller decides later whether to accept the key.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl AnyKey {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        PublicKey::from_spki(key)
            .map(drop)
            .ok_or(Error::InvalidCertificate(rustls::CertificateError::BadEncoding))
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(key.as_ref()),
            signed,
            &self.0,
        )
    }
}

/// Refuses a signature of TLS 1.2, which is not offered.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not used".to_owned()))
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Store for the exporter master secret of one handshake. `rustls` reveals this secret before the end of the handshake only through its key
/// log.
#[derive(Default)]
pub(crate) struct Secrets(Mutex<Option<Zeroizing<Vec<u8>>>>);

const EXPORTER: &str = "EXPORTER_SECRET";

impl Secrets {
    /// Returns the secret, or `None` if it is not known yet.
    pub(crate) fn exporter(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.0.lock().ok()?.clone()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if label == EXPORTER
            && let Ok(mut kept) = self.0.lock()
        {
            *kept = Some(Zeroizing::new(secret.to_vec()));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == EXPORTER
    }
}

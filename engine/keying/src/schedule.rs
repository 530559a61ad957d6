//! Derivation of record keys from a TLS handshake.
//!
//! This module computes the exporter (RFC 8446 section 7.5) itself. A server needs the keys as soon as it has sent its Finished message,
//! but `rustls` exports keys only after the client's Finished message. [`Exporter::export`] gives the same octets as the later export of
//! `rustls`, and each handshake compares the two results. A pre-shared key is mixed into the exporter's output, because `rustls` accepts no
//! pre-shared key.

use aws_lc_rs::digest::{SHA256, SHA384, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk, Salt};
use sctp::{KeyRole, ProtectionTerms, RecordKeys};
use zeroize::Zeroizing;

use crate::cipher::{Cipher, Suite};

/// Number of this key management method in the negotiation of protection. The number belongs to the registry range with the policy First
/// Come First Served. The draft requests number 192 for its method. This crate's method differs from the draft's method and therefore needs
/// another number.
pub const METHOD: u8 = 229;

/// The exporter label of the draft.
pub(crate) const LABEL: &[u8] = b"EXPORTER_TLS_FOR_DTLS_IN_SCTP";

/// Length of an initialization vector (IV), in bytes.
const IV_LEN: usize = 12;

/// Length of the octets that confirm the server's keys, in bytes.
pub(crate) const CONFIRMATION_LEN: usize = 32;

/// A secret that operators have configured at both ends. The secret is mixed into the record keys, so a host without this secret cannot
/// open a record.
#[derive(Clone)]
pub struct PresharedKey {
    secret: Zeroizing<Vec<u8>>,
    is_required: bool,
}

impl PresharedKey {
    /// Takes a key of 16 or more random bytes. Returns `None` if the key is shorter. A peer without the key gets no association.
    pub fn new(key: &[u8]) -> Option<PresharedKey> {
        const LEAST: usize = 16;
        (key.len() >= LEAST).then(|| PresharedKey { secret: Zeroizing::new(key.to_vec()), is_required: true })
    }

    /// Returns the same key, marked optional. An optional key is mixed in only if the peer has the key too. A peer without the key still
    /// gets an association.
    #[must_use]
    pub fn optional(self) -> PresharedKey {
        PresharedKey { is_required: false, ..self }
    }

    /// Returns the same key, marked required. If the first keys of an association contain an optional key, later epochs require this key.
    pub(crate) fn required(self) -> PresharedKey {
        PresharedKey { is_required: true, ..self }
    }

    /// Reports whether a peer without the key gets no association.
    pub fn is_required(&self) -> bool {
        self.is_required
    }
}

impl std::fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PresharedKey")
    }
}

/// Use of a derived key. The number of each use is an octet of the exporter's context. The numbers 0 to 2 come from the draft.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Record = 0,
    Number = 1,
    Iv = 2,
    /// Octets that prove to the client that the server has the client's keys. The draft defines no such purpose.
    Confirmation = 3,
    /// The confirmation for a client whose first message reports that it has a pre-shared key. The client thus notices if an attacker
    /// removes this report.
    ConfirmationOfPsk = 4,
}

/// The exporter master secret of a handshake.
pub(crate) struct Exporter {
    suite: Suite,
    secret: Zeroizing<Vec<u8>>,
}

impl Exporter {
    pub(crate) fn new(suite: Suite, secret: &[u8]) -> Exporter {
        Exporter { suite, secret: Zeroizing::new(secret.to_vec()) }
    }

    /// Fills `out` with keying material for `context`. Returns `None` if a length is too large.
    pub(crate) fn export(&self, context: &[u8], out: &mut [u8]) -> Option<()> {
        let (empty, context) = (self.hash(b""), self.hash(context));
        let mut secret = Zeroizing::new(vec![0; empty.len()]);
        self.expand(&self.secret, LABEL, &empty, &mut secret)?;
        self.expand(&secret, b"exporter", &context, out)
    }

    fn hash(&self, bytes: &[u8]) -> Vec<u8> {
        digest(if self.is_384() { &SHA384 } else { &SHA256 }, bytes).as_ref().to_vec()
    }

    fn is_384(&self) -> bool {
        self.suite == Suite::Aes256GcmSha384
    }

    /// Computes HKDF-Expand-Label (RFC 8446 section 7.1).
    fn expand(&self, secret: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) -> Option<()> {
        let algorithm = if self.is_384() { HKDF_SHA384 } else { HKDF_SHA256 };
        expand(&Prk::new_less_safe(algorithm, secret), label, context, out)
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(prk: &Prk, label: &[u8], context: &[u8], out: &mut [u8]) -> Option<()> {
    const PREFIX: &[u8] = b"tls13 ";
    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
    let label_len = [u8::try_from(PREFIX.len() + label.len()).ok()?];
    let context_len = [u8::try_from(context.len()).ok()?];
    let info: [&[u8]; 6] = [&length, &label_len, PREFIX, label, &context_len, context];
    prk.expand(&info, Length(out.len())).ok()?.fill(out).ok()
}

/// Returns the exporter's context for a key. As in the draft, the context begins with three octets: direction, role (traffic) and kind of
/// key. `from` is the role of the end that seals with the key. The epoch, and the hash of SCTP ports, INIT and INIT ACK, replace the
/// draft's two parameters.
fn context(from: KeyRole, kind: Purpose, terms: &ProtectionTerms, epoch: u64) -> Vec<u8> {
    const TRAFFIC: u8 = 0;
    let direction = u8::from(from == KeyRole::Server);
    let mut context = vec![direction, TRAFFIC, kind as u8];
    context.extend_from_slice(&terms.transcript);
    context.extend_from_slice(&epoch.to_be_bytes());
    context
}

/// Returns the exporter's context for a value that identifies the whole handshake ([`Binding`](crate::Binding)).
pub(crate) fn binding(terms: &ProtectionTerms) -> Vec<u8> {
    const WHOLE: [u8; 3] = [0xff; 3];
    [&WHOLE[..], &terms.transcript].concat()
}

/// Makes the keys of an epoch. `role` is this end's role in the handshake.
pub(crate) fn keys(
    exporter: &Exporter,
    psk: Option<&PresharedKey>,
    terms: &ProtectionTerms,
    role: KeyRole,
    epoch: u64,
) -> Option<RecordKeys> {
    let cipher = |from: KeyRole| {
        let fill =
            |kind: Purpose, len: usize| derived(exporter, psk, &context(from, kind, terms, epoch), len);
        let len = exporter.suite.key_len();
        let iv = fill(Purpose::Iv, IV_LEN)?.first_chunk().copied()?;
        let cipher =
            Cipher::new(exporter.suite, &fill(Purpose::Record, len)?, &fill(Purpose::Number, len)?, iv)?;
        Some(Box::new(cipher))
    };
    let other = match role {
        KeyRole::Client => KeyRole::Server,
        KeyRole::Server => KeyRole::Client,
    };
    Some(RecordKeys { send: cipher(role)?, receive: cipher(other)? })
}

/// Returns the octets that prove to the client that the server has the client's keys, transcript and pre-shared key. `client_has_psk` is
/// true if the client has reported a pre-shared key.
pub(crate) fn confirmation(
    exporter: &Exporter,
    psk: Option<&PresharedKey>,
    client_has_psk: bool,
    terms: &ProtectionTerms,
    epoch: u64,
) -> Option<Zeroizing<Vec<u8>>> {
    let purpose = if client_has_psk { Purpose::ConfirmationOfPsk } else { Purpose::Confirmation };
    let context = context(KeyRole::Server, purpose, terms, epoch);
    derived(exporter, psk, &context, CONFIRMATION_LEN)
}

/// Exports a key and mixes in the pre-shared key, if any.
fn derived(
    exporter: &Exporter,
    psk: Option<&PresharedKey>,
    context: &[u8],
    len: usize,
) -> Option<Zeroizing<Vec<u8>>> {
    let mut key = Zeroizing::new(vec![0; len]);
    exporter.export(context, &mut key)?;
    match psk {
        Some(psk) => mixed(psk, &key),
        None => Some(key),
    }
}

/// Mixes a pre-shared key into an exported key. The result has the length of the exported key.
fn mixed(psk: &PresharedKey, exported: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let prk = Salt::new(HKDF_SHA256, &psk.secret).extract(exported);
    let mut key = Zeroizing::new(vec![0; exported.len()]);
    expand(&prk, b"sctpify psk", b"", &mut key)?;
    Some(key)
}

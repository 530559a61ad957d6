//! Protection of packets by DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk-03): what is offered and agreed, and what a cipher
//! does.
//!
//! Once protection is in force, each packet is one encrypted and authenticated record, whatever path it takes; only INIT and INIT
//! ACK stay in the clear. This module negotiates, and [`crate::association`] seals and opens. Nothing here makes a key: the caller
//! does, by messages that the association carries ([`KEY_PPID`]), and binds the keys to [`ProtectionTerms::transcript`], so that nobody
//! can have changed INIT or INIT ACK. Begin at [`ProtectionConfig`] and
//! [`install_keys`](crate::Endpoint::install_keys).

use std::fmt::Debug;
use std::time::Duration;

use wire::{Cause, KeyRoles, Parameter, Ppid};

use super::auth::Nonce;

/// The payload protocol identifier of messages about keys (draft-ietf-tsvwg-sctp-dtls-chunk section 11.5). Where protection is agreed, such
/// messages are not the application's: [`Event::KeyMessage`](crate::Event::KeyMessage) has them.
pub const KEY_PPID: Ppid = Ppid(4242);

/// The longest message about keys that is taken, in bytes.
pub(crate) const KEY_MESSAGE_MAX: usize = 64 * 1024;

/// The epoch of an association's first keys (section 3.1 of the draft).
pub const FIRST_EPOCH: u64 = 3;

/// Time that the first keys may take by default: several losses at the initial RTO of RFC 9260.
const KEYS_LIMIT: Duration = Duration::from_secs(30);

/// An offer of protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionConfig {
    /// The method of key management (section 11.6 of the draft).
    pub method: u8,
    /// True if a peer without protection is refused: its INIT or INIT ACK is answered with ABORT.
    pub required: bool,
    /// Time from the handshake until [`Event::Protected`](crate::Event::Protected), after which the association ends.
    pub limit: Duration,
}

impl ProtectionConfig {
    /// An offer of this method, with a limit of 30 s.
    pub const fn new(method: u8, required: bool) -> ProtectionConfig {
        ProtectionConfig { method, required, limit: KEYS_LIMIT }
    }
}

/// An end's part in the negotiation of keys. It is the initiator of the association that is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyRole {
    /// It begins.
    Client,
    /// It answers.
    Server,
}

/// The agreement on protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionTerms {
    /// This end's role.
    pub role: KeyRole,
    /// The method of key management.
    pub method: u8,
    /// The SHA-256 hash of INIT and INIT ACK, without cookie, padding and reports of unknown parameters. Both ends have the same unless
    /// somebody between them changed a packet.
    pub transcript: [u8; 32],
}

/// Keys of one direction and epoch: an AEAD of TLS 1.3 with a tag of 16 octets, and the mask for record numbers.
pub trait RecordCipher: Debug + Send {
    /// Encrypts `text` in place under the record's number, and returns the tag.
    fn seal(&self, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; 16];

    /// Decrypts a record in place: `record` ends in the tag, which is left there. Returns false, and leaves anything in `record`, if it
    /// was not sealed by these keys under this number and with these associated data.
    fn open(&self, number: u64, associated: &[u8], record: &mut [u8]) -> bool;

    /// Returns the mask for the record's number, made of the first octets of the ciphertext (RFC 9147 section 4.2.3).
    fn mask(&self, sample: &[u8; 16]) -> [u8; 2];

    /// Returns how many records may be sealed (RFC 9147 section 4.5.3). New keys are asked for at a quarter of it, and the association ends
    /// rather than go beyond.
    fn record_limit(&self) -> u64;

    /// Returns how many records may fail to open before the association ends (RFC 9147 section 4.5.3).
    fn forgery_limit(&self) -> u64;

    /// Returns the heap bytes that it takes.
    fn memory(&self) -> usize;
}

/// Keys of both directions for one epoch.
#[derive(Debug)]
pub struct RecordKeys {
    /// For packets of this end.
    pub send: Box<dyn RecordCipher>,
    /// For the peer's.
    pub receive: Box<dyn RecordCipher>,
}

/// The moment from which packets are sealed with new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealFrom {
    /// At once: the peer has these keys already. So it is for the client, once it has the server's answer.
    Now,
    /// From the peer's first packet that these keys open: only that shows that it has them. So it is for the server.
    PeersFirst,
}

/// One end's DTLS Key Management parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    tie_breaker: u32,
    role: KeyRole,
    methods: [u8; 1],
}

impl Offer {
    pub(crate) fn new(config: &ProtectionConfig, role: KeyRole, nonce: Nonce) -> Offer {
        Offer { tie_breaker: tie_breaker(&nonce), role, methods: [config.method] }
    }

    pub(crate) fn parameter(&self) -> Parameter<'_> {
        let (client, server) = (self.role == KeyRole::Client, self.role == KeyRole::Server);
        let roles = KeyRoles { restart: false, server, client };
        Parameter::DtlsKeyManagement { tie_breaker: self.tie_breaker, roles, methods: &self.methods }
    }
}

/// Decides which of two handshakes that meet goes on.
pub(crate) fn tie_breaker(nonce: &Nonce) -> u32 {
    let [a, b, c, d, ..] = *nonce;
    u32::from_be_bytes([a, b, c, d])
}

/// A peer's DTLS Key Management parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerOffer<'a> {
    pub(crate) tie_breaker: u32,
    pub(crate) roles: KeyRoles,
    pub(crate) methods: &'a [u8],
}

/// Returns the method that both ends agree on, if protection is; `role` is this end's.
///
/// # Errors
/// The cause of the refusal, where protection is required.
pub(crate) fn agree(
    config: Option<&ProtectionConfig>,
    role: KeyRole,
    peer: Option<&PeerOffer<'_>>,
) -> Result<Option<u8>, Cause<'static>> {
    let Some(config) = config else { return Ok(None) };
    let fault = match peer {
        None => Cause::MissingDtlsSupport,
        Some(peer) if !peer.methods.contains(&config.method) => Cause::NoCommonKeyManagement,
        Some(PeerOffer { roles: KeyRoles { server: true, .. }, .. }) if role == KeyRole::Client => {
            return Ok(Some(config.method));
        }
        Some(PeerOffer { roles: KeyRoles { client: true, .. }, .. }) if role == KeyRole::Server => {
            return Ok(Some(config.method));
        }
        Some(_) => Cause::IncompatibleKeyRoles,
    };
    if config.required { Err(fault) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: ProtectionConfig = ProtectionConfig::new(7, true);

    fn offer(methods: &[u8], client: bool) -> PeerOffer<'_> {
        let roles = KeyRoles { restart: false, server: !client, client };
        PeerOffer { tie_breaker: 1, roles, methods }
    }

    #[test]
    fn both_ends_must_offer_a_method_and_complementary_roles() {
        let agreed = |role, peer: Option<PeerOffer<'_>>| agree(Some(&CONFIG), role, peer.as_ref());
        assert_eq!(agreed(KeyRole::Server, Some(offer(&[1, 7], true))), Ok(Some(7)));
        assert_eq!(agreed(KeyRole::Client, Some(offer(&[7], false))), Ok(Some(7)));
        assert_eq!(agreed(KeyRole::Client, Some(offer(&[7], true))), Err(Cause::IncompatibleKeyRoles));
        assert_eq!(agreed(KeyRole::Client, Some(offer(&[1], false))), Err(Cause::NoCommonKeyManagement));
        assert_eq!(agreed(KeyRole::Server, None), Err(Cause::MissingDtlsSupport));
    }

    #[test]
    fn where_it_is_not_required_a_peer_without_is_taken() {
        let config = ProtectionConfig { required: false, ..CONFIG };
        assert_eq!(agree(Some(&config), KeyRole::Server, None), Ok(None));
        assert_eq!(agree(Some(&config), KeyRole::Server, Some(&offer(&[1], true))), Ok(None));
        assert_eq!(agree(None, KeyRole::Server, Some(&offer(&[7], true))), Ok(None));
    }
}

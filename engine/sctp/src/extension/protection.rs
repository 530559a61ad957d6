//! Protection of packets by DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk-03): the offer, the agreement, and the interface of a
//! cipher.
//!
//! Once protection is in force, each packet is one encrypted and authenticated record, on every path. Only INIT, INIT ACK, and
//! advertisements to routers stay in the clear. This module negotiates, and [`crate::association`] seals and opens packets. The
//! engine makes no keys. The caller agrees on keys with the peer, in messages that the association carries ([`KEY_PPID`]). The
//! caller binds the keys to [`ProtectionTerms::transcript`], so a changed INIT or INIT ACK is noticed. Begin at
//! [`ProtectionConfig`] and [`install_keys`](crate::Endpoint::install_keys).

use std::fmt::Debug;

use wire::{Cause, KeyRoles, Parameter, Ppid};

use super::auth::Nonce;

/// Payload protocol identifier of messages about keys (draft-ietf-tsvwg-sctp-dtls-chunk section 11.5). If both ends agree on
/// protection, such messages do not reach the application; [`Event::KeyMessage`](crate::Event::KeyMessage) delivers them to the
/// driver.
pub const KEY_PPID: Ppid = Ppid(4242);

/// Limit on the length of a message about keys, in bytes.
pub(crate) const KEY_MESSAGE_MAX: usize = 16 * 1024;

/// Epoch of an association's first keys (section 3.1 of the draft).
pub const FIRST_EPOCH: u64 = 3;

/// Default limit on the time from the handshake to the use of the first keys, in seconds. It allows for several losses at the
/// initial RTO of RFC 9260.
const KEYS_LIMIT_S: u16 = 30;

/// An offer of protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionConfig {
    /// The method of key management (section 11.6 of the draft).
    pub method: u8,
    /// True if a peer without protection is refused: its INIT or INIT ACK is answered with ABORT.
    pub required: bool,
    /// Limit on the time, in seconds, from the handshake until both ends have sealed packets and the caller knows the peer. If
    /// the time exceeds this limit, the association ends.
    pub limit_s: u16,
    /// True if an unsealed ABORT makes this end ask the peer by sealed HEARTBEATs. A peer that has lost the association, for example
    /// by a restart, can send only such an ABORT. If the peer does not answer, the association ends after a few RTOs instead of after
    /// the retransmission limit. The price: during an outage of all paths, an attacker on a path can end the association as early.
    pub asks_after_abort: bool,
}

impl ProtectionConfig {
    /// Creates an offer of this method, with a limit of 30 s. Unsealed ABORTs have no effect.
    pub const fn new(method: u8, required: bool) -> ProtectionConfig {
        ProtectionConfig { method, required, limit_s: KEYS_LIMIT_S, asks_after_abort: false }
    }
}

/// Role of an end in the negotiation of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyRole {
    /// The end that began the association.
    Client,
    /// The end that accepted the association.
    Server,
}

/// The agreement on protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionTerms {
    /// Role of this end.
    pub role: KeyRole,
    /// The method of key management.
    pub method: u8,
    /// SHA-256 hash of the ports and of the contents of INIT and INIT ACK. The hash leaves out Cookie Preservative, cookie,
    /// padding and reports of unknown parameters. The hash is the same at both ends, unless an attacker between them has changed
    /// a packet.
    pub transcript: [u8; 32],
}

/// Keys of one direction and epoch: an AEAD of TLS 1.3 with a tag of 16 octets, and a mask for record numbers.
pub trait RecordCipher: Debug + Send {
    /// Encrypts `text` in place under the record's number, and returns the tag.
    fn seal(&self, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; 16];

    /// Decrypts `ciphertext` into `text`, which has the same length. Returns false if the record was not sealed with these keys, this
    /// number and these associated data. The contents of `text` are then unspecified.
    fn open(
        &self,
        number: u64,
        associated: &[u8],
        ciphertext: &[u8],
        tag: &[u8; 16],
        text: &mut [u8],
    ) -> bool;

    /// Returns the mask for the record's number. It is derived from the first octets of the ciphertext (RFC 9147 section 4.2.3).
    fn mask(&self, sample: &[u8; 16]) -> [u8; 2];

    /// Returns the number of records that these keys may seal (RFC 9147 section 4.5.3). New keys are requested when a quarter of
    /// this number is sealed. The association ends before more records are sealed.
    fn record_limit(&self) -> u64;

    /// Returns the number of records that may fail to open before the association ends (RFC 9147 section 4.5.3).
    fn forgery_limit(&self) -> u64;

    /// Returns the heap bytes of the cipher.
    fn memory(&self) -> usize;
}

/// Keys of both directions for one epoch.
#[derive(Debug)]
pub struct RecordKeys {
    /// Keys for packets of this end.
    pub send: Box<dyn RecordCipher>,
    /// Keys for packets of the peer.
    pub receive: Box<dyn RecordCipher>,
}

/// Time from which this end seals packets with new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealFrom {
    /// At once, because the peer already has these keys. The client uses this value after it has received the server's answer.
    Now,
    /// From the peer's first packet that these keys open. Only such a packet shows that the peer has the keys. The server uses
    /// this value.
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

/// Returns the number that decides which of two colliding handshakes continues.
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

/// Returns the method of key management if both ends agree on protection. `role` is the role of this end.
///
/// # Errors
/// Returns the cause of the refusal if protection is required, but the ends do not agree.
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
    fn a_peer_without_protection_is_accepted_if_protection_is_not_required() {
        let config = ProtectionConfig { required: false, ..CONFIG };
        assert_eq!(agree(Some(&config), KeyRole::Server, None), Ok(None));
        assert_eq!(agree(Some(&config), KeyRole::Server, Some(&offer(&[1], true))), Ok(None));
        assert_eq!(agree(None, KeyRole::Server, Some(&offer(&[7], true))), Ok(None));
    }
}

//! Protocol extensions, and their negotiation between both ends of an association.
//!
//! Each end lists its extensions in its INIT or INIT ACK (Supported Extensions, RFC 5061 section 4.2.7). ECN has
//! its own parameter instead. Only extensions that both ends announce are used. The state cookie carries the
//! result. Begin at [`Extensions`].

pub(crate) mod asconf;
pub(crate) mod auth;
pub(crate) mod protection;
pub(crate) mod reconfig;
pub(crate) mod send_buffer;
pub(crate) mod zero_checksum;

use smallvec::SmallVec;
use wire::{ChunkSet, ChunkType, Parameter};

use crate::config::AssociationConfig;
use crate::negotiation::PeerInit;
use protection::KeyRole;

/// One extension.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Extension {
    /// Partial reliability, by FORWARD TSN (RFC 3758).
    PartialReliability,
    /// Message interleaving, by I-DATA (RFC 8260).
    Interleaving,
    /// Authenticated chunks (RFC 4895).
    Auth,
    /// Dynamic address reconfiguration, by ASCONF (RFC 5061); needs [`Extension::Auth`] or protection.
    AddressReconfiguration,
    /// Stream reconfiguration, by RE-CONFIG (RFC 6525).
    StreamReconfiguration,
    /// Explicit congestion notification (RFC 3168, RFC 4960 appendix A).
    Ecn,
}

/// A set of extensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extensions(u8);

impl Extension {
    const ALL: [Extension; 6] = [
        Extension::PartialReliability,
        Extension::Interleaving,
        Extension::Auth,
        Extension::AddressReconfiguration,
        Extension::StreamReconfiguration,
        Extension::Ecn,
    ];

    /// Returns the chunk types with which an end announces the extension. A peer supports the extension if it lists
    /// the first of these types. ECN has a separate parameter instead.
    //= rfc6525#5.1.1-1
    //= rfc5061#4.2.7-1 4.2.7-2
    const fn chunk_types(self) -> &'static [ChunkType] {
        match self {
            Extension::PartialReliability => &[ChunkType::FORWARD_TSN],
            Extension::Interleaving => &[ChunkType::I_DATA, ChunkType::I_FORWARD_TSN],
            Extension::Auth => &[ChunkType::AUTH],
            Extension::AddressReconfiguration => &[ChunkType::ASCONF, ChunkType::ASCONF_ACK],
            Extension::StreamReconfiguration => &[ChunkType::RE_CONFIG],
            Extension::Ecn => &[],
        }
    }
}

impl Extensions {
    /// No extension.
    pub const NONE: Extensions = Extensions(0);

    /// Returns this set with `extension`.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Extensions {
        Extensions(self.0 | 1 << extension as u8)
    }

    /// Returns this set without `extension`.
    #[must_use]
    pub const fn without(self, extension: Extension) -> Extensions {
        Extensions(self.0 & !(1 << extension as u8))
    }

    /// Reports whether `extension` is in the set.
    pub const fn has(self, extension: Extension) -> bool {
        self.0 & (1 << extension as u8) != 0
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Extensions) -> Extensions {
        Extensions(self.0 & other.0)
    }

    /// Reports whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the extensions in the set.
    pub fn iter(self) -> impl Iterator<Item = Extension> {
        Extension::ALL.into_iter().filter(move |&e| self.has(e))
    }

    /// Returns this set without the extensions whose precondition is missing. ASCONF chunks must be authenticated
    /// (RFC 5061 section 4.1.1), or their packets must be `protected` (draft-ietf-tsvwg-sctp-dtls-chunk section
    /// 3.2).
    pub(crate) const fn consistent(self, protected: bool) -> Extensions {
        let is_founded = protected || self.has(Extension::Auth);
        if is_founded { self } else { self.without(Extension::AddressReconfiguration) }
    }

    /// Returns the set as a byte of a cookie.
    pub(crate) const fn to_byte(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_byte(byte: u8) -> Extensions {
        Extensions(byte)
    }

    /// Returns the chunk types to list in a Supported Extensions parameter.
    pub(crate) fn chunk_types(self) -> SmallVec<[u8; 8]> {
        self.iter().flat_map(|e| e.chunk_types().iter().map(|t| t.0)).collect()
    }

    /// Reads a Supported Extensions parameter.
    pub(crate) fn from_chunk_types(types: &[u8]) -> Extensions {
        //= rfc5061#4.2.7-4
        let listed = |e: &Extension| e.chunk_types().first().is_some_and(|t| types.contains(&t.0));
        Extension::ALL.into_iter().filter(listed).collect()
    }
}

/// Extensions in one end's INIT or INIT ACK.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) extensions: Extensions,
    chunk_types: SmallVec<[u8; 8]>,
    zero_checksum: Option<u32>,
    pub(crate) auth: Option<auth::Offer>,
    pub(crate) role: KeyRole,
    protection: Option<protection::Offer>,
}

/// Returns the chunks that the peer is asked to authenticate.
pub(crate) fn chunks_to_sign(config: &AssociationConfig) -> ChunkSet {
    let mut chunks = config.auth.chunks;
    // An advertisement can only come before the AUTH chunk. If the peer had to authenticate advertisements, it
    // could never send one.
    if let Some(send_buffer) = &config.advertisement {
        chunks.remove(send_buffer.chunk_type);
    }
    chunks
}

impl Offer {
    /// Creates the offer of an INIT. The keys for authentication are derived from `nonce`. ASCONF is offered only
    /// together with AUTH, because a peer without protection refuses ASCONF without AUTH.
    pub(crate) fn new(config: &AssociationConfig, nonce: auth::Nonce) -> Offer {
        Offer::of(config, KeyRole::Client, nonce, config.extensions.consistent(false))
    }

    fn of(config: &AssociationConfig, role: KeyRole, nonce: auth::Nonce, extensions: Extensions) -> Offer {
        let asconf = extensions.has(Extension::AddressReconfiguration);
        let auth = auth::AuthConfig { chunks: chunks_to_sign(config), ..config.auth.clone() };
        let auth = extensions.has(Extension::Auth).then(|| auth::Offer::new(&auth, asconf, nonce));
        let protection = config.protection.as_ref().map(|p| protection::Offer::new(p, role, nonce));
        let zero_checksum = zero_checksum::announced(config, protection.is_some());
        let chunk_types = extensions.chunk_types();
        Offer { extensions, chunk_types, zero_checksum, auth, role, protection }
    }

    /// Creates the offer of an INIT ACK. Parameters that are useless with the peer's offer are left out.
    pub(crate) fn answering(config: &AssociationConfig, nonce: auth::Nonce, peer: &PeerInit<'_>) -> Offer {
        let role = KeyRole::Server;
        let method = protection::agree(config.protection.as_ref(), role, peer.protection.as_ref());
        let is_protected = matches!(method, Ok(Some(_)));
        let extensions = config.extensions.consistent(is_protected);
        // The draft forbids AUTH together with protection.
        let extensions = if is_protected { extensions.without(Extension::Auth) } else { extensions };
        let mut offer = Offer::of(config, role, nonce, extensions);
        offer.protection = offer.protection.filter(|_| is_protected);
        offer.zero_checksum = zero_checksum::announced(config, is_protected);
        offer.auth = offer.auth.filter(|_| peer.extensions.has(Extension::Auth));
        if peer.extensions == Extensions::NONE {
            (offer.extensions, offer.chunk_types) = (Extensions::NONE, SmallVec::new());
        }
        offer
    }

    pub(crate) fn parameters(&self) -> impl Iterator<Item = Parameter<'_>> {
        let listed =
            (!self.chunk_types.is_empty()).then_some(Parameter::SupportedExtensions(&self.chunk_types));
        let ecn = self.extensions.has(Extension::Ecn);
        let forward_tsn = self.extensions.has(Extension::PartialReliability);
        let auth = self.auth.iter().flat_map(auth::Offer::parameters);
        //= rfc9653#4-1 4-2
        let zero_checksum = self.zero_checksum.map(|edmid| Parameter::ZeroChecksumAcceptable { edmid });
        // The parameters of four octets must not be the last parameters of an INIT: rtc-sctp drops an INIT that
        // ends with such a parameter.
        let empty =
            [forward_tsn.then_some(Parameter::ForwardTsnSupported), ecn.then_some(Parameter::EcnCapable)];
        let protection = self.protection.iter().map(protection::Offer::parameter);
        empty.into_iter().flatten().chain(listed).chain(zero_checksum).chain(auth).chain(protection)
    }
}

impl FromIterator<Extension> for Extensions {
    fn from_iter<I: IntoIterator<Item = Extension>>(extensions: I) -> Extensions {
        extensions.into_iter().fold(Extensions::NONE, Extensions::with)
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= rfc5061#4.2.7-1 4.2.7-2
    fn listed_extensions_are_read_back() {
        for bits in 0..1 << Extension::ALL.len() {
            let set = Extensions::from_byte(bits);
            let listed = set.without(Extension::Ecn);
            assert_eq!(Extensions::from_chunk_types(&set.chunk_types()), listed);
            assert_eq!(Extensions::from_byte(set.to_byte()), set);
        }
    }

    #[test]
    fn chunk_types_that_name_no_extension_are_passed_over() {
        assert_eq!(Extensions::from_chunk_types(&[0, 3, 255, 130]).iter().count(), 1);
    }
}

//! Packets with a checksum of zero (RFC 9653): which of them an end accepts and sends.
//!
//! A checksum is superfluous if another method detects the errors that it would detect. Each method has a number (EDMID), which both
//! ends announce in INIT and INIT ACK. The engine knows two kinds of methods:
//!
//! - A lower layer checks all packets ([`AssociationConfig::zero_checksum`]).
//! - The tag of a DTLS chunk checks a sealed packet ([`EDMID_DTLS_CHUNK`]).

use base::{Carrier, Route};
use wire::{ChunkType, PacketWriter};

use crate::config::AssociationConfig;

/// EDMID of the authentication tag of a DTLS chunk. An end that offers [protection](AssociationConfig::protection) announces it, unless
/// [`AssociationConfig::zero_checksum`] names another method.
///
/// Only packets that consist of one DTLS chunk then have a checksum of zero, and only over UDP. Over IP, a firewall may drop packets with
/// a wrong SCTP checksum. Packets that a host without the association must answer keep their checksum. The draft of the DTLS
/// chunk names no EDMID. This number is not registered. A changed port or verification tag leads to other keys, or to none.
pub const EDMID_DTLS_CHUNK: u32 = 0xdfc4_e941;

/// Returns the EDMID to announce. `is_offered` is true if the INIT or INIT ACK offers protection.
pub(crate) fn announced(config: &AssociationConfig, is_offered: bool) -> Option<u32> {
    config.zero_checksum.or(is_offered.then_some(EDMID_DTLS_CHUNK))
}

/// Reports whether a packet with a checksum of zero is accepted. An end that has announced a method accepts such packets, whatever the
/// peer has announced (RFC 9653 section 5.3). `first` is the packet's first chunk.
//= rfc9653#5.3-1 5.3-2 5.3-4
pub(crate) fn accepts(config: &AssociationConfig, is_protected: bool, first: ChunkType) -> bool {
    match announced(config, is_protected) {
        None => false,
        Some(EDMID_DTLS_CHUNK) => is_protected && first == ChunkType::DTLS,
        Some(_) => first != ChunkType::INIT && first != ChunkType::COOKIE_ECHO,
    }
}

/// The need of a packet for a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// The packet always has a checksum.
    Always,
    /// The packet has a checksum, unless a lower layer checks all packets. A host that has lost the association has no keys. It answers
    /// with ABORT only if the checksum is right, and this answer is needed.
    WithoutLowerLayer,
    /// The packet needs no checksum.
    Never,
}

/// The packets of an association that have a checksum of zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZeroChecksum {
    /// No packet.
    Never,
    /// All packets, because a lower layer checks them.
    Always,
    /// Packets over UDP that consist of one DTLS chunk.
    Sealed,
}

impl ZeroChecksum {
    /// Returns the packets of an association whose ends agree on a method (`is_agreed`), and on protection (`is_protected`).
    pub(crate) fn agreed(config: &AssociationConfig, is_agreed: bool, is_protected: bool) -> ZeroChecksum {
        match announced(config, is_protected).filter(|_| is_agreed) {
            None => ZeroChecksum::Never,
            Some(EDMID_DTLS_CHUNK) if is_protected => ZeroChecksum::Sealed,
            Some(EDMID_DTLS_CHUNK) => ZeroChecksum::Never,
            Some(_) => ZeroChecksum::Always,
        }
    }

    /// Reports whether this packet, which is complete except for the checksum, has a checksum of zero on this route.
    #[inline]
    pub(crate) fn covers(self, packet: &PacketWriter<'_>, route: &Route, need: Need) -> bool {
        match self {
            ZeroChecksum::Never => false,
            ZeroChecksum::Always => need != Need::Always,
            ZeroChecksum::Sealed => {
                need == Need::Never
                    && packet.first_chunk() == Some(ChunkType::DTLS)
                    && matches!(route.carrier, Carrier::Udp { .. })
            }
        }
    }
}

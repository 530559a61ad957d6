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
/// a wrong SCTP checksum. The draft of the DTLS chunk names no EDMID. This number is not registered. A changed port or verification tag
/// leads to other keys, or to none.
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
    /// Returns the packets for a method on which both ends agree.
    pub(crate) fn agreed(config: &AssociationConfig, is_agreed: bool) -> ZeroChecksum {
        match config.zero_checksum {
            _ if !is_agreed => ZeroChecksum::Never,
            Some(edmid) if edmid != EDMID_DTLS_CHUNK => ZeroChecksum::Always,
            _ => ZeroChecksum::Sealed,
        }
    }

    /// Reports whether this packet, which is complete except for the checksum, has a checksum of zero on this route.
    #[inline]
    pub(crate) fn covers(self, packet: &PacketWriter<'_>, route: &Route) -> bool {
        match self {
            ZeroChecksum::Never => false,
            ZeroChecksum::Always => true,
            ZeroChecksum::Sealed => {
                packet.first_chunk() == Some(ChunkType::DTLS) && matches!(route.carrier, Carrier::Udp { .. })
            }
        }
    }
}

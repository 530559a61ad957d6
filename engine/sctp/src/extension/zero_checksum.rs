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
use crate::tx::{Outstanding, Seq};

/// Number of watched packets in a row that do not arrive, before all packets get a checksum.
const FAILURES_MAX: u8 = 4;

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
    /// The packet needs no checksum. It carries new data only, from this chunk on, and perhaps acknowledgements.
    Never { first: Seq },
}

/// The packets of an association that have a checksum of zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZeroChecksum {
    /// No packet.
    Never,
    /// All packets, because a lower layer checks them.
    Always,
    /// Packets over UDP that consist of one DTLS chunk.
    Sealed(Watch),
}

/// Watch over packets with a checksum of zero, because a network may drop them. One packet is watched at a time: its first chunk must be
/// acknowledged without having left again. Congestion loses some watched packets, but not several in a row, which are a round trip apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Watch {
    /// The first chunk of the watched packet, if `is_on` is set. An `Option` would take 8 octets more in each association.
    first: Seq,
    is_on: bool,
    failures: u8,
}

impl Watch {
    /// Records that a packet with a checksum of zero leaves, whose first new chunk is `first`.
    fn on_sent(&mut self, first: Seq) {
        if !self.is_on {
            (self.first, self.is_on) = (first, true);
        }
    }

    /// Takes note of the fate of the watched packet. Returns true if too many watched packets did not arrive.
    fn gives_up(&mut self, outstanding: &Outstanding) -> bool {
        if !self.is_on {
            return false;
        }
        let Some(has_arrived) = outstanding.arrived_at_once(self.first) else { return false };
        self.is_on = false;
        self.failures = if has_arrived { 0 } else { self.failures + 1 };
        self.failures >= FAILURES_MAX
    }
}

impl ZeroChecksum {
    /// Returns the packets of an association whose ends agree on a method (`is_agreed`), and on protection (`is_protected`).
    pub(crate) fn agreed(config: &AssociationConfig, is_agreed: bool, is_protected: bool) -> ZeroChecksum {
        match announced(config, is_protected).filter(|_| is_agreed) {
            None => ZeroChecksum::Never,
            Some(EDMID_DTLS_CHUNK) if is_protected => ZeroChecksum::Sealed(Watch::default()),
            Some(EDMID_DTLS_CHUNK) => ZeroChecksum::Never,
            Some(_) => ZeroChecksum::Always,
        }
    }

    /// Reports whether this packet, which is complete except for the checksum, has a checksum of zero on this route. If so, the packet
    /// leaves.
    #[inline]
    pub(crate) fn covers(&mut self, packet: &PacketWriter<'_>, route: &Route, need: Need) -> bool {
        match (self, need) {
            (ZeroChecksum::Never, _) => false,
            (ZeroChecksum::Always, _) => need != Need::Always,
            (ZeroChecksum::Sealed(watch), Need::Never { first }) => {
                let is_covered = packet.first_chunk() == Some(ChunkType::DTLS)
                    && matches!(route.carrier, Carrier::Udp { .. });
                if is_covered {
                    watch.on_sent(first);
                }
                is_covered
            }
            (ZeroChecksum::Sealed(_), _) => false,
        }
    }

    /// Gives all further sealed packets a checksum if those without one do not arrive.
    #[inline]
    pub(crate) fn check(&mut self, outstanding: &Outstanding) {
        if let ZeroChecksum::Sealed(watch) = self
            && watch.gives_up(outstanding)
        {
            *self = ZeroChecksum::Never;
        }
    }
}

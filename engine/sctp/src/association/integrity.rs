//! Integrity of packets: AUTH (RFC 4895), DTLS chunks, and the checksum, which may be zero (RFC 9653).
//!
//! Start at [`Integrity::begin`] for our packets. [`screen`](super::Association::screen) checks the peer's packets.

use base::Route;
use wire::{ChunkType, CommonHeader, PacketWriter};

use super::protection::Protection;
use crate::extension::auth::{Auth, HandshakeHash};
use crate::extension::zero_checksum::{Need, ZeroChecksum};
use crate::tx::Outstanding;

/// The keys of an association, and the authentication of the packet being handled.
#[derive(Debug)]
pub(crate) struct Integrity {
    auth: Option<Box<Auth>>,
    protection: Option<Box<Protection>>,
    /// The packets of this end that have a checksum of zero (RFC 9653).
    zero_checksum: ZeroChecksum,
    /// Set if a valid AUTH chunk covers the current chunk, or the current packet was sealed.
    is_signed: bool,
    /// Set if the current packet was sealed.
    is_sealed: bool,
}

impl Integrity {
    pub(super) fn new(
        auth: Option<Box<Auth>>,
        protection: Option<Box<Protection>>,
        zero_checksum: ZeroChecksum,
    ) -> Self {
        Integrity { auth, protection, zero_checksum, is_signed: false, is_sealed: false }
    }

    #[inline]
    pub(super) fn protection(&self) -> Option<&Protection> {
        self.protection.as_deref()
    }

    #[inline]
    pub(super) fn protection_mut(&mut self) -> Option<&mut Protection> {
        self.protection.as_deref_mut()
    }

    /// Reports whether protection is agreed on, but application messages must still wait.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.protection().is_some_and(|protection| !protection.is_open())
    }

    /// Reports whether our packets are sealed.
    #[inline]
    pub(super) fn seals(&self) -> bool {
        self.protection().is_some_and(Protection::seals)
    }

    #[inline]
    pub(super) fn auth(&self) -> Option<&Auth> {
        self.auth.as_deref()
    }

    pub(super) fn auth_mut(&mut self) -> Option<&mut Auth> {
        self.auth.as_deref_mut()
    }

    /// Reports whether packets of this end may have a checksum of zero.
    pub(super) fn sends_zero_checksum(&self) -> bool {
        self.zero_checksum != ZeroChecksum::Never
    }

    /// Returns the octets that a packet with a chunk of this type needs in addition to its common header and its
    /// chunks. These octets hold the AUTH chunk, or the DTLS chunk's own fields. The DTLS chunk counts even before the
    /// first keys exist.
    #[inline]
    pub(super) fn overhead(&self, chunk_type: ChunkType) -> usize {
        match &self.protection {
            Some(protection) => protection.overhead(),
            None => self.auth().map_or(0, |auth| auth.overhead(chunk_type)),
        }
    }

    /// Begins a packet. If the association signs or seals packets, [`finish`](Self::finish) will sign or seal the
    /// packet's chunks.
    #[inline]
    pub(crate) fn begin<'b>(&self, buf: &'b mut [u8], header: CommonHeader) -> PacketWriter<'b> {
        if self.seals() {
            return PacketWriter::for_sealing(buf, header);
        }
        let packet = PacketWriter::new(buf, header);
        match self.auth() {
            Some(auth) => packet.with_auth(auth.plan()),
            None => packet,
        }
    }

    /// Signs or seals a packet for `route`, writes its checksum and returns its length. Returns zero if the keys have
    /// reached their limit.
    #[inline]
    pub(crate) fn finish(&mut self, mut packet: PacketWriter<'_>, route: &Route, need: Need) -> usize {
        if let Some(protection) = &mut self.protection {
            if !protection.seal(&mut packet) {
                return 0;
            }
        } else if let Some(auth) = self.auth() {
            packet.sign(|covered| auth.sign(covered));
        }
        if self.zero_checksum.covers(&packet, route, need) {
            packet.finish_zero_checksum()
        } else {
            packet.finish()
        }
    }

    /// Gives all further sealed packets a checksum if those without one do not arrive.
    #[inline]
    pub(super) fn check_zero_checksum(&mut self, outstanding: &Outstanding) {
        self.zero_checksum.check(outstanding);
    }

    /// Begins the handling of a packet of the peer. `is_signed` is true if an AUTH chunk covers the packet's chunks.
    /// `is_sealed` is true if the packet was sealed.
    pub(super) fn begin_packet(&mut self, is_signed: bool, is_sealed: bool) {
        (self.is_signed, self.is_sealed) = (is_signed || is_sealed, is_sealed);
    }

    /// Reports whether the current packet was sealed.
    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Records that a valid AUTH chunk covers the chunks that follow.
    pub(super) fn on_signed(&mut self) {
        self.is_signed = true;
    }

    /// Reports whether a key is in force. If so, only holders of the key can sign or seal packets in the peer's name.
    pub(super) fn is_keyed(&self) -> bool {
        self.protection.is_some() || self.auth().is_some_and(Auth::has_shared_keys_only)
    }

    /// Reports whether all keys come from the settings, and none from a key command.
    pub(super) fn has_keys_of_settings(&self) -> bool {
        self.auth().is_none_or(|auth| !auth.has_other_keys())
    }

    /// Reports whether the current chunk may come from a third party.
    pub(super) fn may_be_forged(&self) -> bool {
        !self.is_signed && self.is_keyed()
    }

    /// Returns the hash of the handshake, if keys are derived from it.
    pub(super) fn handshake(&self) -> Option<HandshakeHash> {
        self.auth().and_then(Auth::handshake)
    }

    /// Returns the heap bytes of the keys.
    pub(super) fn memory(&self) -> usize {
        self.auth().map_or(0, Auth::memory) + self.protection().map_or(0, Protection::memory)
    }
}

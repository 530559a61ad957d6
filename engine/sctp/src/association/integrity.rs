//! The integrity of packets: AUTH (RFC 4895), and the checksum or a zero in its place (RFC 9653).
//!
//! Start at [`Integrity::prepare`] for packets of ours; [`screen`](super::Association::screen) judges the peer's.

use wire::{ChunkType, PacketWriter};

use crate::extension::auth::{Auth, HandshakeHash};

/// The keys of an association, and the authentication of the packet being handled.
#[derive(Debug)]
pub(super) struct Integrity {
    auth: Option<Box<Auth>>,
    /// Set if our packets may carry a checksum of zero (RFC 9653).
    zero_checksum: bool,
    /// Set if a valid AUTH chunk covers the current chunk.
    is_signed: bool,
}

impl Integrity {
    pub(super) fn new(auth: Option<Box<Auth>>, zero_checksum: bool) -> Self {
        Integrity { auth, zero_checksum, is_signed: false }
    }

    #[inline]
    pub(super) fn auth(&self) -> Option<&Auth> {
        self.auth.as_deref()
    }

    pub(super) fn auth_mut(&mut self) -> Option<&mut Auth> {
        self.auth.as_deref_mut()
    }

    /// Reports whether our packets may carry a checksum of zero.
    pub(super) fn sends_zero_checksum(&self) -> bool {
        self.zero_checksum
    }

    /// Octets of the AUTH chunk that goes before a chunk of this type.
    #[inline]
    pub(super) fn overhead(&self, chunk_type: ChunkType) -> usize {
        self.auth().map_or(0, |auth| auth.overhead(chunk_type))
    }

    /// Makes a packet sign its chunks.
    #[inline]
    pub(super) fn prepare<'a>(&self, packet: PacketWriter<'a>) -> PacketWriter<'a> {
        match self.auth() {
            Some(auth) => packet.with_auth(auth.plan()),
            None => packet,
        }
    }

    /// Signs a packet, writes its checksum and returns its length.
    #[inline]
    pub(super) fn finish(&self, mut packet: PacketWriter<'_>, needs_checksum: bool) -> usize {
        if let Some(auth) = self.auth() {
            packet.sign(|covered| auth.sign(covered));
        }
        if self.zero_checksum && !needs_checksum {
            return packet.finish_zero_checksum();
        }
        packet.finish()
    }

    /// Begins a packet of the peer, whose chunks are covered by AUTH if `is_signed`.
    pub(super) fn begin_packet(&mut self, is_signed: bool) {
        self.is_signed = is_signed;
    }

    /// Records that a valid AUTH chunk covers the chunks that follow.
    pub(super) fn on_signed(&mut self) {
        self.is_signed = true;
    }

    /// Reports whether a shared key is in force, without which nobody can sign for the peer.
    pub(super) fn is_keyed(&self) -> bool {
        self.auth().is_some_and(Auth::has_shared_keys_only)
    }

    /// Reports whether all keys come from the settings, and none from a command.
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

    /// Heap bytes of the keys.
    pub(super) fn memory(&self) -> usize {
        self.auth().map_or(0, Auth::memory)
    }
}

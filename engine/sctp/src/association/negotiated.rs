//! Parameters set by the handshake: ports, tags, initial TSN, streams and extensions (RFC 9260 section 5.1).
//!
//! Stream reconfiguration (RFC 6525) changes the numbers of streams and the TSNs. All other parameters stay the same.
//! Start at [`Negotiated`].

use wire::{ChunkType, CommonHeader, StreamId, Tsn, VerificationTag};

use super::Setup;
use crate::error::StreamError;
use crate::extension::{Extension, Extensions};
use crate::tx::Seq;

/// The parameters of an association that both ends know.
#[derive(Clone, Debug)]
pub(super) struct Negotiated {
    local_port: u16,
    remote_port: u16,
    //= rfc9260#5.3.1-2
    local_tag: VerificationTag,
    peer_tag: VerificationTag,
    /// TSN of our sequence 0. A sequence is a TSN of ours that does not wrap, counted from 0.
    initial_tsn: Tsn,
    adaptation: Option<u32>,
    /// The extensions that both ends offered.
    extensions: Extensions,
    outbound_streams: u16,
    inbound_streams: u16,
}

impl Negotiated {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Negotiated {
            local_port: setup.ports.0,
            remote_port: setup.ports.1,
            local_tag: setup.tags.0,
            peer_tag: setup.tags.1,
            initial_tsn: setup.initial_tsns.0,
            adaptation: setup.adaptation,
            extensions: setup.agreed.extensions,
            outbound_streams: setup.streams.0,
            inbound_streams: setup.streams.1,
        }
    }

    /// Returns our port and the peer's port.
    //= rfc9260#1.3-2
    pub(super) fn ports(&self) -> (u16, u16) {
        (self.local_port, self.remote_port)
    }

    /// Returns our verification tag and the peer's.
    pub(super) fn tags(&self) -> (VerificationTag, VerificationTag) {
        (self.local_tag, self.peer_tag)
    }

    /// Returns the common header of packets to the peer.
    //= rfc9260#3.1-3
    pub(super) fn header(&self) -> CommonHeader {
        CommonHeader { source_port: self.local_port, destination_port: self.remote_port, tag: self.peer_tag }
    }

    /// Returns the adaptation code point that the peer has announced.
    pub(super) fn adaptation(&self) -> Option<u32> {
        self.adaptation
    }

    #[inline]
    pub(super) fn initial_tsn(&self) -> Tsn {
        self.initial_tsn
    }

    /// Assigns the TSN `tsn` to the sequence `next`. No data may be outstanding.
    #[expect(clippy::cast_possible_truncation, reason = "TSNs are calculated modulo 2^32")]
    pub(super) fn renumber(&mut self, next: Seq, tsn: Tsn) {
        self.initial_tsn = Tsn(tsn.0.wrapping_sub(next.0 as u32));
    }

    pub(super) fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// Reports whether both ends have offered an extension.
    #[inline]
    pub(super) fn has(&self, extension: Extension) -> bool {
        self.extensions.has(extension)
    }

    pub(super) fn outbound_streams(&self) -> u16 {
        self.outbound_streams
    }

    pub(super) fn inbound_streams(&self) -> u16 {
        self.inbound_streams
    }

    pub(super) fn set_outbound_streams(&mut self, streams: u16) {
        self.outbound_streams = streams;
    }

    pub(super) fn set_inbound_streams(&mut self, streams: u16) {
        self.inbound_streams = streams;
    }

    /// Checks that this end may send on a stream.
    pub(super) fn check_outbound(&self, stream: StreamId) -> Result<(), StreamError> {
        let streams = self.outbound_streams;
        if stream.0 < streams { Ok(()) } else { Err(StreamError::NoSuchStream { stream: stream.0, streams }) }
    }

    /// Returns the chunk type of user data: DATA, or I-DATA if negotiated.
    //= rfc8260#2-1
    #[inline]
    pub(super) fn data_chunk_type(&self) -> ChunkType {
        if self.has(Extension::Interleaving) { ChunkType::I_DATA } else { ChunkType::DATA }
    }

    /// Returns the length of a DATA or I-DATA chunk before its user data, in octets.
    #[inline]
    pub(super) fn data_header_len(&self) -> usize {
        if self.has(Extension::Interleaving) { wire::IDATA_HEADER_LEN } else { wire::DATA_HEADER_LEN }
    }
}

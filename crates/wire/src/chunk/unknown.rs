//! A chunk of a type this crate does not know
//! ([RFC 9260 section 3.2](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.2)).

use super::ChunkType;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A chunk of any other type. One made by hand with a known type writes well and reads as that type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownChunk<'a> {
    /// Its type; [`crate::UnrecognizedAction::for_chunk`] says what its sender asks for.
    pub chunk_type: ChunkType,
    /// Its flags octet.
    pub flags: u8,
    /// What follows its header.
    pub value: &'a [u8],
}

impl<'a> UnknownChunk<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> UnknownChunk<'a> {
        UnknownChunk { chunk_type: raw.chunk_type, flags: raw.flags, value: raw.value }
    }
}

impl WriteChunk for UnknownChunk<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(self.chunk_type, self.flags, |out| out.bytes(self.value))
    }
}

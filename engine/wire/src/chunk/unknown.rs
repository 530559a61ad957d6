//! A chunk of a type that this crate does not know
//! ([RFC 9260 section 3.2](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.2)).

use super::ChunkType;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A chunk of a type for which this crate has no parser. A program can also set a known type here. The
/// written chunk then reads back as the variant of that type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownChunk<'a> {
    /// Type of the chunk. [`crate::UnrecognizedAction::for_chunk`] returns the action that the type requests.
    pub chunk_type: ChunkType,
    /// Flags octet of the chunk.
    pub flags: u8,
    /// Value after the chunk's header, without padding.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back};

    const GOLDEN: &str = "fe00000b 756e6b6e6f776e";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(254), flags: 0, value: b"unknown" }),
        );
    }

    proptest! {
        #[test]
        fn any_value_reads_back(chunk_type in 16..64u8, flags: u8, value in proptest::collection::vec(any::<u8>(), 0..2000)) {
            assert_reads_back(Chunk::Unknown(UnknownChunk { chunk_type: ChunkType(chunk_type), flags, value: &value }));
        }
    }
}

//! PAD, [RFC 4820 section 3](https://www.rfc-editor.org/rfc/rfc4820.html#section-3).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 132  |    Flags=0    |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                          Padding Data                         |
//! +---------------------------------------------------------------+
//! ```
//!
//! The content of the padding has no meaning. The parser therefore keeps only the length, and a written
//! chunk contains zeros.

use super::ChunkType;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Padding that lengthens a packet, to probe a path's MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pad {
    /// Octets of padding after the chunk's header.
    pub len: usize,
}

impl Pad {
    //= rfc4820#3-3
    //= rfc8899#4.1-1
    pub(super) fn parse(raw: &RawChunk<'_>) -> Pad {
        Pad { len: raw.value.len() }
    }
}

//= rfc4820#3-1 3-2
impl WriteChunk for Pad {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::PAD, 0, |out| out.zeros(self.len))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, hex, read_chunk};

    const GOLDEN: &str = "84000007 000000";

    #[test]
    fn the_layout_of_the_rfc_reads_and_writes() {
        assert_golden(GOLDEN, Chunk::Pad(Pad { len: 3 }));
    }

    #[test]
    //= rfc4820#3-3
    //= rfc8899#4.1-1
    fn the_content_of_padding_is_ignored() {
        assert_eq!(read_chunk(&hex("84000007 ff0102")), Ok(Chunk::Pad(Pad { len: 3 })));
    }

    #[test]
    //= rfc4820#3-1
    fn writing_more_padding_than_the_buffer_holds_fails_with_no_room() {
        let mut buf = [0; 64];
        assert_eq!(Pad { len: usize::MAX }.write(&mut Writer::new(&mut buf)), Err(NoRoom));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(len in 0..65_528usize) {
            assert_reads_back(Chunk::Pad(Pad { len }));
        }
    }
}

//! ECNE, [RFC 9260 section 3.2](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.2).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 12   |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                       Lowest TSN Number                       |
//! +---------------------------------------------------------------+
//! ```

use super::{ChunkError, ChunkType};
use crate::Tsn;
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A report from a receiver to a sender: one of the sender's packets met congestion (RFC 4960
/// appendix A).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ecne {
    /// The lowest TSN in the marked packet.
    pub lowest_tsn: Tsn,
}

impl Ecne {
    pub(super) fn parse(raw: &RawChunk<'_>) -> Result<Ecne, ChunkError> {
        let tsn = Reader::new(raw.value).u32().ok_or_else(|| raw.too_short(4))?;
        Ok(Ecne { lowest_tsn: Tsn(tsn) })
    }
}

impl WriteChunk for Ecne {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::ECNE, 0, |out| out.u32(self.lowest_tsn.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below};

    const GOLDEN: &str = "0c000008 000003e8";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(GOLDEN, Chunk::Ecne(Ecne { lowest_tsn: Tsn(1000) }));
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(8, GOLDEN);
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tsn: u32) {
            assert_reads_back(Chunk::Ecne(Ecne { lowest_tsn: Tsn(tsn) }));
        }
    }
}

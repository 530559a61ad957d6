//! CWR, [RFC 9260 section 3.2](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.2).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 13   |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                       Lowest TSN Number                       |
//! +---------------------------------------------------------------+
//! ```

use super::{ChunkError, ChunkType};
use crate::Tsn;
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A report that the sender of data has acted on an ECNE (RFC 4960 appendix A).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cwr {
    /// The lowest TSN from the ECNE that this chunk answers.
    pub lowest_tsn: Tsn,
}

impl Cwr {
    pub(super) fn parse(raw: &RawChunk<'_>) -> Result<Cwr, ChunkError> {
        let tsn = Reader::new(raw.value).u32().ok_or_else(|| raw.too_short(4))?;
        Ok(Cwr { lowest_tsn: Tsn(tsn) })
    }
}

impl WriteChunk for Cwr {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::CWR, 0, |out| out.u32(self.lowest_tsn.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below};

    const GOLDEN: &str = "0d000008 000003e8";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(GOLDEN, Chunk::Cwr(Cwr { lowest_tsn: Tsn(1000) }));
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(8, GOLDEN);
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tsn: u32) {
            assert_reads_back(Chunk::Cwr(Cwr { lowest_tsn: Tsn(tsn) }));
        }
    }
}

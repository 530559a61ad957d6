//! SHUTDOWN, [RFC 9260 section 3.3.8](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.8).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |    Type = 7   |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                       Cumulative TSN Ack                      |
//! +---------------------------------------------------------------+
//! ```

use super::{ChunkError, ChunkType};
use crate::Tsn;
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Start of a graceful shutdown: the sender has no more data to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Highest TSN up to which all TSNs were received.
    pub cumulative_tsn: Tsn,
}

impl Shutdown {
    pub(super) fn parse(raw: &RawChunk<'_>) -> Result<Shutdown, ChunkError> {
        let tsn = Reader::new(raw.value).u32().ok_or_else(|| raw.too_short(4))?;
        Ok(Shutdown { cumulative_tsn: Tsn(tsn) })
    }
}

impl WriteChunk for Shutdown {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::SHUTDOWN, 0, |out| out.u32(self.cumulative_tsn.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below};

    const GOLDEN: &str = "07000008 619f9dd1";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(GOLDEN, Chunk::Shutdown(Shutdown { cumulative_tsn: Tsn(0x619f_9dd1) }));
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(8, GOLDEN);
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tsn: u32) {
            assert_reads_back(Chunk::Shutdown(Shutdown { cumulative_tsn: Tsn(tsn) }));
        }
    }
}

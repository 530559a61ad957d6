//! SHUTDOWN COMPLETE, [RFC 9260 section 3.3.13](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.13).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 14   |  Reserved  |T |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! ```

use super::ChunkType;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

const FLAG_T: u8 = 1;

/// Completion of a graceful shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShutdownComplete {
    /// T bit: true if the sender has no association. The verification tag is then copied from the packet that
    /// this chunk answers.
    pub tag_reflected: bool,
}

impl ShutdownComplete {
    pub(super) fn parse(raw: &RawChunk<'_>) -> ShutdownComplete {
        ShutdownComplete { tag_reflected: raw.flags & FLAG_T != 0 }
    }
}

impl WriteChunk for ShutdownComplete {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        let flags = if self.tag_reflected { FLAG_T } else { 0 };
        out.chunk(ChunkType::SHUTDOWN_COMPLETE, flags, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back};

    const GOLDEN: &str = "0e010004";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(GOLDEN, Chunk::ShutdownComplete(ShutdownComplete { tag_reflected: true }));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tag_reflected: bool) {
            assert_reads_back(Chunk::ShutdownComplete(ShutdownComplete { tag_reflected }));
        }
    }
}

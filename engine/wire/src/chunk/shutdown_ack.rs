//! SHUTDOWN ACK, [RFC 9260 section 3.3.9](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.9).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |    Type = 8   |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! ```

use super::ChunkType;
use crate::writer::{NoRoom, Writer};

pub(super) fn write(out: &mut Writer<'_>) -> Result<(), NoRoom> {
    out.chunk(ChunkType::SHUTDOWN_ACK, 0, |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use crate::Chunk;
    use crate::test_support::assert_golden;

    const GOLDEN: &str = "08000004";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(GOLDEN, Chunk::ShutdownAck);
    }
}

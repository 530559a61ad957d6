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

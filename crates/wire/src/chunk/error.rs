//! ERROR, [RFC 9260 section 3.3.10](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.10).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |    Type = 9   |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                    one or more Error Causes                   |
//! +---------------------------------------------------------------+
//! ```

use super::ChunkType;
use crate::cause::Causes;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Reports errors that do not end the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorChunk<'a> {
    /// What was wrong.
    pub causes: Causes<'a>,
}

impl<'a> ErrorChunk<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> ErrorChunk<'a> {
        ErrorChunk { causes: Causes::from_wire(raw.value) }
    }
}

impl WriteChunk for ErrorChunk<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::ERROR, 0, |out| self.causes.write(out))
    }
}

//! RE-CONFIG, [RFC 6525 section 3.1](https://www.rfc-editor.org/rfc/rfc6525.html#section-3.1).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 130  |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                   Re-configuration Parameter                  |
//! +---------------------------------------------------------------+
//! |             Re-configuration Parameter (optional)             |
//! +---------------------------------------------------------------+
//! ```

use super::ChunkType;
use crate::packet::RawChunk;
use crate::parameter::Parameters;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Asks for streams to be reset or added, or answers that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReConfig<'a> {
    /// One or two requests or answers.
    pub parameters: Parameters<'a>,
}

impl<'a> ReConfig<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> ReConfig<'a> {
        ReConfig { parameters: Parameters::from_wire(raw.value) }
    }
}

impl WriteChunk for ReConfig<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::RE_CONFIG, 0, |out| self.parameters.write(out))
    }
}

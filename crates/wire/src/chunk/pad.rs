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
//! What the padding holds means nothing, so only its length is kept; zeros are written.

use super::ChunkType;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Makes a packet longer, to probe a path's MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pad {
    /// Octets of padding data, behind the chunk's header.
    pub len: usize,
}

impl Pad {
    pub(super) fn parse(raw: &RawChunk<'_>) -> Pad {
        Pad { len: raw.value.len() }
    }
}

impl WriteChunk for Pad {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::PAD, 0, |out| out.zeros(self.len))
    }
}

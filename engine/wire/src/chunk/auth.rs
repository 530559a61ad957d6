//! AUTH, [RFC 4895 section 5.1](https://www.rfc-editor.org/rfc/rfc4895.html#section-5.1).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 15   |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |  Shared Key Identifier (16 bits) | HMAC Identifier (16 bits)  |
//! +---------------------------------------------------------------+
//! |                              HMAC                             |
//! +---------------------------------------------------------------+
//! ```
//!
//! The HMAC covers this chunk, with zeros in place of the HMAC, and all chunks that follow it. This module
//! does not verify the HMAC.

use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Authentication of the chunks that follow in the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Auth<'a> {
    /// Identifier of the shared key. 0 identifies the key that needs no configuration.
    pub shared_key: u16,
    /// Identifier of the HMAC algorithm: 1 is SHA-1, and 3 is SHA-256.
    pub hmac_id: u16,
    /// The HMAC.
    pub hmac: &'a [u8],
}

impl<'a> Auth<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<Auth<'a>, ChunkError> {
        Self::read(raw.value).ok_or_else(|| raw.too_short(4))
    }

    fn read(value: &'a [u8]) -> Option<Auth<'a>> {
        let mut value = Reader::new(value);
        Some(Auth { shared_key: value.u16()?, hmac_id: value.u16()?, hmac: value.rest() })
    }
}

//= rfc4895#5.1-1 5.1-2
impl WriteChunk for Auth<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::AUTH, 0, |out| {
            out.u16(self.shared_key)?;
            out.u16(self.hmac_id)?;
            out.bytes(self.hmac)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below, hex};

    const GOLDEN: &str = "0f00001c 00000001 7e045d4fe8bb93404766abb3ad001a5c88395a61";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Auth(Auth {
                shared_key: 0,
                hmac_id: 1,
                hmac: &hex("7e045d4fe8bb93404766abb3ad001a5c88395a61"),
            }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(8, GOLDEN);
    }

    proptest! {
        #[test]
        fn any_value_reads_back(shared_key: u16, hmac_id: u16, hmac: [u8; 32]) {
            assert_reads_back(Chunk::Auth(Auth { shared_key, hmac_id, hmac: &hmac }));
        }
    }
}

//! COOKIE ECHO, [RFC 9260 section 3.3.11](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.11).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 10   |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                             Cookie                            |
//! +---------------------------------------------------------------+
//! ```

use super::ChunkType;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// The State Cookie of an INIT ACK, which the client returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CookieEcho<'a> {
    /// The cookie, unchanged. Only its author can interpret it.
    pub cookie: &'a [u8],
}

impl<'a> CookieEcho<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> CookieEcho<'a> {
        CookieEcho { cookie: raw.value }
    }
}

impl WriteChunk for CookieEcho<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::COOKIE_ECHO, 0, |out| out.bytes(self.cookie))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back};

    const GOLDEN: &str = "0a00000b 000102030405fe";

    #[test]
    fn the_layout_of_the_rfc_reads_and_writes() {
        assert_golden(GOLDEN, Chunk::CookieEcho(CookieEcho { cookie: &[0, 1, 2, 3, 4, 5, 0xfe] }));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(cookie in proptest::collection::vec(any::<u8>(), 0..2000)) {
            assert_reads_back(Chunk::CookieEcho(CookieEcho { cookie: &cookie }));
        }
    }
}

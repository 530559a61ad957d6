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

/// A report of errors that do not end the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorChunk<'a> {
    /// The error causes.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{assert_golden, assert_reads_back};
    use crate::{Cause, Chunk, StreamId, Tsn};

    const GOLDEN: &str = "0900000c 000100080fa00000";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Error(ErrorChunk {
                causes: Causes::from(&[Cause::InvalidStreamIdentifier { stream: StreamId(4000) }][..]),
            }),
        );
    }

    proptest! {
        #[test]
        fn any_value_reads_back(quote in proptest::collection::vec(any::<u8>(), 0..2000), tsn: u32) {
            let causes = [Cause::UnrecognizedParameters(&quote), Cause::NoUserData { tsn: Tsn(tsn) }];
            assert_reads_back(Chunk::Error(ErrorChunk { causes: Causes::from(&causes[..]) }));
        }
    }
}

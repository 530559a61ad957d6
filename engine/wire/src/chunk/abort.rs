//! ABORT, [RFC 9260 section 3.3.7](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.7).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |    Type = 6   |  Reserved  |T |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                   zero or more Error Causes                   |
//! +---------------------------------------------------------------+
//! ```

use super::ChunkType;
use crate::cause::Causes;
use crate::packet::RawChunk;
use crate::writer::{NoRoom, WriteChunk, Writer};

const FLAG_T: u8 = 1;

/// The immediate end of an association, without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abort<'a> {
    /// T bit: true if the sender has no association. The verification tag is then copied from the packet that
    /// this chunk answers.
    pub tag_reflected: bool,
    /// Reasons for the end.
    pub causes: Causes<'a>,
}

impl<'a> Abort<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Abort<'a> {
        Abort { tag_reflected: raw.flags & FLAG_T != 0, causes: Causes::from_wire(raw.value) }
    }
}

impl WriteChunk for Abort<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        let flags = if self.tag_reflected { FLAG_T } else { 0 };
        out.chunk(ChunkType::ABORT, flags, |out| self.causes.write(out))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{assert_golden, assert_reads_back};
    use crate::{Cause, Chunk, StreamId};

    const GOLDEN: &str = "0600000c 000100080fa00000";

    #[test]
    fn the_layout_of_the_rfc_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Abort(Abort {
                tag_reflected: false,
                causes: Causes::from(&[Cause::InvalidStreamIdentifier { stream: StreamId(4000) }][..]),
            }),
        );
    }

    #[test]
    fn the_t_bit_marks_a_reflected_tag() {
        assert_golden("06010004", Chunk::Abort(Abort { tag_reflected: true, causes: Causes::EMPTY }));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tag_reflected: bool, reason in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let causes = [Cause::OutOfResource, Cause::UserInitiatedAbort(&reason)];
            assert_reads_back(Chunk::Abort(Abort { tag_reflected, causes: Causes::from(&causes[..]) }));
        }
    }
}

//! FORWARD TSN, [RFC 3758 section 3.2](https://www.rfc-editor.org/rfc/rfc3758.html#section-3.2).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 192  |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                       New Cumulative TSN                      |
//! +---------------------------------------------------------------+
//! |      Stream-1 (16 bits)   |  Stream Sequence-1 (16 bits)      |
//! +---------------------------------------------------------------+
//! |                              ...                              |
//! +---------------------------------------------------------------+
//! ```

use super::{ChunkError, ChunkType};
use crate::list::{List, ListItem};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};
use crate::{Ssn, StreamId, Tsn};

/// A stream in which ordered messages were given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardTsnStream {
    /// The stream.
    pub stream: StreamId,
    /// The last message given up in it.
    pub ssn: Ssn,
}

impl ListItem for ForwardTsnStream {
    const LEN: usize = 4;

    fn read(bytes: &[u8]) -> Option<ForwardTsnStream> {
        let mut bytes = Reader::new(bytes);
        Some(ForwardTsnStream { stream: StreamId(bytes.u16()?), ssn: Ssn(bytes.u16()?) })
    }

    fn write(self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.u16(self.stream.0)?;
        out.u16(self.ssn.0)
    }
}

/// Moves the receiver's cumulative TSN past messages that the sender has given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardTsn<'a> {
    /// All TSNs up to this one count as received.
    pub new_cumulative_tsn: Tsn,
    /// The last message given up of each stream concerned.
    pub streams: List<'a, ForwardTsnStream>,
}

impl<'a> ForwardTsn<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<ForwardTsn<'a>, ChunkError> {
        let mut value = Reader::new(raw.value);
        let tsn = value.u32().ok_or_else(|| raw.too_short(4))?;
        let streams = List::from_wire(value.rest()).ok_or_else(|| raw.bad_list())?;
        Ok(ForwardTsn { new_cumulative_tsn: Tsn(tsn), streams })
    }
}

impl WriteChunk for ForwardTsn<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::FORWARD_TSN, 0, |out| {
            out.u32(self.new_cumulative_tsn.0)?;
            self.streams.write(out)
        })
    }
}

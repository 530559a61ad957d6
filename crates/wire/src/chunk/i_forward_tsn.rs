//! I-FORWARD-TSN, [RFC 8260 section 2.3.1](https://www.rfc-editor.org/rfc/rfc8260.html#section-2.3.1).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 194  |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                       New Cumulative TSN                      |
//! +---------------------------------------------------------------+
//! |     Stream Identifier (16 bits)  |  Reserved (15 bits)  |U    |
//! +---------------------------------------------------------------+
//! |                       Message Identifier                      |
//! +---------------------------------------------------------------+
//! |                              ...                              |
//! +---------------------------------------------------------------+
//! ```

use super::{ChunkError, ChunkType};
use crate::list::{List, ListItem};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};
use crate::{Mid, StreamId, Tsn};

const FLAG_UNORDERED: u16 = 1;

/// A stream in which messages were given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IForwardTsnStream {
    /// The stream.
    pub stream: StreamId,
    /// U bit: `mid` counts unordered messages.
    pub unordered: bool,
    /// The last message given up.
    pub mid: Mid,
}

impl ListItem for IForwardTsnStream {
    const LEN: usize = 8;

    fn read(bytes: &[u8]) -> Option<IForwardTsnStream> {
        let mut bytes = Reader::new(bytes);
        let (stream, flags, mid) = (bytes.u16()?, bytes.u16()?, bytes.u32()?);
        Some(IForwardTsnStream {
            stream: StreamId(stream),
            unordered: flags & FLAG_UNORDERED != 0,
            mid: Mid(mid),
        })
    }

    fn write(self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.u16(self.stream.0)?;
        out.u16(if self.unordered { FLAG_UNORDERED } else { 0 })?;
        out.u32(self.mid.0)
    }
}

/// Moves the receiver's cumulative TSN past messages that the sender has given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IForwardTsn<'a> {
    /// All TSNs up to this one count as received.
    pub new_cumulative_tsn: Tsn,
    /// The last message given up of each stream concerned.
    pub streams: List<'a, IForwardTsnStream>,
}

impl<'a> IForwardTsn<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<IForwardTsn<'a>, ChunkError> {
        let mut value = Reader::new(raw.value);
        let tsn = value.u32().ok_or_else(|| raw.too_short(4))?;
        let streams = List::from_wire(value.rest()).ok_or_else(|| raw.bad_list())?;
        Ok(IForwardTsn { new_cumulative_tsn: Tsn(tsn), streams })
    }
}

impl WriteChunk for IForwardTsn<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::I_FORWARD_TSN, 0, |out| {
            out.u32(self.new_cumulative_tsn.0)?;
            self.streams.write(out)
        })
    }
}

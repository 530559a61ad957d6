//! I-DATA, [RFC 8260 section 2.1](https://www.rfc-editor.org/rfc/rfc8260.html#section-2.1).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 64   | Res  |I|U|B|E |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                              TSN                              |
//! +---------------------------------------------------------------+
//! |    Stream Identifier (16 bits)   |      Reserved (16 bits)    |
//! +---------------------------------------------------------------+
//! |                       Message Identifier                      |
//! +---------------------------------------------------------------+
//! |     Payload Protocol Identifier / Fragment Sequence Number    |
//! +---------------------------------------------------------------+
//! |                           User Data                           |
//! +---------------------------------------------------------------+
//! ```
//!
//! The fourth word is the payload protocol identifier in a first piece and the piece's number in a later
//! one: [`Fragment`] says which.

use super::data::{FLAG_BEGIN, FLAG_END, FLAG_IMMEDIATE, FLAG_UNORDERED, flags};
use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::tlv::CHUNK_HEADER_LEN;
use crate::writer::{NoRoom, WriteChunk, Writer};
use crate::{Fsn, Mid, Ppid, StreamId, Tsn};

/// Octets of an I-DATA chunk before its user data.
pub const IDATA_HEADER_LEN: usize = 20;

/// Which piece of its message an I-DATA chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// B bit set: the first, whose number is 0.
    First(Ppid),
    /// A later one, and its number.
    Later(Fsn),
}

/// One piece of a user message, in an association where messages may be interleaved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IData<'a> {
    /// I bit: the receiver should not delay its SACK.
    pub immediate: bool,
    /// U bit: the message is delivered without regard to order; `mid` counts unordered messages.
    pub unordered: bool,
    /// E bit: last piece of the message.
    pub end: bool,
    /// Number of this chunk.
    pub tsn: Tsn,
    /// Stream the message belongs to.
    pub stream: StreamId,
    /// Number of the message within its stream and kind.
    pub mid: Mid,
    /// Which piece this is; the B bit.
    pub fragment: Fragment,
    /// User data, without padding.
    pub payload: &'a [u8],
}

impl<'a> IData<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<IData<'a>, ChunkError> {
        Self::read(raw).ok_or_else(|| raw.too_short(IDATA_HEADER_LEN - CHUNK_HEADER_LEN))
    }

    fn read(raw: &RawChunk<'a>) -> Option<IData<'a>> {
        let mut value = Reader::new(raw.value);
        let is_set = |flag| raw.flags & flag != 0;
        let (tsn, stream, _reserved) = (value.u32()?, value.u16()?, value.u16()?);
        let (mid, fourth) = (value.u32()?, value.u32()?);
        Some(IData {
            immediate: is_set(FLAG_IMMEDIATE),
            unordered: is_set(FLAG_UNORDERED),
            end: is_set(FLAG_END),
            tsn: Tsn(tsn),
            stream: StreamId(stream),
            mid: Mid(mid),
            fragment: if is_set(FLAG_BEGIN) {
                Fragment::First(Ppid(fourth))
            } else {
                Fragment::Later(Fsn(fourth))
            },
            payload: value.rest(),
        })
    }
}

impl WriteChunk for IData<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        let (begin, fourth) = match self.fragment {
            Fragment::First(ppid) => (true, ppid.0),
            Fragment::Later(fsn) => (false, fsn.0),
        };
        out.chunk(ChunkType::I_DATA, flags(self.immediate, self.unordered, begin, self.end), |out| {
            out.u32(self.tsn.0)?;
            out.u16(self.stream.0)?;
            out.u16(0)?;
            out.u32(self.mid.0)?;
            out.u32(fourth)?;
            out.bytes(self.payload)
        })
    }
}

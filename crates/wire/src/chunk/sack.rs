//! SACK, [RFC 9260 section 3.3.4](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.4).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 3    |  Chunk Flags  |         Chunk Length          |
//! +---------------+---------------+-------------------------------+
//! |                      Cumulative TSN Ack                       |
//! +---------------------------------------------------------------+
//! |          Advertised Receiver Window Credit (a_rwnd)           |
//! +-------------------------------+-------------------------------+
//! | Number of Gap Ack Blocks = N  |  Number of Duplicate TSNs = M |
//! +-------------------------------+-------------------------------+
//! |    Gap Ack Block #1 Start     |    Gap Ack Block #1 End       |
//! +-------------------------------+-------------------------------+
//! |                              ...                              |
//! +---------------------------------------------------------------+
//! |                       Duplicate TSN 1..M                      |
//! +---------------------------------------------------------------+
//! ```
//!
//! Refuses counts that the length does not bear out. Whether gap blocks are in order is not judged here.

use super::{ChunkError, ChunkType};
use crate::Tsn;
use crate::list::{List, ListItem, ListIter};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A run of TSNs received beyond the cumulative TSN, as offsets from it, both inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GapBlock {
    /// First received; 2 or more in a sensible block.
    pub start: u16,
    /// Last received; not below `start` in a sensible block.
    pub end: u16,
}

impl ListItem for GapBlock {
    const LEN: usize = 4;

    fn read(bytes: &[u8]) -> Option<GapBlock> {
        let mut bytes = Reader::new(bytes);
        Some(GapBlock { start: bytes.u16()?, end: bytes.u16()? })
    }

    fn write(self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.u32(u32::from(self.start) << 16 | u32::from(self.end))
    }
}

/// An acknowledgement. To be sent, it holds at most 65,535 gap blocks and as many duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sack<'a> {
    /// All TSNs up to this one were received.
    pub cumulative_tsn: Tsn,
    /// Room left in the receiver's buffer, in octets.
    pub a_rwnd: u32,
    /// Runs received beyond `cumulative_tsn`.
    pub gaps: List<'a, GapBlock>,
    /// TSNs that came more than once since the last SACK.
    pub duplicates: List<'a, Tsn>,
}

impl<'a> Sack<'a> {
    /// The runs received beyond the cumulative TSN, in the order sent.
    pub fn gaps(&self) -> ListIter<'a, GapBlock> {
        self.gaps.iter()
    }

    /// The TSNs received more than once, in the order sent.
    pub fn duplicates(&self) -> ListIter<'a, Tsn> {
        self.duplicates.iter()
    }

    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<Sack<'a>, ChunkError> {
        let mut value = Reader::new(raw.value);
        let Some((cumulative_tsn, a_rwnd, gaps, duplicates)) = head(&mut value) else {
            return Err(raw.too_short(12));
        };
        let gaps = value.bytes(usize::from(gaps) * GapBlock::LEN).and_then(List::from_wire);
        let duplicates = value.bytes(usize::from(duplicates) * Tsn::LEN).and_then(List::from_wire);
        let (Some(gaps), Some(duplicates), []) = (gaps, duplicates, value.rest()) else {
            return Err(raw.bad_list());
        };
        Ok(Sack { cumulative_tsn: Tsn(cumulative_tsn), a_rwnd, gaps, duplicates })
    }
}

fn head(value: &mut Reader<'_>) -> Option<(u32, u32, u16, u16)> {
    Some((value.u32()?, value.u32()?, value.u16()?, value.u16()?))
}

impl WriteChunk for Sack<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::SACK, 0, |out| {
            out.u32(self.cumulative_tsn.0)?;
            out.u32(self.a_rwnd)?;
            // More entries than the counts can say do not fit a packet either.
            out.u16(self.gaps.len().try_into().map_err(|_| NoRoom)?)?;
            out.u16(self.duplicates.len().try_into().map_err(|_| NoRoom)?)?;
            self.gaps.write(out)?;
            self.duplicates.write(out)
        })
    }
}

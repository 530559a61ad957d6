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
//! A SACK whose counts do not match its length is refused. This module does not check the order of the gap blocks.

use super::{ChunkError, ChunkType};
use crate::Tsn;
use crate::list::{List, ListItem, ListIter};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Length of a SACK without gap blocks and duplicates, in octets.
const LEN_MIN: usize = 16;

/// A run of received TSNs after a gap. Both fields are offsets from the cumulative TSN, and the block includes the TSNs at both offsets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GapBlock {
    /// Offset of the first received TSN. It is 2 or more in a valid block.
    pub start: u16,
    /// Offset of the last received TSN. It is `start` or more in a valid block.
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

/// An acknowledgement. A SACK to be sent holds up to 65,535 gap blocks and up to 65,535 duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
//= rfc9260#3.3.4-1
pub struct Sack<'a> {
    /// Highest TSN up to which all TSNs were received.
    pub cumulative_tsn: Tsn,
    /// Free space in the receiver's buffer, in octets.
    pub a_rwnd: u32,
    /// Runs of TSNs that were received after `cumulative_tsn`.
    pub gaps: List<'a, GapBlock>,
    /// TSNs that were received again since the last SACK.
    pub duplicates: List<'a, Tsn>,
}

impl<'a> Sack<'a> {
    /// Returns the maximum number of gap blocks in a SACK of `room` bytes with this number of duplicates. Returns 0 if no gap block fits.
    pub fn gaps_max(room: usize, duplicates: usize) -> usize {
        room.saturating_sub(LEN_MIN + Tsn::LEN * duplicates) / GapBlock::LEN
    }

    /// Returns the runs of TSNs after the cumulative TSN, in the order of the chunk.
    pub fn gaps(&self) -> ListIter<'a, GapBlock> {
        self.gaps.iter()
    }

    /// Returns the TSNs that were received more than once, in the order of the chunk.
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
            // A list whose length does not fit into the 16-bit count does not fit into a packet either.
            out.u16(self.gaps.len().try_into().map_err(|_| NoRoom)?)?;
            out.u16(self.duplicates.len().try_into().map_err(|_| NoRoom)?)?;
            self.gaps.write(out)?;
            self.duplicates.write(out)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below, hex, read_chunk};

    const GOLDEN: &str = "03000018 000003e8 003ffffe 0001 0001 0002 0003 000003e7";

    #[test]
    fn the_layout_of_the_rfc_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Sack(Sack {
                cumulative_tsn: Tsn(1000),
                a_rwnd: 4_194_302,
                gaps: List::from(&[GapBlock { start: 2, end: 3 }][..]),
                duplicates: List::from(&[Tsn(999)][..]),
            }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(16, GOLDEN);
    }

    #[test]
    fn counts_that_the_length_does_not_bear_out_are_refused() {
        for counts in ["0002 0001", "0001 0002", "0000 0001", "0001 0000", "ffff ffff"] {
            let bytes = hex(&format!("03000018 000003e8 003ffffe {counts} 0002 0003 000003e7"));
            let error = ChunkError::List { chunk_type: ChunkType::SACK, length: 24 };
            assert_eq!(read_chunk(&bytes), Err(error), "{counts}");
        }
    }

    #[test]
    fn writing_more_gap_blocks_than_a_16_bit_count_allows_fails_with_no_room() {
        let gaps = vec![GapBlock { start: 2, end: 2 }; 65_536];
        let sack =
            Sack { cumulative_tsn: Tsn(1), a_rwnd: 0, gaps: List::from(&gaps[..]), duplicates: List::EMPTY };
        let mut buf = vec![0; 400_000];
        assert_eq!(sack.write(&mut Writer::new(&mut buf)), Err(NoRoom));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tsn: u32, a_rwnd: u32, gaps: Vec<(u16, u16)>, duplicates: Vec<u32>) {
            let gaps: Vec<_> = gaps.iter().map(|(start, end)| GapBlock { start: *start, end: *end }).collect();
            let duplicates: Vec<_> = duplicates.iter().copied().map(Tsn).collect();
            assert_reads_back(Chunk::Sack(Sack {
                cumulative_tsn: Tsn(tsn),
                a_rwnd,
                gaps: List::from(&gaps[..]),
                duplicates: List::from(&duplicates[..]),
            }));
        }
    }
}

//! I-FORWARD-TSN, [RFC 8260 section 2.3.1](https://www.rfc-editor.org/rfc/rfc8260.html#section-2.3.1).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 194  |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                       New Cumulative TSN                      |
//! +---------------------------------------------------------------+
//! |       Stream Identifier       |          Reserved           |U|
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

/// A stream in which messages were abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IForwardTsnStream {
    /// The stream.
    pub stream: StreamId,
    /// U bit: true if `mid` identifies an unordered message. Ordered and unordered messages are numbered separately.
    pub unordered: bool,
    /// Identifier of the last abandoned message of the stream, ordered or unordered as the U bit shows.
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

/// A request to move the receiver's cumulative TSN past messages that the sender has abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IForwardTsn<'a> {
    /// All TSNs up to this one count as received.
    pub new_cumulative_tsn: Tsn,
    /// The last abandoned message of each affected stream. The ordered and the unordered messages of a stream have separate entries.
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

//= rfc8260#2.3.1-2 2.3.1-3
impl WriteChunk for IForwardTsn<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::I_FORWARD_TSN, 0, |out| {
            out.u32(self.new_cumulative_tsn.0)?;
            self.streams.write(out)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below, hex, read_chunk};

    const GOLDEN: &str = "c2000010 03e592ae 00000000 00000006";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::IForwardTsn(IForwardTsn {
                new_cumulative_tsn: Tsn(0x03e5_92ae),
                streams: List::from(
                    &[IForwardTsnStream { stream: StreamId(0), unordered: false, mid: Mid(6) }][..],
                ),
            }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(8, GOLDEN);
    }

    #[test]
    fn a_stream_cut_in_two_is_refused() {
        let error = ChunkError::List { chunk_type: ChunkType::I_FORWARD_TSN, length: 10 };
        assert_eq!(read_chunk(&hex("c200000a 00000001 0001")), Err(error));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tsn: u32, streams: Vec<(u16, bool, u32)>) {
            let streams: Vec<_> = streams
                .iter()
                .map(|(stream, unordered, mid)| IForwardTsnStream {
                    stream: StreamId(*stream),
                    unordered: *unordered,
                    mid: Mid(*mid),
                })
                .collect();
            assert_reads_back(Chunk::IForwardTsn(IForwardTsn {
                new_cumulative_tsn: Tsn(tsn),
                streams: List::from(&streams[..]),
            }));
        }
    }
}

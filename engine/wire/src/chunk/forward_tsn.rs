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

/// A stream in which ordered messages were abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardTsnStream {
    /// The stream.
    pub stream: StreamId,
    /// Sequence number of the last abandoned message of the stream.
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

/// A request to move the receiver's cumulative TSN past messages that the sender has abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardTsn<'a> {
    /// All TSNs up to this one count as received.
    pub new_cumulative_tsn: Tsn,
    /// The last abandoned message of each affected stream.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below, hex, read_chunk};

    const GOLDEN: &str = "c0000010 08819c37 00010006 00000007";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::ForwardTsn(ForwardTsn {
                new_cumulative_tsn: Tsn(0x0881_9c37),
                streams: List::from(
                    &[
                        ForwardTsnStream { stream: StreamId(1), ssn: Ssn(6) },
                        ForwardTsnStream { stream: StreamId(0), ssn: Ssn(7) },
                    ][..],
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
        let error = ChunkError::List { chunk_type: ChunkType::FORWARD_TSN, length: 10 };
        assert_eq!(read_chunk(&hex("c000000a 00000001 0001")), Err(error));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tsn: u32, streams: Vec<(u16, u16)>) {
            let streams: Vec<_> = streams
                .iter()
                .map(|(stream, ssn)| ForwardTsnStream { stream: StreamId(*stream), ssn: Ssn(*ssn) })
                .collect();
            assert_reads_back(Chunk::ForwardTsn(ForwardTsn {
                new_cumulative_tsn: Tsn(tsn),
                streams: List::from(&streams[..]),
            }));
        }
    }
}

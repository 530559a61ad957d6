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
//! The meaning of the fourth word depends on the fragment. It is the payload protocol identifier in the first
//! fragment, and the fragment sequence number in later fragments. [`Fragment`] distinguishes the two
//! meanings.

use super::data::{FLAG_BEGIN, FLAG_END, FLAG_IMMEDIATE, FLAG_UNORDERED, flags};
use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::tlv::CHUNK_HEADER_LEN;
use crate::writer::{NoRoom, WriteChunk, Writer};
use crate::{Fsn, Mid, Ppid, StreamId, Tsn};

/// Octets of an I-DATA chunk before its user data.
pub const IDATA_HEADER_LEN: usize = 20;

/// Position of an I-DATA chunk in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// First fragment (B bit set). Its fragment sequence number is 0.
    First(Ppid),
    /// A later fragment, with its fragment sequence number.
    Later(Fsn),
}

/// A user message or a fragment of one, in an association that interleaves messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IData<'a> {
    /// I bit: true if the receiver should not delay its SACK.
    pub immediate: bool,
    /// U bit: true if the message is unordered. `mid` counts unordered messages separately from ordered
    /// messages.
    pub unordered: bool,
    /// E bit: true for the last fragment of the message.
    pub end: bool,
    /// Transmission sequence number of this chunk.
    pub tsn: Tsn,
    /// Stream of the message.
    pub stream: StreamId,
    /// Number of the message within its stream. Ordered and unordered messages are numbered separately.
    pub mid: Mid,
    /// Position of this fragment in the message. [`Fragment::First`] stands for a set B bit.
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

//= rfc8260#2.1-1 2.1-3
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below};

    const GOLDEN: &str = "40010018 46df6871 0000 0000 00000000 00000001 30373e45";

    #[test]
    fn the_layout_of_the_rfc_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::IData(IData {
                immediate: false,
                unordered: false,
                end: true,
                tsn: Tsn(0x46df_6871),
                stream: StreamId(0),
                mid: Mid(0),
                fragment: Fragment::Later(Fsn(1)),
                payload: b"07>E",
            }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(20, GOLDEN);
    }

    #[test]
    //= rfc8260#2.1-1 2.1-3
    fn the_b_bit_makes_the_fourth_word_the_payload_protocol_identifier() {
        let first = IData {
            immediate: true,
            unordered: true,
            end: false,
            tsn: Tsn(1),
            stream: StreamId(2),
            mid: Mid(3),
            fragment: Fragment::First(Ppid(4)),
            payload: &[5],
        };
        assert_golden("400e0015 00000001 0002 0000 00000003 00000004 05", Chunk::IData(first));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(flags: [bool; 4], tsn: u32, stream: u16, mid: u32, fourth: u32, payload in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let [immediate, unordered, begin, end] = flags;
            let fragment = if begin { Fragment::First(Ppid(fourth)) } else { Fragment::Later(Fsn(fourth)) };
            assert_reads_back(Chunk::IData(IData {
                immediate,
                unordered,
                end,
                tsn: Tsn(tsn),
                stream: StreamId(stream),
                mid: Mid(mid),
                fragment,
                payload: &payload,
            }));
        }
    }
}

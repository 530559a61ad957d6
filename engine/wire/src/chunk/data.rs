//! DATA, [RFC 9260 section 3.3.1](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.1), with the I bit of
//! [RFC 7053](https://www.rfc-editor.org/rfc/rfc7053.html).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 0    |  Res  |I|U|B|E|            Length             |
//! +---------------+---------------+-------------------------------+
//! |                              TSN                              |
//! +-------------------------------+-------------------------------+
//! |      Stream Identifier S      |   Stream Sequence Number n    |
//! +-------------------------------+-------------------------------+
//! |                  Payload Protocol Identifier                  |
//! +---------------------------------------------------------------+
//! |                 User Data (seq n of Stream S)                 |
//! +---------------------------------------------------------------+
//! ```
//!
//! The parser accepts a DATA chunk without user data, because the receiver must answer such a chunk with the
//! cause "No User Data".

use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::reader::Reader;
use crate::tlv::CHUNK_HEADER_LEN;
use crate::writer::{NoRoom, WriteChunk, Writer};
use crate::{Ppid, Ssn, StreamId, Tsn};

/// Octets of a DATA chunk before its user data.
pub const DATA_HEADER_LEN: usize = 16;

pub(super) const FLAG_END: u8 = 1;
pub(super) const FLAG_BEGIN: u8 = 2;
pub(super) const FLAG_UNORDERED: u8 = 4;
pub(super) const FLAG_IMMEDIATE: u8 = 8;

/// A user message, or a fragment of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
//= rfc9260#3.3.1-1
pub struct Data<'a> {
    /// I bit: true if the receiver should not delay its SACK.
    pub immediate: bool,
    /// U bit: true if the message is unordered. `ssn` then has no meaning.
    pub unordered: bool,
    /// B bit: true for the first fragment of the message.
    pub begin: bool,
    /// E bit: true for the last fragment of the message.
    pub end: bool,
    /// Transmission sequence number of this chunk.
    pub tsn: Tsn,
    /// Stream of the message.
    pub stream: StreamId,
    /// Sequence number of the message within its stream.
    pub ssn: Ssn,
    /// Identifier that the application chooses. SCTP does not interpret it.
    pub ppid: Ppid,
    /// User data, without padding.
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<Data<'a>, ChunkError> {
        Self::read(raw).ok_or_else(|| raw.too_short(DATA_HEADER_LEN - CHUNK_HEADER_LEN))
    }

    fn read(raw: &RawChunk<'a>) -> Option<Data<'a>> {
        let mut value = Reader::new(raw.value);
        let is_set = |flag| raw.flags & flag != 0;
        Some(Data {
            immediate: is_set(FLAG_IMMEDIATE),
            unordered: is_set(FLAG_UNORDERED),
            begin: is_set(FLAG_BEGIN),
            end: is_set(FLAG_END),
            tsn: Tsn(value.u32()?),
            stream: StreamId(value.u16()?),
            ssn: Ssn(value.u16()?),
            ppid: Ppid(value.u32()?),
            payload: value.rest(),
        })
    }

    /// Returns the chunk's first sixteen octets. If the payload does not fit into a packet, the length field
    /// is wrong.
    #[inline]
    fn header_bytes(&self) -> [u8; DATA_HEADER_LEN] {
        let flags = flags(self.immediate, self.unordered, self.begin, self.end);
        let length = (DATA_HEADER_LEN + self.payload.len()) as u16;
        let mut header = [0; DATA_HEADER_LEN];
        header[..2].copy_from_slice(&[ChunkType::DATA.0, flags]);
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[4..8].copy_from_slice(&self.tsn.0.to_be_bytes());
        header[8..10].copy_from_slice(&self.stream.0.to_be_bytes());
        header[10..12].copy_from_slice(&self.ssn.0.to_be_bytes());
        header[12..].copy_from_slice(&self.ppid.0.to_be_bytes());
        header
    }
}

pub(super) fn flags(immediate: bool, unordered: bool, begin: bool, end: bool) -> u8 {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    flag(immediate, FLAG_IMMEDIATE)
        | flag(unordered, FLAG_UNORDERED)
        | flag(begin, FLAG_BEGIN)
        | flag(end, FLAG_END)
}

impl WriteChunk for Data<'_> {
    #[inline]
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.bytes(&self.header_bytes())?;
        out.bytes(self.payload)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below};

    const GOLDEN: &str = "00030010 000003e8 0000 0000 00000000";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Data(Data {
                immediate: false,
                unordered: false,
                begin: true,
                end: true,
                tsn: Tsn(1000),
                stream: StreamId(0),
                ssn: Ssn(0),
                ppid: Ppid(0),
                payload: &[],
            }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(16, GOLDEN);
    }

    #[test]
    //= rfc9260#3-2 3.3.1-1
    fn each_flag_has_its_bit_and_each_number_its_place() {
        let data = Data {
            immediate: true,
            unordered: false,
            begin: false,
            end: false,
            tsn: Tsn(0x0102_0304),
            stream: StreamId(0x0506),
            ssn: Ssn(0x0708),
            ppid: Ppid(0x090a_0b0c),
            payload: &[0x0d],
        };
        let rest = "0011 01020304 0506 0708 090a0b0c 0d";
        assert_golden(&format!("0008 {rest}"), Chunk::Data(data));
        assert_golden(&format!("000c {rest}"), Chunk::Data(Data { unordered: true, ..data }));
        assert_golden(&format!("000a {rest}"), Chunk::Data(Data { begin: true, ..data }));
        assert_golden(&format!("0009 {rest}"), Chunk::Data(Data { end: true, ..data }));
    }

    proptest! {
        #[test]
        fn any_value_reads_back(flags: [bool; 4], tsn: u32, stream: u16, ssn: u16, ppid: u32, payload in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let [immediate, unordered, begin, end] = flags;
            assert_reads_back(Chunk::Data(Data {
                immediate,
                unordered,
                begin,
                end,
                tsn: Tsn(tsn),
                stream: StreamId(stream),
                ssn: Ssn(ssn),
                ppid: Ppid(ppid),
                payload: &payload,
            }));
        }
    }
}

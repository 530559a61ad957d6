//! INIT and INIT ACK, [RFC 9260 section 3.3.2](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.2) and
//! [3.3.3](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.3). Both types have the same layout.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | Type = 1 or 2 |  Chunk Flags  |         Chunk Length          |
//! +---------------+---------------+-------------------------------+
//! |                         Initiate Tag                          |
//! +---------------------------------------------------------------+
//! |           Advertised Receiver Window Credit (a_rwnd)          |
//! +-------------------------------+-------------------------------+
//! |  Number of Outbound Streams   |  Number of Inbound Streams    |
//! +-------------------------------+-------------------------------+
//! |                          Initial TSN                          |
//! +---------------------------------------------------------------+
//! |              Optional/Variable-Length Parameters              |
//! +---------------------------------------------------------------+
//! ```
//!
//! The parser accepts a tag or stream count of zero, because the receiver must react to such a chunk.

use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::parameter::Parameters;
use crate::reader::Reader;
use crate::writer::{NoRoom, Writer};
use crate::{Tsn, VerificationTag};

/// Content of an INIT or INIT ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Init<'a> {
    /// Verification tag of all packets to the sender of this chunk.
    pub tag: VerificationTag,
    /// The sender's receive window, in octets.
    pub a_rwnd: u32,
    /// Number of streams on which the sender wants to send.
    pub outbound_streams: u16,
    /// Maximum number of streams on which the peer may send.
    pub inbound_streams: u16,
    /// The sender's first TSN.
    pub initial_tsn: Tsn,
    /// All optional and variable-length parameters.
    pub parameters: Parameters<'a>,
}

impl<'a> Init<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<Init<'a>, ChunkError> {
        Self::read(raw.value).ok_or_else(|| raw.too_short(16))
    }

    fn read(value: &'a [u8]) -> Option<Init<'a>> {
        let mut value = Reader::new(value);
        Some(Init {
            tag: VerificationTag(value.u32()?),
            a_rwnd: value.u32()?,
            outbound_streams: value.u16()?,
            inbound_streams: value.u16()?,
            initial_tsn: Tsn(value.u32()?),
            parameters: Parameters::from_wire(value.rest()),
        })
    }

    pub(super) fn write_as(&self, chunk_type: ChunkType, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        //= rfc9260#3.3.2-5 3.3.2.1-1
        out.chunk(chunk_type, 0, |out| {
            out.u32(self.tag.0)?;
            out.u32(self.a_rwnd)?;
            out.u16(self.outbound_streams)?;
            out.u16(self.inbound_streams)?;
            out.u32(self.initial_tsn.0)?;
            self.parameters.write(out)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below};
    use crate::{Chunk, Parameter};

    const GOLDEN: &str = "01000014 01020304 00010000 000a 000b 000003e8";

    #[test]
    fn the_layout_of_the_rfc_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Init(Init {
                tag: VerificationTag(0x0102_0304),
                a_rwnd: 65_536,
                outbound_streams: 10,
                inbound_streams: 11,
                initial_tsn: Tsn(1000),
                parameters: Parameters::EMPTY,
            }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(20, GOLDEN);
    }

    #[test]
    //= rfc9260#3.2-2 3.2.1-2
    //= rfc5061#4.2.7-3
    fn the_padding_of_the_last_parameter_does_not_count_into_the_length() {
        let parameters = [Parameter::SupportedExtensions(&[64]), Parameter::StateCookie(b"abc")];
        let init = Init {
            tag: VerificationTag(0x0102_0304),
            a_rwnd: 65_536,
            outbound_streams: 10,
            inbound_streams: 11,
            initial_tsn: Tsn(1000),
            parameters: Parameters::from(&parameters[..]),
        };
        assert_golden(
            "02000023 01020304 00010000 000a 000b 000003e8 80080005 40000000 00070007 616263",
            Chunk::InitAck(init),
        );
    }

    proptest! {
        #[test]
        fn any_value_reads_back(tag: u32, a_rwnd: u32, streams: (u16, u16), tsn: u32, cookie in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let parameters = [Parameter::StateCookie(&cookie), Parameter::EcnCapable];
            let init = Init {
                tag: VerificationTag(tag),
                a_rwnd,
                outbound_streams: streams.0,
                inbound_streams: streams.1,
                initial_tsn: Tsn(tsn),
                parameters: Parameters::from(&parameters[..]),
            };
            assert_reads_back(Chunk::Init(init));
            assert_reads_back(Chunk::InitAck(init));
        }
    }
}

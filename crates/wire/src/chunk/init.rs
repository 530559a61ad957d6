//! INIT and INIT ACK, [RFC 9260 section 3.3.2](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.2) and
//! [3.3.3](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.3): the same layout under two types.
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
//! A zero tag or stream count can be read: the receiver has its own duties towards those.

use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::parameter::Parameters;
use crate::reader::Reader;
use crate::writer::{NoRoom, Writer};
use crate::{Tsn, VerificationTag};

/// What INIT and INIT ACK say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Init<'a> {
    /// The tag the sender wants to see in all packets sent to it.
    pub tag: VerificationTag,
    /// The sender's receive window, in octets.
    pub a_rwnd: u32,
    /// Streams the sender wants to send on.
    pub outbound_streams: u16,
    /// Streams the sender allows its peer.
    pub inbound_streams: u16,
    /// The sender's first TSN.
    pub initial_tsn: Tsn,
    /// Everything else.
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

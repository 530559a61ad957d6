//! HEARTBEAT and HEARTBEAT ACK, [RFC 9260 section 3.3.5](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.5)
//! and [3.3.6](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.6): the same layout under two types.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | Type = 4 or 5 |  Chunk Flags  |       Heartbeat Length        |
//! +---------------+---------------+-------------------------------+
//! |   Heartbeat Info Type = 1     |         HB Info Length        |
//! +-------------------------------+-------------------------------+
//! |           Sender-Specific Heartbeat Info                      |
//! +---------------------------------------------------------------+
//! ```
//!
//! Refuses a chunk whose first parameter is not Heartbeat Info.

use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::parameter::{Parameter, ParameterError, Parameters};
use crate::writer::{NoRoom, Writer};

/// What HEARTBEAT and HEARTBEAT ACK say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat<'a> {
    /// The prober's own note, which comes back unchanged.
    pub info: &'a [u8],
}

impl<'a> Heartbeat<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<Heartbeat<'a>, ChunkError> {
        let chunk_type = raw.chunk_type;
        let error = match Parameters::from_wire(raw.value).iter().next() {
            None => return Err(raw.too_short(4)),
            Some(Ok(Parameter::HeartbeatInfo(info))) => return Ok(Heartbeat { info }),
            Some(Ok(other)) => ParameterError::Unexpected { ptype: other.ptype() },
            Some(Err(error)) => error,
        };
        Err(ChunkError::Parameter { chunk_type, error })
    }

    pub(super) fn write_as(&self, chunk_type: ChunkType, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(chunk_type, 0, |out| Parameter::HeartbeatInfo(self.info).write(out))
    }
}

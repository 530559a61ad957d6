//! ASCONF-ACK, [RFC 5061 section 4.1.2](https://www.rfc-editor.org/rfc/rfc5061.html#section-4.1.2).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 128  |    Reserved   |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                        Sequence Number                        |
//! +---------------------------------------------------------------+
//! |               ASCONF Parameter Response #1 .. #N              |
//! +---------------------------------------------------------------+
//! ```

use super::{ChunkError, ChunkType};
use crate::AsconfSerial;
use crate::packet::RawChunk;
use crate::parameter::Parameters;
use crate::reader::Reader;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Answers an ASCONF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsconfAck<'a> {
    /// Number of the request answered.
    pub serial: AsconfSerial,
    /// What became of each change; a change without an answer succeeded.
    pub parameters: Parameters<'a>,
}

impl<'a> AsconfAck<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<AsconfAck<'a>, ChunkError> {
        let mut value = Reader::new(raw.value);
        let serial = value.u32().ok_or_else(|| raw.too_short(4))?;
        Ok(AsconfAck { serial: AsconfSerial(serial), parameters: Parameters::from_wire(value.rest()) })
    }
}

impl WriteChunk for AsconfAck<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::ASCONF_ACK, 0, |out| {
            out.u32(self.serial.0)?;
            self.parameters.write(out)
        })
    }
}

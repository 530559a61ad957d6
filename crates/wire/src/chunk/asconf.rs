//! ASCONF, [RFC 5061 section 4.1.1](https://www.rfc-editor.org/rfc/rfc5061.html#section-4.1.1).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 193  |    Reserved   |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                        Sequence Number                        |
//! +---------------------------------------------------------------+
//! |                       Address Parameter                       |
//! +---------------------------------------------------------------+
//! |                   ASCONF Parameter #1 .. #N                   |
//! +---------------------------------------------------------------+
//! ```
//!
//! Refuses a chunk without an address parameter in first place.

use std::net::IpAddr;

use super::{ChunkError, ChunkType};
use crate::AsconfSerial;
use crate::packet::RawChunk;
use crate::parameter::{Parameters, read_address, write_address};
use crate::reader::Reader;
use crate::tlv::Tlvs;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Asks the peer to change its list of our addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asconf<'a> {
    /// Number of the request.
    pub serial: AsconfSerial,
    /// One of the sender's addresses, by which the association can be found.
    pub address: IpAddr,
    /// The changes asked for.
    pub parameters: Parameters<'a>,
}

impl<'a> Asconf<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<Asconf<'a>, ChunkError> {
        let chunk_type = raw.chunk_type;
        let mut value = Reader::new(raw.value);
        let serial = value.u32().ok_or_else(|| raw.too_short(12))?;
        let mut tlvs = Tlvs::new(value.rest());
        let first = tlvs.next().ok_or_else(|| raw.too_short(12))?;
        let address = first
            .map_err(Into::into)
            .and_then(read_address)
            .map_err(|error| ChunkError::Parameter { chunk_type, error })?;
        let parameters = Parameters::from_wire(tlvs.rest());
        Ok(Asconf { serial: AsconfSerial(serial), address, parameters })
    }
}

impl WriteChunk for Asconf<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::ASCONF, 0, |out| {
            out.u32(self.serial.0)?;
            write_address(self.address, out)?;
            self.parameters.write(out)
        })
    }
}

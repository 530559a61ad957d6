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
//! A chunk whose first parameter is not an address is refused.

use std::net::IpAddr;

use super::{ChunkError, ChunkType};
use crate::AsconfSerial;
use crate::packet::RawChunk;
use crate::parameter::{Parameters, read_address, write_address};
use crate::reader::Reader;
use crate::tlv::Tlvs;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// A request to change the peer's list of the sender's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
//= rfc5061#4.1.1-5 4.1.1-6
pub struct Asconf<'a> {
    /// Number of the request.
    pub serial: AsconfSerial,
    /// One of the sender's addresses, which helps the receiver to find the association.
    pub address: IpAddr,
    /// The requested changes.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{assert_golden, assert_reads_back, hex, read_chunk};
    use crate::{Chunk, Parameter, ParameterError};

    const GOLDEN: &str = "c1000020 54747f40 000500080a3c000c c001001000000000000500080a3c010c";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Asconf(Asconf {
                serial: AsconfSerial(0x5474_7f40),
                address: [10, 60, 0, 12].into(),
                parameters: Parameters::from(
                    &[Parameter::AddIp { correlation: 0, address: [10, 60, 1, 12].into() }][..],
                ),
            }),
        );
    }

    #[test]
    //= rfc5061#4.1.1-5 4.1.1-6
    fn a_chunk_without_an_address_is_refused() {
        for (bytes, length) in [("c1000004", 4), ("c1000008 00000001", 8)] {
            let error = ChunkError::TooShort { chunk_type: ChunkType::ASCONF, length, minimum: 16 };
            assert_eq!(read_chunk(&hex(bytes)), Err(error));
        }
    }

    #[test]
    fn another_parameter_in_the_address_s_place_is_refused() {
        let error = ParameterError::Unexpected { ptype: 0x8000 };
        assert_eq!(
            read_chunk(&hex("c1000010 00000001 80000004 80000004")),
            Err(ChunkError::Parameter { chunk_type: ChunkType::ASCONF, error })
        );
    }

    proptest! {
        #[test]
        fn any_value_reads_back(serial: u32, address: std::net::IpAddr, deleted: std::net::IpAddr, correlation: u32) {
            let parameters = [Parameter::DelIp { correlation, address: deleted }];
            assert_reads_back(Chunk::Asconf(Asconf {
                serial: AsconfSerial(serial),
                address,
                parameters: Parameters::from(&parameters[..]),
            }));
        }
    }
}

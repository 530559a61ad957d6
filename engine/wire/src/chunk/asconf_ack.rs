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

/// The answer to an ASCONF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsconfAck<'a> {
    /// Number of the request that this chunk answers.
    pub serial: AsconfSerial,
    /// The results of the changes. A change without a result succeeded.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{assert_golden, assert_reads_back, assert_refused_below};
    use crate::{Chunk, Parameter};

    const GOLDEN: &str = "80000008 54747f40";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::AsconfAck(AsconfAck { serial: AsconfSerial(0x5474_7f40), parameters: Parameters::EMPTY }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        assert_refused_below(8, GOLDEN);
    }

    proptest! {
        #[test]
        fn any_value_reads_back(serial: u32, correlation: u32) {
            let parameters = [Parameter::SuccessIndication { correlation }];
            assert_reads_back(Chunk::AsconfAck(AsconfAck {
                serial: AsconfSerial(serial),
                parameters: Parameters::from(&parameters[..]),
            }));
        }
    }
}

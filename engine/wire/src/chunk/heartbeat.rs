//! HEARTBEAT and HEARTBEAT ACK, [RFC 9260 section 3.3.5](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.5) and
//! [3.3.6](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.6). Both types have the same layout.
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
//! A chunk whose first parameter is not Heartbeat Info is refused. A chunk without parameters has empty information.

use super::{ChunkError, ChunkType};
use crate::packet::RawChunk;
use crate::parameter::{Parameter, ParameterError, Parameters};
use crate::tlv::{CHUNK_HEADER_LEN, TlvError};
use crate::writer::{NoRoom, Writer};

/// Content of a HEARTBEAT or HEARTBEAT ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat<'a> {
    /// Information of the HEARTBEAT's sender, which the HEARTBEAT ACK returns unchanged. If the chunk has no parameter, the information is
    /// empty, as in chunks of the WebRTC implementation pion.
    pub info: &'a [u8],
}

impl<'a> Heartbeat<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> Result<Heartbeat<'a>, ChunkError> {
        let chunk_type = raw.chunk_type;
        if raw.value.is_empty() {
            return Ok(Heartbeat { info: &[] });
        }
        let error = match Parameters::from_wire(raw.value).iter().next() {
            None | Some(Err(ParameterError::Frame(TlvError::LeftOver { .. }))) => {
                return Err(raw.too_short(CHUNK_HEADER_LEN));
            }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Chunk;
    use crate::test_support::{assert_golden, assert_reads_back, hex, read_chunk};

    const GOLDEN: &str =
        "0400002c 00010028a8f9016b5c01010004a172d52e0864e1021000000a3c010b000000000000000000000000";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::Heartbeat(Heartbeat {
                info: &hex("a8f9016b5c01010004a172d52e0864e1021000000a3c010b000000000000000000000000"),
            }),
        );
    }

    #[test]
    fn a_chunk_cut_short_is_refused() {
        let whole = hex(GOLDEN);
        assert!(
            (1..whole.len()).all(|length| read_chunk(&whole[..length]).is_err()),
            "the length field says more"
        );
        for length in 5..8 {
            let mut cut = whole[..length].to_vec();
            cut[3] = length as u8;
            assert!(
                matches!(read_chunk(&cut), Err(ChunkError::TooShort { minimum: 8, .. })),
                "{length} octets"
            );
        }
    }

    #[test]
    fn a_heartbeat_without_information_is_accepted() {
        assert_eq!(read_chunk(&hex("04000004")), Ok(Chunk::Heartbeat(Heartbeat { info: &[] })));
    }

    #[test]
    fn a_heartbeat_with_another_parameter_is_refused() {
        let error = ParameterError::Unexpected { ptype: 7 };
        assert_eq!(
            read_chunk(&hex("05000008 00070004")),
            Err(ChunkError::Parameter { chunk_type: ChunkType::HEARTBEAT_ACK, error })
        );
    }

    proptest! {
        #[test]
        fn any_value_reads_back(info in proptest::collection::vec(any::<u8>(), 0..2000)) {
            assert_reads_back(Chunk::Heartbeat(Heartbeat { info: &info }));
            assert_reads_back(Chunk::HeartbeatAck(Heartbeat { info: &info }));
        }
    }
}

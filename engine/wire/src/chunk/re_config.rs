//! RE-CONFIG, [RFC 6525 section 3.1](https://www.rfc-editor.org/rfc/rfc6525.html#section-3.1).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   Type = 130  |  Chunk Flags  |          Chunk Length         |
//! +---------------+---------------+-------------------------------+
//! |                   Re-configuration Parameter                  |
//! +---------------------------------------------------------------+
//! |             Re-configuration Parameter (optional)             |
//! +---------------------------------------------------------------+
//! ```

use super::ChunkType;
use crate::packet::RawChunk;
use crate::parameter::Parameters;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Requests to reset or add streams, or answers to such requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReConfig<'a> {
    /// One or two requests or answers.
    pub parameters: Parameters<'a>,
}

impl<'a> ReConfig<'a> {
    pub(super) fn parse(raw: &RawChunk<'a>) -> ReConfig<'a> {
        ReConfig { parameters: Parameters::from_wire(raw.value) }
    }
}

impl WriteChunk for ReConfig<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.chunk(ChunkType::RE_CONFIG, 0, |out| self.parameters.write(out))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{assert_golden, assert_reads_back};
    use crate::{Chunk, Parameter, ReconfigResult, RequestSn};

    const GOLDEN: &str = "82000010 0010000c9db4d6b900000001";

    #[test]
    fn a_captured_chunk_reads_and_writes() {
        assert_golden(
            GOLDEN,
            Chunk::ReConfig(ReConfig {
                parameters: Parameters::from(
                    &[Parameter::ReconfigResponse {
                        response: RequestSn(0x9db4_d6b9),
                        result: ReconfigResult::Performed,
                        next_tsns: None,
                    }][..],
                ),
            }),
        );
    }

    proptest! {
        #[test]
        fn any_value_reads_back(request: u32, new_streams: u16) {
            let parameters = [
                Parameter::SsnTsnReset { request: RequestSn(request) },
                Parameter::AddIncomingStreams { request: RequestSn(request), new_streams },
            ];
            assert_reads_back(Chunk::ReConfig(ReConfig { parameters: Parameters::from(&parameters[..]) }));
        }
    }
}

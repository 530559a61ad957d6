//! Shared parts of the tests of chunks, parameters and causes.

use crate::cause::{Cause, CauseError, Causes};
use crate::chunk::{Chunk, ChunkError};
use crate::packet::RawChunks;
use crate::parameter::{Parameter, ParameterError, Parameters};
use crate::tlv::CHUNK_HEADER_LEN;
use crate::writer::{NoRoom, WriteChunk, Writer};

/// Parses hexadecimal digits. Spaces are ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let octet = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    digits.chunks(2).map(|pair| octet(pair).expect("two hexadecimal digits")).collect()
}

/// Returns the octets that `write` writes.
pub(crate) fn octets(write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>) -> Vec<u8> {
    let mut buf = vec![0xa5; 65_532];
    let mut out = Writer::new(&mut buf);
    write(&mut out).expect("the buffer is as large as a packet can be");
    out.written().to_vec()
}

/// Reads the first chunk of `bytes`.
pub(crate) fn read_chunk(bytes: &[u8]) -> Result<Chunk<'_>, ChunkError> {
    RawChunks::new(bytes).next().expect("at least one octet")?.parse()
}

/// Asserts that `golden` reads as `chunk`, and that `chunk` writes as `golden`.
pub(crate) fn assert_golden(golden: &str, chunk: Chunk<'_>) {
    let golden = hex(golden);
    assert_eq!(read_chunk(&golden), Ok(chunk));
    assert_eq!(octets(|out| chunk.write(out)), golden);
}

/// Asserts that `chunk` reads back as it was written, and does not fit into a buffer that is one octet too
/// short.
pub(crate) fn assert_reads_back(chunk: Chunk<'_>) {
    let bytes = octets(|out| chunk.write(out));
    assert_eq!(read_chunk(&bytes), Ok(chunk));
    let mut short = vec![0; bytes.len() - 1];
    assert_eq!(chunk.write(&mut Writer::new(&mut short)), Err(NoRoom));
}

/// Asserts that `golden` is refused if octets are cut off its end and the length field stays unchanged.
/// Also asserts that `golden` is refused if it is cut below `minimum` octets and the length field is
/// adjusted.
pub(crate) fn assert_refused_below(minimum: usize, golden: &str) {
    let golden = hex(golden);
    for len in 1..golden.len() {
        let error = read_chunk(&golden[..len]).expect_err("the length field says more");
        assert!(matches!(error, ChunkError::LeftOver { .. } | ChunkError::Length { .. }), "{error}");
    }
    for length in CHUNK_HEADER_LEN..minimum {
        let mut bytes = golden[..length].to_vec();
        bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let chunk_type = crate::ChunkType(golden[0]);
        assert_eq!(read_chunk(&bytes), Err(ChunkError::TooShort { chunk_type, length, minimum }));
    }
}

/// Reads the first parameter of `bytes`.
pub(crate) fn read_parameter(bytes: &[u8]) -> Result<Parameter<'_>, ParameterError> {
    Parameters::from_wire(bytes).iter().next().expect("at least one octet")
}

/// Asserts that `golden` reads as `parameter`, and that `parameter` writes as `golden`.
pub(crate) fn assert_golden_parameter(golden: &str, parameter: Parameter<'_>) {
    let golden = hex(golden);
    assert_eq!(read_parameter(&golden), Ok(parameter));
    assert_eq!(octets(|out| parameter.write(out)), golden);
    assert_eq!(golden[..2], parameter.ptype().to_be_bytes());
}

/// Asserts that `parameter` reads back as it was written.
pub(crate) fn assert_parameter_reads_back(parameter: Parameter<'_>) {
    let bytes = octets(|out| parameter.write(out));
    assert_eq!(read_parameter(&bytes), Ok(parameter));
}

/// Reads the first error cause of `bytes`.
pub(crate) fn read_cause(bytes: &[u8]) -> Result<Cause<'_>, CauseError> {
    Causes::from_wire(bytes).iter().next().expect("at least one octet")
}

/// Asserts that `golden` reads as `cause`, and that `cause` writes as `golden`.
pub(crate) fn assert_golden_cause(golden: &str, cause: Cause<'_>) {
    let golden = hex(golden);
    assert_eq!(read_cause(&golden), Ok(cause));
    assert_eq!(octets(|out| cause.write(out)), golden);
    assert_eq!(golden[..2], cause.code().to_be_bytes());
}

/// Asserts that `cause` reads back as it was written.
pub(crate) fn assert_cause_reads_back(cause: Cause<'_>) {
    let bytes = octets(|out| cause.write(out));
    assert_eq!(read_cause(&bytes), Ok(cause));
}

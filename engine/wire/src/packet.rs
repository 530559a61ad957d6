//! The SCTP packet: common header, checksum, chunks (RFC 9260 section 3).
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |      Source Port Number       |   Destination Port Number     |
//! +-------------------------------+-------------------------------+
//! |                       Verification Tag                        |
//! +---------------------------------------------------------------+
//! |               Checksum (CRC32c, lowest octet first)           |
//! +---------------------------------------------------------------+
//! |                        Chunk #1 .. #n                         |
//! +---------------------------------------------------------------+
//! ```
//!
//! [`Packet::parse`] checks only length and checksum. The iterators then find and read the chunks one by one.
//! The iterators end after the first chunk with an invalid length. Each step consumes at least one octet, so
//! the iterators always end.

use crate::chunk::{Chunk, ChunkError, ChunkType};
use crate::crc::packet_crc;
use crate::reader::Reader;
use crate::tlv::{CHUNK_HEADER_LEN, padded};
use crate::{VerificationTag, crc};

/// Octets of the common header.
pub const COMMON_HEADER_LEN: usize = 12;

/// The common header, without its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommonHeader {
    /// The sender's SCTP port.
    pub source_port: u16,
    /// The receiver's SCTP port.
    pub destination_port: u16,
    /// The receiver's tag, or zero in a packet with an INIT. In a packet whose T bit is set, the field may be
    /// the sender's tag (section 8.5.1).
    pub tag: VerificationTag,
}

impl CommonHeader {
    /// Reads ports and tag of a packet without any check, to find its association. The association decides
    /// how to check the packet. Returns `None` if `bytes` is shorter than a common header.
    pub fn peek(bytes: &[u8]) -> Option<CommonHeader> {
        let mut reader = Reader::new(bytes.get(..COMMON_HEADER_LEN)?);
        Some(CommonHeader {
            source_port: reader.u16()?,
            destination_port: reader.u16()?,
            tag: VerificationTag(reader.u32()?),
        })
    }

    /// Returns the header as octets, with a checksum of zero.
    pub(crate) fn to_bytes(self) -> [u8; COMMON_HEADER_LEN] {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [t0, t1, t2, t3] = self.tag.0.to_be_bytes();
        [s0, s1, d0, d1, t0, t1, t2, t3, 0, 0, 0, 0]
    }
}

/// Rule for the checksum of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChecksumMode {
    /// The checksum must be the packet's CRC32c.
    Verify,
    /// The checksum must be zero or the packet's CRC32c (RFC 9653, if both ends have agreed on a zero
    /// checksum).
    AcceptZero,
    /// The checksum is not checked, because hardware or a trusted layer has checked it.
    Ignore,
}

/// Reasons why a whole packet is refused. The receiver drops such a packet without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The packet is too short for a common header and one chunk header.
    #[error("packet of {len} octets, where header and one chunk take at least 16")]
    TooShort {
        /// Length of the packet in octets.
        len: usize,
    },
    /// The checksum does not match.
    #[error("checksum {found:#010x}, but the packet's CRC32c is {computed:#010x}")]
    Checksum {
        /// The checksum in the packet.
        found: u32,
        /// The CRC32c of the packet.
        computed: u32,
    },
}

/// A received packet. Its checksum has been checked, unless the checksum mode or the protection by a DTLS
/// chunk makes the check unnecessary.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Ports and verification tag.
    pub header: CommonHeader,
    chunks: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses `bytes` as one packet, from the source port to the end of the last chunk.
    ///
    /// # Errors
    /// Returns [`PacketError`] if the packet is too short, or if `mode` does not allow its checksum.
    pub fn parse(bytes: &'a [u8], mode: ChecksumMode) -> Result<Packet<'a>, PacketError> {
        let too_short = PacketError::TooShort { len: bytes.len() };
        if bytes.len() < COMMON_HEADER_LEN + CHUNK_HEADER_LEN {
            return Err(too_short);
        }
        let header = CommonHeader::peek(bytes).ok_or(too_short)?;
        let found = crc::stored(bytes).ok_or(too_short)?;
        //= rfc9260#6.8-3 6.8-4
        check(bytes, found, mode)?;
        Ok(Packet { header, chunks: &bytes[COMMON_HEADER_LEN..] })
    }

    /// Makes a packet from this header and the chunks that its DTLS chunk contained.
    pub fn opened(header: CommonHeader, chunks: &'a [u8]) -> Packet<'a> {
        Packet { header, chunks }
    }

    /// Returns the length of the packet with its common header, in octets.
    pub fn len(&self) -> usize {
        COMMON_HEADER_LEN + self.chunks.len()
    }

    /// Reports whether the packet has no chunks. A packet from [`parse`](Self::parse) always has a chunk.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns an iterator that reads the chunks.
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks(self.raw_chunks())
    }

    /// Returns an iterator over the chunks with uninterpreted values.
    pub fn raw_chunks(&self) -> RawChunks<'a> {
        RawChunks::new(self.chunks)
    }
}

fn check(bytes: &[u8], found: u32, mode: ChecksumMode) -> Result<(), PacketError> {
    match mode {
        ChecksumMode::Ignore => return Ok(()),
        ChecksumMode::AcceptZero if found == 0 => return Ok(()),
        ChecksumMode::AcceptZero | ChecksumMode::Verify => {}
    }
    let computed = packet_crc(bytes);
    if found == computed { Ok(()) } else { Err(PacketError::Checksum { found, computed }) }
}

/// One chunk with an uninterpreted value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RawChunk<'a> {
    /// Type of the chunk.
    pub chunk_type: ChunkType,
    /// Flags octet of the chunk.
    pub flags: u8,
    /// Value after the chunk's header, without padding.
    pub value: &'a [u8],
    /// Header and value, without padding. A report of an unrecognised chunk quotes these octets.
    pub bytes: &'a [u8],
    /// This chunk and all that follow it, with padding. The HMAC of an AUTH chunk covers these octets.
    pub from_here: &'a [u8],
}

impl<'a> RawChunk<'a> {
    /// Reads the chunk.
    ///
    /// # Errors
    /// Returns [`ChunkError`] if the value is malformed.
    pub fn parse(&self) -> Result<Chunk<'a>, ChunkError> {
        Chunk::parse(self)
    }
}

/// Iterator over the chunks of a packet, with uninterpreted values. It ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct RawChunks<'a> {
    rest: &'a [u8],
}

impl<'a> RawChunks<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> RawChunks<'a> {
        RawChunks { rest: bytes }
    }

    fn cut(&mut self) -> Result<RawChunk<'a>, ChunkError> {
        let all = std::mem::take(&mut self.rest);
        let Some(&[chunk_type, flags, l0, l1]) = all.first_chunk::<CHUNK_HEADER_LEN>() else {
            return Err(ChunkError::LeftOver { count: all.len() });
        };
        let length = u16::from_be_bytes([l0, l1]);
        let (chunk_type, len) = (ChunkType(chunk_type), usize::from(length));
        let (Some(bytes), Some(value)) = (all.get(..len), all.get(CHUNK_HEADER_LEN..len)) else {
            return Err(ChunkError::Length { chunk_type, length, available: all.len() });
        };
        //= rfc9260#3.2-4
        self.rest = all.get(padded(len)..).unwrap_or_default();
        Ok(RawChunk { chunk_type, flags, value, bytes, from_here: all })
    }
}

impl<'a> Iterator for RawChunks<'a> {
    type Item = Result<RawChunk<'a>, ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() { None } else { Some(self.cut()) }
    }
}

/// Iterator over the chunks of a packet.
///
/// A chunk with an invalid length yields an error and ends the iteration. A chunk with a valid length but a
/// malformed value also yields an error. The iteration then continues with the next chunk.
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a>(RawChunks<'a>);

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|raw| raw?.parse())
    }
}

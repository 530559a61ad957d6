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
//! [`Packet::parse`] checks length and checksum only; chunks are cut and read while they are walked. A walk
//! ends after the first chunk whose length cannot be, and each step takes at least four octets.

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
    /// The receiver's tag; zero with an INIT; possibly the sender's own with the T bit (section 8.5.1).
    pub tag: VerificationTag,
}

impl CommonHeader {
    /// Reads ports and tag of a packet, unchecked: for finding the association that knows how to check it.
    /// `None` if `bytes` is shorter than a common header.
    pub fn peek(bytes: &[u8]) -> Option<CommonHeader> {
        let mut reader = Reader::new(bytes.get(..COMMON_HEADER_LEN)?);
        Some(CommonHeader {
            source_port: reader.u16()?,
            destination_port: reader.u16()?,
            tag: VerificationTag(reader.u32()?),
        })
    }

    /// The header as octets, with a checksum of zero.
    pub(crate) fn to_bytes(self) -> [u8; COMMON_HEADER_LEN] {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [t0, t1, t2, t3] = self.tag.0.to_be_bytes();
        [s0, s1, d0, d1, t0, t1, t2, t3, 0, 0, 0, 0]
    }
}

/// Verdict on the checksum of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChecksumMode {
    /// It must be the packet's CRC32c.
    Verify,
    /// It must be zero or the packet's CRC32c (RFC 9653, once both ends agreed on a zero checksum).
    AcceptZero,
    /// It is not looked at, where hardware or a trusted layer has checked it.
    Ignore,
}

/// Why a packet was refused as a whole. Such packets are dropped without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Too short for a common header and one chunk header.
    #[error("packet of {len} octets, where header and one chunk take at least 16")]
    TooShort {
        /// Its length in octets.
        len: usize,
    },
    /// The checksum does not match.
    #[error("checksum {found:#010x}, but the packet's CRC32c is {computed:#010x}")]
    Checksum {
        /// The checksum in the packet.
        found: u32,
        /// The checksum of its octets.
        computed: u32,
    },
}

/// A received packet whose checksum has been judged.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Ports and tag.
    pub header: CommonHeader,
    chunks: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes `bytes`, from the source port to the end of the last chunk, as one packet.
    ///
    /// # Errors
    /// [`PacketError`] if it is too short or its checksum is wrong by `mode`.
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

    /// The packet that `chunks` make up, which a DTLS chunk under this header held.
    pub fn opened(header: CommonHeader, chunks: &'a [u8]) -> Packet<'a> {
        Packet { header, chunks }
    }

    /// Octets of the packet, common header included.
    pub fn len(&self) -> usize {
        COMMON_HEADER_LEN + self.chunks.len()
    }

    /// Reports whether it has no chunks; never true of one that was parsed.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The chunks, read.
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks(self.raw_chunks())
    }

    /// The chunks, cut but not read.
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

/// One chunk, cut but not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RawChunk<'a> {
    /// Its type.
    pub chunk_type: ChunkType,
    /// Its flags octet.
    pub flags: u8,
    /// The value after its header, without padding.
    pub value: &'a [u8],
    /// Header and value, without padding: what a report of an unrecognised chunk quotes.
    pub bytes: &'a [u8],
    /// This chunk and all that follow it, padding included: what an AUTH chunk's HMAC covers.
    pub from_here: &'a [u8],
}

impl<'a> RawChunk<'a> {
    /// Reads the chunk.
    ///
    /// # Errors
    /// [`ChunkError`] if its value is malformed.
    pub fn parse(&self) -> Result<Chunk<'a>, ChunkError> {
        Chunk::parse(self)
    }
}

/// Iterator over the chunks of a packet, cut but not read. Ends after the first error.
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
/// A chunk length that cannot be ends it with an error. A chunk whose frame is good but whose value is
/// malformed is an error too, and the walk goes on behind it.
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a>(RawChunks<'a>);

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|raw| raw?.parse())
    }
}

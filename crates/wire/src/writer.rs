//! Fills a caller's buffer with one SCTP packet, without allocating.
//!
//! Lengths are computed in one place: [`Writer`] writes a header, lets the body be written, then goes back
//! and fills in the length. A chunk that does not fit leaves no trace.

use crate::crc::crc32c;
use crate::packet::{COMMON_HEADER_LEN, CommonHeader};
use crate::tlv::padded;
use crate::{ChunkType, Data};

/// No packet is longer: the length of an IP packet has 16 bits.
const PACKET_LEN_MAX: usize = 65_532;

/// The buffer has no room for what was to be written; nothing of it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room left in the packet: send this one and put the chunk into the next")]
pub struct NoRoom;

/// A chunk that can be put into a packet.
pub trait WriteChunk {
    /// Writes the chunk: header and value, without padding.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit; what was written so far is then taken back by [`PacketWriter::push`].
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom>;
}

/// Writes octets and numbers, most significant octet first, into a slice.
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> Writer<'b> {
    /// Writes to the front of `buf`, at most its first 65,532 octets.
    pub fn new(buf: &'b mut [u8]) -> Writer<'b> {
        let max = buf.len().min(PACKET_LEN_MAX);
        Writer { buf: &mut buf[..max], len: 0 }
    }

    /// Octets written so far.
    pub fn written(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// Writes `bytes` as they are.
    ///
    /// # Errors
    /// [`NoRoom`] if they do not fit.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let end = self.len + bytes.len();
        self.buf.get_mut(self.len..end).ok_or(NoRoom)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    pub(crate) fn u16(&mut self, value: u16) -> Result<(), NoRoom> {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn zeros(&mut self, count: usize) -> Result<(), NoRoom> {
        let end = self.len.checked_add(count).ok_or(NoRoom)?;
        self.buf.get_mut(self.len..end).ok_or(NoRoom)?.fill(0);
        self.len = end;
        Ok(())
    }

    /// Pads with zeros to a multiple of four.
    pub(crate) fn pad(&mut self) -> Result<(), NoRoom> {
        self.zeros(padded(self.len) - self.len)
    }

    /// A chunk with the value that `body` writes.
    pub(crate) fn chunk(
        &mut self,
        chunk_type: ChunkType,
        flags: u8,
        body: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        self.framed([chunk_type.0, flags], body)
    }

    /// A parameter or cause with the value that `body` writes.
    pub(crate) fn tlv(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        self.framed(kind.to_be_bytes(), body)
    }

    fn framed(
        &mut self,
        head: [u8; 2],
        body: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let start = self.len;
        self.bytes(&[head[0], head[1], 0, 0])?;
        body(self)?;
        // The buffer is at most PACKET_LEN_MAX long, so the length fits 16 bits.
        let length = (self.len - start) as u16;
        self.buf[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// Builds one packet in a caller's buffer. In a buffer shorter than a common header nothing has room.
pub struct PacketWriter<'b> {
    out: Writer<'b>,
}

impl<'b> PacketWriter<'b> {
    /// Begins a packet at the front of `buf`; no more than `buf.len()` octets will be used.
    pub fn new(buf: &'b mut [u8], header: CommonHeader) -> PacketWriter<'b> {
        let usable = if buf.len() < COMMON_HEADER_LEN { 0 } else { buf.len() / 4 * 4 };
        let mut out = Writer::new(&mut buf[..usable]);
        if let Some(head) = out.buf.first_chunk_mut::<COMMON_HEADER_LEN>() {
            *head = header.to_bytes();
            out.len = COMMON_HEADER_LEN;
        }
        PacketWriter { out }
    }

    /// Octets a further chunk may take, header and padding included.
    pub fn remaining(&self) -> usize {
        self.out.buf.len() - self.out.len
    }

    /// Octets written so far, common header and padding included.
    pub fn len(&self) -> usize {
        self.out.len
    }

    /// Whether no chunk has been written yet.
    pub fn is_empty(&self) -> bool {
        self.len() <= COMMON_HEADER_LEN
    }

    /// What was written so far, common header (its checksum still zero) and padding included.
    pub fn written(&self) -> &[u8] {
        self.out.written()
    }

    /// Adds a chunk and its padding.
    ///
    /// # Errors
    /// [`NoRoom`] if the chunk does not fit; the packet is then as it was before.
    pub fn push(&mut self, chunk: &impl WriteChunk) -> Result<(), NoRoom> {
        let before = self.out.len;
        let result = chunk.write(&mut self.out).and_then(|()| self.out.pad());
        if result.is_err() {
            self.out.len = before;
        }
        result
    }

    /// Adds a DATA chunk and its padding: [`PacketWriter::push`] for the chunk sent most.
    ///
    /// # Errors
    /// [`NoRoom`] if the chunk does not fit; the packet is then as it was before.
    pub fn push_data(&mut self, data: &Data<'_>) -> Result<(), NoRoom> {
        self.push(data)
    }

    /// Ends the packet with its CRC32c and returns its length; zero if the buffer had no room for a header.
    pub fn finish(mut self) -> usize {
        let crc = crc32c(self.out.written());
        self.set_checksum(crc);
        self.out.len
    }

    /// Ends the packet with a checksum of zero, for peers that accept it (RFC 9653), and returns its length.
    pub fn finish_zero_checksum(self) -> usize {
        self.out.len
    }

    fn set_checksum(&mut self, crc: u32) {
        if let Some(field) = self.out.buf.get_mut(8..COMMON_HEADER_LEN) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
    }
}

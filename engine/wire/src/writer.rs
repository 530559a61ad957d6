//! Writer of one SCTP packet into the caller's buffer, without allocation.
//!
//! Lengths are computed in one place. [`Writer`] writes a header, lets a closure write the body, and then fills in the length. A chunk that
//! does not fit leaves the packet unchanged.

use crate::chunk::{Auth, ChunkSet};
use crate::crc::crc32c;
use crate::packet::{COMMON_HEADER_LEN, CommonHeader};
use crate::record::{self, RECORD_HEAD_LEN, RECORD_OVERHEAD, RECORD_TAG_LEN, RECORD_TAIL_LEN};
use crate::tlv::{CHUNK_HEADER_LEN, padded};
use crate::{ChunkType, Data};

/// Limit on a packet in octets. It is a multiple of four, and fits into the 16-bit length of an IP packet.
const PACKET_LEN_MAX: usize = 65_532;

/// Error if the buffer has no room for the octets to be written. [`PacketWriter::push`] then leaves the packet unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room left in the packet: send this one and put the chunk into the next")]
pub struct NoRoom;

/// A chunk that can be put into a packet.
pub trait WriteChunk {
    /// Writes the chunk's header and value, without padding.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if the chunk does not fit. [`PacketWriter::push`] then discards the part that was written.
    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom>;
}

/// A writer of octets and big-endian numbers into a slice.
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> Writer<'b> {
    /// Makes a writer that begins at the front of `buf`. It uses no more than the first 65,532 octets.
    pub fn new(buf: &'b mut [u8]) -> Writer<'b> {
        let max = buf.len().min(PACKET_LEN_MAX);
        Writer { buf: &mut buf[..max], len: 0 }
    }

    /// Returns the octets written so far.
    pub fn written(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// Writes `bytes` unchanged.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if `bytes` does not fit. The buffer is then unchanged.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let end = self.len + bytes.len();
        self.buf.get_mut(self.len..end).ok_or(NoRoom)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    pub(crate) fn u16(&mut self, value: u16) -> Result<(), NoRoom> {
        self.bytes(&value.to_be_bytes())
    }

    //= rfc9260#3-2
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
    #[inline]
    //= rfc9260#3.2-1 3.2-2 3.2-3 3.2.1-1 3.2.1-2
    //= rfc4895#3.2-2
    //= rfc9260#3.2-1 3.2-2 3.2-3 3.2.1-1 3.2.1-2
    pub(crate) fn pad(&mut self) -> Result<(), NoRoom> {
        match padded(self.len) - self.len {
            0 => Ok(()),
            count => self.zeros(count),
        }
    }

    /// Writes a chunk with the value that `body` writes.
    pub(crate) fn chunk(
        &mut self,
        chunk_type: ChunkType,
        flags: u8,
        body: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        self.framed([chunk_type.0, flags], body)
    }

    /// Writes a parameter or cause with the value that `body` writes.
    //= rfc5061#4.2.7-3
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
        // The buffer is no longer than PACKET_LEN_MAX, so the length fits into 16 bits.
        let length = (self.len - start) as u16;
        self.buf[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// A writer of one packet into the caller's buffer. A buffer that is shorter than a common header has no room for any chunk.
pub struct PacketWriter<'b> {
    out: Writer<'b>,
    auth: Option<AuthPlan>,
    /// Offset of the AUTH chunk, after it has been written.
    auth_at: Option<usize>,
    /// Octets reserved for a chunk that [`PacketWriter::push_front`] may add.
    kept: usize,
    /// Offset of the first chunk: after the common header, or after the head of a DTLS chunk.
    start: usize,
    /// Octets reserved after the last chunk for the end of a DTLS chunk.
    tail: usize,
}

/// The chunk types that require an AUTH chunk before them, and the fields of this AUTH chunk (RFC 4895 section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthPlan {
    /// Types of chunks that must not be sent without AUTH.
    pub chunks: ChunkSet,
    /// Shared Key Identifier of the AUTH chunk.
    pub shared_key: u16,
    /// HMAC Identifier of the AUTH chunk.
    pub hmac_id: u16,
    /// Length of the HMAC in octets, up to 64.
    pub hmac_len: usize,
}

/// Length of an AUTH chunk before its HMAC, in octets.
const AUTH_HEAD_LEN: usize = CHUNK_HEADER_LEN + 4;

impl AuthPlan {
    /// Returns the length of the AUTH chunk with its padding, in octets.
    pub const fn chunk_len(&self) -> usize {
        padded(AUTH_HEAD_LEN + self.hmac_len)
    }

    fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        let zeros = [0; 64];
        let hmac = zeros.get(..self.hmac_len).ok_or(NoRoom)?;
        Auth { shared_key: self.shared_key, hmac_id: self.hmac_id, hmac }.write(out)?;
        out.pad()
    }
}

impl<'b> PacketWriter<'b> {
    /// Begins a packet at the front of `buf`. The packet becomes no longer than `buf`, and no longer than 65,532 octets.
    pub fn new(buf: &'b mut [u8], header: CommonHeader) -> PacketWriter<'b> {
        let usable = if buf.len() < COMMON_HEADER_LEN { 0 } else { buf.len() / 4 * 4 };
        let mut out = Writer::new(&mut buf[..usable]);
        if let Some(head) = out.buf.first_chunk_mut::<COMMON_HEADER_LEN>() {
            *head = header.to_bytes();
            out.len = COMMON_HEADER_LEN;
        }
        PacketWriter { out, auth: None, auth_at: None, kept: 0, start: COMMON_HEADER_LEN, tail: 0 }
    }

    /// Begins a packet whose chunks [`PacketWriter::seal`] will put into one DTLS chunk.
    pub fn for_sealing(buf: &'b mut [u8], header: CommonHeader) -> PacketWriter<'b> {
        let mut packet = PacketWriter::new(buf, header);
        if packet.out.buf.len() >= COMMON_HEADER_LEN + RECORD_OVERHEAD {
            (packet.start, packet.tail) = (COMMON_HEADER_LEN + RECORD_HEAD_LEN, RECORD_TAIL_LEN);
            packet.out.len = packet.start;
        } else {
            // A DTLS chunk does not fit, so the whole buffer is reserved and no chunk can be added.
            packet.kept = packet.out.buf.len();
        }
        packet
    }

    /// Makes the writer put an AUTH chunk before the first chunk whose type `plan` lists. [`PacketWriter::sign`] completes the AUTH chunk.
    /// The caller must call this method before it adds the first chunk.
    #[must_use]
    pub fn with_auth(mut self, plan: AuthPlan) -> PacketWriter<'b> {
        self.auth = Some(plan);
        self
    }

    /// Reserves room for a chunk of `len` octets that [`PacketWriter::push_front`] may add. `len` must be a multiple of four.
    #[must_use]
    pub fn with_room_in_front(mut self, len: usize) -> PacketWriter<'b> {
        self.kept = self.kept.max(len);
        self
    }

    /// Adds a chunk of up to 16 octets before all others, and before AUTH, into the room reserved for it. The caller must call this method
    /// before [`PacketWriter::sign`]. In a packet that will be sealed, the chunk stays in the clear, before the DTLS chunk.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if the chunk is too long, or if too little room was reserved. The packet is then unchanged.
    pub fn push_front(&mut self, chunk: &impl WriteChunk) -> Result<(), NoRoom> {
        let mut buf = [0; 16];
        let mut out = Writer::new(&mut buf);
        chunk.write(&mut out)?;
        out.pad()?;
        let (len, end) = (out.len, self.out.len);
        let front = COMMON_HEADER_LEN;
        if len > self.kept || end < front || end + len + self.tail > self.out.buf.len() {
            return Err(NoRoom);
        }
        self.kept = 0;
        self.out.buf.copy_within(front..end, front + len);
        self.out.buf[front..front + len].copy_from_slice(out.written());
        self.out.len = end + len;
        if self.tail > 0 {
            self.start += len;
        }
        self.auth_at = self.auth_at.map(|at| at + len);
        Ok(())
    }

    /// Fills in the HMAC of the AUTH chunk, if the packet has one (RFC 4895 section 6.2). `hmac` gets the covered octets: all octets from
    /// the AUTH chunk on, with zeros in place of the HMAC. `hmac` must return an HMAC of the length in [`AuthPlan::hmac_len`]. The caller
    /// must not add a chunk after this call.
    //= rfc4895#6.2-3 6.2-7
    pub fn sign<H: AsRef<[u8]>>(&mut self, hmac: impl FnOnce(&[u8]) -> H) {
        let (Some(at), Some(plan)) = (self.auth_at, self.auth) else { return };
        let hmac = hmac(&self.out.written()[at..]);
        let field = at + AUTH_HEAD_LEN..at + AUTH_HEAD_LEN + plan.hmac_len;
        if let (Some(field), Some(hmac)) = (self.out.buf.get_mut(field), hmac.as_ref().get(..plan.hmac_len)) {
            field.copy_from_slice(hmac);
        }
    }

    /// Returns the number of octets that remain for a further chunk with its header and padding, if the chunk requires no AUTH chunk.
    pub fn remaining(&self) -> usize {
        (self.out.buf.len() - self.out.len).saturating_sub(self.kept + self.tail)
    }

    /// Returns the number of octets that remain for a further chunk of this type with its header and padding.
    pub fn remaining_for(&self, chunk_type: ChunkType) -> usize {
        let plan = self.auth.filter(|plan| self.auth_at.is_none() && plan.chunks.contains(chunk_type));
        self.remaining().saturating_sub(plan.map_or(0, |plan| plan.chunk_len()))
    }

    /// Returns the number of octets written so far, with common header and padding.
    pub fn len(&self) -> usize {
        self.out.len
    }

    /// Reports whether no chunk has been written yet.
    pub fn is_empty(&self) -> bool {
        self.len() <= self.start
    }

    /// Returns the type of the packet's first chunk, or `None` if the packet has no chunk.
    pub fn first_chunk(&self) -> Option<ChunkType> {
        self.written().get(COMMON_HEADER_LEN).copied().map(ChunkType)
    }

    /// Returns the bytes written so far, with padding and with the common header. The checksum is still zero.
    pub fn written(&self) -> &[u8] {
        self.out.written()
    }

    /// Adds a chunk and its padding.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if the chunk does not fit. The packet is then unchanged.
    #[inline]
    pub fn push(&mut self, chunk: &impl WriteChunk) -> Result<(), NoRoom> {
        let before = self.out.len;
        let written = chunk.write(&mut self.out).and_then(|()| self.out.pad());
        let written = match self.auth {
            Some(plan) => written.and_then(|()| self.insert_auth(before, plan)),
            None => written,
        };
        let result = written.and_then(|()| self.check_room());
        if result.is_err() {
            self.out.len = before;
            self.auth_at = self.auth_at.filter(|&at| at < before);
        }
        result
    }

    /// Checks that the reserved octets in front and after the last chunk are still free.
    fn check_room(&self) -> Result<(), NoRoom> {
        if self.out.len + self.kept + self.tail > self.out.buf.len() { Err(NoRoom) } else { Ok(()) }
    }

    /// Puts the AUTH chunk before the chunk at offset `at`, if this chunk requires AUTH and the packet has no AUTH chunk yet.
    fn insert_auth(&mut self, at: usize, plan: AuthPlan) -> Result<(), NoRoom> {
        let end = self.out.len;
        let chunk_type = self.out.buf.get(at).map(|&t| ChunkType(t));
        if self.auth_at.is_some() || !chunk_type.is_some_and(|t| plan.chunks.contains(t)) {
            return Ok(());
        }
        if end + plan.chunk_len() > self.out.buf.len() {
            return Err(NoRoom);
        }
        self.out.buf.copy_within(at..end, at + plan.chunk_len());
        self.out.len = at;
        plan.write(&mut self.out)?;
        self.out.len = end + plan.chunk_len();
        self.auth_at = Some(at);
        Ok(())
    }

    /// Adds a DATA chunk and its padding. Equivalent to [`PacketWriter::push`], for the most frequent chunk.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if the chunk does not fit. The packet is then unchanged.
    #[inline]
    pub fn push_data(&mut self, data: &Data<'_>) -> Result<(), NoRoom> {
        self.push(data)
    }

    /// Puts all chunks into one DTLS chunk, whose record has this epoch and number. The caller must call this method before
    /// [`PacketWriter::finish`]. The call has no effect if the writer was not made [for sealing](PacketWriter::for_sealing), or if the
    /// packet has no chunk.
    ///
    /// `encrypt` gets the associated data and the plaintext. It encrypts the plaintext in place and returns the tag. `mask` gets the first
    /// octets of the ciphertext, and returns the mask of the record number (RFC 9147 section 4.2.3).
    pub fn seal(
        &mut self,
        epoch: u64,
        number: u64,
        encrypt: impl FnOnce(&[u8], &mut [u8]) -> [u8; RECORD_TAG_LEN],
        mask: impl FnOnce(&[u8; RECORD_TAG_LEN]) -> [u8; 2],
    ) {
        if self.tail == 0 || self.is_empty() {
            return;
        }
        let chunk = &mut self.out.buf[self.start - RECORD_HEAD_LEN..self.out.len + self.tail];
        record::seal(chunk, epoch, number, encrypt, mask);
        self.out.len += self.tail;
        self.tail = 0;
    }

    /// Ends the packet with its CRC32c and returns its length in octets. Returns 0 if the buffer has no room for a header.
    //= rfc9260#6.8-1 6.8-2
    //= rfc6951#5.3-3
    pub fn finish(mut self) -> usize {
        let crc = crc32c(self.out.written());
        self.set_checksum(crc);
        self.out.len
    }

    /// Ends the packet with a checksum of zero, for peers that accept it (RFC 9653). Returns its length in octets.
    pub fn finish_zero_checksum(self) -> usize {
        self.out.len
    }

    fn set_checksum(&mut self, crc: u32) {
        if let Some(field) = self.out.buf.get_mut(8..COMMON_HEADER_LEN) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Chunk, Heartbeat};
    use crate::packet::{ChecksumMode, Packet};
    use crate::{VerificationTag, chunk::CookieEcho};

    const PLAN: AuthPlan = {
        let mut chunks = ChunkSet::EMPTY;
        chunks.insert(ChunkType::HEARTBEAT);
        AuthPlan { chunks, shared_key: 1, hmac_id: 3, hmac_len: 32 }
    };

    fn packet(buf: &mut [u8]) -> PacketWriter<'_> {
        let header = CommonHeader { source_port: 1, destination_port: 2, tag: VerificationTag(3) };
        PacketWriter::new(buf, header).with_auth(PLAN)
    }

    #[test]
    //= rfc4895#6.2-3 5.1-5
    fn auth_comes_before_the_first_chunk_that_needs_it_and_covers_the_rest() {
        let mut buf = [0xff; 200];
        let mut writer = packet(&mut buf);
        writer.push(&Chunk::CookieEcho(CookieEcho { cookie: &[9; 5] })).unwrap();
        writer.push(&Chunk::Heartbeat(Heartbeat { info: &[7; 3] })).unwrap();
        writer.push(&Chunk::CookieAck).unwrap();
        let mut covered = Vec::new();
        writer.sign(|bytes| {
            covered = bytes.to_vec();
            [0xaa; 32]
        });
        let length = writer.finish();
        let packet = Packet::parse(&buf[..length], ChecksumMode::Verify).unwrap();
        let raw: Vec<_> = packet.raw_chunks().map(Result::unwrap).collect();
        let types = [ChunkType::COOKIE_ECHO, ChunkType::AUTH, ChunkType::HEARTBEAT, ChunkType::COOKIE_ACK];
        assert_eq!(raw.iter().map(|r| r.chunk_type).collect::<Vec<_>>(), types);
        let Ok(Chunk::Auth(auth)) = raw[1].parse() else { panic!("no AUTH") };
        assert_eq!((auth.shared_key, auth.hmac_id, auth.hmac), (1, 3, &[0xaa; 32][..]));
        assert_eq!(covered[..8], raw[1].from_here[..8]);
        assert_eq!(covered[8..40], [0; 32]);
        assert_eq!(covered[40..], raw[1].from_here[40..]);
    }

    #[test]
    fn without_a_chunk_that_needs_it_there_is_no_auth() {
        let mut buf = [0; 200];
        let mut writer = packet(&mut buf);
        writer.push(&Chunk::CookieAck).unwrap();
        writer.sign(|_| -> [u8; 32] { panic!("nothing to sign") });
        assert_eq!(writer.finish(), 16);
    }

    #[test]
    fn a_chunk_put_in_front_comes_before_auth_and_is_not_covered() {
        let front = crate::SendBuffer { chunk_type: crate::SendBuffer::TYPE, occupancy: 50, backlog: None };
        let mut buf = [0xff; 200];
        let mut writer = packet(&mut buf).with_room_in_front(4);
        writer.push(&Chunk::Heartbeat(Heartbeat { info: &[7; 3] })).unwrap();
        writer.push_front(&front).unwrap();
        assert_eq!(writer.push_front(&front), Err(NoRoom), "room was kept for one");
        let mut covered = Vec::new();
        writer.sign(|bytes| {
            covered = bytes.to_vec();
            [0xaa; 32]
        });
        let length = writer.finish();
        let packet = Packet::parse(&buf[..length], ChecksumMode::Verify).unwrap();
        let raw: Vec<_> = packet.raw_chunks().map(Result::unwrap).collect();
        let types = [crate::SendBuffer::TYPE, ChunkType::AUTH, ChunkType::HEARTBEAT];
        assert_eq!(raw.iter().map(|r| r.chunk_type).collect::<Vec<_>>(), types);
        assert_eq!(covered.len(), 40 + 12);
        let Ok(Chunk::Auth(auth)) = raw[1].parse() else { panic!("no AUTH") };
        assert_eq!(auth.hmac, [0xaa; 32]);
    }

    #[test]
    fn the_room_in_front_is_kept_from_all_other_chunks() {
        let front =
            crate::SendBuffer { chunk_type: crate::SendBuffer::TYPE, occupancy: 50, backlog: Some(1) };
        let heartbeat = Chunk::Heartbeat(Heartbeat { info: &[] });
        let mut buf = [0; 12 + 40 + 8 + 8];
        let mut writer = packet(&mut buf).with_room_in_front(8);
        assert_eq!(writer.remaining_for(ChunkType::HEARTBEAT), 8);
        writer.push(&heartbeat).unwrap();
        assert_eq!(writer.push(&Chunk::CookieAck), Err(NoRoom));
        writer.push_front(&front).unwrap();
        let mut short = [0; 12 + 40 + 4 + 8];
        let mut writer = packet(&mut short).with_room_in_front(8);
        assert_eq!(writer.push(&heartbeat), Err(NoRoom));
        writer.push(&Chunk::CookieAck).unwrap();
        assert_eq!(writer.len(), 16, "the refused AUTH has left no trace");
    }

    #[test]
    fn room_is_kept_for_auth_until_it_is_there() {
        let heartbeat = Chunk::Heartbeat(Heartbeat { info: &[] });
        let mut buf = [0; 12 + 40 + 8 + 4];
        let mut writer = packet(&mut buf);
        assert_eq!(writer.remaining_for(ChunkType::HEARTBEAT), 12);
        assert_eq!(writer.remaining_for(ChunkType::COOKIE_ACK), 52);
        writer.push(&heartbeat).unwrap();
        assert_eq!(writer.remaining_for(ChunkType::HEARTBEAT), 4);
        let mut short = [0; 12 + 40 + 4];
        let mut writer = packet(&mut short);
        assert_eq!(writer.push(&heartbeat), Err(NoRoom));
        assert!(writer.is_empty());
    }
}

//! Fills a caller's buffer with one SCTP packet, without allocating.
//!
//! Lengths are computed in one place: [`Writer`] writes a header, lets the body be written, then goes back
//! and fills in the length. A chunk that does not fit leaves no trace.

use crate::chunk::{Auth, ChunkSet};
use crate::crc::crc32c;
use crate::packet::{COMMON_HEADER_LEN, CommonHeader};
use crate::record::{self, RECORD_HEAD_LEN, RECORD_OVERHEAD, RECORD_TAG_LEN, RECORD_TAIL_LEN};
use crate::tlv::{CHUNK_HEADER_LEN, padded};
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
        // The buffer is at most PACKET_LEN_MAX long, so the length fits 16 bits.
        let length = (self.len - start) as u16;
        self.buf[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// Builds one packet in a caller's buffer. In a buffer shorter than a common header nothing has room.
pub struct PacketWriter<'b> {
    out: Writer<'b>,
    auth: Option<AuthPlan>,
    /// Offset of the AUTH chunk, once it is there.
    auth_at: Option<usize>,
    /// Octets kept for a chunk that will be put in front.
    kept: usize,
    /// Offset of the first chunk: behind the common header, or behind the head of a DTLS chunk.
    start: usize,
    /// Octets kept behind the last chunk for the end of a DTLS chunk.
    tail: usize,
}

/// Which chunks a packet's AUTH chunk must come before, and what it says (RFC 4895 section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthPlan {
    /// Chunks that must not be sent without AUTH.
    pub chunks: ChunkSet,
    /// The AUTH chunk's Shared Key Identifier.
    pub shared_key: u16,
    /// Its HMAC Identifier.
    pub hmac_id: u16,
    /// Octets of the HMAC, at most 64.
    pub hmac_len: usize,
}

/// Octets of an AUTH chunk before its HMAC.
const AUTH_HEAD_LEN: usize = CHUNK_HEADER_LEN + 4;

impl AuthPlan {
    /// Octets that the AUTH chunk takes from a packet.
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
    /// Begins a packet at the front of `buf`; no more than `buf.len()` octets will be used.
    pub fn new(buf: &'b mut [u8], header: CommonHeader) -> PacketWriter<'b> {
        let usable = if buf.len() < COMMON_HEADER_LEN { 0 } else { buf.len() / 4 * 4 };
        let mut out = Writer::new(&mut buf[..usable]);
        if let Some(head) = out.buf.first_chunk_mut::<COMMON_HEADER_LEN>() {
            *head = header.to_bytes();
            out.len = COMMON_HEADER_LEN;
        }
        PacketWriter { out, auth: None, auth_at: None, kept: 0, start: COMMON_HEADER_LEN, tail: 0 }
    }

    /// The same for a packet whose chunks [`PacketWriter::seal`] will put into one DTLS chunk.
    pub fn for_sealing(buf: &'b mut [u8], header: CommonHeader) -> PacketWriter<'b> {
        let mut packet = PacketWriter::new(buf, header);
        if packet.out.buf.len() >= COMMON_HEADER_LEN + RECORD_OVERHEAD {
            (packet.start, packet.tail) = (COMMON_HEADER_LEN + RECORD_HEAD_LEN, RECORD_TAIL_LEN);
            packet.out.len = packet.start;
        } else {
            // Nothing has room.
            packet.kept = packet.out.buf.len();
        }
        packet
    }

    /// Puts an AUTH chunk before the first chunk that `plan` lists; [`PacketWriter::sign`] completes it. To be called
    /// before the first chunk.
    #[must_use]
    pub fn with_auth(mut self, plan: AuthPlan) -> PacketWriter<'b> {
        self.auth = Some(plan);
        self
    }

    /// Keeps room for a chunk of `len` octets, a multiple of four, that [`PacketWriter::push_front`] may add.
    #[must_use]
    pub fn with_room_in_front(mut self, len: usize) -> PacketWriter<'b> {
        self.kept = self.kept.max(len);
        self
    }

    /// Adds a chunk before all others, AUTH included, into the room kept for it; to be called before
    /// [`PacketWriter::sign`]. In a packet that will be sealed it stays in the clear, before the DTLS chunk.
    ///
    /// # Errors
    /// [`NoRoom`] if no room was kept, or too little; the packet is then as it was before.
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

    /// Fills in the AUTH chunk, if there is one: `hmac` is given what it covers, from the AUTH chunk with a zeroed HMAC
    /// on, and gives the HMAC, of the length planned (RFC 4895 section 6.2). Nothing may be added afterwards.
    //= rfc4895#6.2-3 6.2-7
    pub fn sign<H: AsRef<[u8]>>(&mut self, hmac: impl FnOnce(&[u8]) -> H) {
        let (Some(at), Some(plan)) = (self.auth_at, self.auth) else { return };
        let hmac = hmac(&self.out.written()[at..]);
        let field = at + AUTH_HEAD_LEN..at + AUTH_HEAD_LEN + plan.hmac_len;
        if let (Some(field), Some(hmac)) = (self.out.buf.get_mut(field), hmac.as_ref().get(..plan.hmac_len)) {
            field.copy_from_slice(hmac);
        }
    }

    /// Octets a further chunk may take, header and padding included, if it brings no AUTH chunk along.
    pub fn remaining(&self) -> usize {
        (self.out.buf.len() - self.out.len).saturating_sub(self.kept + self.tail)
    }

    /// Octets a further chunk of this type may take, header and padding included.
    pub fn remaining_for(&self, chunk_type: ChunkType) -> usize {
        let plan = self.auth.filter(|plan| self.auth_at.is_none() && plan.chunks.contains(chunk_type));
        self.remaining().saturating_sub(plan.map_or(0, |plan| plan.chunk_len()))
    }

    /// Octets written so far, common header and padding included.
    pub fn len(&self) -> usize {
        self.out.len
    }

    /// Reports whether no chunk has been written yet.
    pub fn is_empty(&self) -> bool {
        self.len() <= self.start
    }

    /// Returns the bytes written so far, with the common header (its checksum still zero) and padding.
    pub fn written(&self) -> &[u8] {
        self.out.written()
    }

    /// Adds a chunk and its padding.
    ///
    /// # Errors
    /// [`NoRoom`] if the chunk does not fit; the packet is then as it was before.
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

    /// Reports whether the room in front is still there.
    fn check_room(&self) -> Result<(), NoRoom> {
        if self.out.len + self.kept + self.tail > self.out.buf.len() { Err(NoRoom) } else { Ok(()) }
    }

    /// Puts the AUTH chunk before the chunk at `at`, if that needs it and none is there yet.
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

    /// Adds a DATA chunk and its padding: [`PacketWriter::push`] for the chunk sent most.
    ///
    /// # Errors
    /// [`NoRoom`] if the chunk does not fit; the packet is then as it was before.
    #[inline]
    pub fn push_data(&mut self, data: &Data<'_>) -> Result<(), NoRoom> {
        self.push(data)
    }

    /// Puts all chunks into one DTLS chunk, whose record has this epoch and number; to be called before
    /// [`PacketWriter::finish`], for a writer that was made [for it](PacketWriter::for_sealing). `encrypt` is given
    /// the associated data and the plaintext, encrypts that in place and returns its tag; `mask` is given the first octets of the
    /// ciphertext (RFC 9147 section 4.2.3).
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

    /// Ends the packet with its CRC32c and returns its length; zero if the buffer had no room for a header.
    //= rfc9260#6.8-1 6.8-2
    //= rfc6951#5.3-3
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

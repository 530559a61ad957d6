//! The DTLS chunk: all chunks of a packet in one encrypted record (draft-ietf-tsvwg-sctp-dtls-chunk-03 section 4.2, RFC 9147 section 4).
//!
//! ```text
//! +---------------+-------------+-+-------------------------------+
//! |   Type = 65   |  reserved   |R|         Chunk Length          |
//! +---------------+-------------+-+-------------------------------+
//! |  Pre-Padding  |0 0 1 0 1 0 E E|   Sequence Number, encrypted  |
//! +---------------+---------------+-------------------------------+
//! |      chunks and a content type, encrypted; tag; padding       |
//! +---------------------------------------------------------------+
//! ```
//!
//! This module handles only the layout. The caller has the cipher and the record numbers. A record is refused if the form of its header
//! differs from the diagram, or if its R bit reports a restart context. Begin with [`Record::parse`] and
//! [`PacketWriter::seal`](crate::PacketWriter::seal).

use crate::chunk::ChunkType;
use crate::packet::RawChunk;
use crate::tlv::{CHUNK_HEADER_LEN, padded};

/// Length of a record's authentication tag, in octets. All cipher suites of TLS 1.3 except TLS_AES_128_CCM_8_SHA256 have tags of this
/// length.
pub const RECORD_TAG_LEN: usize = 16;
/// Octets of a DTLS chunk before the ciphertext.
pub(crate) const RECORD_HEAD_LEN: usize = CHUNK_HEADER_LEN + 4;
/// Octets after the inner chunks: the content type, the tag, and padding.
pub(crate) const RECORD_TAIL_LEN: usize = padded(1 + RECORD_TAG_LEN);
/// Octets that a DTLS chunk adds to the inner chunks.
pub const RECORD_OVERHEAD: usize = RECORD_HEAD_LEN + RECORD_TAIL_LEN;

/// Form of `unified_hdr` with a 16-bit sequence number, and without connection ID and length.
const UNIFIED: u8 = 0b0010_1000;
const EPOCH_BITS: u8 = 0b11;
/// The content type application_data (RFC 8446 section 5.1).
const APPLICATION_DATA: u8 = 0x17;
/// R bit of a record under a restart context.
const RESTART: u8 = 1;

/// A received record that is not yet decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The two lowest bits of the record's epoch.
    pub epoch: u8,
    masked_number: [u8; 2],
    /// The octets from which the mask of the record number is computed.
    pub sample: [u8; RECORD_TAG_LEN],
    /// The ciphertext, without the tag.
    pub ciphertext: &'a [u8],
    /// The authentication tag.
    pub tag: &'a [u8; RECORD_TAG_LEN],
}

impl<'a> Record<'a> {
    /// Reads a DTLS chunk. Returns `None` if the chunk is not a DTLS chunk, or if the form of the record's header differs from the
    /// diagram above.
    pub fn parse(raw: &RawChunk<'a>) -> Option<Record<'a>> {
        let (&[_, unified, n0, n1], sealed) = raw.value.split_first_chunk()?;
        let (ciphertext, tag) = sealed.split_last_chunk()?;
        let sample = *sealed.first_chunk()?;
        let is_good = raw.chunk_type == ChunkType::DTLS
            && raw.flags & RESTART == 0
            && unified & !EPOCH_BITS == UNIFIED
            && !ciphertext.is_empty();
        is_good.then_some(Record {
            epoch: unified & EPOCH_BITS,
            masked_number: [n0, n1],
            sample,
            ciphertext,
            tag,
        })
    }

    /// Decrypts the 16 lowest bits of the record's number with `mask`, and returns them.
    pub fn number(&self, mask: [u8; 2]) -> u16 {
        u16::from_be_bytes([self.masked_number[0] ^ mask[0], self.masked_number[1] ^ mask[1]])
    }

    /// Returns the chunks in a decrypted record, without padding and content type. Returns `None` if the content type is not
    /// application_data.
    pub fn chunks(plaintext: &[u8]) -> Option<&[u8]> {
        let last = plaintext.iter().rposition(|&octet| octet != 0)?;
        (plaintext[last] == APPLICATION_DATA).then_some(&plaintext[..last])
    }

    /// Returns the associated data of the record: its header with this number, unencrypted.
    pub fn associated(&self, number: u16) -> [u8; 3] {
        header(u64::from(self.epoch), number)
    }
}

fn header(epoch: u64, number: u16) -> [u8; 3] {
    let [n0, n1] = number.to_be_bytes();
    [UNIFIED | (epoch & u64::from(EPOCH_BITS)) as u8, n0, n1]
}

/// Makes a DTLS chunk in place. `chunk` holds the inner chunks, with room for the head and the tail around them.
pub(crate) fn seal(
    chunk: &mut [u8],
    epoch: u64,
    number: u64,
    encrypt: impl FnOnce(&[u8], &mut [u8]) -> [u8; RECORD_TAG_LEN],
    mask: impl FnOnce(&[u8; RECORD_TAG_LEN]) -> [u8; 2],
) {
    let [n0, n1] = [(number >> 8) as u8, number as u8];
    let associated = header(epoch, u16::from_be_bytes([n0, n1]));
    let content_type_at = chunk.len() - RECORD_TAIL_LEN;
    let length = content_type_at + 1 + RECORD_TAG_LEN;
    chunk[content_type_at] = APPLICATION_DATA;
    let tag = encrypt(&associated, &mut chunk[RECORD_HEAD_LEN..=content_type_at]);
    chunk[content_type_at + 1..length].copy_from_slice(&tag);
    chunk[length..].fill(0);
    let sample = chunk[RECORD_HEAD_LEN..].first_chunk().copied().unwrap_or_default();
    let [m0, m1] = mask(&sample);
    let [l0, l1] = [(length >> 8) as u8, length as u8];
    let head = [ChunkType::DTLS.0, 0, l0, l1, 0, associated[0], n0 ^ m0, n1 ^ m1];
    chunk[..RECORD_HEAD_LEN].copy_from_slice(&head);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Chunk, Heartbeat};
    use crate::packet::{ChecksumMode, CommonHeader, Packet};
    use crate::{NoRoom, PacketWriter, VerificationTag};

    const HEADER: CommonHeader =
        CommonHeader { source_port: 1, destination_port: 2, tag: VerificationTag(3) };
    const TAG: [u8; RECORD_TAG_LEN] = [0xaa; RECORD_TAG_LEN];

    /// Writes a packet with a HEARTBEAT of twelve octets, sealed by a cipher that inverts all bits.
    fn sealed(buf: &mut [u8], epoch: u64, number: u64) -> usize {
        let mut writer = PacketWriter::for_sealing(buf, HEADER);
        writer.push(&Chunk::Heartbeat(Heartbeat { info: &[7; 4] })).unwrap();
        let invert = |_: &[u8], text: &mut [u8]| {
            text.iter_mut().for_each(|octet| *octet = !*octet);
            TAG
        };
        writer.seal(epoch, number, invert, |sample| [sample[0], sample[1]]);
        writer.finish()
    }

    #[test]
    fn a_sealed_packet_is_one_chunk_with_the_layout_of_the_draft() {
        let mut buf = [0xff; 100];
        let length = sealed(&mut buf, 3, 0x1_2345);
        assert_eq!(length, 12 + 12 + RECORD_OVERHEAD);
        // The length counts 8 octets of head, 12 of HEARTBEAT, the content type, and the tag.
        let mut expected = vec![65, 0, 0, 8 + 12 + 1 + 16, 0, 0b0010_1011];
        // The mask is the beginning of the ciphertext, which is the inverted type and flags of the HEARTBEAT.
        expected.extend([0x23 ^ !4, 0x45 ^ !0]);
        let inside = [4, 0, 0, 12, 0, 1, 0, 8, 7, 7, 7, 7, 0x17];
        expected.extend(inside.map(|octet: u8| !octet));
        expected.extend(TAG);
        expected.extend([0; 3]);
        assert_eq!(buf[12..length], expected);
    }

    #[test]
    fn a_record_reads_back() {
        let mut buf = [0xff; 100];
        let length = sealed(&mut buf, 6, 0xfffe);
        let packet = Packet::parse(&buf[..length], ChecksumMode::Verify).unwrap();
        let raw: Vec<_> = packet.raw_chunks().map(Result::unwrap).collect();
        let record = Record::parse(&raw[0]).unwrap();
        assert_eq!((raw.len(), record.epoch), (1, 2));
        let sample = record.sample;
        let number = record.number([sample[0], sample[1]]);
        assert_eq!((number, record.associated(number)), (0xfffe, [0b0010_1010, 0xff, 0xfe]));
        assert_eq!(*record.tag, TAG);
        let plain: Vec<u8> = record.ciphertext.iter().map(|octet| !octet).collect();
        let inner = Packet::opened(packet.header, Record::chunks(&plain).unwrap());
        assert!(matches!(inner.chunks().next(), Some(Ok(Chunk::Heartbeat(h))) if h.info == [7; 4]));
    }

    #[test]
    fn a_chunk_in_front_stays_in_the_clear() {
        let front =
            crate::SendBuffer { chunk_type: crate::SendBuffer::TYPE, occupancy: 50, backlog: Some(7) };
        let mut buf = [0xff; 12 + 8 + RECORD_OVERHEAD + 12];
        let mut writer = PacketWriter::for_sealing(&mut buf, HEADER).with_room_in_front(8);
        assert_eq!(writer.remaining(), 12);
        writer.push(&Chunk::Heartbeat(Heartbeat { info: &[7; 4] })).unwrap();
        writer.push_front(&front).unwrap();
        let mut sealed = Vec::new();
        let keep = |_: &[u8], text: &mut [u8]| {
            sealed = text.to_vec();
            TAG
        };
        writer.seal(3, 9, keep, |_| [0, 0]);
        let length = writer.finish();
        assert_eq!(length, buf.len());
        assert_eq!(sealed, [4, 0, 0, 12, 0, 1, 0, 8, 7, 7, 7, 7, APPLICATION_DATA]);
        let packet = Packet::parse(&buf[..length], ChecksumMode::Verify).unwrap();
        let raw: Vec<_> = packet.raw_chunks().map(Result::unwrap).collect();
        assert_eq!(crate::SendBuffer::parse(&raw[0]), Some(front));
        assert_eq!((raw.len(), Record::parse(&raw[1]).unwrap().epoch), (2, 3));
    }

    #[test]
    fn padding_inside_is_taken_off_and_other_content_refused() {
        assert_eq!(Record::chunks(&[1, 2, APPLICATION_DATA, 0, 0]), Some(&[1, 2][..]));
        assert_eq!(Record::chunks(&[1, 2, 0x16]), None, "a handshake record");
        assert_eq!(Record::chunks(&[0, 0]), None);
    }

    #[test]
    fn other_forms_of_a_record_are_refused() {
        let mut buf = [0xff; 100];
        let length = sealed(&mut buf, 3, 1);
        let parse = |bytes: &[u8]| {
            let packet = Packet::parse(bytes, ChecksumMode::Ignore).unwrap();
            packet.raw_chunks().next().unwrap().ok().and_then(|raw| Record::parse(&raw).map(|_| ()))
        };
        assert_eq!(parse(&buf[..length]), Some(()));
        for (at, bits) in [(12, 1), (13, RESTART), (17, 0b0001_0000), (17, 0b0000_0100), (17, 0b1000_0000)] {
            let mut other = buf;
            other[at] ^= bits;
            assert_eq!(parse(&other[..length]), None, "octet {at}");
        }
        let mut short = buf;
        short[15] = 8 + 16;
        assert_eq!(parse(&short[..length]), None, "no octet before the tag");
    }

    #[test]
    fn room_is_kept_for_the_record() {
        let mut buf = [0; 12 + RECORD_OVERHEAD + 12];
        let mut writer = PacketWriter::for_sealing(&mut buf, HEADER);
        assert_eq!(writer.remaining(), 12);
        assert_eq!(writer.push(&Chunk::Heartbeat(Heartbeat { info: &[7; 8] })), Err(NoRoom));
        assert!(writer.push(&Chunk::Heartbeat(Heartbeat { info: &[7; 4] })).is_ok());
        for length in 0..12 + RECORD_OVERHEAD {
            let mut buf = vec![0; length];
            let mut writer = PacketWriter::for_sealing(&mut buf, HEADER);
            assert_eq!(writer.push(&Chunk::CookieAck), Err(NoRoom), "{length}");
        }
    }
}

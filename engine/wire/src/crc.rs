//! CRC32c, the checksum of SCTP packets (RFC 9260 section 6.8 and appendix A). The crate `crc-fast` computes it with instructions of the
//! processor.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// Returns the CRC32c of `bytes`. SCTP stores it with the lowest octet first.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the CRC32c of a packet, computed with zeros in place of the checksum field (octets 8 to 11).
pub(crate) fn packet_crc(packet: &[u8]) -> u32 {
    let Some((head, rest)) = packet.split_first_chunk::<12>() else { return crc32c(packet) };
    let mut head = *head;
    head[8..].fill(0);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&head);
    digest.update(rest);
    digest.finalize() as u32
}

/// Returns the checksum field of a packet, or `None` if the packet is shorter than a common header.
pub(crate) fn stored(packet: &[u8]) -> Option<u32> {
    packet.get(8..12)?.first_chunk().copied().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= rfc9260#6.8-1
    fn the_vectors_of_rfc_3720_b_4_come_out() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(crc32c(&up).to_le_bytes(), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(crc32c(&down).to_le_bytes(), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn the_checksum_field_counts_as_zero() {
        for len in [12, 13, 16, 60, 1200, 9000] {
            let mut packet: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let with_field = packet_crc(&packet);
            packet[8..12].fill(0);
            assert_eq!(with_field, crc32c(&packet), "length {len}");
        }
    }
}

//! The choice of the engine for a packet, before the packet is parsed or its checksum verified.
//!
//! Only the common header and the first two octets of the first chunk are read. A packet that is too short goes to the first shard, which
//! refuses it.

use std::net::IpAddr;

use base::Shard;

use crate::ChunkType;

/// The T bit of ABORT and SHUTDOWN COMPLETE.
const FLAG_T: u8 = 1;

/// Destination of a packet. A `match` may list all variants without a wildcard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steer {
    /// The packet goes to this shard.
    To(Shard),
    /// The packet goes to all shards. The T bit of its first chunk is set, so the packet's tag is copied from a packet of this host (RFC
    /// 9260 section 8.5.1). The copied tag is the peer's tag, which selects no shard. Only the association itself can recognise this tag.
    All,
}

/// Returns the destination of a packet that came from `source`. `shard` is any shard of the host, from which the function takes the shard
/// count.
pub fn steer(packet: &[u8], source: IpAddr, shard: Shard) -> Steer {
    let Some(header) = packet.first_chunk::<14>() else { return Steer::To(shard.of_tag(0)) };
    let [s0, s1, d0, d1, t0, t1, t2, t3, _, _, _, _, kind, flags] = *header;
    let tag = u32::from_be_bytes([t0, t1, t2, t3]);
    let kind = ChunkType(kind);
    if matches!(kind, ChunkType::ABORT | ChunkType::SHUTDOWN_COMPLETE) && flags & FLAG_T != 0 {
        return Steer::All;
    }
    if tag == 0 {
        let ports = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        return Steer::To(shard.of_peer(ports, source));
    }
    Steer::To(shard.of_tag(tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU8;

    fn of_three(index: usize) -> Shard {
        Shard::all(NonZeroU8::new(3).unwrap()).nth(index).unwrap()
    }

    fn packet(tag: u32, kind: u8, flags: u8) -> Vec<u8> {
        let mut bytes = vec![0, 9, 0, 1];
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend([kind, flags, 0, 4]);
        bytes
    }

    fn steered(bytes: &[u8]) -> Steer {
        steer(bytes, IpAddr::from([0, 0, 0, 1]), of_three(0))
    }

    #[test]
    fn a_tag_selects_its_shard_and_an_init_is_steered_by_ports_and_source() {
        assert_eq!(steered(&packet(5, 0, 3)), Steer::To(of_three(2)));
        assert_eq!(steered(&packet(6, 6, 0)), Steer::To(of_three(0)));
        // The sum of ports and address is 9 + 1 + 1 = 11, and 11 modulo 3 is 2.
        assert_eq!(steered(&packet(0, 1, 0)), Steer::To(of_three(2)));
    }

    #[test]
    fn a_reflected_tag_goes_to_all_shards_and_a_truncated_packet_to_the_first() {
        assert_eq!(steered(&packet(5, 6, 1)), Steer::All);
        assert_eq!(steered(&packet(5, 14, 1)), Steer::All);
        // In DATA, the same bit means "end of message".
        assert_eq!(steered(&packet(5, 0, 1)), Steer::To(of_three(2)));
        assert_eq!(steered(&packet(5, 6, 1)[..13]), Steer::To(of_three(0)));
    }
}

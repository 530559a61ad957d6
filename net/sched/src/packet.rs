//! Packets as a router sees them.

use std::net::IpAddr;

use base::Ecn;
use wire::{ChecksumMode, ChunkType, RECORD_OVERHEAD, SendBuffer};

/// Limit on the chunks of a packet that are searched for DATA. A packet with more chunks counts as a packet with DATA.
const CHUNKS_READ: usize = 16;
/// Length of a DTLS chunk's value, in bytes. A value of this length or less contains neither DATA nor a HEARTBEAT of this project's
/// engine. A DATA chunk has 20 bytes or more with its padding, and such a HEARTBEAT has 20. A SACK without gap blocks has 16.
const SEALED_CONTROL_MAX: usize = RECORD_OVERHEAD - 4 + 16;

/// A packet in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<T> {
    /// The packet itself, in the caller's form. The queue does not read it.
    pub body: T,
    /// Length in bytes, from the IP header on.
    pub length: usize,
    /// Fields that the queue reads.
    pub view: View,
    /// ECN codepoint. A queue that marks packets changes it.
    pub ecn: Ecn,
}

/// One direction of an association. Its addresses and ports identify it. A hash would not distinguish all flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// Sender's address.
    pub from: IpAddr,
    /// Receiver's address.
    pub to: IpAddr,
    /// Sender's SCTP port.
    pub from_port: u16,
    /// Receiver's SCTP port.
    pub to_port: u16,
}

/// Fields that a router reads from a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Flow of the packet.
    pub flow: Flow,
    /// True if the packet waits, and is dropped, in the same way as packets with data. This applies to an SCTP packet in three cases:
    ///
    /// - It has user data, or a HEARTBEAT.
    /// - It is sealed, and it either begins with an advertisement or is long enough for user data or a HEARTBEAT.
    /// - It has more chunks than a router reads.
    ///
    /// All other SCTP packets only control an association: for example, they set it up, acknowledge data, or end it.
    ///
    /// A HEARTBEAT counts as data for this reason: the sender probes the path MTU with a long packet and a short one, and both have
    /// a HEARTBEAT. If a congested queue dropped only the long one, the sender would conclude that the MTU is smaller.
    pub has_data: bool,
    /// The sender's advertisement of its send buffer, if the packet has one.
    pub said: Option<Said>,
}

/// A sender's advertisement of its send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// Occupancy of the send buffer in percent, 0 to 100. In the form of the 2016 patch (`seed-compat`), this is the number of
    /// occupied tenths, 0 to 10.
    pub occupancy: u8,
    /// Bytes that wait for their first transmission, if the advertisement has this field.
    pub backlog: Option<u32>,
}

impl View {
    /// Reads an SCTP packet, which begins with its common header. An advertisement is a chunk of the type `advertised`, and counts
    /// only as the first chunk. Returns `None` if the packet is shorter than a common header and a chunk header. Ignores the
    /// checksum, because the receiver verifies it.
    pub fn of_sctp(from: IpAddr, to: IpAddr, packet: &[u8], advertised: ChunkType) -> Option<View> {
        let packet = wire::Packet::parse(packet, ChecksumMode::Ignore).ok()?;
        let header = packet.header;
        let flow = Flow { from, to, from_port: header.source_port, to_port: header.destination_port };
        let mut view = View { flow, has_data: false, said: None };
        for (place, chunk) in packet.raw_chunks().enumerate() {
            let Ok(chunk) = chunk else { break };
            if place == 0 && chunk.chunk_type == advertised {
                view.said = SendBuffer::parse(&chunk)
                    .map(|said| Said { occupancy: said.occupancy, backlog: said.backlog });
            }
            let waits = match chunk.chunk_type {
                ChunkType::DATA | ChunkType::I_DATA | ChunkType::HEARTBEAT => true,
                ChunkType::DTLS => view.said.is_some() || chunk.value.len() > SEALED_CONTROL_MAX,
                _ => false,
            };
            if waits || place == CHUNKS_READ {
                view.has_data = true;
                break;
            }
        }
        Some(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn read(chunks: &[&[u8]]) -> Option<View> {
        let header = [0x9c, 0x40, 0, 7, 1, 2, 3, 4, 0, 0, 0, 0];
        View::of_sctp(HERE, THERE, &[&[&header[..]], chunks].concat().concat(), SendBuffer::TYPE)
    }

    const DATA: &[u8] = &[0, 3, 0, 17, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x5a, 0, 0, 0];
    const PERCENT: &[u8] = &[150, 70, 0, 4];
    const COOKIE_ACK: &[u8] = &[11, 0, 0, 4];

    #[test]
    fn flow_data_and_advertisement_are_read() {
        let flow = Flow { from: HERE, to: THERE, from_port: 40_000, to_port: 7 };
        let said = Some(Said { occupancy: 70, backlog: None });
        assert_eq!(read(&[PERCENT, DATA]), Some(View { flow, has_data: true, said }));
        assert_eq!(read(&[DATA]), Some(View { flow, has_data: true, said: None }));
        assert_eq!(read(&[COOKIE_ACK]), Some(View { flow, has_data: false, said: None }));
        let backlog = read(&[&[150, 3, 0, 8, 0, 0, 1, 2], DATA]).unwrap().said.unwrap();
        assert_eq!(backlog, Said { occupancy: 3, backlog: Some(258) });
    }

    #[test]
    fn an_advertisement_counts_only_as_the_first_chunk_and_only_if_it_is_well_formed() {
        assert_eq!(read(&[COOKIE_ACK, PERCENT, DATA]).unwrap().said, None);
        for wrong in [[150, 101, 0, 4], [150, 255, 0, 4], [150, 7, 0, 3], [149, 7, 0, 4]] {
            assert_eq!(read(&[&wrong, DATA]).unwrap().said, None, "{wrong:?}");
        }
    }

    #[test]
    fn a_heartbeat_waits_as_data_does() {
        let heartbeat: &[u8] = &[4, 0, 0, 8, 0, 1, 0, 4];
        assert!(read(&[heartbeat]).unwrap().has_data);
        assert!(!read(&[&[5, 0, 0, 8, 0, 1, 0, 4]]).unwrap().has_data, "an answer does not");
    }

    #[test]
    fn an_encrypted_packet_too_short_for_data_counts_as_control() {
        let sealed = |inside: u8| {
            let length = 28 + inside;
            [&[65, 0, 0, length][..], &vec![7; usize::from(length) - 4]].concat()
        };
        assert!(!read(&[&sealed(16)]).unwrap().has_data, "a SACK");
        assert!(read(&[&sealed(20)]).unwrap().has_data, "an octet of data");
        let advertised = read(&[PERCENT, &sealed(16)]).unwrap();
        assert!(advertised.has_data && advertised.said.is_some());
    }

    #[test]
    fn a_packet_with_unread_chunks_counts_as_data_and_a_short_one_as_nothing() {
        assert!(!read(&[&COOKIE_ACK.repeat(CHUNKS_READ)]).unwrap().has_data);
        assert!(read(&[&COOKIE_ACK.repeat(CHUNKS_READ + 1)]).unwrap().has_data);
        assert_eq!(View::of_sctp(HERE, THERE, &[0; 11], SendBuffer::TYPE), None);
        assert!(!read(&[COOKIE_ACK, &[0, 3, 0]]).unwrap().has_data);
    }
}

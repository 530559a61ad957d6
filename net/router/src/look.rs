//! Parser of frames for a router. It finds a packet's flow and the sender's advertisement, and determines whether the packet
//! counts as data.
//!
//! The parser finds SCTP directly over IP and in UDP. With both carriers, the flow consists of the IP addresses and the SCTP
//! ports. TCP and UDP packets have the flow of their addresses and ports. Later fragments and packets without ports have the flow
//! of their addresses. Frames without IP, neighbour discovery, and TCP segments without payload count as control packets. So do
//! SCTP packets that only control an association. The parser changes nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bridge::packet::{Kind, Layout, u16_at};
use sched::{Flow, View};
use wire::ChunkType;

/// Protocol numbers of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
const SCTP: u8 = 132;
/// Messages of neighbour discovery (RFC 4861).
const NEIGHBOURS: std::ops::RangeInclusive<u8> = 133..=137;
const UDP_LEN: usize = 8;

/// Parameters that identify an advertisement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// UDP port of SCTP in UDP.
    pub(crate) udp_port: u16,
    /// Chunk type of advertisements.
    pub(crate) chunk_type: u8,
}

/// Fields of an IP packet.
struct Ip<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    /// Bytes behind the IP header; empty for later fragments.
    payload: &'a [u8],
}

fn ip<'a>(frame: &'a [u8], layout: &Layout) -> Option<Ip<'a>> {
    let packet = &frame[layout.at..layout.at + layout.length];
    let v4 = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)));
    let v6 = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?)));
    let (from, to, protocol, is_later) = match layout.kind {
        Kind::V4 => (v4(12)?, v4(16)?, *packet.get(9)?, u16_at(packet, 6)? & 0x1fff != 0),
        Kind::V6 => (v6(8)?, v6(24)?, *packet.get(6)?, false),
        Kind::Other => return None,
    };
    let payload = if is_later { &[] } else { packet.get(layout.header_len(frame)..).unwrap_or_default() };
    Some(Ip { from, to, protocol, payload })
}

impl Look {
    /// Returns the source address, the destination address, and the SCTP packet from its common header on.
    pub(crate) fn sctp<'a>(&self, frame: &'a [u8], layout: &Layout) -> Option<(IpAddr, IpAddr, &'a [u8])> {
        let ip = ip(frame, layout)?;
        self.sctp_of(&ip).map(|packet| (ip.from, ip.to, packet))
    }

    fn sctp_of<'a>(&self, ip: &Ip<'a>) -> Option<&'a [u8]> {
        match ip.protocol {
            SCTP => Some(ip.payload),
            UDP => {
                let ports = [u16_at(ip.payload, 0)?, u16_at(ip.payload, 2)?];
                ports.contains(&self.udp_port).then(|| ip.payload.get(UDP_LEN..)).flatten()
            }
            _ => None,
        }
    }

    /// Returns the fields that a queue uses.
    pub(crate) fn view(&self, frame: &[u8], layout: &Layout) -> View {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let flow = |from, to, from_port, to_port| Flow { from, to, from_port, to_port };
        let Some(ip) = ip(frame, layout) else {
            return View { flow: flow(nobody, nobody, 0, 0), has_data: false, said: None };
        };
        let sctp = self.sctp_of(&ip);
        let seen = sctp.and_then(|it| View::of_sctp(ip.from, ip.to, it, ChunkType(self.chunk_type)));
        seen.unwrap_or_else(|| {
            let has_ports = matches!(ip.protocol, TCP | UDP);
            let port = |at| u16_at(ip.payload, at).filter(|_| has_ports).unwrap_or(0);
            let flow = flow(ip.from, ip.to, port(0), port(2));
            View { flow, has_data: has_data(ip.protocol, ip.payload), said: None }
        })
    }
}

/// Reports whether a packet other than SCTP counts as data.
fn has_data(protocol: u8, payload: &[u8]) -> bool {
    match (protocol, payload) {
        (TCP, [_, _, _, _, _, _, _, _, _, _, _, _, offset, ..]) => {
            payload.len() > usize::from(offset >> 4) * 4
        }
        (ICMP_V6, [kind, ..]) => !NEIGHBOURS.contains(kind),
        _ => true,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LOOK: Look = Look { udp_port: 9899, chunk_type: 150 };

    /// Returns a frame with an IPv4 packet from 10.0.0.1 to 10.0.0.2, or in the opposite direction.
    pub(crate) fn v4(protocol: u8, is_back: bool, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        frame.extend(((20 + payload.len()) as u16).to_be_bytes());
        frame.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
        let ends = if is_back { [2, 1] } else { [1, 2] };
        ends.iter().for_each(|end| frame.extend([10, 0, 0, *end]));
        frame.extend(payload);
        frame
    }

    fn view(frame: &[u8]) -> View {
        LOOK.view(frame, &Layout::of(frame))
    }

    const DATA: [u8; 32] = [
        0x9c, 0x40, 0, 7, 1, 2, 3, 4, 0, 0, 0, 0, 150, 70, 0, 4, 0, 3, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
        0, 0,
    ];

    #[test]
    fn the_flow_of_an_association_is_the_same_bare_and_in_udp() {
        let bare = view(&v4(SCTP, false, &DATA));
        let carried = view(&v4(UDP, false, &[&[0x26, 0xab, 0x26, 0xab, 0, 40, 0, 0], &DATA[..]].concat()));
        assert_eq!(bare, carried);
        assert_eq!((bare.flow.from_port, bare.flow.to_port, bare.has_data), (40_000, 7, true));
        assert_eq!(bare.said.unwrap().occupancy, 70);
        let elsewhere = view(&v4(UDP, false, &[&[0, 53, 0, 53, 0, 40, 0, 0], &DATA[..]].concat()));
        assert_eq!((elsewhere.flow.from_port, elsewhere.said), (53, None));
    }

    #[test]
    fn bare_acknowledgements_and_arp_are_control_and_the_rest_is_data() {
        let tcp = |payload: usize| {
            let mut segment = vec![0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 16, 0, 0, 0, 0, 0, 0];
            segment.resize(20 + payload, 1);
            view(&v4(TCP, false, &segment)).has_data
        };
        assert_eq!([tcp(0), tcp(1)], [false, true]);
        assert!(view(&v4(1, false, &[8, 0])).has_data, "a ping");
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(!view(&arp).has_data);
    }

    #[test]
    fn a_later_ip_fragment_is_assigned_to_a_flow_by_its_addresses_only() {
        let mut frame = v4(SCTP, false, &DATA);
        frame[21] = 9;
        let view = view(&frame);
        assert_eq!((view.flow.from_port, view.flow.to_port, view.has_data, view.said), (0, 0, true, None));
    }

    #[test]
    fn no_truncated_frame_causes_a_panic() {
        for frame in [v4(SCTP, false, &DATA), v4(UDP, true, &DATA), v4(TCP, true, &DATA)] {
            for length in 0..frame.len() {
                let _ = view(&frame[..length]);
            }
        }
    }
}

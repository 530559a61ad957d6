//! Converts received datagrams, and entries of the error queue, to routes and SCTP bytes.

use std::net::{IpAddr, Ipv4Addr};

use base::{Carrier, Route};

use crate::cmsg::Meta;
use crate::error::{PathError, PathErrorKind};
use crate::socket::Kind;
use crate::sys::Slot;

/// Returns the route, control data and SCTP bytes of a received datagram. Returns `None` if the kernel truncated the datagram, or
/// if it is not a unicast packet.
pub(crate) fn open_datagram(kind: Kind, is_v4: bool, slot: &Slot) -> Option<(Route, Meta, &[u8])> {
    let meta = Meta::parse(slot.control());
    let (remote, port) = slot.name.decode()?;
    let local = meta.local?;
    let to_host = match local {
        IpAddr::V4(ip) => meta.answer_from == Some(ip),
        IpAddr::V6(ip) => !ip.is_multicast(),
    };
    if slot.is_truncated() || !to_host || !is_unicast(remote) {
        return None;
    }
    let data = if kind == Kind::Raw && is_v4 { strip_ipv4_header(slot.data())? } else { slot.data() };
    Some((Route { local, remote, carrier: carrier(kind, port) }, meta, data))
}

/// Converts an entry of the error queue. Returns `None` if the entry is not an ICMP report about reachability or size.
pub(crate) fn open_error(kind: Kind, slot: &Slot) -> Option<PathError<'_>> {
    let meta = Meta::parse(slot.control());
    let (remote, port) = slot.name.decode()?;
    let route = Route { local: meta.local?, remote, carrier: carrier(kind, port) };
    Some(PathError { route, kind: PathErrorKind::of(&meta.error?)?, quoted: slot.data() })
}

fn carrier(kind: Kind, port: u16) -> Carrier {
    match kind {
        Kind::Udp => Carrier::Udp { peer_port: port },
        Kind::Raw => Carrier::Ip,
    }
}

fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_multicast() && !address.is_unspecified() && !is_broadcast
}

/// Returns the payload of an IPv4 packet. IPv4 raw sockets deliver a packet together with its IP header.
fn strip_ipv4_header(packet: &[u8]) -> Option<&[u8]> {
    let header_len = usize::from(packet.first()? & 0x0f) * 4;
    packet.get(header_len.max(20)..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_header_is_stripped_with_its_options() {
        let mut packet = [0; 32];
        packet[24] = 9;
        packet[0] = 0x46;
        assert_eq!(strip_ipv4_header(&packet).map(|p| (p.len(), p[0])), Some((8, 9)));
    }

    #[test]
    fn an_ipv4_header_that_does_not_fit_is_refused() {
        for (first, len) in [(0x45, 19), (0x4f, 59), (0x40, 12)] {
            let mut packet = vec![0; len];
            packet[0] = first;
            assert_eq!(strip_ipv4_header(&packet), None);
        }
        assert_eq!(strip_ipv4_header(&[]), None);
    }
}

//! Counts the bytes of ended associations since the daemon's start, by link and by peer.
//!
//! Invariant: memory is bounded although peers and interfaces are not. The limits are [`LINKS_MAX`] known links and [`PAIRS_MAX`]
//! (peer, link) pairs. Bytes of further links count as bytes of the unknown link. Bytes of further pairs count only for the pair's
//! link. Begin at [`LinkBytes::add`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::AddAssign;

/// Limit on the links.
const LINKS_MAX: usize = 256;
/// Limit on the pairs of a peer and a link.
const PAIRS_MAX: usize = 1024;

/// Bytes of SCTP packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Bytes {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, more: Bytes) {
        self.sent = self.sent.saturating_add(more.sent);
        self.received = self.received.saturating_add(more.received);
    }
}

/// Bytes of ended associations. A link is identified by the name of its interface; `None` is the unknown link.
#[derive(Default)]
pub(crate) struct LinkBytes {
    by_link: BTreeMap<Option<String>, Bytes>,
    by_pair: BTreeMap<(IpAddr, Option<String>), Bytes>,
}

impl LinkBytes {
    /// Adds the bytes that an ended association with this peer exchanged on a path over this interface.
    pub(crate) fn add(&mut self, peer: IpAddr, interface: Option<String>, bytes: Bytes) {
        if bytes == Bytes::default() {
            return;
        }
        let has_room = self.by_link.len() < LINKS_MAX || self.by_link.contains_key(&interface);
        let interface = interface.filter(|_| has_room);
        *self.by_link.entry(interface.clone()).or_default() += bytes;
        let pair = (peer, interface);
        if self.by_pair.len() < PAIRS_MAX || self.by_pair.contains_key(&pair) {
            *self.by_pair.entry(pair).or_default() += bytes;
        }
    }

    /// Returns the bytes exchanged with a peer over a link.
    pub(crate) fn of_pair(&self, peer: IpAddr, interface: Option<&str>) -> Bytes {
        self.by_pair.get(&(peer, interface.map(str::to_owned))).copied().unwrap_or_default()
    }

    /// Returns the bytes of all pairs of a peer and a link.
    pub(crate) fn by_pair(&self) -> &BTreeMap<(IpAddr, Option<String>), Bytes> {
        &self.by_pair
    }

    /// Returns the bytes exchanged over each link.
    pub(crate) fn by_link(&self) -> BTreeMap<Option<String>, Bytes> {
        self.by_link.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Bytes = Bytes { sent: 1, received: 2 };

    fn peer(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn bytes_add_up_by_link_and_by_pair() {
        let mut bytes = LinkBytes::default();
        for (number, interface) in [(1, "eth0"), (1, "eth0"), (2, "eth0"), (1, "wwan0")] {
            bytes.add(peer(number), Some(interface.to_owned()), ONE);
        }
        assert_eq!(bytes.of_pair(peer(1), Some("eth0")), Bytes { sent: 2, received: 4 });
        assert_eq!(bytes.by_link()[&Some("eth0".to_owned())], Bytes { sent: 3, received: 6 });
        assert_eq!(bytes.of_pair(peer(2), Some("wwan0")), Bytes::default());
    }

    #[test]
    fn many_peers_and_links_take_bounded_memory_and_no_byte_of_a_link_is_lost() {
        let mut bytes = LinkBytes::default();
        for number in 0..3_000 {
            bytes.add(peer(number), Some("eth0".to_owned()), ONE);
            bytes.add(peer(number), Some(format!("ppp{number}")), ONE);
        }
        assert_eq!((bytes.by_link.len(), bytes.by_pair.len()), (LINKS_MAX + 1, PAIRS_MAX));
        assert_eq!(bytes.by_link()[&Some("eth0".to_owned())].sent, 3_000);
        assert_eq!(bytes.by_link().values().map(|bytes| bytes.sent).sum::<u64>(), 6_000);
    }
}

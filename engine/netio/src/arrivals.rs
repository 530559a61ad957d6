//! Remembers the interface on which each peer's packets to each local address arrive. Packets to the peer thus avoid an interface
//! that does not lead to the peer.
//!
//! A train names the interface that owns its source address ([`Train::source_ifindex`]). The peer's packets to this address may
//! arrive on another interface. One reason is that the peer's path to the owning interface is dead. The other reason is that the
//! owning interface leads to no peer. In both cases, the kernel's routes choose the interface of the train, as they do for TCP.
//! Begin at [`Arrivals::towards`].
//!
//! A caller that delivers data to a local program asks [`Arrivals::came_by`]. The caller's connection to the program can then
//! arrive on the same interface as the peer's packets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base::Route;

use crate::train::Train;

/// Limit on the remembered pairs of addresses. If a new pair would exceed the limit, all pairs are forgotten. Each pair is
/// learned again from its next packet.
const PAIRS_MAX: usize = 4096;

type Pair = (IpAddr, IpAddr);

/// The remembered interfaces.
#[derive(Default)]
pub(crate) struct Arrivals {
    interfaces: BTreeMap<Pair, u32>,
    /// Pair and interface of the last packet. Most consecutive packets have the same pair and interface, so `note` can return
    /// early.
    last: Option<(Pair, u32)>,
}

impl Arrivals {
    /// Notes the interface on which a packet arrived.
    pub(crate) fn note(&mut self, route: &Route, ifindex: u32) {
        let entry = ((route.local, route.remote), ifindex);
        if self.last == Some(entry) {
            return;
        }
        self.last = Some(entry);
        if self.interfaces.len() >= PAIRS_MAX && !self.interfaces.contains_key(&entry.0) {
            self.interfaces.clear();
        }
        self.interfaces.insert(entry.0, ifindex);
    }

    /// Returns the interface on which the last packet on this route arrived.
    pub(crate) fn came_by(&self, route: &Route) -> Option<u32> {
        self.interfaces.get(&(route.local, route.remote)).copied()
    }

    /// Returns the train. If the peer's last packet arrived on another interface than `source_ifindex`, the returned train has no
    /// `source_ifindex`, so the kernel chooses the interface.
    pub(crate) fn towards<'a>(&self, train: &Train<'a>) -> Train<'a> {
        let came_by = self.came_by(&train.route);
        let source_ifindex = train.source_ifindex.filter(|own| came_by.is_none_or(|it| it == *own));
        Train { source_ifindex, ..*train }
    }
}

#[cfg(test)]
mod tests {
    use base::{Carrier, Ecn};

    use super::*;

    fn route(last: u8) -> Route {
        let (local, remote) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 1, last]));
        Route { local, remote, carrier: Carrier::Ip }
    }

    fn leaves_by(arrivals: &Arrivals, route: Route) -> Option<u32> {
        let train = Train {
            route,
            source_ifindex: Some(1),
            ecn: Ecn::NotEct,
            segment_size: 1,
            may_fragment: false,
            bytes: &[0],
        };
        arrivals.towards(&train).source_ifindex
    }

    #[test]
    fn the_source_interface_is_used_unless_the_peer_was_last_heard_on_another() {
        let mut arrivals = Arrivals::default();
        let mut heard = vec![leaves_by(&arrivals, route(1))];
        for ifindex in [1, 2, 2, 1] {
            arrivals.note(&route(1), ifindex);
            heard.push(leaves_by(&arrivals, route(1)));
            assert_eq!(arrivals.came_by(&route(1)), Some(ifindex));
        }
        assert_eq!(arrivals.came_by(&route(2)), None);
        assert_eq!(heard, [Some(1), Some(1), None, None, Some(1)]);
        assert_eq!(leaves_by(&arrivals, route(2)), Some(1));
    }

    #[test]
    fn remembered_arrivals_have_a_limit() {
        let mut arrivals = Arrivals::default();
        for n in 0..=PAIRS_MAX as u32 {
            let remote = IpAddr::from(n.to_be_bytes());
            arrivals.note(&Route { remote, ..route(1) }, 2);
        }
        assert_eq!(arrivals.interfaces.len(), 1);
    }
}

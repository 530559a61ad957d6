//! By which interface each peer's packets come to each address of ours, so that answers do not leave by one where the peer is not.
//!
//! A train names the interface that owns its source address ([`Train::source_ifindex`]). Where the peer's packets to that address
//! come by another one - its own way by the first is dead, or the address is on none of the links - the interface is left to
//! the kernel's routes, as for any answer of TCP. Begin at [`Arrivals::towards`].
//!
//! A caller that hands packets' data on to a program asks [`Arrivals::came_by`], so that it arrives there by the same interface.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base::Route;

use crate::train::Train;

/// Pairs of addresses that are remembered at most; beyond them all are forgotten, and learned again from their next packets.
const PAIRS_MAX: usize = 4096;

type Pair = (IpAddr, IpAddr);

/// Remembered state.
#[derive(Default)]
pub(crate) struct Arrivals {
    interfaces: BTreeMap<Pair, u32>,
    /// The last one noted: most packets come in a row.
    last: Option<(Pair, u32)>,
}

impl Arrivals {
    /// A packet came by this interface.
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

    /// The interface by which the last packet on this route came.
    pub(crate) fn came_by(&self, route: &Route) -> Option<u32> {
        self.interfaces.get(&(route.local, route.remote)).copied()
    }

    /// The train, its interface left to the kernel if the peer is heard by another one.
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
    fn the_interface_is_the_addresss_own_unless_the_peer_was_last_heard_by_another() {
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

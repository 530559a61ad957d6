//! Tracks, for each peer, which of this host's links to the peer work. The states of all associations with the peer are
//! combined.
//!
//! A link works for an association if at least one of its confirmed paths over the link works. If one association loses or
//! regains a link, the change applies to all associations with the peer, because they share the link. Invariant: a peer is
//! known while it has an association. Begin at [`PeerLinks::update`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use control::HostKeyText;
use sctp::AssociationId;

/// Minimum number of known associations at which a sweep removes ended ones.
const SWEEP_MIN: usize = 1024;

/// A peer. Hosts behind one NAT have the same address, but different keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PeerId {
    /// The peer's address at the start of the association.
    pub(crate) address: IpAddr,
    /// The peer's proven key; `None` if the association is not encrypted.
    pub(crate) key: Option<HostKeyText>,
}

/// Links by name; true if the link works.
pub(crate) type LinkStates = BTreeMap<String, bool>;

/// A change of a link to a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkChange {
    /// The link's name.
    pub(crate) link: String,
    /// True if the link works again, false if it has failed.
    pub(crate) is_up: bool,
}

/// The links to all peers.
#[derive(Default)]
pub(crate) struct PeerLinks {
    peers: BTreeMap<PeerId, KnownLinks>,
    of: BTreeMap<AssociationId, PeerId>,
    /// Number of known associations at which the next sweep removes ended ones.
    sweep_at: usize,
}

/// The links to one peer.
#[derive(Default)]
struct KnownLinks {
    /// Last published states of the links.
    told: LinkStates,
    associations: BTreeMap<AssociationId, LinkStates>,
}

impl PeerLinks {
    /// Updates the links of an association to their present states `now`. Returns the resulting changes of the peer's links.
    pub(crate) fn update(
        &mut self,
        association: AssociationId,
        peer: PeerId,
        now: LinkStates,
    ) -> Vec<LinkChange> {
        let peer = self.of.entry(association).or_insert(peer).clone();
        let known = self.peers.entry(peer).or_default();
        let before = known.associations.insert(association, now.clone()).unwrap_or_default();
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let changes = names.into_iter().filter_map(|link| {
            let (was_up, is_up) = (before.get(link) == Some(&true), now.get(link) == Some(&true));
            match (was_up, is_up) {
                (true, false) => known.tell(link, false),
                (false, true) => known.tell(link, true),
                (false, false) => {
                    known.told.entry(link.clone()).or_insert(false);
                    None
                }
                (true, true) => None,
            }
        });
        changes.collect()
    }

    /// Forgets an association that has ended. Returns its peer and the links that work again. A link works again if only the
    /// ended association had lost it. Returns `None` if the peer has no other association.
    pub(crate) fn forget(&mut self, association: AssociationId) -> Option<(PeerId, Vec<LinkChange>)> {
        let peer = self.of.remove(&association)?;
        let known = self.peers.get_mut(&peer)?;
        known.associations.remove(&association);
        if known.associations.is_empty() {
            self.peers.remove(&peer);
            return None;
        }
        let works = |link: &String| known.associations.values().any(|links| links.get(link) == Some(&true));
        let found: Vec<String> = known
            .told
            .iter()
            .filter(|(link, is_up)| !**is_up && works(link))
            .map(|(link, _)| link.clone())
            .collect();
        Some((peer, found.iter().filter_map(|link| known.tell(link, true)).collect()))
    }

    /// Forgets ended associations whose ends were not reported. Has no effect until many associations are known.
    pub(crate) fn sweep(&mut self, exists: impl Fn(AssociationId) -> bool) {
        if self.of.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        let gone: Vec<AssociationId> = self.of.keys().copied().filter(|id| !exists(*id)).collect();
        for association in gone {
            self.forget(association);
        }
        self.sweep_at = 2 * self.of.len();
    }

    /// Returns the number of the peer's working links, and the number of its known links.
    pub(crate) fn count(&self, peer: &PeerId) -> (u64, u64) {
        let told = self.peers.get(peer).map(|known| &known.told);
        let up = told.map_or(0, |told| told.values().filter(|is_up| **is_up).count());
        (up as u64, told.map_or(0, BTreeMap::len) as u64)
    }

    /// Returns the peer of an association.
    pub(crate) fn peer_of(&self, association: AssociationId) -> Option<PeerId> {
        self.of.get(&association).cloned()
    }
}

impl KnownLinks {
    /// Records the state of a link. Returns the change if the change must be published. A link that was not known before is
    /// published only if it works, other links are known, and none of the other links works.
    fn tell(&mut self, link: &str, is_up: bool) -> Option<LinkChange> {
        let others_work = self.told.values().any(|is_up| *is_up);
        let is_first = self.told.is_empty();
        let is_news = match self.told.insert(link.to_owned(), is_up) {
            Some(was_up) => was_up != is_up,
            None => is_up && !is_first && !others_work,
        };
        is_news.then(|| LinkChange { link: link.to_owned(), is_up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Carrier, Route, Time};
    use sctp::{AssociationConfig, Connect, Endpoint, EndpointConfig};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn peer() -> PeerId {
        PeerId { address: PEER, key: None }
    }

    /// Creates identifiers of associations with an engine.
    fn associations<const N: usize>() -> [AssociationId; N] {
        let mut engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [1; 32]);
        std::array::from_fn(|n| {
            let connect = Connect {
                local_port: 1000 + n as u16,
                remote_port: 80,
                init_routes: vec![Route { local: HERE, remote: PEER, carrier: Carrier::Ip }],
                local_addresses: vec![HERE],
                config: AssociationConfig::default(),
            };
            engine.connect(Time::ZERO, connect).unwrap()
        })
    }

    fn links(states: &[(&str, bool)]) -> LinkStates {
        states.iter().map(|(name, is_up)| ((*name).to_owned(), *is_up)).collect()
    }

    fn told(changes: &[LinkChange]) -> Vec<(&str, bool)> {
        changes.iter().map(|change| (change.link.as_str(), change.is_up)).collect()
    }

    #[test]
    fn failure_and_return_of_a_link_are_reported_once_for_all_associations() {
        let [one, two] = associations();
        let mut all = PeerLinks::default();
        let both = links(&[("eth0", true), ("wwan0", true)]);
        let lost = links(&[("eth0", false), ("wwan0", true)]);
        assert_eq!(all.update(one, peer(), both.clone()), []);
        assert_eq!(all.update(two, peer(), both.clone()), []);
        assert_eq!(all.count(&peer()), (2, 2));
        assert_eq!(told(&all.update(one, peer(), lost.clone())), [("eth0", false)]);
        assert_eq!(all.update(two, peer(), lost), []);
        assert_eq!(all.count(&peer()), (1, 2));
        assert_eq!(told(&all.update(two, peer(), both.clone())), [("eth0", true)]);
        assert_eq!(all.update(one, peer(), both), []);
    }

    #[test]
    fn removal_and_return_of_a_links_address_are_both_reported() {
        let [one] = associations();
        let mut all = PeerLinks::default();
        all.update(one, peer(), links(&[("eth0", true), ("wwan0", true)]));
        assert_eq!(told(&all.update(one, peer(), links(&[("wwan0", true)]))), [("eth0", false)]);
        assert_eq!(all.count(&peer()), (1, 2));
        let back = links(&[("eth0", true), ("wwan0", true)]);
        assert_eq!(told(&all.update(one, peer(), back)), [("eth0", true)]);
    }

    #[test]
    fn the_first_working_link_after_an_outage_is_reported_and_a_second_is_not() {
        let [one] = associations();
        let mut all = PeerLinks::default();
        all.update(one, peer(), links(&[("eth0", true)]));
        assert_eq!(told(&all.update(one, peer(), LinkStates::new())), [("eth0", false)]);
        assert_eq!(told(&all.update(one, peer(), links(&[("wlan0", true)]))), [("wlan0", true)]);
        assert_eq!(all.update(one, peer(), links(&[("wlan0", true), ("eth1", true)])), []);
        assert_eq!(all.count(&peer()), (2, 3));
    }

    #[test]
    fn a_failed_link_returns_when_its_association_ends_and_the_last_end_drops_the_peer() {
        let [one, two] = associations();
        let mut all = PeerLinks::default();
        let both = links(&[("eth0", true), ("wwan0", true)]);
        all.update(one, peer(), both.clone());
        all.update(two, peer(), both);
        all.update(one, peer(), links(&[("eth0", false), ("wwan0", true)]));
        let (of, changes) = all.forget(one).expect("another association");
        assert_eq!((of, told(&changes)), (peer(), vec![("eth0", true)]));
        assert_eq!(all.forget(two), None);
        assert_eq!((all.count(&peer()), all.peer_of(two)), ((0, 0), None));
    }

    #[test]
    fn hosts_behind_one_nat_are_told_apart_by_their_keys() {
        let [one, two] = associations();
        let key = |letter: &str| format!("sctpify1:{}", letter.repeat(43)).parse().ok();
        let host = |letter: &str| PeerId { address: PEER, key: key(letter) };
        let mut all = PeerLinks::default();
        all.update(one, host("A"), links(&[("eth0", true)]));
        all.update(two, host("B"), links(&[("eth0", true)]));
        assert_ne!(host("A"), host("B"));
        assert_eq!(told(&all.update(one, host("A"), links(&[("eth0", false)]))), [("eth0", false)]);
        assert_eq!((all.count(&host("A")), all.count(&host("B"))), ((0, 1), (1, 1)));
    }
}

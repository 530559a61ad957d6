//! Limits on associations whose peers have proven only their address, per host and in total.
//!
//! If the peer's host has [`HOST_MAX`] associations, its oldest association gives way to the new one. If all hosts together have
//! [`ALL_MAX`] associations and some host has at least [`MANY`], the host with the most associations loses its oldest one. Otherwise the
//! oldest association of all hosts gives way, because its peer has had the most time to prove more. The hosts' addresses have no influence
//! on this choice. Begin at [`ByHost::giving_way`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sctp::AssociationId;

use crate::addresses::host_part;

/// Limit on the associations with one host.
pub(crate) const HOST_MAX: usize = 512;
/// Limit on the associations with all hosts together.
pub(crate) const ALL_MAX: usize = 4096;
/// Threshold at [`ALL_MAX`]: if the host with the most associations has at least this number, this host loses its oldest association.
const MANY: usize = 64;

/// The associations to which the limits apply.
#[derive(Default)]
pub(crate) struct ByHost {
    /// Host of each association. Identifiers grow, so the oldest association comes first.
    hosts: BTreeMap<AssociationId, IpAddr>,
    of_hosts: BTreeMap<IpAddr, BTreeSet<AssociationId>>,
}

impl ByHost {
    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the association that gives way to a new one with this peer's host, if a limit is reached.
    pub(crate) fn giving_way(&self, peer: IpAddr) -> Option<AssociationId> {
        if let Some(own) = self.of_hosts.get(&host_part(peer)).filter(|own| own.len() >= HOST_MAX) {
            return own.first().copied();
        }
        if self.hosts.len() < ALL_MAX {
            return None;
        }
        let fullest = self.of_hosts.values().max_by_key(|of_host| of_host.len());
        let oldest_of_many =
            fullest.filter(|of_host| of_host.len() >= MANY).and_then(|of_host| of_host.first());
        oldest_of_many.or_else(|| self.hosts.keys().next()).copied()
    }

    /// Adds an association with the peer's host. The caller first removes the association that [`giving_way`](Self::giving_way) returns.
    pub(crate) fn insert(&mut self, association: AssociationId, peer: IpAddr) {
        let host = host_part(peer);
        self.hosts.insert(association, host);
        self.of_hosts.entry(host).or_default().insert(association);
    }

    /// Removes an association, if it is in this collection.
    pub(crate) fn remove(&mut self, association: AssociationId) {
        let Some(host) = self.hosts.remove(&association) else { return };
        if let Some(of_host) = self.of_hosts.get_mut(&host) {
            of_host.remove(&association);
            if of_host.is_empty() {
                self.of_hosts.remove(&host);
            }
        }
    }

    /// Removes all associations.
    pub(crate) fn clear(&mut self) {
        self.hosts.clear();
        self.of_hosts.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use base::{Carrier, Route, Time};
    use sctp::{AssociationConfig, Connect, Endpoint, EndpointConfig, Limits};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn host(number: usize) -> IpAddr {
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        [10, 1, high, low].into()
    }

    struct World {
        engine: Endpoint,
        all: ByHost,
        count: u16,
    }

    impl World {
        fn new() -> World {
            let limits = Limits { associations: 3 * ALL_MAX, ..Limits::default() };
            let config = EndpointConfig { limits, ..EndpointConfig::default() };
            World { engine: Endpoint::new(Time::ZERO, config, [0; 32]), all: ByHost::default(), count: 0 }
        }

        /// Adds an association with a host. Returns the new association, and the association that gave way.
        fn add(&mut self, remote: IpAddr) -> (AssociationId, Option<AssociationId>) {
            self.count += 1;
            let connect = Connect {
                local_port: self.count,
                remote_port: 80,
                init_routes: vec![Route { local: HERE, remote, carrier: Carrier::Ip }],
                local_addresses: vec![HERE],
                config: AssociationConfig::default(),
            };
            let association = self.engine.connect(Time::ZERO, connect).unwrap();
            let gone = self.all.giving_way(remote);
            gone.into_iter().for_each(|gone| self.all.remove(gone));
            self.all.insert(association, remote);
            (association, gone)
        }

        fn add_many(&mut self, number: usize, count: usize) -> AssociationId {
            let all: Vec<_> = (0..count).map(|_| self.add(host(number))).collect();
            assert!(all.iter().all(|(_, gone)| gone.is_none()));
            all[0].0
        }
    }

    #[test]
    fn at_the_limit_per_host_the_hosts_oldest_association_is_evicted() {
        let mut world = World::new();
        world.add_many(2, 1);
        let oldest = world.add_many(1, HOST_MAX);
        assert_eq!(world.add(host(1)).1, Some(oldest));
        assert_eq!(world.add(host(2)).1, None);
        assert_eq!(world.all.len(), HOST_MAX + 2);
        world.all.clear();
        assert_eq!((world.all.len(), world.add(host(1)).1), (0, None));
    }

    #[test]
    fn at_the_total_limit_the_oldest_association_of_the_fullest_host_is_evicted() {
        let mut world = World::new();
        world.add_many(1, 1);
        let of_the_fullest = world.add_many(2, HOST_MAX);
        for number in 3..10 {
            world.add_many(number, HOST_MAX - 1);
        }
        world.add_many(11, ALL_MAX - world.all.len());
        assert_eq!(world.add(host(12)).1, Some(of_the_fullest));
    }

    #[test]
    fn if_all_hosts_have_few_associations_the_oldest_of_all_is_evicted() {
        let mut world = World::new();
        // The oldest association has the highest address. The second oldest belongs to the host with the most associations.
        let oldest = world.add_many(ALL_MAX, 1);
        let next = world.add_many(0, MANY - 1);
        for number in 1..=ALL_MAX - MANY {
            world.add_many(number, 1);
        }
        assert_eq!(world.add(host(ALL_MAX + 1)).1, Some(oldest));
        assert_eq!(world.add(host(ALL_MAX + 2)).1, Some(next));
    }
}

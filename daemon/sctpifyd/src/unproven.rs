//! Incoming associations whose peer must prove a key before a local program hears of them.
//!
//! They are accepted, and hold neither a connection nor a channel. Refused: more than [`HOST_MAX`] of one host, and more than [`ALL_MAX`].
//! Invariant: an entry goes with the proof, with the association, or [`PROOF_LIMIT`] after it came. Begin at [`Unproven::add`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Route;
use relay::Peer;
use sctp::AssociationId;

use crate::addresses::host_part;

/// Time limit for the proof: a client waits no longer for keys.
pub(crate) const PROOF_LIMIT: Duration = Duration::from_secs(10);
/// Limit on the associations of one host. Each holds one of the host's ports.
const HOST_MAX: usize = 512;
/// Limit on all associations.
const ALL_MAX: usize = 4096;

/// An incoming association, which a connection to a local program shall use.
pub(crate) struct Incoming {
    pub(crate) server: SocketAddr,
    pub(crate) client: SocketAddr,
    pub(crate) route: Route,
    pub(crate) peer: Peer,
}

/// The incoming associations without proof.
#[derive(Default)]
pub(crate) struct Unproven {
    all: BTreeMap<AssociationId, Incoming>,
}

impl Unproven {
    /// Reports whether there is room for one more association of a client's host.
    pub(crate) fn has_room_for(&self, client: SocketAddr) -> bool {
        let host = host_part(client.ip());
        let of_host = self.all.values().filter(|incoming| host_part(incoming.client.ip()) == host);
        self.all.len() < ALL_MAX && of_host.count() < HOST_MAX
    }

    pub(crate) fn add(&mut self, association: AssociationId, incoming: Incoming) {
        self.all.insert(association, incoming);
    }

    /// Removes and returns an association whose peer has proven a key, or that has ended.
    pub(crate) fn take(&mut self, association: AssociationId) -> Option<Incoming> {
        self.all.remove(&association)
    }

    /// Removes and returns all associations.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = AssociationId> {
        std::mem::take(&mut self.all).into_keys()
    }
}

#[cfg(test)]
mod tests {
    use base::{Carrier, Time};
    use sctp::{AssociationConfig, Connect, Endpoint, EndpointConfig};

    use super::*;

    #[test]
    fn a_host_has_a_part_of_the_places() {
        let mut engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [0; 32]);
        let server: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let client = |host: u8, port| SocketAddr::from(([10, 0, 1, host], port));
        let route = Route { local: server.ip(), remote: client(1, 0).ip(), carrier: Carrier::Ip };
        let mut unproven = Unproven::default();
        let mut last = None;
        for port in 1..=u16::try_from(HOST_MAX).unwrap() {
            assert!(unproven.has_room_for(client(1, port)));
            let connect = Connect {
                local_port: port,
                remote_port: 80,
                init_routes: vec![route],
                local_addresses: vec![server.ip()],
                config: AssociationConfig::default(),
            };
            let association = engine.connect(Time::ZERO, connect).unwrap();
            let incoming = Incoming { server, client: client(1, port), route, peer: Peer::Shim };
            unproven.add(association, incoming);
            last = Some(association);
        }
        assert!(!unproven.has_room_for(client(1, 9999)) && unproven.has_room_for(client(2, 1)));
        assert!(unproven.take(last.unwrap()).is_some() && unproven.has_room_for(client(1, 9999)));
        assert_eq!(unproven.take_all().count(), HOST_MAX - 1);
        assert!(unproven.has_room_for(client(1, 1)));
    }
}

//! Admission of peers' connections to local programs.
//!
//! [`AcceptPolicy`] answers INITs statelessly: do the rules open the port to SCTP, and does a program listen there for this client?
//! A COOKIE ECHO is checked once more ([`AcceptPolicy::still_serves`]), and a channel of a shared association in the same way and
//! more ([`AcceptPolicy::admit`]).

use std::net::{IpAddr, SocketAddr};

use base::{Carrier, Route, Time};
use intercept::FourTuple;
use relay::mux::{Refusal, SHARED_STREAMS};
use rules::Chain;
use sctp::{AssociationId, AuthConfig, Endpoint, IncomingInit, InitDecision, Listener, StateName};

use crate::addresses::Asker;
use crate::carriers::PacketIo;
use crate::connection::{Connection, Connections};
use crate::history::{History, Line, Occurrence};
use crate::interception::{Interception, Offer, another};
use crate::policy::{Policy, is_privileged};
use crate::shared::{Ends, SharedAssociation, SharedAssociations, asks_to_share};
use crate::timing;

/// Decides which INITs are accepted.
pub(crate) struct AcceptPolicy<'a> {
    pub(crate) now: Time,
    pub(crate) policy: &'a Policy,
    pub(crate) interception: &'a mut Interception,
    pub(crate) history: &'a mut History,
    pub(crate) connections: &'a Connections,
    pub(crate) shared: &'a SharedAssociations,
}

impl Listener for AcceptPolicy<'_> {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        let decision = self.decide(init);
        if !matches!(decision, InitDecision::Accept { .. } | InitDecision::AcceptOn { .. }) {
            self.history.count(Occurrence::AcceptRefused);
        }
        decision
    }

    fn auth_for(&mut self, peer: IpAddr) -> Option<AuthConfig> {
        self.policy.rules().auth_for(peer)
    }

    fn on_unauthenticated(&mut self, route: &Route) {
        note_wrong_key(self.now, route.remote, self.policy, self.history);
    }
}

/// Counts and reports a peer that has not proven the key that the hosts should share.
pub(crate) fn note_wrong_key(now: Time, peer: IpAddr, policy: &Policy, history: &mut History) {
    history.count(Occurrence::WrongKey);
    let Some(left_out) = history.admit(Line::WrongKey, now) else { return };
    let whose = policy.rules().keys().whose(peer).unwrap_or_default();
    tracing::warn!(%peer, key_for = whose, left_out, "refused: the peer has another key, or none (peer_keys)");
}

impl AcceptPolicy<'_> {
    /// Decides whether a connection from the sender may be made.
    fn decide(&mut self, init: &IncomingInit) -> InitDecision {
        let (local, remote) = (init.route.local, init.route.remote);
        if asks_to_share(init.local_port, init.adaptation) {
            return self.decide_shared(init);
        }
        let server = SocketAddr::new(local, init.local_port);
        let client = SocketAddr::new(remote, init.remote_port);
        let Some(offer) = self.serves(server, client, init.route.carrier) else {
            return InitDecision::Refuse;
        };
        let offered = self.offered(init);
        if offer == Offer::All {
            return InitDecision::Accept { local_addresses: offered };
        }
        let bound = |address: &IpAddr| {
            let server = SocketAddr::new(*address, init.local_port);
            *address == local || self.interception.find_listener(server, client).is_some()
        };
        InitDecision::Accept { local_addresses: offered.into_iter().filter(bound).collect() }
    }

    /// Returns the terms of a connection from `client` to `server` over this carrier, according to the rules and the listener.
    /// `None` refuses it.
    fn serves(&mut self, server: SocketAddr, client: SocketAddr, carrier: Carrier) -> Option<Offer> {
        // Counts for the rule that decides.
        self.policy.rules().lock().decide(Chain::Local, server.ip(), server.port());
        self.still_serves(server, client, carrier)
    }

    /// Returns the terms again for a connection that was counted when it was asked for.
    pub(crate) fn still_serves(
        &mut self,
        server: SocketAddr,
        client: SocketAddr,
        carrier: Carrier,
    ) -> Option<Offer> {
        if !self.may_take(server.ip(), client.ip())
            // Connections of other hosts that cannot arrive by their uplinks must not arrive otherwise.
            || (self.interception.is_cut_off(self.policy.rules()) && !self.policy.addresses().is_own(client.ip()))
        {
            return None;
        }
        let (is_allowed, force_bindall) = {
            let book = self.policy.rules().lock();
            let decision = book.explain(Chain::Local, server.ip(), server.port());
            (decision.policy.is_enable(), book.settings.force_bindall)
        };
        if !is_allowed && !self.policy.rules().is_any_asked_for() {
            return None;
        }
        if is_privileged(client.port()) && !self.vouches_for_ports(client.ip(), carrier) {
            tracing::debug!(%client, %server, "refused: any program could claim a client's port below 1024 over UDP");
            return None;
        }
        let client = if self.is_anew(server, client) { another(client) } else { client };
        let (offer, socket) = self.interception.find_listener(server, client)?;
        if !is_allowed && !self.policy.rules().is_asked_for(server, socket) {
            return None;
        }
        Some(if force_bindall { Offer::All } else { offer })
    }

    /// Reports whether the peer needs privileges to claim a port below 1024 as a connection's source: to send SCTP over IP, or to
    /// read the shared key.
    fn vouches_for_ports(&self, peer: IpAddr, carrier: Carrier) -> bool {
        carrier == Carrier::Ip || self.policy.rules().is_keyed(peer)
    }

    /// Reports whether there is room for one more, and whether SCTP may be used between these addresses.
    fn may_take(&self, local: IpAddr, remote: IpAddr) -> bool {
        let is_used = self.policy.addresses().is_own(local) && !self.policy.addresses().is_left_out(local);
        let is_for_us = !self.policy.addresses().stays_plain(remote) && is_used;
        !self.policy.is_ending() && is_for_us && self.connections.has_room_for(remote)
    }

    /// Returns the addresses to offer to the peer.
    fn offered(&self, init: &IncomingInit) -> Vec<IpAddr> {
        let asker = Asker {
            local: init.route.local,
            remote: init.route.remote,
            others: &init.addresses,
            is_dialled: false,
        };
        self.policy.addresses().offered(self.now, asker)
    }

    /// Reports whether the client's port is that of a channel to the program; the listener lookup then uses another port. Either the
    /// client has given the channel up and begins anew, or somebody else is at its address ([`crate::driver`]).
    fn is_anew(&self, server: SocketAddr, client: SocketAddr) -> bool {
        FourTuple::new(server, client).is_some_and(|flow| self.connections.of_channel(&flow).is_some())
    }

    /// Decides about an association that connections may share: each of them is checked when it comes.
    fn decide_shared(&mut self, init: &IncomingInit) -> InitDecision {
        let (local, remote) = (init.route.local, init.route.remote);
        let is_shared = self.policy.rules().lock().settings.streams.is_shared();
        let serves_any = self.policy.rules().serves_any();
        if !self.may_take(local, remote) || !is_shared || !serves_any || !self.shared.has_room_for(remote) {
            return InitDecision::Refuse;
        }
        InitDecision::AcceptOn {
            local_addresses: self.offered(init),
            outbound_streams: SHARED_STREAMS,
            inbound_streams: SHARED_STREAMS,
            extensions: timing::SHARED_EXTENSIONS,
        }
    }

    /// Decides whether a connection may be made on a shared association; returns its terms and its uplink. The conditions are those
    /// for an INIT, and more.
    pub(crate) fn admit(
        &mut self,
        engine: &Endpoint,
        packet_io: &PacketIo,
        association: AssociationId,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<(Offer, Option<u32>), Refusal> {
        if self.policy.is_ending() || !self.connections.has_room_for(client.ip()) {
            return Err(Refusal::Busy);
        }
        let auth = self.policy.rules().auth_for(client.ip());
        let may_ask = |state: &&SharedAssociation| state.takes_openings() && state.speaks_for(client.ip());
        let Some(state) = self.shared.get(association).filter(may_ask) else {
            return Err(Refusal::Unproven);
        };
        if !state.has_key(&auth) {
            return Err(Refusal::OwnAssociation);
        }
        // The host has been granted all it may get; an association of its own promises less.
        if self.shared.has_granted_all(association) {
            return Err(Refusal::Busy);
        }
        // An INIT from the client would have to reach the server's address, too.
        let ends = Ends::new(server.ip(), client.ip());
        let Some(carrier) = state.carrier_between(ends) else { return Err(Refusal::Busy) };
        if self.is_taken(engine, association, client, server) {
            return Err(Refusal::Busy);
        }
        match self.serves(server, client, carrier) {
            None => return Err(Refusal::NotServed),
            Some(Offer::Bound) => return Err(Refusal::OwnAssociation),
            Some(Offer::All) => {}
        }
        // If the uplink is unknown, an association of the connection's own shows it.
        let paths = engine.info(association).map(|info| info.paths).unwrap_or_default();
        let mut routes = paths.iter().map(|path| &path.route);
        let route = routes.find(|route| Ends::of(route) == ends).ok_or(Refusal::OwnAssociation)?;
        let uplink = self.interception.uplink_of(route, self.policy, packet_io);
        uplink.map(|uplink| (Offer::All, uplink)).map_err(|_| Refusal::OwnAssociation)
    }

    /// Reports whether another live association has a channel with these addresses and ports.
    fn is_taken(
        &self,
        engine: &Endpoint,
        association: AssociationId,
        client: SocketAddr,
        server: SocketAddr,
    ) -> bool {
        let old = FourTuple::new(server, client).and_then(|flow| self.connections.of_channel(&flow));
        let old = old.and_then(|id| self.connections.get(id)).map(Connection::association);
        let lives = |id| engine.state(id).is_some_and(|state| state != StateName::Closed);
        old.is_some_and(|old| old != association && lives(old))
    }
}

//! Admission of peers' connections to local programs.
//!
//! [`AcceptPolicy`] answers INITs statelessly. It checks whether the rules open the port to SCTP, and whether a program listens on this
//! port for the client. [`AcceptPolicy::still_serves`] repeats this check after the COOKIE ECHO. [`AcceptPolicy::admit`] makes the same
//! check, and further checks, for a channel of a shared association.

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

/// Policy that accepts or refuses INITs.
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

/// Counts and reports a peer that has not proven the key that both hosts should share.
pub(crate) fn note_wrong_key(now: Time, peer: IpAddr, policy: &Policy, history: &mut History) {
    history.count(Occurrence::WrongKey);
    let Some(left_out) = history.admit(Line::WrongKey, now) else { return };
    let whose = policy.rules().keys().whose(peer).unwrap_or_default();
    tracing::warn!(%peer, key_for = whose, left_out, "refused: the peer has another key, or none (peer_keys)");
}

impl AcceptPolicy<'_> {
    /// Decides whether to accept the association that an INIT requests.
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

    /// Returns the addresses to offer for a connection from `client` to `server` over this carrier, according to the rules and the
    /// listener. Returns `None` if the connection is refused. Counts the decision in the rulebook.
    fn serves(&mut self, server: SocketAddr, client: SocketAddr, carrier: Carrier) -> Option<Offer> {
        // This call increments the count of the rule that decides.
        self.policy.rules().lock().decide(Chain::Local, server.ip(), server.port());
        self.still_serves(server, client, carrier)
    }

    /// Like [`serves`](Self::serves), but does not count the decision in the rulebook. The peer's request has already been counted.
    pub(crate) fn still_serves(
        &mut self,
        server: SocketAddr,
        client: SocketAddr,
        carrier: Carrier,
    ) -> Option<Offer> {
        if !self.may_take(server.ip(), client.ip())
            // Connections from other hosts are refused if the kernel cannot deliver them through their uplinks and the setting
            // `deliver_by_shim` is off.
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

    /// Reports whether only a privileged program of the peer can claim a source port below 1024. SCTP over IP needs privileges, and so does
    /// reading a shared key.
    fn vouches_for_ports(&self, peer: IpAddr, carrier: Carrier) -> bool {
        carrier == Carrier::Ip || self.policy.rules().is_keyed(peer)
    }

    /// Reports whether the limits allow another connection, and whether SCTP may be used between these addresses.
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

    /// Reports whether a channel to the program already uses the client's address and port. In this case the listener lookup uses another
    /// client port, because it would otherwise find the channel's connection. Either the client has abandoned the channel and begins anew,
    /// or another host now has the client's address ([`crate::driver`]).
    fn is_anew(&self, server: SocketAddr, client: SocketAddr) -> bool {
        FourTuple::new(server, client).is_some_and(|flow| self.connections.of_channel(&flow).is_some())
    }

    /// Decides about a shared association. Each connection on the association is checked later, when the peer requests the connection.
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

    /// Decides whether a peer may open a connection on a shared association. Returns the addresses to offer and the uplink. Applies the
    /// conditions for an INIT, and further conditions of shared associations.
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
        // The windows of the peer's host leave no room for another channel. The answer `Busy` lets the peer open a separate association,
        // which is granted less memory than a channel.
        if self.shared.has_granted_all(association) {
            return Err(Refusal::Busy);
        }
        // The association must have a confirmed path between these two addresses. Only such a path shows that an INIT could use them, too.
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
        // If the uplink is unknown, a separate association for this connection reveals the uplink.
        let paths = engine.info(association).map(|info| info.paths).unwrap_or_default();
        let mut routes = paths.iter().map(|path| &path.route);
        let route = routes.find(|route| Ends::of(route) == ends).ok_or(Refusal::OwnAssociation)?;
        let uplink = self.interception.uplink_of(route, self.policy, packet_io);
        uplink.map(|uplink| (Offer::All, uplink)).map_err(|_| Refusal::OwnAssociation)
    }

    /// Reports whether another live association has a channel with the same addresses and ports.
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

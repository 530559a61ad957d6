//! Admission of peers' connections to local programs.
//!
//! [`AcceptPolicy`] answers INITs statelessly: do the rules open the port to SCTP, and does a program listen there for this client?
//! Connections on a shared association are checked in the same way ([`AcceptPolicy::serves`]), and once more when the local
//! connection begins ([`AcceptPolicy::still_serves`]).

use std::net::{IpAddr, SocketAddr};

use base::{Carrier, Route, Time};
use intercept::FourTuple;
use relay::mux::SHARED_STREAMS;
use rules::Chain;
use sctp::{AuthConfig, IncomingInit, InitDecision, Listener};

use crate::addresses::Asker;
use crate::connection::Connections;
use crate::history::{History, Line, Occurrence};
use crate::interception::{Interception, Offer, another};
use crate::policy::{Policy, is_privileged};
use crate::shared::{SharedAssociations, asks_to_share};
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
        self.history.count(Occurrence::WrongKey);
        let Some(left_out) = self.history.admit(Line::WrongKey, self.now) else { return };
        let whose = self.policy.rules().keys().whose(route.remote).unwrap_or_default();
        tracing::warn!(peer = %route.remote, key_for = whose, left_out, "refused: the peer has another key, or none (peer_keys)");
    }
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
    pub(crate) fn serves(
        &mut self,
        server: SocketAddr,
        client: SocketAddr,
        carrier: Carrier,
    ) -> Option<Offer> {
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
}

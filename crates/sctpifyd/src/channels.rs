//! Connections as channels of a shared association: asks for held SYNs on the shared association, and connects to local programs for the peer.
//!
//! Client: after OPEN, ACCEPTED diverts the connection as the establishment of an association does elsewhere. Any other answer
//! gives the SYN an association of its own, or plain TCP where TCP would report the same to the program. Server: the checks are
//! those of an INIT ([`crate::accept_policy`]). The peer must speak for the client's address, and packets from there must reach
//! the server's address ([`crate::shared`]); then the daemon connects to the local program.

use std::net::SocketAddr;
use std::time::Duration;

use base::{Carrier, Route};
use control::{FallbackReason, Role, ShimState};
use intercept::{FourTuple, HeldSyn, Verdict};
use relay::mux::{ChannelEvent, ChannelId, MuxFault, Refusal};
use relay::{Closed, Peer};
use rules::{Failure, Settings};
use sctp::{AbortCause, AssociationId, Event, PathState, StateName};

use crate::client::{COOKIE_LIMIT, Held};
use crate::connection::{Connection, ConnectionId, Stage};
use crate::history::{Line, Occurrence};
use crate::interception::Offer;
use crate::policy::is_privileged;
use crate::server::Opened;
use crate::shard::Shard;
use crate::shared::{Ends, SharedAssociation};
use crate::timers::Timer;
use crate::timing;

/// A peer is near if it answers within this time. The loop does not sleep through it.
const NEAR: Duration = Duration::from_micros(300);

impl Shard {
    /// Asks for the connection on a shared association to its destination, if one exists.
    pub(crate) fn join_shared(&mut self, syn: &HeldSyn, settings: &Settings, shim: ShimState) -> bool {
        let (local, remote) = (self.interception.wire_address(&syn.flow), syn.flow.remote());
        if !settings.streams.is_shared() {
            return false;
        }
        let Some(association) = self.shared.find(local.ip(), remote) else { return false };
        let auth = self.policy.rules().auth_for(remote.ip());
        let Some(state) = self.shared.get_mut(association).filter(|state| state.has_key(&auth)) else {
            return false;
        };
        if is_privileged(local.port()) && !state.vouches_for_ports() {
            return false;
        }
        // An association of its own promises less.
        if self.shared.has_granted_all(association) {
            return false;
        }
        let id = self.connections.reserve();
        let opened = self.shared.with_windows(association, |state| {
            let opened = state.mux().open(local, remote);
            if let Ok(channel) = &opened {
                state.adopt(*channel, id);
            }
            opened
        });
        let channel = match opened {
            Some(Ok(channel)) => channel,
            Some(Err(error)) => {
                tracing::debug!(%error, %remote, "not on a shared association");
                return false;
            }
            None => return false,
        };
        let stage = Stage::Asking(*syn);
        let mut connection = Connection::new(association, Role::Client, syn.flow, self.now, stage, shim);
        connection.channel = Some(channel);
        connection.peer = Peer::Shim;
        self.connections.insert_as(id, connection);
        self.shared.flush(self.now, association, &mut self.engine);
        self.is_urgent = true;
        let (patience, _) = timing::init_patience(settings);
        let (round_trip, sacks) = self.vital_signs(association);
        let wait = timing::channel_patience(patience, round_trip, self.has_other_path(association));
        self.timers.set(self.now + wait, Timer::Channel(id, sacks));
        if round_trip < NEAR {
            self.poller.stay_awake(self.now + NEAR);
        }
        true
    }

    /// Returns the round-trip time and the number of SACKs received.
    fn vital_signs(&self, association: AssociationId) -> (Duration, u64) {
        let Some(info) = self.engine.info(association) else { return Default::default() };
        let in_use = info.paths.iter().find(|path| path.in_use);
        (in_use.and_then(|path| path.srtt).unwrap_or_default(), info.counters.sacks_received)
    }

    /// Reports whether the engine has another path to turn to when the one in use is silent.
    fn has_other_path(&self, association: AssociationId) -> bool {
        let paths = self.engine.info(association).map(|info| info.paths).unwrap_or_default();
        paths.iter().any(|path| !path.in_use && path.state == PathState::Active)
    }

    pub(crate) fn on_channel_event(
        &mut self,
        association: AssociationId,
        channel: ChannelId,
        event: ChannelEvent,
    ) {
        if let ChannelEvent::Offered { client, server } = event {
            return self.on_channel_offered(association, channel, client, server);
        }
        let Some(id) = self.shared.get(association).and_then(|state| state.owner_of(channel)) else {
            return;
        };
        match event {
            ChannelEvent::Accepted => self.on_channel_accepted(id),
            ChannelEvent::Refused(reason) => self.on_channel_refused(id, reason),
            ChannelEvent::Readable | ChannelEvent::Writable => {
                self.pump.mark(id);
            }
            ChannelEvent::Reset if self.asking(id).is_some() => self.leave_shared(id),
            ChannelEvent::Reset => self.on_association_closed(id, Closed::Lost),
            ChannelEvent::Offered { .. } => {}
        }
    }

    /// Returns the SYN of a connection that waits for the peer's answer.
    fn asking(&self, id: ConnectionId) -> Option<HeldSyn> {
        match self.connections.get(id)?.stage {
            Stage::Asking(syn) => Some(syn),
            _ => None,
        }
    }

    fn on_channel_accepted(&mut self, id: ConnectionId) {
        let Some(syn) = self.asking(id) else { return };
        if !self.still_waits(id, &syn) {
            // A reset informs the other side.
            self.drop_connection(id);
            return self.interception.judge(&syn, Verdict::Drop);
        }
        let association = self.connections.get(id).map(|connection| connection.association);
        let carrier = association.and_then(|association| self.carrier_of(association));
        self.history.count(Occurrence::ConnectShared);
        self.on_client_up(id, syn, Peer::Shim, carrier.unwrap_or(Carrier::Ip));
    }

    fn carrier_of(&self, association: AssociationId) -> Option<Carrier> {
        let paths = self.engine.info(association)?.paths;
        paths.iter().find(|path| path.in_use).map(|path| path.route.carrier)
    }

    fn on_channel_refused(&mut self, id: ConnectionId, reason: Refusal) {
        let Some(syn) = self.asking(id) else { return };
        let Some(connection) = self.connections.get(id) else { return };
        let (association, flow) = (connection.association, connection.flow);
        let local = self.interception.wire_address(&flow);
        tracing::debug!(%flow, ?reason, "not on a shared association");
        if let Some(state) = self.shared.get_mut(association) {
            match reason {
                Refusal::Unproven => state.bar(local.ip()),
                Refusal::OwnAssociation => state.leave_alone(flow.remote()),
                Refusal::NotServed | Refusal::NotTaken | Refusal::Busy => {}
            }
        }
        if reason.allows_own_association() {
            return self.leave_shared(id);
        }
        let cause = match reason {
            Refusal::NotTaken => "the program there did not take the connection",
            _ => FallbackReason::NOT_SERVED,
        };
        let failure = if reason == Refusal::NotServed { Failure::Refused } else { Failure::HandshakeFailed };
        let cause = FallbackReason::PeerAborted { cause: cause.to_owned() };
        self.abandon(id, &syn, cause, Some(failure));
    }

    /// Moves a connection that waits for the peer's answer to an association of its own.
    pub(crate) fn leave_shared(&mut self, id: ConnectionId) {
        let Some(syn) = self.asking(id) else { return };
        let Some(connection) = self.connections.get(id) else { return };
        let (shim, began) = (connection.shim(), connection.began);
        let (round_trip, _) = self.vital_signs(connection.association);
        self.drop_connection(id);
        let settings = self.policy.settings();
        if let Err(plain) = self.begin_alone(&syn, &settings, shim, Held { since: began, round_trip }) {
            self.go_plain(&syn, plain);
        }
    }

    /// Handles a peer's answer that is late. While the shared association lives, the program there may be slow.
    pub(crate) fn on_channel_late(&mut self, id: ConnectionId, sacks: u64) {
        let Some(connection) = self.connections.get(id) else { return };
        if !matches!(connection.stage, Stage::Asking(_)) {
            return;
        }
        let is_heard = self.vital_signs(connection.association).1 > sacks;
        let end = connection.began + COOKIE_LIMIT;
        if is_heard && self.now < end {
            self.timers.set(end, Timer::Channel(id, sacks));
        } else {
            tracing::debug!(flow = %connection.flow, "the shared association does not answer");
            if !is_heard && let Some(state) = self.shared.get_mut(connection.association) {
                state.note_silence();
            }
            self.leave_shared(id);
        }
    }

    /// Handles a connection from a program of the peer's host to one here.
    fn on_channel_offered(
        &mut self,
        association: AssociationId,
        channel: ChannelId,
        client: SocketAddr,
        server: SocketAddr,
    ) {
        let outcome = self.admit(association, client, server).and_then(|offer| {
            let uplink = self.uplink_of_channel(association, Ends::new(server.ip(), client.ip()))?;
            self.give_way(server, client, |_, old| old == association);
            let opened = Opened { peer: Peer::Shim, channel: Some(channel), offer, uplink };
            self.open_local(association, server, client, opened).map_err(|error| {
                if let Some(left_out) = self.history.admit(Line::Refusal, self.now) {
                    tracing::info!(%client, %server, %error, left_out, "refused: no local connection");
                }
                Refusal::NotTaken
            })
        });
        match outcome {
            Ok(id) => self.await_listener(id),
            Err(reason) => {
                if let Some(left_out) = self.history.admit(Line::Refusal, self.now) {
                    tracing::info!(%client, %server, ?reason, left_out, "refused");
                }
                self.history.count(Occurrence::AcceptRefused);
                self.shared.with_windows(association, |state| state.mux().refuse(channel, reason));
            }
        }
    }

    /// Reports whether the connection may be made. The conditions are those for an INIT, and more.
    fn admit(
        &mut self,
        association: AssociationId,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<Offer, Refusal> {
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
        let Some(carrier) = state.carrier_between(Ends::new(server.ip(), client.ip())) else {
            return Err(Refusal::Busy);
        };
        if self.is_taken(association, client, server) {
            return Err(Refusal::Busy);
        }
        let (.., mut accept_policy) = self.receivers();
        match accept_policy.serves(server, client, carrier) {
            None => Err(Refusal::NotServed),
            Some(Offer::Bound) => Err(Refusal::OwnAssociation),
            Some(Offer::All) => Ok(Offer::All),
        }
    }

    /// Returns the uplink of a channel. If it is unknown, the channel is refused: an association of the connection's own then shows it.
    fn uplink_of_channel(&self, association: AssociationId, ends: Ends) -> Result<Option<u32>, Refusal> {
        let paths = self.engine.info(association).map(|info| info.paths).unwrap_or_default();
        let between = |route: &Route| Ends::of(route) == ends;
        let route = paths.iter().map(|path| path.route).find(between).ok_or(Refusal::OwnAssociation)?;
        let uplink = self.interception.uplink_of(&route, &self.policy, &self.packet_io);
        uplink.map_err(|_| Refusal::OwnAssociation)
    }

    /// Reports whether another live association has a channel with these addresses and ports.
    fn is_taken(&self, association: AssociationId, client: SocketAddr, server: SocketAddr) -> bool {
        let old = FourTuple::new(server, client).and_then(|flow| self.connections.of_channel(&flow));
        let old = old.and_then(|id| self.connections.get(id)).map(|connection| connection.association);
        let lives = |id| self.state_of(id).is_some_and(|state| state != StateName::Closed);
        old.is_some_and(|old| old != association && lives(old))
    }

    /// Handles an event of an association, if that is a shared association.
    pub(crate) fn on_shared_event(&mut self, association: AssociationId, event: &Event) {
        match event {
            Event::Established { outbound_streams, inbound_streams, .. } => {
                let streams = (*outbound_streams).min(*inbound_streams);
                self.on_shared_established(association, streams);
            }
            Event::Closed(_) => self.on_shared_closed(association),
            _ if self.shared.get(association).is_none() => {}
            Event::Readable => self.shared.on_readable(association),
            Event::Writable => {
                self.pump.mark_all(self.shared.on_writable(self.now, association, &mut self.engine));
            }
            Event::PeerShutdown => self.close_shared(association),
            Event::PathChanged { .. } | Event::PeerAddressChange(_) | Event::AddressChange { .. } => {
                self.shared.learn_proven(association, &self.engine);
            }
            _ => {}
        }
    }

    fn on_shared_established(&mut self, association: AssociationId, streams: u16) {
        let (now, engine) = (self.now, &mut self.engine);
        let (policy, connections) = (&self.policy, &mut self.connections);
        let up = self.shared.on_established(now, association, streams, engine, policy, connections);
        let Some((remote, side)) = up else { return };
        if let Some(left_out) = self.history.admit(Line::Shared, now) {
            tracing::info!(%remote, ?side, left_out, "connections may share an association");
        }
        self.history.count(Occurrence::SharedAssociation);
        self.shared.note_idle(now, association, engine, policy, &mut self.timers);
        self.shared.flush(now, association, engine);
    }

    /// Takes messages from the shared associations; reports whether more may be left.
    pub(crate) fn serve_all_shared(&mut self) -> bool {
        if !self.shared.has_readable() {
            return false;
        }
        for association in self.shared.take_readable() {
            self.serve_shared(association);
        }
        self.shared.has_readable()
    }

    fn serve_shared(&mut self, association: AssociationId) {
        match self.shared.take_messages(self.now, association, &mut self.engine) {
            Ok(false) => {}
            Ok(true) => self.take_channel_events(association),
            Err(fault) => self.give_shared_up(association, &fault),
        }
    }

    /// Gives up a shared association whose peer has sent something that this version never sends.
    fn give_shared_up(&mut self, association: AssociationId, fault: &MuxFault) {
        let Some(peer) = self.shared.on_fault(self.now, association) else { return };
        if let Some(left_out) = self.history.admit(Line::Fault, self.now) {
            tracing::warn!(%peer, %fault, left_out, "an association to be shared is given up");
        }
        self.take_channel_events(association);
        self.engine.abort(self.now, association, AbortCause::user(fault.to_string()));
    }

    fn take_channel_events(&mut self, association: AssociationId) {
        while let Some((channel, event)) = self.shared.poll_event(association) {
            self.on_channel_event(association, channel, event);
        }
        self.shared.flush(self.now, association, &mut self.engine);
    }

    /// Handles the timer of a shared association that may be idle.
    pub(crate) fn on_shared_idle(&mut self, association: AssociationId) {
        let (engine, timers) = (&mut self.engine, &mut self.timers);
        if self.shared.on_idle(self.now, association, engine, &self.policy, timers) {
            self.close_shared(association);
        }
    }

    /// Closes a shared association to new connections; those that wait for the peer's answer get their own associations.
    fn close_shared(&mut self, association: AssociationId) {
        for id in self.shared.close(association) {
            self.leave_shared(id);
        }
    }

    /// Handles the end of the association: programs still get the data received, then see a reset.
    fn on_shared_closed(&mut self, association: AssociationId) {
        self.shared.on_closed(self.now, association);
        while self.shared.get(association).is_some() {
            self.serve_shared(association);
            if !self.shared.was_readable(association) {
                break;
            }
        }
        self.close_shared(association);
        let Some(state) = self.shared.get(association) else { return };
        let owners: Vec<ConnectionId> = state.owners().collect();
        if let Some(left_out) = self.history.admit(Line::Shared, self.now) {
            let connections = owners.len();
            tracing::info!(connections, left_out, "an association that was shared is over");
        }
        for id in owners {
            self.on_association_closed(id, Closed::Lost);
        }
        self.shared.note_idle(self.now, association, &self.engine, &self.policy, &mut self.timers);
    }
}

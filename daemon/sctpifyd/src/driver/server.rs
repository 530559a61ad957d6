//! The server side: turns an INIT into a connection to a local listener. The connection's source is the client's own address.
//!
//! [`crate::accept_policy`] answers INITs. Only a COOKIE ECHO, which proves the client's address, opens the local connection. COOKIE ACK
//! waits until the local kernel has accepted the connection for the program. A port that is closed to TCP is therefore closed to SCTP. If
//! the client's host must prove a key first, COOKIE ACK is sent before the local connection is opened ([`crate::unproven`]).
//! [`crate::interception`] chooses the interface through which the connection arrives.
//!
//! A peer may also request a connection as a channel of a shared association. The request must pass the checks of an INIT and further
//! checks. For example, the client's address must identify the peer, and a confirmed path must join this address and the server's address
//! ([`crate::shared`]).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::Route;
use control::FallbackReason;
use intercept::FourTuple;
use relay::mux::{ChannelId, Refusal};
use relay::{Peer, Role as RelayRole};
use rules::{Chain, Outcome};
use sctp::{AbortCause, AssociationId, AuthConfig, Endpoint, StateName};

use super::{Driver, token_of};
use crate::accept_policy::note_wrong_key;
use crate::connection::{Connection, ConnectionId, Opened, Stage};
use crate::flowing::INTERESTS;
use crate::history::{Line, Occurrence};
use crate::timers::Timer;
use crate::timing;
use crate::unproven::Incoming;

/// Time limit for the local kernel to accept a delivery if the program's backlog is full. Within this limit, the kernel repeats a dropped
/// SYN.
const LISTENER_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for the local kernel to accept a delivery if the backlog is not full. A kernel accepts at once, even if the program is busy.
/// A missing answer means that a firewall drops the SYN. The client then gets plain TCP soon.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);
/// Answer to a host that a rule excludes.
const NOT_ENCRYPTED: &str = "the rule for this program requires encryption, or another peer (--secure)";
/// Answer to a host that has not proven the key that both hosts must share.
const NO_SHARED_KEY: &str = "the hosts must share a key, and none was proven (peer_keys)";
/// Answer to a host that has not proven its key in time.
const NOT_PROVEN: &str = "no key was proven in time";
/// Delay of the next check of a backlog that was not full when the delivery began. The kernel may not have processed the SYN at that time.
const FIRST_LOOK: Duration = Duration::from_millis(20);

impl Driver {
    /// Handles a valid COOKIE ECHO of a client: connects to the local program. If the client's host must first prove a key in sealed
    /// packets, the connection waits for this proof.
    pub(super) fn on_incoming(&mut self, association: AssociationId, incoming: Incoming) {
        let is_sealed = self.engine.protection(association).is_some();
        let is_secure = self.policy.rules().secure(incoming.server).is_some();
        if is_secure && !is_sealed {
            return self.refuse(association, NOT_ENCRYPTED);
        }
        let Incoming { server, client, .. } = incoming;
        // A channel on a sealed association, between the same addresses and ports, gives way only to a connection of the same peer.
        let old = || self.channel_between(server, client);
        let must_prove = is_secure
            || self.policy.rules().is_keyed(client.ip())
            || old().is_some_and(|(_, old)| self.encryption.has_peer(old, None));
        if !is_sealed || !must_prove {
            return self.deliver(association, incoming);
        }
        let is_declined = self.unproven.is_declined(self.now, server, client);
        let (.., mut accept_policy) = self.receivers();
        if is_declined || accept_policy.still_serves(server, client, incoming.route.carrier).is_none() {
            return self.refuse(association, FallbackReason::NOT_SERVED);
        }
        if let Some((oldest, its)) = self.unproven.make_room_for(client) {
            self.refuse_unproven(oldest, &its);
        }
        self.accept(association, incoming.peer);
        self.unproven.add(self.now, association, incoming);
        self.set_proof_timer();
    }

    fn set_proof_timer(&mut self) {
        if let Some(at) = self.unproven.arm() {
            self.timers.set(at, Timer::Proof);
        }
    }

    /// Handles the proof of a key by the peer of an incoming association, if this proof was awaited.
    pub(super) fn on_proven(&mut self, association: AssociationId) {
        if let Some(incoming) = self.unproven.take(association) {
            self.deliver(association, incoming);
        }
    }

    /// Ends the incoming associations whose peers have not proven a key in time.
    pub(super) fn on_proofs_late(&mut self) {
        for (association, incoming) in self.unproven.take_late(self.now) {
            self.refuse_unproven(association, &incoming);
        }
        self.set_proof_timer();
    }

    fn refuse_unproven(&mut self, association: AssociationId, incoming: &Incoming) {
        let Incoming { server, client, .. } = incoming;
        if self.policy.rules().is_keyed(client.ip()) {
            note_wrong_key(self.now, client.ip(), &self.policy, &mut self.history);
        } else if let Some(left_out) = self.history.admit(Line::Refusal, self.now) {
            tracing::info!(%client, %server, why = NOT_PROVEN, left_out, "refused");
        }
        self.refuse(association, NOT_PROVEN);
    }

    /// Reports whether an association has the encryption and the peer that the rule for this program requires.
    fn is_served(&self, association: AssociationId, server: SocketAddr) -> bool {
        let secure = self.policy.rules().secure(server);
        secure.is_none_or(|secure| self.encryption.has_peer(association, secure.peer()))
    }

    /// Reports whether an association lacks the key that its hosts must share under the settings in force.
    pub(super) fn lacks_key(&self, association: AssociationId, host: IpAddr) -> bool {
        let auth = self.policy.rules().auth_for(host).filter(|auth| auth.required);
        let has_key = |auth: AuthConfig| match self.shared.get(association) {
            Some(shared) => shared.has_key(&Some(auth)),
            None => {
                !self.encryption.lacks_shared_key(association) && self.engine.is_keyed_by(association, &auth)
            }
        };
        !auth.is_none_or(has_key)
    }

    /// Returns the reason why an association may not carry a connection to a program, if any.
    fn unfit(
        &self,
        association: AssociationId,
        server: SocketAddr,
        client: SocketAddr,
    ) -> Option<&'static str> {
        if !self.is_served(association, server) {
            return Some(NOT_ENCRYPTED);
        }
        self.lacks_key(association, client.ip()).then_some(NO_SHARED_KEY)
    }

    fn accept(&mut self, association: AssociationId, peer: Peer) {
        let (now, connections) = (self.now, self.connections.len());
        self.engine.set_timing(now, association, timing::timing(peer, connections));
        self.engine.set_initial_packets(now, association, timing::initial_packets(peer));
        self.engine.accept(now, association);
    }

    /// Connects to the local program. Checks the rules and the program again, because they may have changed since the INIT. If the peer has
    /// restarted an association, this is the first check.
    fn deliver(&mut self, association: AssociationId, incoming: Incoming) {
        let Incoming { server, client, route, peer } = incoming;
        let (.., mut accept_policy) = self.receivers();
        let Some(offer) = accept_policy.still_serves(server, client, route.carrier) else {
            return self.refuse(association, FallbackReason::NOT_SERVED);
        };
        if let Some(why) = self.unfit(association, server, client) {
            return self.refuse(association, why);
        }
        let (told, chunk_type) =
            (self.policy.rules().advertisement(server), self.policy.settings().advertise_type);
        let advertisement = timing::advertisement(told, chunk_type);
        self.engine.set_advertisement(self.now, association, advertisement);
        // The new connection does not end an old channel on a sealed association if the new connection's peer has not proven the same key.
        // The new connection then gets another port.
        let old = self.channel_between(server, client).map(|(_, old)| old);
        let is_others = old.is_some_and(|old| self.encryption.is_anothers(old, association));
        self.give_way(server, client, |engine, old| !is_others && is_from(engine, old, &route));
        let uplink = self.interception.uplink_of(&route, &self.policy, &self.packet_io);
        let opened = uplink.map_err(std::io::Error::other).and_then(|uplink| {
            self.open_local(association, server, client, Opened { peer, channel: None, offer, uplink })
        });
        match opened {
            Ok(id) => self.await_listener(id),
            Err(error) => {
                if let Some(left_out) = self.history.admit(Line::Refusal, self.now) {
                    tracing::info!(%client, %server, %error, left_out, "refused: no local connection");
                }
                self.refuse(association, &error.to_string());
            }
        }
    }

    /// Ends an old channel that still uses the client's address and port, if the client has abandoned this channel. The client has
    /// abandoned it if the channel's association has ended, or if `is_own` reports that the association belongs to the new connection's
    /// host. Otherwise the channel continues, and the new connection gets another port.
    fn give_way(
        &mut self,
        server: SocketAddr,
        client: SocketAddr,
        is_own: impl FnOnce(&Endpoint, AssociationId) -> bool,
    ) {
        let Some((id, association)) = self.channel_between(server, client) else { return };
        let is_over = self.engine.state(association).is_none_or(|state| state == StateName::Closed);
        if is_over || is_own(&self.engine, association) {
            self.drop_connection(id);
        }
    }

    /// Returns the channel from a client's address and port to a local program, and its association.
    fn channel_between(
        &self,
        server: SocketAddr,
        client: SocketAddr,
    ) -> Option<(ConnectionId, AssociationId)> {
        let id = self.connections.of_channel(&FourTuple::new(server, client)?)?;
        Some((id, self.connections.get(id)?.association()))
    }

    /// Gives the local kernel time to accept the delivery, if it has not accepted yet. If the backlog is full now, the longer limit
    /// applies. In this case, the kernel has dropped the SYN, and may retransmit it long after the backlog has room again.
    fn await_listener(&mut self, id: ConnectionId) {
        self.on_local_connected(id);
        let Some(connection) = self.connections.get(id) else { return };
        if !matches!(connection.stage(), Stage::Connecting(_)) {
            return;
        }
        let is_full = self.interception.is_backlog_full(&connection.flow());
        let pause = if is_full { LISTENER_LIMIT } else { FIRST_LOOK };
        self.timers.set(self.now + pause, Timer::Listener(id));
    }

    /// Connects to the local program through `uplink`, for a channel or for a separate association.
    fn open_local(
        &mut self,
        association: AssociationId,
        server: SocketAddr,
        client: SocketAddr,
        opened: Opened,
    ) -> std::io::Result<ConnectionId> {
        let (mut spoofed, flow) = self.interception.connect_as(client, server, opened.uplink)?;
        let id = self.connections.reserve();
        self.poller.registry().register(&mut spoofed.stream, token_of(id), INTERESTS)?;
        if let Some(channel) = opened.channel
            && let Some(state) = self.shared.get_mut(association)
        {
            state.adopt(channel, id);
        }
        let connection = Connection::of_server(association, flow, self.now, spoofed.stream, opened);
        self.connections.insert_as(id, connection);
        self.interception.keep_served(&flow);
        Ok(id)
    }

    /// Checks whether the local connection is ready or has failed.
    pub(super) fn on_local_connected(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Stage::Connecting(stream) = connection.stage() else { return };
        let outcome = stream.peer_addr().map_err(|error| stream.take_error().ok().flatten().unwrap_or(error));
        match outcome {
            Ok(_) => {
                let (association, channel) = (connection.association(), connection.channel());
                let flow = connection.flow();
                connection.set_accepting();
                self.unproven.note_taken(flow.local(), flow.remote());
                if let Some(channel) = channel {
                    if let Some(why) = self.unfit(association, flow.local(), flow.remote()) {
                        return self.refuse_connection(id, why, Refusal::OwnAssociation);
                    }
                    if let Some(state) = self.shared.get_mut(association) {
                        state.mux().accept(channel);
                    }
                    self.shared.flush(self.now, association, &mut self.engine);
                    self.is_urgent = true;
                    return self.on_server_up(id);
                }
                let peer = connection.peer();
                // The association is already up if the peer had to prove its key first.
                match self.encryption.has_peer(association, None) {
                    true => self.on_server_up(id),
                    false => self.accept(association, peer),
                }
            }
            // The socket is not connected yet. The event had another cause.
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => {}
            Err(error) => {
                self.note_declined(id);
                self.refuse_connection(id, &error.to_string(), Refusal::NotTaken);
            }
        }
    }

    /// Handles a delivery that the local kernel has not accepted in time. A slow program delays the kernel only through a full backlog,
    /// which would also delay a client over TCP. Otherwise a firewall drops the SYN or its answer.
    pub(super) fn on_listener_late(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        if !matches!(connection.stage(), Stage::Connecting(_)) {
            return;
        }
        let (flow, began, uplink) = (connection.flow(), connection.began(), connection.uplink().0);
        // The time `LISTENER_LIMIT` expires only if an earlier check found the backlog full.
        let is_full = self.interception.is_backlog_full(&flow) || began + LISTENER_LIMIT <= self.now;
        let (limit, why) = if is_full {
            (began + LISTENER_LIMIT, "the local program accepts no connections: its backlog is full")
        } else {
            (began + ANSWER_LIMIT, "the server's firewall does not answer the delivered connection")
        };
        if self.now < limit {
            return self.timers.set(limit, Timer::Listener(id));
        }
        if !is_full {
            self.note_declined(id);
            self.interception.note_unanswered(self.now, flow, uplink, &mut self.history);
        }
        self.refuse_connection(id, why, Refusal::NotTaken);
    }

    /// Remembers that a program has declined a connection whose peer had proven a key. The association of such a connection was already up.
    /// After repeated declines, `on_incoming` refuses the client's association before it is up.
    fn note_declined(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id).filter(|connection| connection.channel().is_none())
        else {
            return;
        };
        let flow = connection.flow();
        if self.encryption.has_peer(connection.association(), None) {
            self.unproven.note_declined(self.now, flow.local(), flow.remote());
        }
    }

    /// Ends a connection for which the peer waits. `refusal` is the answer on a channel.
    fn refuse_connection(&mut self, id: ConnectionId, why: &str, refusal: Refusal) {
        let Some(connection) = self.connections.get(id) else { return };
        if let Some(left_out) = self.history.admit(Line::Refusal, self.now) {
            tracing::info!(flow = %connection.flow(), why, left_out, "refused");
        }
        match connection.channel() {
            None => self.refuse(connection.association(), why),
            Some(channel) => {
                self.history.count(Occurrence::AcceptRefused);
                if let Some(state) = self.shared.get_mut(connection.association()) {
                    state.mux().refuse(channel, refusal);
                }
            }
        }
        self.drop_connection(id);
    }

    fn refuse(&mut self, association: AssociationId, why: &str) {
        self.history.count(Occurrence::AcceptRefused);
        self.engine.refuse(self.now, association, AbortCause::user(why.to_owned()));
    }

    /// Handles the establishment of the association with a client, or of a channel. Bytes may flow from now on.
    pub(super) fn on_server_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let (flow, association) = (connection.flow(), connection.association());
        let server = flow.local();
        if let Some(why) = self.unfit(association, server, flow.remote()) {
            return self.refuse_peer(id, association, why);
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(stream) = connection.take_accepting() {
            self.history.count(Occurrence::Accept);
            self.policy.rules().record(Chain::Local, server, Outcome::Sctp { rtt_us: None });
            self.begin_relay(id, stream, RelayRole::Acceptor);
        }
    }

    /// Ends a connection of a host that a rule excludes. The local program has received no byte of this connection.
    fn refuse_peer(&mut self, id: ConnectionId, association: AssociationId, why: &str) {
        self.history.count(Occurrence::AcceptRefused);
        let Some(connection) = self.connections.get(id) else { return };
        if let Some(left_out) = self.history.admit(Line::Refusal, self.now) {
            tracing::info!(flow = %connection.flow(), why, left_out, "refused");
        }
        if connection.channel().is_none() {
            self.engine.abort(self.now, association, AbortCause::user(why.to_owned()));
        }
        self.drop_connection(id);
    }

    /// Handles a peer's request for a channel to a local program.
    pub(super) fn on_channel_offered(
        &mut self,
        association: AssociationId,
        channel: ChannelId,
        client: SocketAddr,
        server: SocketAddr,
    ) {
        let (packet_io, engine, mut accept_policy) = self.receivers();
        let admitted = accept_policy.admit(engine, packet_io, association, client, server);
        // A separate association for this connection reveals the identity of the client's host.
        let admitted = match self.is_served(association, server) {
            true => admitted,
            false => admitted.and(Err(Refusal::OwnAssociation)),
        };
        let outcome = admitted.and_then(|(offer, uplink)| {
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
}

/// Reports whether an association has a confirmed path with the remote address and the carrier (including the UDP port) of this route.
fn is_from(engine: &Endpoint, association: AssociationId, route: &Route) -> bool {
    let paths = engine.info(association).map(|info| info.paths).unwrap_or_default();
    paths.iter().any(|path| {
        let theirs = (path.route.remote, path.route.carrier);
        path.confirmed && theirs == (route.remote, route.carrier)
    })
}

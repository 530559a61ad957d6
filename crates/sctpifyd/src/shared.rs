//! Shared associations: associations that carry many connections between this host and another that runs sctpify.
//!
//! The first connection to a host has its own association, which shows that sctpify runs there. The daemon then opens a shared association in
//! the background, and later connections are channels of it ([`crate::channels`]). A shared association belongs to no connection: it ends after
//! being idle for the time set by `shared_idle_s`, and only the end that began it ends it for that reason. If it is lost, every
//! connection on it is reset.
//!
//! An address does not prove who is at the other end: a peer may list addresses of others, and those answer heartbeats in good
//! faith. Without a shared key, therefore, only the two addresses of the handshake speak for the hosts. A connection is requested
//! only on an association that this host opened between these very addresses, and admitted only from the peer's address of the
//! handshake. Other addresses are only paths for data. Hosts that prove a shared key speak for all their proven addresses.
//!
//! Each host opens associations for its own connections. Begin at [`Shard::want_shared`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use base::{Carrier, Route, Time};
use control::Role;
use relay::mux::{ChannelId, Mux, MuxFault, SHARED_STREAMS, Side};
use relay::{Closed, SHARED_ADAPTATION};
use rules::Settings;
use sctp::{AbortCause, AssociationId, AuthConfig, Connect, Endpoint, Event, PathState, Ppid};
use sctp::{SendOptions, StateName, StreamId};

use crate::addresses::host_part;
use crate::channel_windows::ChannelWindows;
use crate::connection::ConnectionId;
use crate::history::{Line, Occurrence};
use crate::probes::random_port_of;
use crate::shard::Shard;
use crate::timers::Timer;
use crate::timing;

/// The SCTP port of shared associations at the accepting end. Programs are reached by the ports of their TCP listeners; the
/// Adaptation Layer Indication distinguishes a shared association from a connection to a program on this port.
pub(crate) const SHARED_PORT: u16 = 9899;
/// The SCTP ports of shared associations at the opening end: the larger the range, the harder a port is to guess. A program's connection may
/// have the same port, because it goes elsewhere than to [`SHARED_PORT`].
const PORTS: RangeInclusive<u16> = 10_000..=65_535;
/// Limit on concurrent shared associations.
const SHARED_MAX: usize = 1024;
/// Limit on those opened by others: the rest is reserved for those that this host opens.
const INCOMING_MAX: usize = SHARED_MAX / 4 * 3;
/// Limit on those opened by one peer: each of its addresses opens its own, and its restarts may overlap.
const INCOMING_PER_PEER_MAX: usize = 4;
/// Limit on the handshake of a shared association: nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which a host that refused a shared association is not asked again.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);
/// Limit on the hosts remembered to have refused; beyond it the memory starts anew.
const REFUSED_MAX: usize = 4096;
/// Interval of the check for idle shared associations: the setting may have changed.
const IDLE_LOOK: Duration = Duration::from_secs(5);
/// Limit on the messages taken off one shared association in one turn.
const MESSAGES_PER_TURN: usize = 1024;
/// Waiting bytes may hold the packets that they came in for this time, or up to twice as long: no more is held than arrives in it.
/// Programs that read in bulk fall behind for milliseconds, and copies made then cost 2 % of the throughput.
const KEEP_AFTER: Duration = Duration::from_millis(50);
/// Limit on the remembered destinations that need their own associations.
const ALONE_MAX: usize = 1024;

/// One shared association.
pub(crate) struct SharedAssociation {
    pub(crate) mux: Mux,
    /// Its number in the daemon's reports.
    pub(crate) number: ConnectionId,
    pub(crate) began: Time,
    /// The owner of each channel.
    pub(crate) owners: BTreeMap<ChannelId, ConnectionId>,
    /// The addresses of the handshake.
    handshake: Ends,
    /// Pairs of our and the peer's addresses that the handshake or a heartbeat has proven, and the carrier of packets between
    /// them.
    proven: BTreeMap<Ends, Carrier>,
    /// Addresses of this host that the peer does not know as ours.
    barred: BTreeSet<IpAddr>,
    /// Destinations that need their own associations.
    alone: BTreeSet<SocketAddr>,
    /// Connections that wait for room in the send buffer.
    waiting: BTreeSet<ConnectionId>,
    /// Time since when it carries nothing, and whether a timer watches that.
    idle_since: Time,
    is_watched: bool,
    /// Authentication of its packets, where the hosts share a key.
    auth: Option<AuthConfig>,
    /// It gave no sign when one was due: new connections do not wait for it until it gives one.
    is_silent: bool,
    side: Side,
    /// It takes no new connections, because it ends or has ended.
    is_closing: bool,
}

/// An address of this host and one of the peer's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Ends {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

impl Ends {
    pub(crate) const fn new(local: IpAddr, remote: IpAddr) -> Ends {
        Ends { local, remote }
    }

    pub(crate) const fn of(route: &Route) -> Ends {
        Ends::new(route.local, route.remote)
    }
}

/// A shared association whose handshake is under way.
#[derive(Clone, Copy)]
struct Opening {
    ends: Ends,
    side: Side,
}

/// All shared associations.
pub(crate) struct SharedAssociations {
    all: BTreeMap<AssociationId, SharedAssociation>,
    /// Shared associations whose handshake is under way.
    opening: BTreeMap<AssociationId, Opening>,
    /// The shared associations on which connections between two addresses may be requested.
    by_ends: BTreeMap<Ends, BTreeSet<AssociationId>>,
    refused: BTreeMap<IpAddr, Time>,
    /// Shared associations that may have messages to take.
    readable: BTreeSet<AssociationId>,
    windows: ChannelWindows,
    /// Time of the last look for waiting bytes.
    kept_at: Time,
}

impl SharedAssociations {
    /// Creates an empty set; `memory` is the limit for all associations.
    pub(crate) fn new(memory: usize) -> SharedAssociations {
        SharedAssociations {
            all: BTreeMap::new(),
            opening: BTreeMap::new(),
            by_ends: BTreeMap::new(),
            refused: BTreeMap::new(),
            readable: BTreeSet::new(),
            windows: ChannelWindows::new(memory),
            kept_at: Time::ZERO,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len() + self.opening.len()
    }

    pub(crate) fn get_mut(&mut self, association: AssociationId) -> Option<&mut SharedAssociation> {
        self.all.get_mut(&association)
    }

    pub(crate) fn get(&self, association: AssociationId) -> Option<&SharedAssociation> {
        self.all.get(&association)
    }

    /// Returns all shared associations that are up, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (AssociationId, &SharedAssociation)> {
        self.all.iter().filter(|(_, state)| !state.is_closing).map(|(id, state)| (*id, state))
    }

    /// Returns the shared association for a connection between these addresses.
    pub(crate) fn find(&self, local: IpAddr, remote: SocketAddr) -> Option<AssociationId> {
        let between = self.by_ends.get(&Ends::new(local, remote.ip()))?;
        between.iter().copied().find(|id| {
            self.all.get(id).is_some_and(|state| {
                state.mux.is_ready()
                    && !state.is_closing
                    && !state.is_silent
                    && !state.barred.contains(&local)
                    && !state.alone.contains(&remote)
            })
        })
    }

    /// Reports whether our shared association between these addresses exists or is being opened, or the host refused one lately.
    fn is_settled(&self, ends: Ends, now: Time) -> bool {
        let is_ours = |opening: &Opening| opening.side == Side::Initiator && opening.ends == ends;
        self.by_ends.contains_key(&ends)
            || self.opening.values().any(is_ours)
            || self.refused.get(&ends.remote).is_some_and(|until| now < *until)
    }

    /// Reports whether a peer at this address may open one more.
    pub(crate) fn has_room_for(&self, peer: IpAddr) -> bool {
        let opening = self.opening.values().map(|opening| (opening.side, opening.ends.remote));
        let all = opening.chain(self.all.values().map(|state| (state.side, state.handshake.remote)));
        let incoming = || all.clone().filter(|(side, _)| *side == Side::Acceptor);
        let of_peer = incoming().filter(|(_, remote)| host_part(*remote) == host_part(peer)).count();
        has_room(self.len()) && of_peer < INCOMING_PER_PEER_MAX && incoming().count() < INCOMING_MAX
    }

    /// Allows connections to be requested on the shared association between these addresses only.
    fn set_dialled(&mut self, association: AssociationId, dialled: &[Ends]) {
        self.by_ends.retain(|_, shared| {
            shared.remove(&association);
            !shared.is_empty()
        });
        for ends in dialled {
            self.by_ends.entry(*ends).or_default().insert(association);
        }
    }

    /// Records that a shared association was refused, or broke. If this host opened it, it does not ask the peer for another one soon.
    fn on_failed(&mut self, opening: Opening, now: Time) {
        if opening.side == Side::Acceptor {
            return;
        }
        if self.refused.len() >= REFUSED_MAX {
            self.refused.clear();
        }
        self.refused.insert(opening.ends.remote, now + REFUSED_PAUSE);
    }

    /// Counts the bytes that may wait for slow programs.
    fn count_windows(&mut self) {
        self.windows.recount(self.all.values().map(|state| (state.handshake.remote, state.mux.windows())));
    }

    /// Runs a change of the shared association's windows, which may grow only by the spare bytes, and counts them; None if there is no such
    /// shared association.
    pub(crate) fn with_windows<R>(
        &mut self,
        association: AssociationId,
        work: impl FnOnce(&mut SharedAssociation) -> R,
    ) -> Option<R> {
        let state = self.all.get_mut(&association)?;
        let (remote, before) = (state.handshake.remote, state.mux.windows());
        state.mux.set_spare(self.windows.spare(remote));
        let result = work(state);
        self.windows.count(remote, before, state.mux.windows());
        Some(result)
    }

    /// Removes a shared association that has ended.
    fn remove(&mut self, association: AssociationId) {
        if let Some(state) = self.all.remove(&association) {
            self.windows.count(state.handshake.remote, state.mux.windows(), 0);
        }
    }

    /// Reports whether the shared association's host has been granted so much that it gets no further connection on a shared association.
    pub(crate) fn has_granted_all(&self, association: AssociationId) -> bool {
        self.all.get(&association).is_some_and(|state| self.windows.is_full(state.handshake.remote))
    }
}

impl SharedAssociation {
    /// Takes received messages, up to the limit of a turn; reports whether more may be left.
    fn take_messages(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        association: AssociationId,
    ) -> Result<bool, MuxFault> {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(message) = engine.recv(now, association) else { return Ok(false) };
            self.is_silent = false;
            let is_whole = message.begin && message.end && !message.aborted;
            self.mux.on_message(message.stream.0, message.ppid.0, message.pieces, is_whole)?;
        }
        Ok(true)
    }

    /// Returns this host's role.
    pub(crate) const fn role(&self) -> Role {
        match self.side {
            Side::Initiator => Role::Client,
            Side::Acceptor => Role::Server,
        }
    }

    /// Returns the addresses of the handshake.
    pub(crate) const fn handshake(&self) -> Ends {
        self.handshake
    }

    /// Reports whether the peer speaks for this address: it is that of the handshake, or a proven one of a host that has proven
    /// its key.
    pub(crate) fn speaks_for(&self, remote: IpAddr) -> bool {
        let is_proven = self.proven.keys().any(|ends| ends.remote == remote);
        is_proven && (self.is_keyed() || remote == self.handshake.remote)
    }

    /// Returns the encapsulation between these addresses, if each is proven to reach the other.
    pub(crate) fn carrier_between(&self, ends: Ends) -> Option<Carrier> {
        self.proven.get(&ends).copied()
    }

    /// Reports whether the peer may request connections on it: each host dials for itself, unless both have proven a key.
    pub(crate) fn takes_openings(&self) -> bool {
        self.is_keyed() || self.side == Side::Acceptor
    }

    /// Reports whether a peer needs privileges to claim a port below 1024 as the source of a connection on it.
    pub(crate) fn vouches_for_ports(&self) -> bool {
        self.is_keyed() || self.carrier_between(self.handshake) == Some(Carrier::Ip)
    }

    /// Reports whether the peer has proven a key that this host shares with it.
    pub(crate) fn is_keyed(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| auth.required)
    }

    /// Returns the pairs of addresses between which connections may be requested on it.
    fn dialled(&self) -> impl Iterator<Item = Ends> {
        let (is_keyed, is_ours, handshake) = (self.is_keyed(), self.side == Side::Initiator, self.handshake);
        self.proven.keys().copied().filter(move |ends| is_keyed || (is_ours && *ends == handshake))
    }

    /// Reports whether connections to a host with this key may use it: one to another address may need another key, or any.
    pub(crate) fn has_key(&self, auth: &Option<AuthConfig>) -> bool {
        self.auth == *auth
    }

    /// Records that it gave no sign when one was due.
    pub(crate) fn note_silence(&mut self) {
        self.is_silent = true;
    }

    /// Records that the peer does not take connections from this address for ours.
    pub(crate) fn bar(&mut self, local: IpAddr) {
        self.barred.insert(local);
    }

    /// Returns addresses of this host that the peer knows by others: a NAT changes them on the way.
    pub(crate) fn barred(&self) -> impl Iterator<Item = IpAddr> {
        self.barred.iter().copied()
    }

    /// Records that this destination needs its own associations.
    pub(crate) fn leave_alone(&mut self, remote: SocketAddr) {
        if self.alone.len() >= ALONE_MAX {
            self.alone.clear();
        }
        self.alone.insert(remote);
    }

    /// Records that a connection waits for room in the send buffer.
    pub(crate) fn wait(&mut self, id: ConnectionId) {
        self.waiting.insert(id);
    }
}

/// Sends the shared association's pending messages; returns true if all of them went.
pub(crate) fn flush(now: Time, engine: &mut Endpoint, association: AssociationId, mux: &mut Mux) -> bool {
    while let Some((stream, ppid, bytes)) = mux.next_out() {
        let sent = engine.send(now, association, StreamId(stream), Ppid(ppid), bytes, SendOptions::default());
        if sent.is_err() {
            return false;
        }
        mux.on_out_sent();
    }
    true
}

/// Reports whether a handshake to this local port requests a shared association.
pub(crate) fn asks_to_share(local_port: u16, adaptation: Option<u32>) -> bool {
    local_port == SHARED_PORT && adaptation == Some(SHARED_ADAPTATION)
}

/// Reports whether one more may begin.
const fn has_room(shared: usize) -> bool {
    shared < SHARED_MAX
}

impl Shard {
    /// Opens a shared association if one is needed: a connection to a host with sctpify is up, and later ones should share an association.
    pub(crate) fn want_shared(&mut self, local: IpAddr, remote: IpAddr) {
        let settings = self.policy.settings();
        let ends = Ends::new(local, remote);
        let is_settled = self.shared.is_settled(ends, self.now);
        let is_elsewhere = !remote.is_loopback() && !self.policy.addresses().is_own(remote);
        let is_wanted = settings.streams.is_shared() && is_elsewhere && !is_settled;
        if !is_wanted || self.policy.is_ending() || !has_room(self.shared.len()) {
            return;
        }
        let local_port = random_port_of(PORTS);
        let connect = Connect {
            local_port,
            remote_port: SHARED_PORT,
            init_routes: self.policy.init_routes(
                self.now,
                SocketAddr::new(local, local_port),
                remote,
                &settings,
                &self.packet_io,
            ),
            local_addresses: self.policy.offered(self.now, local, remote),
            config: self.policy.shared_config(remote, &settings),
        };
        match self.engine.connect(self.now, connect) {
            Ok(association) => {
                self.shared.opening.insert(association, Opening { ends, side: Side::Initiator });
                self.timers.set(self.now + PATIENCE, Timer::SharedOpening(association));
            }
            Err(error) => tracing::debug!(%error, %remote, "no shared association"),
        }
    }

    /// Handles the request for a shared association from a host with sctpify whose address is now proven. Other checks ran at its INIT; limits
    /// that count only proven addresses are checked now.
    pub(crate) fn on_shared_incoming(&mut self, association: AssociationId, route: &Route) {
        if !self.shared.has_room_for(route.remote) {
            tracing::debug!(peer = %route.remote, "refused: this peer has opened enough associations to be shared");
            return self.engine.refuse(
                self.now,
                association,
                AbortCause::user("enough associations are shared"),
            );
        }
        // The last rule may have gone since the INIT.
        if !self.policy.rules().serves_any() {
            return self.engine.refuse(self.now, association, AbortCause::user("nothing is served"));
        }
        self.shared.opening.insert(association, Opening { ends: Ends::of(route), side: Side::Acceptor });
        self.timers.set(self.now + PATIENCE, Timer::SharedOpening(association));
        let settings = self.policy.settings();
        let advertisement = timing::advertisement(settings.advertisement(), settings.advertise_type);
        self.engine.set_advertisement(self.now, association, advertisement);
        self.engine.accept(self.now, association);
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
            Event::Readable => {
                self.shared.readable.insert(association);
            }
            Event::Writable => self.on_shared_writable(association),
            Event::PeerShutdown => self.close_shared(association),
            Event::PathChanged { .. } | Event::PeerAddressChange(_) | Event::AddressChange { .. } => {
                self.learn_proven(association);
            }
            _ => {}
        }
    }

    fn on_shared_established(&mut self, association: AssociationId, streams: u16) {
        let Some(Opening { ends, side }) = self.shared.opening.remove(&association) else { return };
        let remote = ends.remote;
        if streams < SHARED_STREAMS {
            self.shared.on_failed(Opening { ends, side }, self.now);
            return self.engine.abort(
                self.now,
                association,
                AbortCause::user("too few streams for a shared association"),
            );
        }
        if let Some(left_out) = self.history.admit(Line::Shared, self.now) {
            tracing::info!(%remote, ?side, left_out, "connections may share an association");
        }
        self.history.count(Occurrence::SharedAssociation);
        let timing = timing::timing(relay::Peer::Shim, self.shared.len());
        self.engine.set_timing(self.now, association, timing);
        let packets = timing::initial_packets(relay::Peer::Shim);
        self.engine.set_initial_packets(self.now, association, packets);
        self.engine.set_scheduler(self.now, association, timing::SHARED_SCHEDULER);
        let state = SharedAssociation {
            mux: Mux::new(side),
            number: self.connections.reserve(),
            began: self.now,
            owners: BTreeMap::new(),
            handshake: ends,
            proven: BTreeMap::new(),
            barred: BTreeSet::new(),
            alone: BTreeSet::new(),
            waiting: BTreeSet::new(),
            idle_since: self.now,
            is_watched: false,
            is_silent: false,
            // The rules may have come to require a key, or another one, since it began.
            auth: self
                .policy
                .rules()
                .auth_for(remote)
                .filter(|auth| !auth.required || self.engine.is_keyed_by(association, auth)),
            side,
            is_closing: false,
        };
        self.shared.all.insert(association, state);
        self.shared.readable.insert(association);
        self.learn_proven(association);
        self.note_idle(association);
        self.flush_shared(association);
    }

    /// Takes over addresses that a heartbeat or the handshake has proven since.
    fn learn_proven(&mut self, association: AssociationId) {
        let Some(info) = self.engine.info(association) else { return };
        let Some(state) = self.shared.all.get_mut(&association) else { return };
        let proven = info.paths.iter().filter(|path| path.state != PathState::Unconfirmed);
        state.proven = proven.map(|path| (Ends::of(&path.route), path.route.carrier)).collect();
        state.barred.clear();
        state.is_silent = false;
        let dialled: Vec<Ends> = state.dialled().collect();
        self.shared.set_dialled(association, &dialled);
    }

    /// Gives up the handshake of a shared association that takes too long.
    pub(crate) fn on_shared_opening_late(&mut self, association: AssociationId) {
        if let Some(opening) = self.shared.opening.remove(&association) {
            self.shared.on_failed(opening, self.now);
            self.engine.abort(self.now, association, AbortCause::default());
        }
    }

    /// Takes messages from the shared associations; reports whether more may be left.
    pub(crate) fn serve_all_shared(&mut self) -> bool {
        if self.shared.readable.is_empty() {
            return false;
        }
        self.shared.count_windows();
        for association in std::mem::take(&mut self.shared.readable) {
            self.serve_shared(association);
        }
        !self.shared.readable.is_empty()
    }

    fn serve_shared(&mut self, association: AssociationId) {
        let (now, engine) = (self.now, &mut self.engine);
        match self.shared.with_windows(association, |state| state.take_messages(now, engine, association)) {
            None => return,
            Some(Err(fault)) => return self.give_shared_up(association, &fault),
            Some(Ok(false)) => {}
            Some(Ok(true)) => drop(self.shared.readable.insert(association)),
        }
        self.take_channel_events(association);
    }

    /// Gives up a shared association whose peer has sent something that this version never sends.
    fn give_shared_up(&mut self, association: AssociationId, fault: &MuxFault) {
        let Some(state) = self.shared.get(association) else { return };
        let opening = Opening { ends: state.handshake, side: state.side };
        if let Some(left_out) = self.history.admit(Line::Fault, self.now) {
            tracing::warn!(peer = %opening.ends.remote, %fault, left_out, "an association to be shared is given up");
        }
        self.shared.on_failed(opening, self.now);
        self.take_channel_events(association);
        self.engine.abort(self.now, association, AbortCause::user(fault.to_string()));
    }

    fn take_channel_events(&mut self, association: AssociationId) {
        while let Some((channel, event)) =
            self.shared.all.get_mut(&association).and_then(|state| state.mux.poll_event())
        {
            self.on_channel_event(association, channel, event);
        }
        self.flush_shared(association);
    }

    /// Grows windows after programs took data, and sends the shared associations' pending messages.
    pub(crate) fn flush_all_shared(&mut self) {
        let is_due = |state: &SharedAssociation| state.mux.has_stopped() || state.mux.has_out();
        let due = self.shared.all.iter().filter(|(_, state)| is_due(state)).map(|(id, _)| *id);
        for association in due.collect::<Vec<_>>() {
            self.shared.with_windows(association, |state| state.mux.widen_windows());
            self.flush_shared(association);
        }
    }

    /// Copies bytes that have waited for programs since the last look. For younger bytes, holding their packets costs less than a
    /// copy.
    pub(crate) fn keep_what_waits(&mut self) {
        if self.now < self.shared.kept_at + KEEP_AFTER {
            return;
        }
        self.shared.kept_at = self.now;
        let mut owners = Vec::new();
        for state in self.shared.all.values_mut() {
            let kept = state.mux.keep_what_waits();
            owners.extend(kept.iter().filter_map(|channel| state.owners.get(channel)));
        }
        owners.into_iter().for_each(|id| self.keep_unwritten(id));
    }

    pub(crate) fn flush_shared(&mut self, association: AssociationId) {
        if let Some(state) = self.shared.all.get_mut(&association) {
            // The rest goes when there is room.
            flush(self.now, &mut self.engine, association, &mut state.mux);
            self.engine.set_user_memory(association, state.mux.memory());
        }
    }

    fn on_shared_writable(&mut self, association: AssociationId) {
        self.flush_shared(association);
        if let Some(state) = self.shared.all.get_mut(&association) {
            self.ready.append(&mut state.waiting);
        }
    }

    /// Releases the channel of a connection that has ended.
    pub(crate) fn release_channel(&mut self, association: AssociationId, channel: ChannelId) {
        let released = self.shared.with_windows(association, |state| {
            state.mux.release(channel);
            if let Some(owner) = state.owners.remove(&channel) {
                state.waiting.remove(&owner);
            }
        });
        if released.is_none() {
            return;
        }
        self.flush_shared(association);
        self.note_idle(association);
    }

    /// Starts the idle timer of a shared association that carries nothing; forgets the shared association if it has ended.
    fn note_idle(&mut self, association: AssociationId) {
        let Some(state) = self.shared.all.get_mut(&association).filter(|s| s.owners.is_empty()) else {
            return;
        };
        state.idle_since = self.now;
        if self.engine.state(association).is_none_or(|state| state == StateName::Closed) {
            self.shared.remove(association);
        } else if state.side == Side::Initiator && !std::mem::replace(&mut state.is_watched, true) {
            let pause = idle_limit(&self.policy.settings()).min(IDLE_LOOK);
            self.timers.set(self.now + pause, Timer::SharedIdle(association));
        }
    }

    /// Ends a shared association that has been idle for long enough.
    pub(crate) fn on_shared_idle(&mut self, association: AssociationId) {
        let limit = idle_limit(&self.policy.settings());
        let Some(state) = self.shared.all.get_mut(&association) else { return };
        state.is_watched = false;
        if !state.owners.is_empty() || state.is_closing {
            return;
        }
        let end = state.idle_since + limit;
        if self.now < end {
            state.is_watched = true;
            return self.timers.set(end.min(self.now + IDLE_LOOK), Timer::SharedIdle(association));
        }
        self.engine.shutdown(self.now, association);
        self.close_shared(association);
    }

    /// Closes a shared association to new connections; those that wait for the peer's answer get their own associations.
    fn close_shared(&mut self, association: AssociationId) {
        let Some(state) = self.shared.all.get_mut(&association) else { return };
        state.is_closing = true;
        let owners: Vec<ConnectionId> = state.owners.values().copied().collect();
        self.shared.set_dialled(association, &[]);
        for id in owners {
            self.leave_shared(id);
        }
    }

    /// Handles the end of the association: programs still get the data received, then see a reset.
    fn on_shared_closed(&mut self, association: AssociationId) {
        if let Some(opening) = self.shared.opening.remove(&association) {
            self.shared.on_failed(opening, self.now);
        }
        while self.shared.all.contains_key(&association) {
            self.serve_shared(association);
            if !self.shared.readable.remove(&association) {
                break;
            }
        }
        self.close_shared(association);
        let Some(state) = self.shared.all.get(&association) else { return };
        if let Some(left_out) = self.history.admit(Line::Shared, self.now) {
            tracing::info!(
                connections = state.owners.len(),
                left_out,
                "an association that was shared is over"
            );
        }
        for id in state.owners.values().copied().collect::<Vec<_>>() {
            self.on_association_closed(id, Closed::Lost);
        }
        self.note_idle(association);
    }

    /// Ends all shared associations because the daemon stops.
    pub(crate) fn abort_all_shared(&mut self) {
        let all: Vec<AssociationId> =
            self.shared.all.keys().chain(self.shared.opening.keys()).copied().collect();
        for association in all {
            self.engine.abort(self.now, association, AbortCause::user("the daemon stops"));
        }
    }
}

fn idle_limit(settings: &Settings) -> Duration {
    Duration::from_secs(u64::from(settings.shared_idle_s))
}

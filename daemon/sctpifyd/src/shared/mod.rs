//! Manages shared associations. A shared association carries many connections between this host and another host that runs
//! sctpify.
//!
//! The first connection to a host has a separate association, which shows that sctpify runs on that host. The daemon then opens
//! a shared association in the background. Later connections are channels of the shared association ([`crate::driver`]). A
//! shared association outlives its connections. After `shared_idle_s` seconds without connections, the host that opened the
//! association shuts it down. If a shared association is lost, every connection on it is reset.
//!
//! Each host opens shared associations only for the connections of its own programs. Begin at [`SharedAssociations::want`].

mod association;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use base::{Route, Time};
use relay::mux::{ChannelEvent, ChannelId, MuxFault, SHARED_STREAMS, Side};
use relay::{Peer, SHARED_ADAPTATION};
use rules::Settings;
use sctp::{AbortCause, AssociationId, AuthConfig, Endpoint, StateName};

pub(crate) use self::association::{Ends, SharedAssociation, flush};
use crate::addresses::host_part;
use crate::by_host::ByHost;
use crate::carriers::PacketIo;
use crate::channel_windows::ChannelWindows;
use crate::connection::{ConnectionId, Connections};
use crate::policy::Policy;
use crate::probes::random_port_of;
use crate::timers::{Timer, Timers};
use crate::timing;

/// SCTP port of shared associations at the accepting end. A program may also listen on this port number: the Adaptation Layer
/// Indication distinguishes a shared association from a connection to the program.
pub(crate) const SHARED_PORT: u16 = 9899;
/// SCTP ports of shared associations at the opening end. The range is large because a port should be hard to guess. A program's
/// connection may have the same local port if its remote port is not [`SHARED_PORT`].
const PORTS: RangeInclusive<u16> = 10_000..=65_535;
/// Limit on concurrent shared associations.
const SHARED_MAX: usize = 1024;
/// Limit on shared associations that peers open. The remaining places are reserved for shared associations that this host
/// opens.
const INCOMING_MAX: usize = SHARED_MAX / 4 * 3;
/// Limit on shared associations that one peer opens. The peer may open a separate one from each of its addresses, and restarts
/// may overlap.
const INCOMING_PER_PEER_MAX: usize = 4;
/// Time limit for the handshake of a shared association. No connection waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time after a refusal in which this host does not ask the peer for a shared association again.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);
/// Pause after an attempt in which the peer accepted the association, but no keys were agreed. This pause is shorter than
/// [`REFUSED_PAUSE`], because other hosts' handshakes may have filled the peer's limits for a moment.
const KEYLESS_PAUSE: Duration = Duration::from_secs(10);
/// Limit on the remembered refusals. At the limit, all of them are forgotten.
const REFUSED_MAX: usize = 4096;
/// Maximum interval between checks of an idle shared association. The checks are repeated because `shared_idle_s` may change.
const IDLE_LOOK: Duration = Duration::from_secs(5);
/// Interval at which waiting bytes are copied out of their packets. Waiting bytes therefore hold their packets in memory for up
/// to twice this interval. This memory is limited to the packets that arrive within that time. Programs that read in bulk fall
/// behind for milliseconds only. If bytes were copied at such moments, the copies would cost 2 % of the throughput.
const KEEP_AFTER: Duration = Duration::from_millis(50);

/// A shared association whose handshake is in progress.
#[derive(Clone, Copy)]
struct Opening {
    ends: Ends,
    side: Side,
}

/// All shared associations.
pub(crate) struct SharedAssociations {
    all: BTreeMap<AssociationId, SharedAssociation>,
    /// Associations whose handshake is in progress.
    opening: BTreeMap<AssociationId, Opening>,
    /// Associations in `opening` that peers opened. Their peers have proven only their addresses, so the limits of [`ByHost`]
    /// apply.
    incoming: ByHost,
    /// Associations on which this host may request connections, by the two addresses of the connections.
    by_ends: BTreeMap<Ends, BTreeSet<AssociationId>>,
    refused: BTreeMap<IpAddr, Time>,
    /// Associations that may have messages to take.
    readable: BTreeSet<AssociationId>,
    windows: ChannelWindows,
    /// Time of the last check for waiting bytes.
    kept_at: Time,
}

impl SharedAssociations {
    /// Creates an empty set. `memory` is the limit on the memory of all associations, in bytes.
    pub(crate) fn new(memory: usize) -> SharedAssociations {
        SharedAssociations {
            all: BTreeMap::new(),
            opening: BTreeMap::new(),
            incoming: ByHost::default(),
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
        self.all.iter().filter(|(_, state)| !state.is_closing()).map(|(id, state)| (*id, state))
    }

    /// Returns the shared association for a connection between these addresses.
    pub(crate) fn find(&self, local: IpAddr, remote: SocketAddr) -> Option<AssociationId> {
        let between = self.by_ends.get(&Ends::new(local, remote.ip()))?;
        between.iter().copied().find(|id| self.all.get(id).is_some_and(|state| state.takes(local, remote)))
    }

    /// Reports whether this host need not open a shared association between these addresses: one exists or is being opened, or
    /// the peer refused one recently.
    fn is_settled(&self, ends: Ends, now: Time) -> bool {
        let is_ours = |opening: &Opening| opening.side == Side::Initiator && opening.ends == ends;
        self.by_ends.contains_key(&ends)
            || self.opening.values().any(is_ours)
            || self.refused.get(&ends.remote).is_some_and(|until| now < *until)
    }

    /// Reports whether a peer at this address may open one more shared association. Handshakes in progress have a separate
    /// limit ([`Self::make_room_for`]).
    pub(crate) fn has_room_for(&self, peer: IpAddr) -> bool {
        let incoming = || self.all.values().filter(|state| state.side() == Side::Acceptor);
        let of_peer =
            incoming().filter(|state| host_part(state.handshake().remote) == host_part(peer)).count();
        self.has_room() && of_peer < INCOMING_PER_PEER_MAX && incoming().count() < INCOMING_MAX
    }

    /// Reports whether the limit allows one more shared association. The limit counts established associations and handshakes
    /// that this host began.
    fn has_room(&self) -> bool {
        let ours = self.opening.len() - self.incoming.len();
        self.all.len() + ours < SHARED_MAX
    }

    /// If a limit is reached, removes and returns a handshake in progress, which makes room for another handshake of this peer.
    fn make_room_for(&mut self, peer: IpAddr) -> Option<AssociationId> {
        let oldest = self.incoming.giving_way(peer)?;
        self.take_opening(oldest).map(|_| oldest)
    }

    fn add_opening(&mut self, association: AssociationId, opening: Opening) {
        if opening.side == Side::Acceptor {
            self.incoming.insert(association, opening.ends.remote);
        }
        self.opening.insert(association, opening);
    }

    /// Removes and returns a handshake in progress.
    fn take_opening(&mut self, association: AssociationId) -> Option<Opening> {
        self.incoming.remove(association);
        self.opening.remove(&association)
    }

    /// Replaces the pairs of addresses between which this host may request connections on a shared association. `former` are
    /// the old pairs, and `dialled` are the new ones.
    fn set_dialled(&mut self, association: AssociationId, former: &[Ends], dialled: &[Ends]) {
        for ends in former.iter().filter(|ends| !dialled.contains(ends)) {
            if let Entry::Occupied(mut shared) = self.by_ends.entry(*ends) {
                shared.get_mut().remove(&association);
                if shared.get().is_empty() {
                    shared.remove();
                }
            }
        }
        for ends in dialled {
            self.by_ends.entry(*ends).or_default().insert(association);
        }
    }

    /// Records that a shared association was refused or failed. If this host opened the association, it does not ask the peer
    /// for another one until `pause` has passed.
    fn on_failed(&mut self, opening: Opening, now: Time, pause: Duration) {
        if opening.side == Side::Acceptor {
            return;
        }
        if self.refused.len() >= REFUSED_MAX {
            self.refused.clear();
        }
        self.refused.insert(opening.ends.remote, now + pause);
    }

    /// Runs `work`, which may change a shared association's windows, and counts the change. The windows may grow only by the
    /// bytes that the limits leave spare. Returns `None` if the shared association does not exist.
    pub(crate) fn with_windows<R>(
        &mut self,
        association: AssociationId,
        work: impl FnOnce(&mut SharedAssociation) -> R,
    ) -> Option<R> {
        let state = self.all.get_mut(&association)?;
        let (remote, before) = (state.handshake().remote, state.windows());
        state.mux().set_spare(self.windows.spare(remote));
        let result = work(state);
        self.windows.count(remote, before, state.windows());
        Some(result)
    }

    /// Removes a shared association that has ended.
    fn remove(&mut self, association: AssociationId) {
        if let Some(state) = self.all.remove(&association) {
            self.windows.count(state.handshake().remote, state.windows(), 0);
        }
    }

    /// Opens a shared association for later connections, if the settings allow it and none exists. Returns the new association.
    /// The caller already has a connection between the addresses `ends`, and the peer's host runs sctpify.
    pub(crate) fn want(
        &mut self,
        now: Time,
        ends: Ends,
        engine: &mut Endpoint,
        policy: &Policy,
        packet_io: &PacketIo,
        timers: &mut Timers<Timer>,
    ) -> Option<AssociationId> {
        let Ends { local, remote } = ends;
        let settings = policy.settings();
        let is_elsewhere = !remote.is_loopback() && !policy.addresses().is_own(remote);
        let is_wanted = settings.streams.is_shared() && is_elsewhere && !self.is_settled(ends, now);
        if !is_wanted || policy.is_ending() || !self.has_room() {
            return None;
        }
        let from = SocketAddr::new(local, random_port_of(PORTS));
        let between = (from, SocketAddr::new(remote, SHARED_PORT));
        let connect = policy.connect(now, between, &settings, packet_io, timing::shared_config);
        match engine.connect(now, connect) {
            Ok(association) => {
                self.add_opening(association, Opening { ends, side: Side::Initiator });
                timers.set(now + PATIENCE, Timer::SharedOpening(association));
                Some(association)
            }
            Err(error) => {
                tracing::debug!(%error, %remote, "no shared association");
                None
            }
        }
    }

    /// Handles the request for a shared association from a host that runs sctpify. Because the host's address is now confirmed,
    /// the limits that count only confirmed addresses are checked here. All other checks ran at the INIT.
    pub(crate) fn on_incoming(
        &mut self,
        now: Time,
        association: AssociationId,
        route: &Route,
        engine: &mut Endpoint,
        policy: &Policy,
        timers: &mut Timers<Timer>,
    ) {
        if !self.has_room_for(route.remote) {
            return refuse_at_limit(now, association, route.remote, engine);
        }
        // The last rule that allows connections may have been removed since the INIT.
        if !policy.rules().serves_any() {
            return engine.refuse(now, association, AbortCause::user("nothing is served"));
        }
        if let Some(oldest) = self.make_room_for(route.remote) {
            engine.abort(now, oldest, AbortCause::user("too many handshakes under way"));
        }
        self.add_opening(association, Opening { ends: Ends::of(route), side: Side::Acceptor });
        timers.set(now + PATIENCE, Timer::SharedOpening(association));
        let settings = policy.settings();
        let advertisement = timing::advertisement(settings.advertisement(), settings.advertise_type);
        engine.set_advertisement(now, association, advertisement);
        engine.accept(now, association);
    }

    /// Handles an established association with `streams` streams in each direction. If the association is a shared one, returns
    /// the peer's address and this host's side. `lacks_key` is true if the association is sealed without the hosts' shared key.
    pub(crate) fn on_established(
        &mut self,
        now: Time,
        association: AssociationId,
        (streams, lacks_key): (u16, bool),
        engine: &mut Endpoint,
        policy: &Policy,
        connections: &mut Connections,
    ) -> Option<(IpAddr, Side)> {
        let opening = self.take_opening(association)?;
        let Opening { ends, side } = opening;
        if streams < SHARED_STREAMS {
            self.on_failed(opening, now, REFUSED_PAUSE);
            let cause = AbortCause::user("too few streams for a shared association");
            engine.abort(now, association, cause);
            return None;
        }
        if side == Side::Acceptor && !self.has_room_for(ends.remote) {
            refuse_at_limit(now, association, ends.remote, engine);
            return None;
        }
        engine.set_timing(now, association, timing::timing(Peer::Shim, self.len()));
        engine.set_initial_packets(now, association, timing::initial_packets(Peer::Shim));
        engine.set_scheduler(now, association, timing::SHARED_SCHEDULER);
        // Since the start of the handshake, the rules may have begun to require a key, or a different key.
        let auth = policy.rules().auth_for(ends.remote);
        let is_proven = |auth: &AuthConfig| !lacks_key && engine.is_keyed_by(association, auth);
        let auth = auth.filter(|auth| !auth.required || is_proven(auth));
        let state = SharedAssociation::new(now, connections.reserve(), ends, side, auth);
        self.all.insert(association, state);
        self.readable.insert(association);
        self.learn_proven(association, engine);
        Some((ends.remote, side))
    }

    /// Updates the addresses that a heartbeat or the handshake has confirmed.
    pub(crate) fn learn_proven(&mut self, association: AssociationId, engine: &Endpoint) {
        let Some(info) = engine.info(association) else { return };
        let Some(state) = self.all.get_mut(&association) else { return };
        let former: Vec<Ends> = state.dialled().collect();
        state.learn_proven(&info.paths);
        let dialled: Vec<Ends> = state.dialled().collect();
        self.set_dialled(association, &former, &dialled);
    }

    /// Ends a shared association whose handshake takes too long. `awaits_keys` is true if only its keys are missing.
    pub(crate) fn on_opening_late(
        &mut self,
        now: Time,
        association: AssociationId,
        awaits_keys: bool,
        engine: &mut Endpoint,
    ) {
        if let Some(opening) = self.take_opening(association) {
            self.on_failed(opening, now, pause_after(awaits_keys));
            engine.abort(now, association, AbortCause::default());
        }
    }

    /// Notes that messages may wait on a shared association.
    pub(crate) fn on_readable(&mut self, association: AssociationId) {
        self.readable.insert(association);
    }

    /// Reports whether messages may wait on any shared association.
    pub(crate) fn has_readable(&self) -> bool {
        !self.readable.is_empty()
    }

    /// Begins to serve the shared associations. Removes and returns those that may have messages.
    pub(crate) fn take_readable(&mut self) -> BTreeSet<AssociationId> {
        self.windows.recount(self.all.values().map(|state| (state.handshake().remote, state.windows())));
        std::mem::take(&mut self.readable)
    }

    /// Takes messages from a shared association. Returns false if the association does not exist.
    ///
    /// # Errors
    /// Fails if the peer has sent a message that this version of the protocol never sends.
    pub(crate) fn take_messages(
        &mut self,
        now: Time,
        association: AssociationId,
        engine: &mut Endpoint,
    ) -> Result<bool, MuxFault> {
        match self.with_windows(association, |state| state.take_messages(now, engine, association)) {
            None => return Ok(false),
            Some(Err(fault)) => return Err(fault),
            Some(Ok(false)) => {}
            Some(Ok(true)) => drop(self.readable.insert(association)),
        }
        Ok(true)
    }

    /// Records that the peer of a shared association has violated the protocol. Returns the peer's address.
    pub(crate) fn on_fault(&mut self, now: Time, association: AssociationId) -> Option<IpAddr> {
        let state = self.all.get(&association)?;
        let opening = Opening { ends: state.handshake(), side: state.side() };
        self.on_failed(opening, now, REFUSED_PAUSE);
        Some(opening.ends.remote)
    }

    /// Returns the next event of a channel.
    pub(crate) fn poll_event(&mut self, association: AssociationId) -> Option<(ChannelId, ChannelEvent)> {
        self.all.get_mut(&association)?.mux().poll_event()
    }

    /// Grows windows after programs have read data. Then sends all pending messages of shared associations.
    pub(crate) fn flush_all(&mut self, now: Time, engine: &mut Endpoint) {
        let due = self.all.iter().filter(|(_, state)| state.is_due()).map(|(id, _)| *id);
        for association in due.collect::<Vec<_>>() {
            self.with_windows(association, |state| state.mux().widen_windows());
            self.flush(now, association, engine);
        }
    }

    /// Sends the pending messages of a shared association.
    pub(crate) fn flush(&mut self, now: Time, association: AssociationId, engine: &mut Endpoint) {
        if let Some(state) = self.all.get_mut(&association) {
            // Messages that have no room in the send buffer stay pending.
            flush(now, engine, association, state.mux());
            engine.set_user_memory(association, state.mux().memory());
        }
    }

    /// Copies bytes out of their packets if they have waited for programs since the last check. Returns the connections whose
    /// bytes were copied. Bytes that arrived after the last check stay in their packets, because this costs less than a copy.
    pub(crate) fn keep_what_waits(&mut self, now: Time) -> Vec<ConnectionId> {
        if now < self.kept_at + KEEP_AFTER {
            return Vec::new();
        }
        self.kept_at = now;
        self.all.values_mut().flat_map(|state| state.keep_what_waits()).collect()
    }

    /// Sends the pending messages of a shared association whose send buffer has room again. Returns the connections that waited
    /// for room.
    pub(crate) fn on_writable(
        &mut self,
        now: Time,
        association: AssociationId,
        engine: &mut Endpoint,
    ) -> BTreeSet<ConnectionId> {
        self.flush(now, association, engine);
        self.all.get_mut(&association).map(SharedAssociation::take_waiting).unwrap_or_default()
    }

    /// Releases the channel of a connection that has ended.
    pub(crate) fn release(
        &mut self,
        now: Time,
        (association, channel): (AssociationId, ChannelId),
        engine: &mut Endpoint,
        policy: &Policy,
        timers: &mut Timers<Timer>,
    ) {
        if self.with_windows(association, |state| state.release(channel)).is_some() {
            self.flush(now, association, engine);
            self.note_idle(now, association, engine, policy, timers);
        }
    }

    /// Starts the idle timer of a shared association that has no connections. If the association has ended, removes it.
    pub(crate) fn note_idle(
        &mut self,
        now: Time,
        association: AssociationId,
        engine: &Endpoint,
        policy: &Policy,
        timers: &mut Timers<Timer>,
    ) {
        let Some(state) = self.all.get_mut(&association).filter(|state| state.owners().len() == 0) else {
            return;
        };
        if engine.state(association).is_none_or(|state| state == StateName::Closed) {
            self.remove(association);
        } else if state.begin_idling(now) {
            let pause = idle_limit(&policy.settings()).min(IDLE_LOOK);
            timers.set(now + pause, Timer::SharedIdle(association));
        }
    }

    /// Handles the idle timer of a shared association. If the association has been idle for `shared_idle_s`, shuts it down and
    /// returns true.
    pub(crate) fn on_idle(
        &mut self,
        now: Time,
        association: AssociationId,
        engine: &mut Endpoint,
        policy: &Policy,
        timers: &mut Timers<Timer>,
    ) -> bool {
        let limit = idle_limit(&policy.settings());
        let Some(state) = self.all.get_mut(&association) else { return false };
        let Some(end) = state.end_of_idling(limit) else { return false };
        if now < end {
            state.watch();
            timers.set(end.min(now + IDLE_LOOK), Timer::SharedIdle(association));
            return false;
        }
        engine.shutdown(now, association);
        true
    }

    /// Closes a shared association to new connections. Returns the connections that it carries.
    pub(crate) fn close(&mut self, association: AssociationId) -> Vec<ConnectionId> {
        let Some(state) = self.all.get_mut(&association) else { return Vec::new() };
        state.close();
        let (owners, former): (Vec<_>, Vec<_>) = (state.owners().collect(), state.dialled().collect());
        self.set_dialled(association, &former, &[]);
        owners
    }

    /// Handles the end of a shared association during its handshake. `awaits_keys` is true if only the association's keys were
    /// missing.
    pub(crate) fn on_closed(&mut self, now: Time, association: AssociationId, awaits_keys: bool) {
        if let Some(opening) = self.take_opening(association) {
            self.on_failed(opening, now, pause_after(awaits_keys));
        }
    }

    /// Removes an association from the set of those that may have messages. Reports whether it was in the set.
    pub(crate) fn was_readable(&mut self, association: AssociationId) -> bool {
        self.readable.remove(&association)
    }

    /// Ends all shared associations because the daemon stops.
    pub(crate) fn abort_all(&self, now: Time, engine: &mut Endpoint) {
        for association in self.all.keys().chain(self.opening.keys()) {
            engine.abort(now, *association, AbortCause::user("the daemon stops"));
        }
    }

    /// Reports whether the windows granted to the peer's host leave no room for a further connection on this shared
    /// association.
    pub(crate) fn has_granted_all(&self, association: AssociationId) -> bool {
        self.all.get(&association).is_some_and(|state| self.windows.is_full(state.handshake().remote))
    }
}

/// Reports whether a handshake to this local port requests a shared association.
pub(crate) fn asks_to_share(local_port: u16, adaptation: Option<u32>) -> bool {
    local_port == SHARED_PORT && adaptation == Some(SHARED_ADAPTATION)
}

fn refuse_at_limit(now: Time, association: AssociationId, peer: IpAddr, engine: &mut Endpoint) {
    tracing::debug!(%peer, "refused: this peer has reached its limit of shared associations");
    engine.abort(now, association, AbortCause::user("limit of shared associations reached"));
}

fn idle_limit(settings: &Settings) -> Duration {
    Duration::from_secs(u64::from(settings.shared_idle_s))
}

/// Returns the pause after a failed handshake. `awaits_keys` is true if only the association's keys were missing.
fn pause_after(awaits_keys: bool) -> Duration {
    if awaits_keys { KEYLESS_PAUSE } else { REFUSED_PAUSE }
}

#[cfg(test)]
mod tests {
    use base::Carrier;
    use sctp::{AssociationConfig, Connect, EndpointConfig};

    use super::*;
    use crate::by_host::HOST_MAX;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const ENDS: Ends = Ends::new(HERE, THERE);

    fn associations(count: u16) -> Vec<AssociationId> {
        let mut engine = Endpoint::new(Time::ZERO, EndpointConfig::default(), [0; 32]);
        let mut connect = |local_port| {
            let route = Route { local: HERE, remote: THERE, carrier: Carrier::Ip };
            let connect = Connect {
                local_port,
                remote_port: SHARED_PORT,
                init_routes: vec![route],
                local_addresses: vec![HERE],
                config: AssociationConfig::default(),
            };
            engine.connect(Time::ZERO, connect).expect("room")
        };
        (1..=count).map(|n| connect(10_000 + n)).collect()
    }

    fn up(shared: &mut SharedAssociations, association: AssociationId, side: Side) {
        let state = SharedAssociation::new(Time::ZERO, ConnectionId(1), ENDS, side, None);
        shared.all.insert(association, state);
    }

    #[test]
    fn no_further_association_is_opened_between_two_addresses_until_the_last_closes() {
        let [first, second] = associations(2)[..] else { panic!("two") };
        let mut shared = SharedAssociations::new(1 << 30);
        let others = Ends::new(HERE, [10, 0, 1, 2].into());
        shared.set_dialled(first, &[], &[ENDS, others]);
        shared.set_dialled(second, &[], &[ENDS]);
        shared.set_dialled(first, &[ENDS, others], &[others]);
        assert!(shared.is_settled(ENDS, Time::ZERO) && shared.is_settled(others, Time::ZERO));
        shared.set_dialled(second, &[ENDS], &[]);
        assert!(!shared.is_settled(ENDS, Time::ZERO) && shared.is_settled(others, Time::ZERO));
    }

    #[test]
    fn a_refusing_host_is_retried_after_10_min_and_a_host_without_keys_after_10_s() {
        let mut shared = SharedAssociations::new(1 << 30);
        let association = associations(1)[0];
        let mut end = |side, awaits_keys| {
            shared.add_opening(association, Opening { ends: ENDS, side });
            shared.on_closed(Time::ZERO, association, awaits_keys);
            [9_999, 10_000, 599_999, 600_000].map(|ms| shared.is_settled(ENDS, Time::from_millis(ms)))
        };
        assert_eq!(end(Side::Acceptor, false), [false; 4]);
        assert_eq!(end(Side::Initiator, true), [true, false, false, false]);
        assert_eq!(end(Side::Initiator, false), [true, true, true, false]);
    }

    #[test]
    fn a_peer_may_open_four_besides_those_that_this_host_opens() {
        let all = associations(6);
        let mut shared = SharedAssociations::new(1 << 30);
        up(&mut shared, all[0], Side::Initiator);
        all[1..4].iter().for_each(|id| up(&mut shared, *id, Side::Acceptor));
        shared.add_opening(all[4], Opening { ends: ENDS, side: Side::Acceptor });
        assert!(shared.has_room_for(THERE));
        up(&mut shared, all[5], Side::Acceptor);
        assert!(!shared.has_room_for(THERE) && shared.has_room_for([10, 0, 0, 3].into()));
    }

    #[test]
    fn the_oldest_handshake_of_a_peer_gives_way_to_its_next() {
        let last = HOST_MAX + 1;
        let all = associations(u16::try_from(last).unwrap());
        let mut shared = SharedAssociations::new(1 << 30);
        shared.add_opening(all[0], Opening { ends: ENDS, side: Side::Initiator });
        for id in &all[1..last] {
            assert!(shared.make_room_for(THERE).is_none() && shared.has_room());
            shared.add_opening(*id, Opening { ends: ENDS, side: Side::Acceptor });
        }
        assert_eq!(shared.make_room_for([10, 0, 0, 3].into()), None);
        assert_eq!(shared.make_room_for(THERE), Some(all[1]));
        assert_eq!(shared.make_room_for(THERE), None);
    }

    #[test]
    fn only_the_initiator_sets_an_idle_timer_and_only_one() {
        let new = |side| SharedAssociation::new(Time::ZERO, ConnectionId(1), ENDS, side, None);
        let (mut ours, mut theirs) = (new(Side::Initiator), new(Side::Acceptor));
        let limit = Duration::from_secs(60);
        assert!(ours.begin_idling(Time::from_millis(5)) && !ours.begin_idling(Time::from_millis(6)));
        assert_eq!(ours.end_of_idling(limit), Some(Time::from_millis(60_006)));
        assert!(ours.begin_idling(Time::from_millis(7)));
        ours.close();
        assert_eq!(ours.end_of_idling(limit), None);
        assert!(!theirs.begin_idling(Time::from_millis(5)));
    }
}

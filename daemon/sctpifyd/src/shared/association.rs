//! Holds the state of one shared association: its channels, its confirmed addresses, and the connections that it accepts.
//!
//! A confirmed address does not prove the identity of the host at this address. A peer may list the address of a host with
//! which the peer has another association. With equal ports and tags, that host answers heartbeats in good faith. Without a
//! shared key, therefore, only the two addresses of the handshake identify the hosts. This host then requests connections
//! only on an association that it opened, and only between the two addresses of that association's handshake. It admits
//! connections only from the peer's address of the handshake. Other addresses are only paths for data. If the peer has
//! proven a shared key, all confirmed addresses identify the peer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{Carrier, Route, Time};
use control::Role;
use relay::mux::{ChannelId, Mux, MuxFault, Side};
use sctp::{AssociationId, AuthConfig, Endpoint, PathInfo, Ppid, SendOptions, StreamId};

use crate::connection::ConnectionId;

/// Limit on the messages taken from one shared association in one turn.
const MESSAGES_PER_TURN: usize = 1024;
/// Limit on the remembered destinations that need separate associations. At the limit, all of them are forgotten.
const ALONE_MAX: usize = 1024;

/// One shared association.
pub(crate) struct SharedAssociation {
    mux: Mux,
    /// The association's number in the daemon's reports.
    number: ConnectionId,
    began: Time,
    /// The owner of each channel.
    owners: BTreeMap<ChannelId, ConnectionId>,
    /// The addresses of the handshake.
    handshake: Ends,
    /// Confirmed pairs of a local and a remote address, each with the carrier of packets between the two. The handshake or a
    /// heartbeat confirms a pair.
    proven: BTreeMap<Ends, Carrier>,
    /// Local addresses from which the peer does not accept this host's connections.
    barred: BTreeSet<IpAddr>,
    /// Destinations whose connections need separate associations.
    alone: BTreeSet<SocketAddr>,
    /// Connections that wait for room in the send buffer.
    waiting: BTreeSet<ConnectionId>,
    /// Time since which the association has had no connections.
    idle_since: Time,
    /// A timer for the idle time is set.
    is_watched: bool,
    /// Authentication of the association's packets; set if the hosts share a key.
    auth: Option<AuthConfig>,
    /// The peer did not answer a request in time. New connections do not use the association until a message arrives or an
    /// address is confirmed.
    is_silent: bool,
    side: Side,
    /// The association carries no new connections, because it is ending or has ended.
    is_closing: bool,
}

/// An address of this host and an address of the peer.
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

impl SharedAssociation {
    /// Creates the state of an association whose handshake has ended.
    pub(super) fn new(
        now: Time,
        number: ConnectionId,
        handshake: Ends,
        side: Side,
        auth: Option<AuthConfig>,
    ) -> SharedAssociation {
        SharedAssociation {
            mux: Mux::new(side),
            number,
            began: now,
            owners: BTreeMap::new(),
            handshake,
            proven: BTreeMap::new(),
            barred: BTreeSet::new(),
            alone: BTreeSet::new(),
            waiting: BTreeSet::new(),
            idle_since: now,
            is_watched: false,
            auth,
            is_silent: false,
            side,
            is_closing: false,
        }
    }

    /// Takes up to [`MESSAGES_PER_TURN`] received messages. Reports whether more may be left.
    pub(super) fn take_messages(
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

    /// Returns the multiplexer of the channels. Connections send and receive their bytes through it.
    pub(crate) const fn mux(&mut self) -> &mut Mux {
        &mut self.mux
    }

    /// Returns the number of bytes that a channel may send now.
    pub(crate) fn send_room(&self, channel: ChannelId) -> usize {
        self.mux.send_room(channel)
    }

    /// Reports whether windows of channels may need to grow, or messages of channels wait to be sent.
    pub(super) fn is_due(&self) -> bool {
        self.mux.has_stopped() || self.mux.has_out()
    }

    /// Returns the sum of the channels' receive windows, in bytes: the limit on bytes that wait for slow programs.
    pub(super) fn windows(&self) -> usize {
        self.mux.windows()
    }

    /// Makes a connection the owner of a channel.
    pub(crate) fn adopt(&mut self, channel: ChannelId, owner: ConnectionId) {
        self.owners.insert(channel, owner);
    }

    /// Returns the connection that a channel carries.
    pub(crate) fn owner_of(&self, channel: ChannelId) -> Option<ConnectionId> {
        self.owners.get(&channel).copied()
    }

    /// Returns the connections that this association carries.
    pub(crate) fn owners(&self) -> impl ExactSizeIterator<Item = ConnectionId> {
        self.owners.values().copied()
    }

    /// Releases the channel of a connection that has ended.
    pub(super) fn release(&mut self, channel: ChannelId) {
        self.mux.release(channel);
        if let Some(owner) = self.owners.remove(&channel) {
            self.waiting.remove(&owner);
        }
    }

    /// Copies bytes that already waited for programs at the last call, and still wait. The copy releases the memory of their
    /// packets. Returns the connections whose bytes were copied.
    pub(super) fn keep_what_waits(&mut self) -> impl Iterator<Item = ConnectionId> {
        let kept = self.mux.keep_what_waits();
        kept.into_iter().filter_map(|channel| self.owners.get(&channel).copied())
    }

    /// Removes and returns the connections that wait for room in the send buffer.
    pub(super) fn take_waiting(&mut self) -> BTreeSet<ConnectionId> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns the association's number in the daemon's reports.
    pub(crate) const fn number(&self) -> ConnectionId {
        self.number
    }

    pub(crate) const fn began(&self) -> Time {
        self.began
    }

    pub(super) const fn side(&self) -> Side {
        self.side
    }

    /// Reports whether a connection from `local` to `remote` may be requested on this association.
    pub(super) fn takes(&self, local: IpAddr, remote: SocketAddr) -> bool {
        self.mux.is_ready()
            && !self.is_closing
            && !self.is_silent
            && !self.barred.contains(&local)
            && !self.alone.contains(&remote)
    }

    /// Updates the confirmed addresses from `paths`. Also forgets that the peer refused local addresses, and that it was
    /// silent.
    pub(super) fn learn_proven(&mut self, paths: &[PathInfo]) {
        let proven = paths.iter().filter(|path| path.confirmed);
        self.proven = proven.map(|path| (Ends::of(&path.route), path.route.carrier)).collect();
        self.barred.clear();
        self.is_silent = false;
    }

    /// Reports whether the association carries no new connections, because it is ending or has ended.
    pub(super) const fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Makes the association refuse new connections from now on.
    pub(super) const fn close(&mut self) {
        self.is_closing = true;
    }

    /// Records that the association has been idle since `now`. Returns true if the caller must set a timer for the idle time.
    pub(super) const fn begin_idling(&mut self, now: Time) -> bool {
        self.idle_since = now;
        matches!(self.side, Side::Initiator) && !std::mem::replace(&mut self.is_watched, true)
    }

    /// Handles the timer for the idle time. Returns the end of the idle time if the association has no connections and is not
    /// closing.
    pub(super) fn end_of_idling(&mut self, limit: Duration) -> Option<Time> {
        self.is_watched = false;
        (self.owners.is_empty() && !self.is_closing).then_some(self.idle_since + limit)
    }

    /// Records that the caller has set the timer for the idle time again.
    pub(super) const fn watch(&mut self) {
        self.is_watched = true;
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

    /// Reports whether this address identifies the peer. The address must be confirmed. It must also be the peer's address of
    /// the handshake, or the peer must have proven its key.
    pub(crate) fn speaks_for(&self, remote: IpAddr) -> bool {
        let is_proven = self.proven.keys().any(|ends| ends.remote == remote);
        is_proven && (self.is_keyed() || remote == self.handshake.remote)
    }

    /// Returns the carrier between these addresses, if the path between them is confirmed.
    pub(crate) fn carrier_between(&self, ends: Ends) -> Option<Carrier> {
        self.proven.get(&ends).copied()
    }

    /// Reports whether the peer may request connections on this association. Without a proven key, only the host that opened
    /// the association may request them.
    pub(crate) fn takes_openings(&self) -> bool {
        self.is_keyed() || self.side == Side::Acceptor
    }

    /// Reports whether the peer accepts source ports below 1024 from this host on this association. The peer accepts these
    /// ports only if packets use IP protocol 132 (not UDP), or if the hosts have a shared key.
    pub(crate) fn vouches_for_ports(&self) -> bool {
        self.is_keyed() || self.carrier_between(self.handshake) == Some(Carrier::Ip)
    }

    /// Reports whether the peer has proven a key that this host shares with it.
    pub(crate) fn is_keyed(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| auth.required)
    }

    /// Returns the pairs of addresses between which this host may request connections on the association.
    pub(super) fn dialled(&self) -> impl Iterator<Item = Ends> {
        let (is_keyed, is_ours, handshake) = (self.is_keyed(), self.side == Side::Initiator, self.handshake);
        self.proven.keys().copied().filter(move |ends| is_keyed || (is_ours && *ends == handshake))
    }

    /// Reports whether connections whose peer address needs this key may use the association. Another address of the same peer
    /// may need another key, or no key.
    pub(crate) fn has_key(&self, auth: &Option<AuthConfig>) -> bool {
        self.auth == *auth
    }

    /// Records that the peer did not answer in time.
    pub(crate) fn note_silence(&mut self) {
        self.is_silent = true;
    }

    /// Records that the peer refuses connections from this local address, because it does not recognise the address as this
    /// host's.
    pub(crate) fn bar(&mut self, local: IpAddr) {
        self.barred.insert(local);
    }

    /// Returns local addresses that the peer has refused. A NAT on the path translates them, so the peer sees other addresses.
    pub(crate) fn barred(&self) -> impl Iterator<Item = IpAddr> {
        self.barred.iter().copied()
    }

    /// Records that connections to this destination need separate associations.
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

/// Sends the shared association's pending messages. Returns true if all of them were sent.
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

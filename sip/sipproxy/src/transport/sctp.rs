//! SIP over SCTP (RFC 4168): each SIP message is one SCTP message. An association serves both directions and persists.
//!
//! Outgoing associations also use the listener's port, so two proxies share one association for both directions. Messages of a dialog share
//! a stream and keep their order, without head-of-line blocking by other dialogs. With `order = "none"`, all messages are sent unordered on
//! stream 0. Invariant: there are no more associations than the key `limits.connections` permits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{Route, Time};
use bytes::Bytes;
use mio::Registry;
use rules::Multipath;
use sctp::{
    AbortCause, AssociationConfig, AssociationId, CloseReason, Connect, Event, Message, PathState, Ppid,
    SendError, SendOptions, StateName, StreamId,
};
use sip::proxy::{LostRequest, Outgoing};
use sip::{Hop, Transport};

use super::sctp_addresses::AddressIndex;
use super::sctp_host::{SctpHost, association_config, init_route};
use super::sctp_keys::Keys;
use super::{Bounds, Inbox, ListenerIndex, Plugin, Seen};
use crate::config::{SctpConfig, SctpOrder};

/// Limit on the time that messages wait for the end of their association's shutdown. Afterwards they fail, so that requests go to their
/// next target in time.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// A listener with its associations.
pub(crate) struct Sctp {
    index: ListenerIndex,
    address: SocketAddr,
    local_addresses: Vec<IpAddr>,
    config: SctpConfig,
    bounds: Bounds,
    host: SctpHost,
    /// Key management; `None` without encryption.
    keys: Option<Keys>,
    refusals: Refusals,
    associations: BTreeMap<usize, Association>,
    numbers: BTreeMap<AssociationId, usize>,
    by_address: AddressIndex,
    next_number: usize,
    /// The associations whose messages wait for the end of a shutdown, each with the end of the wait.
    waits: BTreeSet<(Time, usize)>,
    /// True from [`Plugin::begin_close`] on. No association begins any more.
    is_closing: bool,
}

struct Association {
    id: AssociationId,
    peer: SocketAddr,
    /// True if this program began the association.
    is_own: bool,
    /// Number of outgoing streams; 0 until the association is established.
    streams: u16,
    unsent: VecDeque<Outgoing>,
    unsent_bytes: usize,
    /// The message that is bundled with the COOKIE ECHO, until the association is established.
    first: Option<Outgoing>,
    /// Addresses under which [`Sctp::by_address`] has the association.
    addresses: Vec<SocketAddr>,
    /// The [`Outgoing::on_failure`] values of the requests that were sent within [`Bounds::answer`], with the times of sending.
    asked: VecDeque<(Time, u64)>,
    /// End of the wait in [`Sctp::waits`], if messages wait.
    waits_until: Option<Time>,
}

/// Log of refused associations.
#[derive(Debug, Default)]
struct Refusals(u64);

impl Refusals {
    /// Logs a refusal if its number is a power of two, because refusals may be very many.
    fn log(&mut self, peer: IpAddr, reason: &str) {
        self.0 += 1;
        if self.0.is_power_of_two() {
            tracing::warn!(%peer, so_far = self.0, "an association was refused: {reason}");
        }
    }
}

impl Association {
    /// Appends a message to the queue of unsent messages.
    fn push(&mut self, message: Outgoing) {
        self.unsent_bytes += message.bytes.len();
        self.unsent.push_back(message);
    }

    /// Notes a message that the engine has accepted. Forgets requests whose response is later than `limit`.
    fn note_sent(&mut self, now: Time, message: &Outgoing, limit: Duration) {
        while self.asked.front().is_some_and(|(sent, _)| *sent + limit <= now) {
            self.asked.pop_front();
        }
        self.asked.extend(message.on_failure.map(|on_failure| (now, on_failure)));
    }
}

impl Sctp {
    /// Opens the sockets of the listener.
    ///
    /// # Errors
    /// If privileges are missing, or the UDP port is in use.
    pub(crate) fn open(
        index: ListenerIndex,
        address: SocketAddr,
        config: &SctpConfig,
        bounds: Bounds,
        keys: Option<Keys>,
        registry: &Registry,
    ) -> io::Result<Sctp> {
        let mut local_addresses = vec![address.ip()];
        local_addresses.extend(config.addresses.iter().filter(|other| **other != address.ip()));
        let first = index.token(0);
        let offer = keys.as_ref().map(Keys::offer);
        let host = SctpHost::open(config, address.port(), local_addresses.clone(), registry, first, offer)?;
        Ok(Sctp {
            index,
            address,
            local_addresses,
            config: config.clone(),
            bounds,
            host,
            keys,
            refusals: Refusals::default(),
            associations: BTreeMap::new(),
            numbers: BTreeMap::new(),
            by_address: AddressIndex::default(),
            next_number: 1,
            waits: BTreeSet::new(),
            is_closing: false,
        })
    }

    fn add(&mut self, id: AssociationId, peer: SocketAddr, is_own: bool) -> &mut Association {
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(id, number);
        self.by_address.add(peer, number);
        let association = Association {
            id,
            peer,
            is_own,
            streams: 0,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            first: None,
            addresses: vec![peer],
            asked: VecDeque::new(),
            waits_until: None,
        };
        self.associations.entry(number).or_insert(association)
    }

    /// Makes the proven addresses of the peer lead to its association. The address of a known peer leads only to an association whose peer
    /// has proven the key of this address.
    fn lead(&mut self, now: Time, id: AssociationId) {
        let Some(&number) = self.numbers.get(&id) else { return };
        let Some(port) = self.associations.get(&number).map(|association| association.peer.port()) else {
            return;
        };
        let paths = self.host.engine.info(id).map(|info| info.paths).unwrap_or_default();
        for path in paths.iter().filter(|path| path.confirmed) {
            self.weigh_path(now, id, &path.route);
            let address = SocketAddr::new(path.route.remote, port);
            self.lead_address(address, number);
        }
    }

    /// Makes an address lead to an association, if [`Sctp::may_lead`] permits it.
    fn lead_address(&mut self, address: SocketAddr, number: usize) {
        if self.may_lead(address, number) && self.by_address.add(address, number) {
            let association = self.associations.get_mut(&number);
            association.into_iter().for_each(|association| association.addresses.push(address));
        }
    }

    /// Reports whether messages for an address may use the association with this number.
    fn may_lead(&self, address: SocketAddr, number: usize) -> bool {
        let Some(association) = self.associations.get(&number) else { return false };
        self.keys.as_ref().is_none_or(|keys| keys.may_lead(address.ip(), association.id))
    }

    /// Makes room for another association with this host. At the limit, the oldest association gives way whose unknown peer has begun it and
    /// has not proven a key yet. If there is none, a known peer takes the place of the oldest association with an unknown peer. Returns
    /// false if no association gives way.
    fn make_room(&mut self, now: Time, peer: IpAddr, inbox: &mut Inbox) -> bool {
        if self.associations.len() < self.bounds.connections {
            return true;
        }
        let Some(keys) = &self.keys else { return false };
        let is_unknown = |association: &&Association| !keys.knows(association.peer.ip());
        let is_unproven = |association: &&Association| {
            let id = association.id;
            !association.is_own && self.host.engine.protection(id).is_some() && !keys.has_proven(id)
        };
        let mut unknown = self.associations.values().filter(is_unknown);
        let oldest =
            unknown.clone().find(is_unproven).or_else(|| unknown.next().filter(|_| keys.knows(peer)));
        let Some(oldest) = oldest.map(|association| association.id) else { return false };
        let cause = AbortCause::user("too many associations");
        self.host.engine.abort(now, oldest, cause.clone());
        self.on_closed(now, oldest, &CloseReason::Aborted(cause), inbox);
        true
    }

    /// Begins an association with a message. Without encryption, the message is bundled with the COOKIE ECHO, as RFC 9260 section 5.1
    /// allows, and so arrives a round trip earlier than a message that waits for the end of the handshake. With encryption, the message
    /// waits for the keys. If no association is possible, the message fails.
    fn connect(&mut self, now: Time, message: Outgoing, inbox: &mut Inbox) {
        let peer = message.hop.address;
        let same_family = |local: &&IpAddr| local.is_ipv4() == peer.is_ipv4();
        let local = self.local_addresses.iter().find(same_family).copied();
        let Some(local) = local.filter(|_| !self.is_closing && self.make_room(now, peer.ip(), inbox)) else {
            return inbox.failures.extend(message.on_failure);
        };
        let protection = self.keys.as_ref().map(|keys| keys.offer_to(peer.ip()));
        let connect = Connect {
            local_port: self.address.port(),
            remote_port: peer.port(),
            init_routes: vec![init_route(&self.config, local, peer.ip())],
            local_addresses: self.local_addresses.clone(),
            config: AssociationConfig { protection, ..association_config(&self.config) },
        };
        let engine = &mut self.host.engine;
        let begun = match &mut self.keys {
            None => engine.connect_and_send(now, connect, Ppid(0), message.bytes.clone()),
            Some(keys) => engine.connect(now, connect).inspect(|id| keys.begin(now, *id, engine)),
        };
        let Ok(id) = begun else { return inbox.failures.extend(message.on_failure) };
        let waits = self.keys.is_some();
        let association = self.add(id, peer, true);
        match waits {
            true => association.push(message),
            false => association.first = Some(message),
        }
    }

    /// Returns the association that `hop` names. If that association no longer exists, returns one that leads to the address of `hop`,
    /// preferably an established one. For the address of a known peer, returns only an association whose peer has proven the key of this
    /// address, or the association with this very address whose peer is about to prove the key.
    fn association_for(&self, hop: &Hop) -> Option<usize> {
        let address = hop.address;
        let own = hop.connection.and_then(|connection| self.index.number_of(connection));
        let own = own.filter(|number| self.associations.contains_key(number));
        let led = self.by_address.of(address).iter().copied();
        let Some(keys) = self.keys.as_ref().filter(|keys| keys.knows(address.ip())) else {
            return own.or_else(|| led.max_by_key(|number| self.is_established(*number)));
        };
        let has_proven = |number: &usize| self.may_lead(address, *number);
        let by_key = || {
            let is_of_port = |association: &Association| association.peer.port() == address.port();
            let mut all = self.associations.iter().filter(|(_, association)| is_of_port(association));
            all.find(|(_, association)| keys.may_lead(address.ip(), association.id))
                .map(|(number, _)| *number)
        };
        let proven = own.into_iter().chain(led.clone()).find(has_proven);
        let is_judged = |number: &usize| self.associations.get(number).is_some_and(|a| a.peer == address);
        proven.or_else(by_key).or_else(|| led.clone().find(is_judged))
    }

    fn is_established(&self, number: usize) -> bool {
        self.associations.get(&number).is_some_and(|association| association.streams > 0)
    }

    /// Passes waiting messages to the engine, until it accepts no more. A message to the address of a known peer fails if the association's
    /// peer has proven another key, or cannot prove any. If the association shuts down, its messages wait for its end, up to
    /// [`SHUTDOWN_WAIT`], because only then a new association with this peer can begin.
    fn flush(&mut self, now: Time, number: usize, inbox: &mut Inbox) {
        let Some(association) = self.associations.get_mut(&number).filter(|a| a.streams > 0) else { return };
        while let Some(message) = association.unsent.front() {
            let is_final = |keys: &Keys| {
                keys.has_proven(association.id) || self.host.engine.protection(association.id).is_none()
            };
            let is_refused =
                |keys: &Keys| !keys.may_lead(message.hop.address.ip(), association.id) && is_final(keys);
            if self.keys.as_ref().is_some_and(is_refused) {
                association.unsent_bytes -= message.bytes.len();
                let message = association.unsent.pop_front();
                inbox.failures.extend(message.and_then(|message| message.on_failure));
                continue;
            }
            let (stream, options) = stream_of(message, self.config.order, association.streams);
            let sent =
                self.host.engine.send(now, association.id, stream, Ppid(0), message.bytes.clone(), options);
            if sent == Err(SendError::WouldBlock) {
                self.host.engine.notify_when_writable(now, association.id);
                return;
            }
            if sent == Err(SendError::Closed) && !self.is_closing {
                let until = *association.waits_until.get_or_insert(now + SHUTDOWN_WAIT);
                if now < until {
                    self.waits.insert((until, number));
                    return;
                }
            }
            association.unsent_bytes -= message.bytes.len();
            let Some(message) = association.unsent.pop_front() else { return };
            match sent {
                Ok(()) => {
                    association.waits_until = None;
                    association.note_sent(now, &message, self.bounds.answer);
                }
                Err(_) => inbox.failures.extend(message.on_failure),
            }
        }
    }

    fn handle_events(&mut self, now: Time, inbox: &mut Inbox) {
        while let Some((id, event)) = self.host.engine.poll_event() {
            self.follow_keys(now, id, &event);
            match event {
                Event::Incoming { route, remote_port, .. } => {
                    self.on_incoming(now, id, (&route, remote_port), inbox);
                }
                Event::Established { route, outbound_streams, .. } => {
                    self.on_established(now, id, &route, outbound_streams, inbox);
                }
                Event::Readable => self.read(now, id, inbox),
                Event::Writable => {
                    if let Some(&number) = self.numbers.get(&id) {
                        self.flush(now, number, inbox);
                    }
                }
                Event::PathChanged { to: PathState::Active, .. } => self.lead(now, id),
                Event::Protected { .. } => self.on_protected(now, id, inbox),
                Event::PathSwitched { from, to, reason } => {
                    tracing::info!(?from, ?to, ?reason, "SCTP path switched");
                }
                // The peer shuts down. This side also shuts down, once its data is sent.
                Event::PeerShutdown => {}
                Event::Closed(reason) => self.on_closed(now, id, &reason, inbox),
                // The other events need no action here, or belong to features that are not used. The key management has handled the
                // events about keys.
                Event::KeyMessage { .. }
                | Event::KeysWorn
                | Event::PathChanged { .. }
                | Event::PathMtu { .. }
                | Event::PeerPort { .. }
                | Event::AddressChange { .. }
                | Event::PeerAddressChange(_)
                | Event::StreamReset { .. }
                | Event::AssociationReset { .. }
                | Event::StreamsChanged { .. }
                | Event::PeerSendBuffer(_)
                | Event::Abandoned { .. }
                | Event::Dry => {}
            }
        }
    }

    fn on_incoming(
        &mut self,
        now: Time,
        id: AssociationId,
        (route, remote_port): (&Route, u16),
        inbox: &mut Inbox,
    ) {
        if self.lacks_keys(id, route.remote) {
            self.refusals.log(route.remote, "a known peer offers no encryption");
            self.host.engine.refuse(now, id, AbortCause::user("encryption is required"));
            return;
        }
        if self.is_closing {
            self.host.engine.refuse(now, id, AbortCause::user("the proxy stops"));
            return;
        }
        if !self.make_room(now, route.remote, inbox) {
            self.refusals.log(route.remote, "limits.connections is reached");
            self.host.engine.refuse(now, id, AbortCause::user("too many associations"));
            return;
        }
        self.add(id, SocketAddr::new(route.remote, remote_port), false);
        self.host.engine.accept(now, id);
    }

    /// Reports whether an association with this host must be encrypted, but is not.
    fn lacks_keys(&self, id: AssociationId, peer: IpAddr) -> bool {
        self.host.engine.protection(id).is_none()
            && self.keys.as_ref().is_some_and(|keys| keys.must_protect(peer))
    }

    /// Passes an event to the key management.
    fn follow_keys(&mut self, now: Time, id: AssociationId, event: &Event) {
        let Some(keys) = &mut self.keys else { return };
        let number = self.numbers.get(&id);
        if let Some(association) = number.and_then(|number| self.associations.get(number)) {
            let (peer, is_own) = (association.peer.ip(), association.is_own);
            if matches!(event, Event::KeyMessage { .. }) && !is_own && !keys.admits(now, peer) {
                self.refusals.log(peer, "too many key handshakes");
                return self.host.engine.abort(now, id, AbortCause::user("too many key handshakes"));
            }
            if let Some(reason) = keys.on_event(now, id, peer, event, &mut self.host.engine) {
                self.refusals.log(peer, &reason);
            }
        }
    }

    /// Handles the end of a key handshake with an accepted peer.
    fn on_protected(&mut self, now: Time, id: AssociationId, inbox: &mut Inbox) {
        let Some(&number) = self.numbers.get(&id) else { return };
        self.lead(now, id);
        self.flush(now, number, inbox);
        self.read(now, id, inbox);
    }

    /// Sets the weight of a path, if the configuration weights the paths.
    fn weigh_path(&mut self, now: Time, id: AssociationId, route: &Route) {
        if self.config.multipath == Multipath::Weighted {
            let weight = self.config.multipath_weights.of(route.local, route.remote);
            // An error is ignored: an association that has just ended needs no weight.
            let _ = self.host.engine.set_path_weight(now, id, route.local, route.remote, weight);
        }
    }

    /// Handles the end of a handshake.
    fn on_established(
        &mut self,
        now: Time,
        id: AssociationId,
        route: &Route,
        streams: u16,
        inbox: &mut Inbox,
    ) {
        let Some(&number) = self.numbers.get(&id) else { return };
        let Some(association) = self.associations.get_mut(&number) else { return };
        association.streams = streams;
        if let Some(first) = association.first.take() {
            association.waits_until = None;
            association.note_sent(now, &first, self.bounds.answer);
        }
        let peer = association.peer;
        // `on_incoming` and the offer of `connect` exclude this case.
        if self.lacks_keys(id, peer.ip()) {
            return self.host.engine.abort(now, id, AbortCause::user("encryption is required"));
        }
        tracing::info!(%peer, ?route, streams, "association up");
        self.lead(now, id);
        self.flush(now, number, inbox);
    }

    fn read(&mut self, now: Time, id: AssociationId, inbox: &mut Inbox) {
        let Some(&number) = self.numbers.get(&id) else { return };
        let Some(association) = self.associations.get(&number) else { return };
        let hop = Hop {
            listener: self.index.0,
            transport: Transport::Sctp,
            address: association.peer,
            connection: Some(self.index.connection(number)),
        };
        while let Some(message) = self.host.engine.recv(now, id) {
            // A fragment is dropped. Its message exceeds the receive buffer of 1 MiB, which is also the highest limit on SIP messages.
            if message.begin && message.end {
                inbox.messages.push((hop, copy_of(message)));
            }
        }
    }

    fn on_closed(&mut self, now: Time, id: AssociationId, reason: &CloseReason, inbox: &mut Inbox) {
        self.read(now, id, inbox);
        self.host.engine.release(now, id);
        if let Some(keys) = &mut self.keys {
            keys.forget(now, id);
        }
        let Some(number) = self.numbers.remove(&id) else { return };
        let Some(association) = self.associations.remove(&number) else { return };
        for address in &association.addresses {
            self.by_address.remove(*address, number);
        }
        if let Some(until) = association.waits_until {
            self.waits.remove(&(until, number));
        }
        tracing::info!(peer = %association.peer, ?reason, "association over");
        inbox.ended = Some(words_for(reason));
        let may_resend = matches!(reason, CloseReason::PeerAborted(_) | CloseReason::Restarted);
        // After an orderly end, the peer sends its responses over a new association (RFC 3261 section 18.2.2).
        if *reason != CloseReason::Graceful {
            let asked = association.asked.iter();
            inbox
                .lost
                .extend(asked.map(|(_, on_failure)| LostRequest { on_failure: *on_failure, may_resend }));
        }
        // The host at the address of the attempt has itself named the other association.
        if let CloseReason::SamePeer(other) = reason
            && let Some(&other) = self.numbers.get(other)
        {
            self.lead_address(association.peer, other);
        }
        let was_up = association.streams > 0;
        let is_orderly = was_up && *reason == CloseReason::Graceful;
        for message in association.first.into_iter().chain(association.unsent) {
            match (self.other_association(&message.hop, reason), message.on_failure) {
                (Some(number), _) => self.send_over(now, number, message, inbox),
                // The peer has shut the association down, and may accept another one. A message that must use an association of the
                // peer's fails.
                (None, _) if is_orderly && (association.is_own || message.hop.connection.is_none()) => {
                    let new = self.next_number;
                    self.connect(now, message, inbox);
                    // The wait goes on if the peer shuts the new association down before a message has left.
                    if let Some(new) = self.associations.get_mut(&new) {
                        new.waits_until = association.waits_until;
                    }
                }
                (None, Some(on_failure)) if was_up && may_resend => {
                    inbox.lost.push(LostRequest { on_failure, may_resend });
                }
                (None, on_failure) => inbox.failures.extend(on_failure),
            }
        }
    }

    /// Returns the association for the messages of an association that has ended for this reason.
    fn other_association(&self, hop: &Hop, reason: &CloseReason) -> Option<usize> {
        // The host at this address has itself named the association.
        let same = match reason {
            CloseReason::SamePeer(other) => self.numbers.get(other).copied(),
            _ => None,
        };
        // If the peer has not proven its key yet, the message waits for the proof.
        let may_wait = |number: &usize| {
            let id = self.associations.get(number).map(|association| association.id);
            let is_unproven = |keys: &Keys| id.is_some_and(|id| !keys.has_proven(id));
            self.may_lead(hop.address, *number)
                || (self.keys.as_ref().is_some_and(is_unproven)
                    && id.is_some_and(|id| self.host.engine.protection(id).is_some()))
        };
        same.filter(may_wait).or_else(|| self.association_for(hop))
    }

    /// Sends a message over the association with this number, at once or when earlier messages have been sent.
    fn send_over(&mut self, now: Time, number: usize, message: Outgoing, inbox: &mut Inbox) {
        let Some(association) = self.associations.get_mut(&number) else { return };
        if inbox.lets_wait(&message, association.unsent_bytes) {
            association.push(message);
            self.flush(now, number, inbox);
        }
    }
}

/// Copies a message out of the engine's buffers, because its SIP transaction may keep the bytes for a long time.
fn copy_of(message: Message) -> Bytes {
    Bytes::from(message.pieces.concat())
}

/// Describes the reason for the end of an association, for people.
fn words_for(reason: &CloseReason) -> &'static str {
    match reason {
        CloseReason::NoAnswer => "no answer",
        CloseReason::PeerAborted(_) => "refused by the peer",
        CloseReason::Aborted(_) => "ended by this side",
        CloseReason::Unreachable(_) => "unreachable, according to ICMP",
        CloseReason::LostContact => "all paths have failed",
        CloseReason::Graceful | CloseReason::Restarted => "ended by the peer",
        CloseReason::SamePeer(_) => "the peer has another association",
    }
}

/// Returns the stream and the order of a message.
fn stream_of(message: &Outgoing, order: SctpOrder, streams: u16) -> (StreamId, SendOptions) {
    match order {
        SctpOrder::Dialog => {
            let stream = message.dialog % u32::from(streams);
            (StreamId(u16::try_from(stream).unwrap_or(0)), SendOptions::default())
        }
        // "a SIP entity SHOULD send every SIP message … over stream zero with the unordered flag set" (RFC 4168 section 5.1).
        SctpOrder::None => (StreamId(0), SendOptions { unordered: true, ..SendOptions::default() }),
    }
}

impl Plugin for Sctp {
    fn handle_ready(&mut self, now: Time, number: usize, inbox: &mut Inbox) {
        self.host.note_ready(number);
        self.host.receive(now);
        self.handle_events(now, inbox);
    }

    fn send(&mut self, now: Time, message: Outgoing, inbox: &mut Inbox) {
        match self.association_for(&message.hop) {
            Some(number) => self.send_over(now, number, message, inbox),
            None => self.connect(now, message, inbox),
        }
    }

    fn finish_turn(&mut self, now: Time, inbox: &mut Inbox) {
        self.host.transmit(now);
        self.handle_events(now, inbox);
    }

    fn begin_close(&mut self, now: Time) {
        self.is_closing = true;
        for association in self.associations.values() {
            self.host.engine.shutdown(now, association.id);
        }
    }

    fn is_closed(&self) -> bool {
        self.associations.is_empty()
    }

    fn handle_timeout(&mut self, now: Time, inbox: &mut Inbox) {
        self.host.receive(now);
        self.host.engine.handle_timeout(now);
        self.handle_events(now, inbox);
        while let Some((_, number)) = self.waits.first().copied().filter(|(until, _)| *until <= now) {
            self.waits.pop_first();
            self.flush(now, number, inbox);
        }
    }

    fn set_answer(&mut self, answer: Duration) {
        self.bounds.answer = answer;
    }

    fn connections(&self) -> usize {
        self.associations.len()
    }

    fn seen(&self, after: usize) -> Box<dyn Iterator<Item = Seen> + '_> {
        let seen = |(&number, association): (&usize, &Association)| {
            let info = self.host.engine.info(association.id);
            let state = info.as_ref().map_or(StateName::Closed, |info| info.state);
            let buffered = info.as_ref().map_or(0, |info| info.send_buffered);
            Seen {
                number,
                peer: association.peer,
                state: state.as_str(),
                waiting_bytes: association.unsent_bytes + buffered,
                peer_key: self.keys.as_ref().and_then(|keys| keys.peer(association.id, &self.host.engine)),
                paths: info.map(|info| info.paths).unwrap_or_default(),
            }
        };
        Box::new(self.associations.range(after + 1..).map(seen))
    }

    fn next_timeout(&self) -> Time {
        let end_of_wait = self.waits.first().map_or(Time::NEVER, |(until, _)| *until);
        self.host.next_timeout().min(end_of_wait)
    }
}

#[cfg(test)]
mod tests;

//! SIP over SCTP (RFC 4168): each SIP message is one SCTP message. An association serves both directions and persists.
//!
//! Outgoing associations also use the listener's port, so two proxies share one association for both directions. Messages of a dialog share
//! a stream and keep their order, without head-of-line blocking by other dialogs. With `order = "none"`, all messages are sent unordered on
//! stream 0. Invariant: there are no more associations than the key `limits.connections` permits.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};

use base::{Route, Time};
use bytes::Bytes;
use mio::Registry;
use rules::Multipath;
use sctp::{
    AbortCause, AssociationId, CloseReason, Connect, Event, Message, PathState, Ppid, SendError, SendOptions,
    StateName, StreamId,
};
use sip::proxy::Outgoing;
use sip::{Hop, Transport};

use super::sctp_host::{SctpHost, association_config, init_route};
use super::{Inbox, ListenerIndex, Plugin, Seen};
use crate::config::{SctpConfig, SctpOrder};

/// A listener with its associations.
pub(crate) struct Sctp {
    index: ListenerIndex,
    address: SocketAddr,
    local_addresses: Vec<IpAddr>,
    config: SctpConfig,
    associations_max: usize,
    host: SctpHost,
    associations: BTreeMap<usize, Association>,
    numbers: BTreeMap<AssociationId, usize>,
    by_address: BTreeMap<SocketAddr, usize>,
    next_number: usize,
}

struct Association {
    id: AssociationId,
    peer: SocketAddr,
    /// Number of outgoing streams; 0 until the association is established.
    streams: u16,
    unsent: VecDeque<Outgoing>,
    unsent_bytes: usize,
    /// The [`Outgoing::on_failure`] value of the message that is bundled with the COOKIE ECHO, until the association is established.
    first: Option<u64>,
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
        associations_max: usize,
        registry: &Registry,
    ) -> io::Result<Sctp> {
        let mut local_addresses = vec![address.ip()];
        local_addresses.extend(config.addresses.iter().filter(|other| **other != address.ip()));
        let first = index.token(0);
        let host = SctpHost::open(config, address.port(), local_addresses.clone(), registry, first)?;
        Ok(Sctp {
            index,
            address,
            local_addresses,
            config: config.clone(),
            associations_max,
            host,
            associations: BTreeMap::new(),
            numbers: BTreeMap::new(),
            by_address: BTreeMap::new(),
            next_number: 1,
        })
    }

    fn add(&mut self, id: AssociationId, peer: SocketAddr) -> usize {
        let number = self.next_number;
        self.next_number += 1;
        let association =
            Association { id, peer, streams: 0, unsent: VecDeque::new(), unsent_bytes: 0, first: None };
        self.associations.insert(number, association);
        self.numbers.insert(id, number);
        self.by_address.entry(peer).or_insert(number);
        number
    }

    /// Begins an association with a message. The message is bundled with the COOKIE ECHO, as RFC 9260 section 5.1 allows, and so arrives a
    /// round trip earlier than a message that waits for the end of the handshake. Returns `None` if no association is possible.
    fn connect(&mut self, now: Time, message: &Outgoing) -> Option<()> {
        let peer = message.hop.address;
        if self.associations.len() >= self.associations_max {
            return None;
        }
        let same_family = |local: &&IpAddr| local.is_ipv4() == peer.is_ipv4();
        let local = *self.local_addresses.iter().find(same_family)?;
        let connect = Connect {
            local_port: self.address.port(),
            remote_port: peer.port(),
            init_routes: vec![init_route(&self.config, local, peer.ip())],
            local_addresses: self.local_addresses.clone(),
            config: association_config(&self.config),
        };
        let id = self.host.engine.connect_and_send(now, connect, Ppid(0), message.bytes.clone()).ok()?;
        let number = self.add(id, peer);
        self.associations.get_mut(&number)?.first = message.on_failure;
        Some(())
    }

    /// Returns the association that `hop` names. If that association no longer exists, returns an association with the address of `hop`.
    fn association_for(&self, hop: &Hop) -> Option<usize> {
        let own = hop.connection.and_then(|connection| self.index.number_of(connection));
        let own = own.filter(|number| self.associations.contains_key(number));
        own.or_else(|| self.by_address.get(&hop.address).copied())
    }

    /// Passes waiting messages to the engine, until it accepts no more.
    fn flush(&mut self, now: Time, number: usize, inbox: &mut Inbox) {
        let Some(association) = self.associations.get_mut(&number).filter(|a| a.streams > 0) else { return };
        while let Some(message) = association.unsent.front() {
            let (stream, options) = stream_of(message, self.config.order, association.streams);
            let sent =
                self.host.engine.send(now, association.id, stream, Ppid(0), message.bytes.clone(), options);
            if sent == Err(SendError::WouldBlock) {
                self.host.engine.notify_when_writable(now, association.id);
                return;
            }
            association.unsent_bytes -= message.bytes.len();
            let message = association.unsent.pop_front();
            if sent.is_err() {
                inbox.failures.extend(message.and_then(|message| message.on_failure));
            }
        }
    }

    fn handle_events(&mut self, now: Time, inbox: &mut Inbox) {
        while let Some((id, event)) = self.host.engine.poll_event() {
            match event {
                Event::Incoming { route, remote_port, .. } => self.on_incoming(now, id, &route, remote_port),
                Event::Established { route, outbound_streams, .. } => {
                    self.on_established(now, id, &route, outbound_streams, inbox);
                }
                Event::Readable => self.read(now, id, inbox),
                Event::Writable => {
                    if let Some(&number) = self.numbers.get(&id) {
                        self.flush(now, number, inbox);
                    }
                }
                Event::PathChanged { to: PathState::Active, route, .. } => self.weigh_path(now, id, &route),
                Event::PathSwitched { from, to, reason } => {
                    tracing::info!(?from, ?to, ?reason, "SCTP path switched");
                }
                // The peer shuts down. This side also shuts down, once its data is sent.
                Event::PeerShutdown => {}
                Event::Closed(reason) => self.on_closed(now, id, &reason, inbox),
                // The other events need no action here, or belong to features that are not used, such as protection.
                Event::KeyMessage { .. }
                | Event::Protected { .. }
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

    fn on_incoming(&mut self, now: Time, id: AssociationId, route: &Route, remote_port: u16) {
        if self.associations.len() >= self.associations_max {
            tracing::warn!(limit = self.associations_max, "an association was refused: limits.connections");
            self.host.engine.refuse(now, id, AbortCause::user("too many associations"));
            return;
        }
        self.add(id, SocketAddr::new(route.remote, remote_port));
        self.host.engine.accept(now, id);
    }

    /// Sets the weight of a path, if the configuration weights the paths.
    fn weigh_path(&mut self, now: Time, id: AssociationId, route: &Route) {
        if self.config.multipath == Multipath::Weighted {
            let weight = self.config.multipath_weights.of(route.local, route.remote);
            // An error is ignored: an association that has just ended needs no weight.
            let _ = self.host.engine.set_path_weight(now, id, route.local, route.remote, weight);
        }
    }

    /// Handles the end of a handshake. All addresses of the peer now lead to this association, except addresses that already lead to
    /// another association.
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
        (association.streams, association.first) = (streams, None);
        let peer = association.peer;
        tracing::info!(%peer, ?route, streams, "association up");
        let paths = self.host.engine.info(id).map(|info| info.paths).unwrap_or_default();
        for path in paths {
            self.weigh_path(now, id, &path.route);
            self.by_address.entry(SocketAddr::new(path.route.remote, peer.port())).or_insert(number);
        }
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
        let Some(number) = self.numbers.remove(&id) else { return };
        self.by_address.retain(|_, known| *known != number);
        let Some(association) = self.associations.remove(&number) else { return };
        tracing::info!(peer = %association.peer, ?reason, "association over");
        inbox.ended = Some(words_for(reason));
        inbox.failures.extend(association.first);
        inbox.failures.extend(association.unsent.iter().filter_map(|message| message.on_failure));
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
        let number = self.association_for(&message.hop);
        let Some((number, association)) = number.and_then(|n| Some((n, self.associations.get_mut(&n)?)))
        else {
            if self.connect(now, &message).is_none() {
                inbox.failures.extend(message.on_failure);
            }
            return;
        };
        if !inbox.lets_wait(&message, association.unsent_bytes) {
            return;
        }
        association.unsent_bytes += message.bytes.len();
        association.unsent.push_back(message);
        self.flush(now, number, inbox);
    }

    fn finish_turn(&mut self, now: Time, inbox: &mut Inbox) {
        self.host.transmit(now);
        self.handle_events(now, inbox);
    }

    fn begin_close(&mut self, now: Time) {
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
                paths: info.map(|info| info.paths).unwrap_or_default(),
            }
        };
        Box::new(self.associations.range(after + 1..).map(seen))
    }

    fn next_timeout(&self) -> Time {
        self.host.next_timeout()
    }
}

//! One turn of the loop, and the events that it dispatches: from the poll, the timers, the engine and shared associations.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use base::{Carrier, Time};
use control::{LinkCap, PathChange, PathEvent};
use keying::{KeyingError, Step};
use mio::{Events, Token};
use relay::mux::{ChannelEvent, ChannelId, MuxFault};
use relay::{ADAPTATION, Closed, Peer};
use sctp::{AbortCause, AddressChange, AssociationId, CloseReason, Event, PathState, TraceRecord};

use super::{ADDRESSES, CARRIERS, CONNECTIONS, Driver, ENGINE_LOG, LISTENERS, QUEUE, WAKER};
use crate::connection::{Connection, ConnectionId, Stage};
use crate::history::{Line, Occurrence};
use crate::interception::LISTENERS_MAX;
use crate::link_bytes::Bytes;
use crate::path_events::EventContext;
use crate::peer_links::PeerId;
use crate::pump::BYTES_PER_TURN;
use crate::report::path_ends;
use crate::rules_store::Draft;
use crate::shared::asks_to_share;
use crate::timers::Timer;
use crate::timing;
use crate::unproven::Incoming;

/// Limit per turn on the held SYNs taken from the kernel's queue, and on the diverted connections taken from each listener.
const SYNS_PER_TURN: usize = 128;
/// Interval between attempts to open a carrier that could not be opened.
const CARRIERS_PAUSE: Duration = Duration::from_secs(2);
/// Greatest usual delay of a turn after its due timer. The engine is informed of a longer delay, which means that other programs occupy the
/// processor.
const LATE: Duration = Duration::from_millis(5);

impl Driver {
    /// Sets the first timers and prepares the interception.
    pub(crate) fn begin(&mut self) {
        self.timers.set(self.now, Timer::Probes);
        self.interception.forget_old_guard(self.policy.rules());
        self.interception.begin_naming(self.now, &mut self.timers);
        self.timers.set(self.now + CARRIERS_PAUSE, Timer::Carriers);
    }

    /// Ends all connections and tears the interception down.
    pub(crate) fn end(mut self) -> Result<()> {
        self.release_all_syns();
        for id in self.connections.ids() {
            self.drop_connection(id);
        }
        for association in self.unproven.take_all() {
            self.engine.abort(self.now, association, AbortCause::user("the daemon stops"));
        }
        self.shared.abort_all(self.now, &mut self.engine);
        self.transmit();
        self.interception.tear_down()
    }

    /// Waits for events until `limit`, or until the next timer if it is due earlier.
    pub(crate) fn wait(&mut self, events: &mut Events, limit: Time, more: bool) -> Result<()> {
        let next = self.engine.next_timeout().min(self.timers.next()).min(limit);
        self.now = self.poller.wait(events, next, more, &self.pump, &mut self.interception)?;
        let late = self.now.since(next);
        if late > LATE {
            self.engine.note_lateness(late);
        }
        Ok(())
    }

    /// Applies a change of rules, settings or keys, in the kernel and in the daemon.
    ///
    /// # Errors
    /// The change is in force in the daemon, but the kernel still follows the old rules. The kernel's update is retried.
    pub(crate) fn put_in_force(&mut self, draft: Draft) -> Result<(), String> {
        // The old rules decided about the connections that the kernel has counted so far.
        let held = self.interception.begin_change(self.policy.rules(), &mut self.history);
        self.policy.rules().install(draft);
        let required = self.interception.follow_change(self.now, self.policy.rules(), &mut self.timers);
        if self.policy.follow_links() {
            self.roaming().follow_policies();
        }
        self.let_go_of_unnamed();
        held.and(required)
    }

    /// Notes the traffic of the links with a cap. If the use of a link changes, applies the change to all associations.
    pub(crate) fn note_caps(&mut self, caps: Vec<LinkCap>) {
        if self.policy.note_caps(caps) {
            self.roaming().follow_policies();
        }
    }

    /// Handles the events of the poll.
    pub(crate) fn take_events(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => {}
                QUEUE => self.interception.on_queue_ready(),
                ADDRESSES => {
                    self.policy.refresh_addresses();
                    self.packet_io.on_interfaces_changed();
                    self.interception.keep_addresses(&self.connections, self.policy.addresses());
                    self.roaming().follow_addresses();
                    self.follow_uplinks();
                    self.interception.forget_gone_uplinks();
                }
                Token(n) if n >= CONNECTIONS => {
                    self.on_stream_event(ConnectionId((n - CONNECTIONS) as u64), event)
                }
                Token(n) if n >= LISTENERS.0 => self.interception.on_listener_ready(n - LISTENERS.0),
                Token(n) => self.packet_io.on_ready(n - CARRIERS.0),
            }
        }
    }

    fn on_stream_event(&mut self, id: ConnectionId, event: &mio::event::Event) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(flowing) = connection.flowing() {
            flowing.on_event(event);
            return self.pump.mark(id);
        }
        match connection.stage() {
            Stage::Connecting(_) if event.is_writable() || event.is_error() => self.on_local_connected(id),
            Stage::Accepting(_) if event.is_error() => self.drop_connection(id),
            _ => {}
        }
    }

    /// Runs one turn. Reports whether more work is ready now.
    pub(crate) fn turn(&mut self) -> Result<bool> {
        self.take_syns()?;
        self.take_arrivals();
        let mut more = self.take_packets() | self.interception.has_more();
        self.take_engine_events();
        if std::mem::take(&mut self.has_switched) {
            self.follow_uplinks();
        }
        self.engine.handle_timeout(self.now);
        self.fire_timers();
        self.take_engine_events();
        more |= self.serve_all_shared();
        if std::mem::take(&mut self.is_urgent) {
            self.transmit();
        }
        self.pump_all();
        for id in self.shared.keep_what_waits(self.now) {
            if let Some(flowing) = self.connections.get_mut(id).and_then(Connection::flowing) {
                flowing.keep_unwritten();
            }
        }
        self.shared.flush_all(self.now, &mut self.engine);
        self.take_engine_events();
        more |= self.transmit();
        self.tell_path_events();
        self.log_trace();
        Ok(more)
    }

    fn take_syns(&mut self) -> Result<()> {
        for _ in 0..SYNS_PER_TURN {
            let Some(syn) = self.interception.next_syn()? else { break };
            self.on_syn(syn);
        }
        Ok(())
    }

    fn take_arrivals(&mut self) {
        for place in 0..LISTENERS_MAX {
            for _ in 0..SYNS_PER_TURN {
                let Some(arrival) = self.interception.next_arrival(place) else { break };
                self.on_arrival(arrival);
            }
        }
    }

    /// Receives packets. Reports whether more packets may wait.
    fn take_packets(&mut self) -> bool {
        let (now, mut has_received) = (self.now, false);
        let (packet_io, engine, mut accept_policy) = self.receivers();
        let more = packet_io.receive(now, |route, ecn, packet| {
            has_received = true;
            engine.handle_datagram(now, route, ecn, packet, &mut accept_policy)
        });
        packet_io.report_errors(now, engine);
        if has_received {
            // INIT ACKs are handled before their COOKIE ECHO is transmitted, and before any timer.
            for id in self.connections.take_answered(&self.engine) {
                self.on_init_ack(id);
            }
            self.probes.take_answered(now, &mut self.engine, &self.policy);
        }
        more
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Race(id) => self.on_race_lost(id),
                Timer::AttemptDelay(id) => self.on_attempt_delay_over(id),
                Timer::Cookie(id) => self.on_cookie_late(id),
                Timer::Claim(id) => self.on_unclaimed(id),
                Timer::Proof => self.on_proofs_late(),
                Timer::Listener(id) => self.on_listener_late(id),
                Timer::Forget => self.interception.forget_all_served(),
                Timer::Diversions => self.on_diversions_over(),
                Timer::Carriers => self.open_carriers(),
                Timer::Naming => self.interception.on_naming(self.now, self.policy.rules(), &mut self.timers),
                Timer::Probes => {
                    let (engine, timers) = (&mut self.engine, &mut self.timers);
                    self.probes.begin_due(self.now, engine, &self.policy, &self.packet_io, timers);
                }
                Timer::Probe(association) => {
                    self.probes.on_late(self.now, association, &mut self.engine, &self.policy);
                }
                Timer::Channel(id, sacks) => self.on_channel_late(id, sacks),
                Timer::SharedOpening(association) => {
                    let awaits_keys = self.encryption.awaits_keys(association);
                    self.shared.on_opening_late(self.now, association, awaits_keys, &mut self.engine);
                }
                Timer::SharedIdle(association) => self.on_shared_idle(association),
            }
        }
    }

    /// Retries carriers that could not be opened. Another program may have used the port.
    fn open_carriers(&mut self) {
        if self.packet_io.is_lacking() {
            self.packet_io.open(self.poller.registry(), CARRIERS);
            self.timers.set(self.now + CARRIERS_PAUSE, Timer::Carriers);
        }
    }

    /// Logs the engine's trace, if the operator requested it (`--log engine=trace`).
    fn log_trace(&mut self) {
        while let Some(TraceRecord { association, event, .. }) = self.engine.poll_trace() {
            let association = association.map(AssociationId::number);
            tracing::trace!(target: ENGINE_LOG, association, ?event);
        }
    }

    fn take_engine_events(&mut self) {
        while let Some((association, event)) = self.engine.poll_event() {
            let parts = (&self.policy, &mut self.history);
            let events = self.encryption.follow(self.now, association, event, &mut self.engine, parts);
            events.into_iter().flatten().for_each(|event| self.on_engine_event(association, event));
        }
    }

    /// Applies the steps that a task about an association's keys has computed.
    pub(crate) fn take_keys(&mut self, association: AssociationId, outcome: Result<Vec<Step>, KeyingError>) {
        let (engine, history) = (&mut self.engine, &mut self.history);
        self.encryption.take(self.now, association, outcome, engine, history);
    }

    fn on_engine_event(&mut self, association: AssociationId, event: Event) {
        if matches!(event, Event::Closed(_)) {
            self.count_link_bytes(association);
        }
        self.on_shared_event(association, &event);
        if matches!(event, Event::Established { .. }) {
            self.path_events.note_addresses(association);
        }
        let id = self.connections.of_association(association);
        match (event, id) {
            (Event::Incoming { route, local_port, adaptation, .. }, _)
                if asks_to_share(local_port, adaptation) =>
            {
                let (engine, timers) = (&mut self.engine, &mut self.timers);
                self.shared.on_incoming(self.now, association, &route, engine, &self.policy, timers);
            }
            (Event::Incoming { route, local_port, remote_port, adaptation }, _) => {
                let server = SocketAddr::new(route.local, local_port);
                let client = SocketAddr::new(route.remote, remote_port);
                let peer = Peer::of_adaptation(adaptation);
                self.on_incoming(association, Incoming { server, client, route, peer });
            }
            (Event::Established { route, adaptation, .. }, Some(id)) => {
                self.on_established(id, association, route.carrier, adaptation);
            }
            (Event::Readable | Event::Writable, Some(id)) => {
                self.pump.mark(id);
            }
            (Event::PeerShutdown, Some(id)) => {
                if self.connections.get_mut(id).is_some_and(Connection::on_peer_shutdown) {
                    self.pump.mark(id);
                }
            }
            (Event::Closed(reason), id) => {
                self.on_closed(association, id, &reason);
                self.encryption.forget(association);
                self.unproven.take(association);
            }
            (Event::Established { .. }, None) => self.on_proven(association),
            (Event::Readable | Event::Writable | Event::PeerShutdown, None) => {}
            (event, _) => self.on_path_event(association, event),
        }
    }

    /// Handles an event about the paths or the addresses of an association.
    fn on_path_event(&mut self, association: AssociationId, event: Event) {
        match event {
            Event::PathSwitched { from, to, reason } => {
                self.packet_io.note_switch(&from, &to);
                self.history.switched(self.now, association, &from, &to);
                self.path_events.note_switch(association, from, to, reason);
                self.has_switched = true;
            }
            Event::PathChanged { route, from, to, reason } => {
                tracing::debug!(?route, ?from, ?to, ?reason, "path");
                self.path_events.note_change(association, route, (from, to), reason);
                if to == PathState::Active {
                    self.roaming().on_path_up(association, &route);
                }
            }
            Event::PeerPort { from, to } => {
                if let Some(left_out) = self.history.admit(Line::Port, self.now) {
                    tracing::info!(?from, ?to, left_out, "the peer's UDP port");
                }
            }
            Event::PathMtu { route, from, to } => tracing::debug!(?route, from, to, "MTU of a path"),
            Event::AddressChange { change, refusal } => {
                self.path_events.note_addresses(association);
                match (change, refusal) {
                    (AddressChange::SetUse(..), _) | (_, Some(_)) => self.roaming().use_links(association),
                    (_, None) => self.roaming().catch_up(association),
                }
                if matches!((change, refusal), (AddressChange::SetUse(..), None)) {
                    tracing::debug!(?change, "the peer knows the use of our address");
                } else if let Some(left_out) = self.history.admit(Line::Answer, self.now) {
                    tracing::info!(?change, ?refusal, left_out, "the peer answers a change of our addresses");
                }
            }
            // If this request moves data to another path, `PathSwitched` reports the move.
            Event::PeerAddressChange(change @ (AddressChange::SetPrimary(_) | AddressChange::SetUse(..))) => {
                tracing::debug!(?change, "the peer's request");
                self.path_events.note_addresses(association);
            }
            Event::PeerAddressChange(change) => {
                self.path_events.note_addresses(association);
                if let Some(left_out) = self.history.admit(Line::Address, self.now) {
                    tracing::info!(?change, left_out, "the peer's addresses");
                }
            }
            // `on_engine_event` handles these events.
            Event::Incoming { .. }
            | Event::Established { .. }
            | Event::Readable
            | Event::Writable
            | Event::PeerShutdown
            | Event::Closed(_) => {}
            // The daemon sends no messages that may be abandoned. `take_engine_events` first passes events about keys to `encryption`.
            Event::KeyMessage { .. }
            | Event::Protected { .. }
            | Event::KeysWorn
            | Event::Abandoned { .. }
            | Event::Dry
            | Event::StreamReset { .. }
            | Event::AssociationReset { .. }
            | Event::StreamsChanged { .. }
            | Event::PeerSendBuffer(_) => {}
        }
    }

    /// Reports the changes of links and paths that this turn has collected.
    fn tell_path_events(&mut self) {
        if !self.path_events.has_news() {
            return;
        }
        // The collection is moved out, because the context borrows the driver.
        let mut path_events = std::mem::take(&mut self.path_events);
        let context = EventContext {
            ends: &|route| path_ends(route, self.policy.addresses(), &self.packet_io),
            name: &|interface| self.policy.addresses().link_name(interface).map(str::to_owned),
            info: &|association| self.engine.info(association),
            peer: &|association| self.peer_of(association),
        };
        let told = path_events.tell(self.now, &context);
        self.path_events = path_events;
        for event in told {
            let Some(left_out) = self.history.admit(Line::Path, self.now) else { continue };
            let PathEvent { peer, change, reason, links_up, links, .. } = event;
            match change {
                PathChange::Switched { from, to } => {
                    tracing::info!(%peer, %from, %to, %reason, links_up, links, left_out, "path switched");
                }
                PathChange::Down { path } => {
                    tracing::info!(%peer, %path, %reason, links_up, links, left_out, "link failed");
                }
                PathChange::Up { path } => {
                    tracing::info!(%peer, %path, links_up, links, left_out, "link works again");
                }
            }
        }
    }

    /// Returns an association's peer.
    fn peer_of(&self, association: AssociationId) -> Option<PeerId> {
        let own = || self.connections.get(self.connections.of_association(association)?);
        let shared = self.shared.get(association).map(|state| state.handshake().remote);
        let address = shared.or_else(|| own().map(|connection| connection.flow().remote().ip()))?;
        let key = self.encryption.report(association).map(|encryption| encryption.peer);
        Some(PeerId { address, key })
    }

    fn on_established(
        &mut self,
        id: ConnectionId,
        association: AssociationId,
        carrier: Carrier,
        adaptation: Option<u32>,
    ) {
        tracing::debug!(is_shim = (adaptation == Some(ADAPTATION)), "association up");
        match self.connections.get(id).map(Connection::stage) {
            Some(Stage::Init(syn) | Stage::Cookie(syn)) => {
                let (syn, peer) = (*syn, Peer::of_adaptation(adaptation));
                if self.has_given_up(id, &syn) {
                    return self.drop_with_syn(id, &syn);
                }
                self.engine.set_timing(self.now, association, timing::timing(peer, self.connections.len()));
                self.engine.set_initial_packets(self.now, association, timing::initial_packets(peer));
                self.on_client_up(id, syn, peer, carrier);
            }
            Some(Stage::Accepting(_)) => self.on_server_up(id),
            _ => {}
        }
    }

    /// Adds the bytes of an ending association to the counts of its links and its peer.
    fn count_link_bytes(&mut self, association: AssociationId) {
        let Some(info) = self.engine.info(association) else { return };
        let id = self.connections.of_association(association);
        let own =
            id.and_then(|id| self.connections.get(id)).map(|connection| connection.flow().remote().ip());
        let shared = || self.shared.get(association).map(|state| state.handshake().remote);
        let first = || info.paths.first().map(|path| path.route.remote);
        let Some(peer) = own.or_else(shared).or_else(first) else { return };
        for path in &info.paths {
            let interface = path_ends(&path.route, self.policy.addresses(), &self.packet_io).interface;
            let bytes = Bytes { sent: path.bytes_sent, received: path.bytes_received };
            self.history.count_link(peer, interface, bytes);
        }
    }

    fn on_closed(&mut self, association: AssociationId, id: Option<ConnectionId>, reason: &CloseReason) {
        self.history.forget(association);
        self.path_events.note_end(association);
        let counters = self.engine.info(association).map(|info| info.counters);
        tracing::debug!(?reason, ?counters, "association closed");
        let Some(id) = id else {
            self.probes.on_closed(association, reason, &self.policy);
            self.engine.release(self.now, association);
            return;
        };
        let how = if *reason == CloseReason::Graceful { Closed::Gracefully } else { Closed::Lost };
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Stage::Init(syn) | Stage::Cookie(syn) = *connection.stage() {
            connection.on_closed(how);
            self.on_client_failed(id, syn, reason);
        } else {
            self.on_association_closed(id, how);
        }
    }

    /// Ends the diversions whose time has expired.
    fn on_diversions_over(&mut self) {
        self.interception.on_diversions_over(self.now, &mut self.timers);
        self.interception.release_addresses(&self.connections, self.policy.addresses());
    }

    /// Moves bytes of the ready connections, one after another, until this turn's limit is reached.
    fn pump_all(&mut self) {
        let mut left = BYTES_PER_TURN;
        for _ in 0..self.pump.len() {
            let (engine, connections) = (&mut self.engine, &mut self.connections);
            let (shared, history) = (&mut self.shared, &mut self.history);
            let served = self.pump.serve_next(self.now, engine, connections, shared, history);
            let Some(served) = served else { return };
            if served.is_finished {
                self.finish(served.id);
            }
            left = left.saturating_sub(served.moved);
            if left == 0 {
                return;
            }
        }
    }

    /// Handles an event of an association, if the association is shared.
    fn on_shared_event(&mut self, association: AssociationId, event: &Event) {
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
        let terms = (streams, self.encryption.lacks_shared_key(association));
        let up = self.shared.on_established(now, association, terms, engine, policy, connections);
        let Some((remote, side)) = up else { return };
        if let Some(left_out) = self.history.admit(Line::Shared, now) {
            tracing::info!(%remote, ?side, left_out, "connections may share an association");
        }
        self.history.count(Occurrence::SharedAssociation);
        self.shared.note_idle(now, association, engine, policy, &mut self.timers);
        self.shared.flush(now, association, engine);
        self.roaming().catch_up(association);
    }

    /// Takes messages from the shared associations. Reports whether more messages may wait.
    fn serve_all_shared(&mut self) -> bool {
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

    /// Aborts a shared association whose peer has violated the protocol of its messages.
    fn give_shared_up(&mut self, association: AssociationId, fault: &MuxFault) {
        let Some(peer) = self.shared.on_fault(self.now, association) else { return };
        if let Some(left_out) = self.history.admit(Line::Fault, self.now) {
            tracing::warn!(%peer, %fault, left_out, "a shared association was aborted: the peer violated its protocol");
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

    /// Handles the idle timer of a shared association.
    fn on_shared_idle(&mut self, association: AssociationId) {
        let (engine, timers) = (&mut self.engine, &mut self.timers);
        if self.shared.on_idle(self.now, association, engine, &self.policy, timers) {
            self.close_shared(association);
        }
    }

    /// Closes a shared association to new connections. Connections that wait for the peer's answer get their own associations.
    fn close_shared(&mut self, association: AssociationId) {
        for id in self.shared.close(association) {
            self.leave_shared(id);
        }
    }

    /// Handles the end of a shared association. Programs still get the received data, and then a reset.
    fn on_shared_closed(&mut self, association: AssociationId) {
        self.shared.on_closed(self.now, association, self.encryption.awaits_keys(association));
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
            tracing::info!(connections, left_out, "a shared association has ended");
        }
        for id in owners {
            self.on_association_closed(id, Closed::Lost);
        }
        self.shared.note_idle(self.now, association, &self.engine, &self.policy, &mut self.timers);
    }

    fn on_channel_event(&mut self, association: AssociationId, channel: ChannelId, event: ChannelEvent) {
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
            ChannelEvent::Reset if self.connections.get(id).is_some_and(|c| c.asking().is_some()) => {
                self.leave_shared(id);
            }
            ChannelEvent::Reset => self.on_association_closed(id, Closed::Lost),
            ChannelEvent::Offered { .. } => {}
        }
    }
}

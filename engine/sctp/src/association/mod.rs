//! One association: its state, its paths, and its data in both directions.
//!
//! An association begins once the INITs of both ends are known: from an INIT ACK ([`Association::from_init_ack`]) or
//! from a cookie ([`Association::from_cookie`]). [`transfer`] sends data over the paths and monitors them. The other
//! modules implement the protocol above `transfer`. The most important ones are:
//!
//! - `chunk_dispatch` maps chunks and states to actions.
//! - `packet_builder` writes packets.
//! - `data` handles DATA and SACK.
//! - `addresses` and `reconfig` change addresses and streams.
//! - `shutdown` ends associations gracefully.
//!
//! Each field belongs to one component, and only this component writes it ([ADR
//! 0026](../../../../docs/adr/0026-an-association-and-its-transfer.md)).

mod addresses;
mod authentication;
mod chunk_dispatch;
mod data;
mod ecn;
mod handshake_client;
mod heartbeat;
mod idle;
mod integrity;
mod key_messages;
mod keying;
mod memory;
mod negotiated;
mod outbox;
mod packet_builder;
mod peer_addresses;
mod pr_sctp;
mod protection;
mod rebinding;
mod reconfig;
mod replay;
mod sack_route;
mod shutdown;
mod state;
mod timers;
mod transfer;
mod vouching;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use base::{Route, Time};
use bytes::Bytes;
use smallvec::SmallVec;
use wire::{ChunkType, Ppid, StreamId, Tsn, VerificationTag};

use crate::config::{AddressProof, AssociationConfig, Limits};
use crate::cookie::Cookie;
use crate::endpoint::Replies;
use crate::error::{SendError, StreamError};
use crate::event::{AbortCause, CloseReason, Event, Message, SendOptions};
use crate::extension::Extension;
use crate::extension::asconf::Asconf;
use crate::extension::protection::KEY_PPID;
use crate::extension::reconfig::Reconfig;
use crate::extension::zero_checksum;
use crate::info::{AssociationInfo, LimitedBy, StateName};
use crate::negotiation::{Agreed, PeerInit};
use crate::path::{Path, PathIndex};
use crate::random::Random;
use crate::rx::Inbound;
use crate::trace::TraceEvent;
pub(crate) use authentication::Screen;
pub(crate) use chunk_dispatch::Verdict;
use ecn::Marks;
pub(crate) use handshake_client::{FirstMessage, INIT_PACKET_MAX, INIT_PACKET_MIN, Opening, own_parameters};
use idle::Idle;
pub(crate) use integrity::Integrity;
use outbox::Control;
pub(crate) use packet_builder::Joining;
use peer_addresses::PeerAddresses;
use pr_sctp::limit_of;
use sack_route::SackRoute;
pub(crate) use state::State;
pub(crate) use transfer::Transfer;

/// Resources lent to an association while it works.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    pub(crate) random: &'a mut Random,
    pub(crate) limits: &'a Limits,
    pub(crate) replies: &'a mut Replies,
}

/// The path on which a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CameBy {
    /// No path has this pair of addresses.
    Elsewhere,
    /// The addresses and the UDP port match a path.
    Path(PathIndex),
    /// The addresses match a path, but the UDP port does not.
    OtherPort(PathIndex),
}

impl CameBy {
    /// Returns the path with these addresses.
    fn path(self) -> Option<PathIndex> {
        match self {
            CameBy::Elsewhere => None,
            CameBy::Path(index) | CameBy::OtherPort(index) => Some(index),
        }
    }
}

/// An association after the exchange of INIT and INIT ACK.
pub(crate) struct Association {
    transfer: Transfer,
    inbound: Inbound,
    sack_route: SackRoute,
    marks: Marks,
    asconf: Option<Box<Asconf>>,
    reconfig: Option<Box<Reconfig>>,
    peer_addresses: PeerAddresses,
    /// The path on which the current packet arrived.
    came_by: CameBy,
    idle: Idle,
}

/// The inputs that both constructors have in common.
struct Setup<'a> {
    config: AssociationConfig,
    ports: (u16, u16),
    tags: (VerificationTag, VerificationTag),
    initial_tsns: (Tsn, Tsn),
    streams: (u16, u16),
    peer_rwnd: u32,
    adaptation: Option<u32>,
    agreed: Agreed,
    route: Route,
    local_addresses: &'a [IpAddr],
    peer_addresses: &'a [IpAddr],
    state: State,
}

impl Association {
    /// Creates the association from the answer to the INIT of `opening`, and queues the COOKIE ECHO.
    pub(crate) fn from_init_ack(
        opening: Opening,
        route: Route,
        peer: &PeerInit<'_>,
        agreed: Agreed,
        ctx: &mut Context<'_>,
    ) -> Self {
        let setup = Setup {
            config: opening.config.clone(),
            ports: (opening.local_port, opening.remote_port),
            tags: (opening.local_tag, peer.tag),
            initial_tsns: (opening.initial_tsn, peer.initial_tsn),
            streams: (
                //= rfc9260#5.1.1-2
                opening.config.outbound_streams.min(peer.inbound_streams),
                opening.config.inbound_streams.min(peer.outbound_streams),
            ),
            peer_rwnd: peer.a_rwnd,
            adaptation: peer.adaptation,
            agreed,
            route,
            local_addresses: &opening.local_addresses.clone(),
            peer_addresses: &peer.addresses,
            state: State::CookieWaitOver,
        };
        let mut association = Association::new(setup, ctx);
        association.echo_cookie(opening, peer.cookie.unwrap_or_default(), ctx);
        association
    }

    /// Creates the association from a valid cookie. The driver then decides whether to accept it.
    pub(crate) fn from_cookie(cookie: &Cookie, config: AssociationConfig, ctx: &mut Context<'_>) -> Self {
        let setup = Setup {
            config,
            ports: (cookie.local_port, cookie.remote_port),
            tags: (cookie.local_tag, cookie.peer_tag),
            initial_tsns: (cookie.local_initial_tsn, cookie.peer_initial_tsn),
            streams: (cookie.outbound_streams, cookie.inbound_streams),
            peer_rwnd: cookie.peer_rwnd,
            adaptation: cookie.adaptation,
            agreed: Agreed {
                extensions: cookie.extensions,
                key_vectors: cookie.key_vectors.clone(),
                protection: cookie.protection,
                zero_checksum: cookie.zero_checksum,
            },
            route: cookie.route,
            local_addresses: &cookie.local_addresses,
            peer_addresses: &cookie.peer_addresses,
            state: State::Accepting,
        };
        Association::new(setup, ctx)
    }

    fn new(setup: Setup<'_>, ctx: &mut Context<'_>) -> Association {
        let has = |extension| setup.agreed.extensions.has(extension);
        let reconfig = has(Extension::StreamReconfiguration);
        let interleaves = has(Extension::Interleaving);
        Association {
            inbound: Inbound::new(setup.initial_tsns.1, &setup.config, interleaves, ctx.limits),
            sack_route: SackRoute::new(PathIndex::new(0)),
            marks: Marks::default(),
            asconf: asconf_of(&setup),
            reconfig: reconfig.then(|| Box::new(Reconfig::new(setup.initial_tsns))),
            peer_addresses: PeerAddresses::new(setup.route.remote, setup.peer_addresses),
            came_by: CameBy::Elsewhere,
            idle: Idle::default(),
            transfer: Transfer::new(setup, ctx),
        }
    }

    /// Returns the part that sends data over the paths.
    pub(crate) fn transfer(&self) -> &Transfer {
        &self.transfer
    }

    /// Returns the part that sends data over the paths, to change it.
    pub(crate) fn transfer_mut(&mut self) -> &mut Transfer {
        &mut self.transfer
    }

    pub(crate) fn ports(&self) -> (u16, u16) {
        self.transfer.negotiated.ports()
    }

    pub(crate) fn tags(&self) -> (VerificationTag, VerificationTag) {
        self.transfer.negotiated.tags()
    }

    pub(crate) fn initial_tsn(&self) -> Tsn {
        self.transfer.negotiated.initial_tsn()
    }

    pub(crate) fn state(&self) -> &State {
        &self.transfer.state
    }

    pub(crate) fn config(&self) -> &AssociationConfig {
        &self.transfer.config
    }

    /// Returns the remote address of each path.
    pub(crate) fn remote_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.transfer.paths.iter().map(|(_, p)| p.route.remote)
    }

    /// Returns the local address of each path.
    pub(crate) fn local_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.transfer.paths.iter().map(|(_, p)| p.route.local)
    }

    /// Returns whether `address` is one of the peer's addresses.
    pub(crate) fn peer_has(&self, address: IpAddr) -> bool {
        self.peer_addresses.has(address)
    }

    /// Reports whether the peer has only claimed `address`: paths lead there, but none of them is confirmed.
    pub(crate) fn only_claims(&self, address: IpAddr) -> bool {
        let mut there = self.transfer.paths.iter().filter(|(_, p)| p.route.remote == address).peekable();
        there.peek().is_some() && there.all(|(_, p)| !p.is_confirmed())
    }

    /// Reports whether an INIT that arrived by `route` may restart the association. An INIT may do so if it comes from
    /// a confirmed address of the peer, with the carrier and the UDP port of the path. While no path works, an INIT
    /// from any address may restart the association.
    pub(crate) fn may_begin_anew_from(&self, route: &Route) -> bool {
        self.transfer.paths.is_confirmed_end(route) || self.transfer.paths.have_failed()
    }

    /// Reports whether one chunk of the current packet, such as ABORT, may end the association. If addresses need
    /// proof, a packet from an unconfirmed address of the peer must not end it. The address may belong to another host.
    /// An ABORT from this host is genuine, because the host has no such association, but the ABORT must not affect the
    /// peer.
    fn may_end_at_once(&self) -> bool {
        let is_proven = |index: PathIndex| self.transfer.paths.get(index).is_confirmed();
        let came_from_peer = self.came_by.path().is_some_and(is_proven);
        let asks_for_proof = self.transfer.config.address_proof == AddressProof::ConfirmedPath;
        (came_from_peer || !asks_for_proof || self.transfer.integrity.is_sealed())
            && !self.came_to_leaving_address()
    }

    /// Sends HEARTBEATs on all confirmed paths, because another host may have taken the peer's address. Keeps a minimum
    /// interval between these checks.
    pub(crate) fn ask_whether_alive(&mut self, ctx: &Context<'_>) {
        if !self.transfer.liveness.may_ask(ctx.now) {
            return;
        }
        for index in self.transfer.paths.indices() {
            if self.transfer.paths.get(index).is_confirmed() {
                self.transfer.paths.get_mut(index).request_heartbeat(ctx.now);
            }
        }
    }

    /// Increases the credit for unconfirmed addresses, after the peer has sent `length` bytes from a confirmed address.
    pub(crate) fn on_bytes_from_peer(&mut self, length: usize) {
        self.transfer.credit.earn(length);
    }

    /// Returns `path` if it is confirmed, otherwise the current path. RFC 9260 section 5.4: an endpoint "MUST NOT send
    /// any chunks to an UNCONFIRMED address". Exceptions are HEARTBEAT, HEARTBEAT ACK, and chunks bundled with a
    /// HEARTBEAT.
    fn proved(&self, path: PathIndex) -> PathIndex {
        if self.transfer.paths.get(path).is_confirmed() { path } else { self.transfer.paths.current() }
    }

    /// Reports whether events wait, or the peer's addresses have changed.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.transfer.out.has_events() || self.peer_addresses.is_changed()
    }

    /// Reports whether the peer's addresses have changed since the last call.
    pub(crate) fn take_names_changed(&mut self) -> bool {
        self.peer_addresses.take_changed()
    }

    /// Reports whether a packet that begins with a chunk of this type may have a checksum of zero.
    pub(crate) fn takes_zero_checksum(&self, first: ChunkType) -> bool {
        zero_checksum::accepts(&self.transfer.config, self.is_protected(), first)
    }

    /// Returns whether a path leads to `address`.
    pub(crate) fn knows_remote(&self, address: IpAddr) -> bool {
        self.transfer.paths.knows_remote(address)
    }

    /// Starts tracing and returns the current state.
    pub(crate) fn begin_notes(&mut self) -> StateName {
        self.transfer.out.begin_trace();
        self.transfer.state.name()
    }

    /// Stops tracing and returns the recorded events.
    pub(crate) fn end_notes(&mut self) -> Vec<TraceEvent> {
        self.transfer.out.end_trace()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.transfer.out.take_event()
    }

    /// Queues a message for sending.
    pub(crate) fn send(
        &mut self,
        stream: StreamId,
        ppid: Ppid,
        message: Bytes,
        options: SendOptions,
        now: Time,
    ) -> Result<(), SendError> {
        if !self.transfer.state.takes_messages() {
            return Err(SendError::Closed);
        }
        if message.is_empty() {
            //= rfc9260#3.3.1-5
            return Err(SendError::Empty);
        }
        //= rfc9260#5.1.1-4 6.5-1
        let streams = self.transfer.negotiated.outbound_streams();
        if stream.0 >= streams {
            return Err(SendError::NoSuchStream { stream: stream.0, streams });
        }
        if message.len() > self.transfer.config.send_buffer {
            return Err(SendError::TooLong { length: message.len(), max: self.transfer.config.send_buffer });
        }
        if ppid == KEY_PPID && self.is_protected() {
            return Err(SendError::ReservedPpid);
        }
        let limit = limit_of(options.reliability, self.transfer.negotiated.extensions(), now);
        self.make_room(message.len(), limit, now);
        if self.transfer.integrity.is_pending() || !self.transfer.tx.takes(message.len()) {
            self.transfer.tx.buffer.want_room();
            return Err(SendError::WouldBlock);
        }
        if let Some(protection) = self.transfer.integrity.protection_mut() {
            protection.note_data();
        }
        let id = self.transfer.tx.queue.push(stream, ppid, message, options.unordered, limit.is_some());
        if let Some(limit) = limit {
            self.transfer.tx.pr_messages.on_queued(id, stream, limit);
        }
        Ok(())
    }

    /// Changes a stream's priority under [`Scheduler::Priority`](crate::Scheduler::Priority).
    pub(crate) fn set_stream_priority(&mut self, stream: StreamId, priority: u16) -> Result<(), StreamError> {
        self.transfer.negotiated.check_outbound(stream)?;
        self.transfer.tx.queue.set_priority(stream, priority);
        Ok(())
    }

    /// Changes a stream's weight under [`Scheduler::WeightedFair`](crate::Scheduler::WeightedFair).
    pub(crate) fn set_stream_weight(
        &mut self,
        stream: StreamId,
        weight: NonZeroU16,
    ) -> Result<(), StreamError> {
        self.transfer.negotiated.check_outbound(stream)?;
        self.transfer.tx.queue.set_weight(stream, weight.get());
        Ok(())
    }

    /// Returns the next message. Requests a window update if the removal of the message frees enough of the receive
    /// buffer.
    #[inline]
    pub(crate) fn recv(&mut self, now: Time) -> Option<Message> {
        if self.transfer.integrity.is_pending() {
            return None;
        }
        let is_much =
            self.transfer.out.counters().bytes_received > self.transfer.config.first_window() as u64 / 4;
        let path = self.transfer.paths.get_mut(self.sack_route.data_path());
        let rtt = path.srtt();
        // An end that only receives data measures no round trips with its data. It needs a round-trip time to tune the
        // window, so it sends a HEARTBEAT.
        if rtt.is_none() && is_much {
            path.probe_now(now);
        }
        self.take_key_messages();
        let message = self.inbound.read(now, rtt);
        if message.is_some() {
            // Another message may be ready now.
            self.note_read();
            if self.inbound.has_reopened() && self.transfer.state.receives_data() {
                self.inbound.ack.on_irregular();
            }
        }
        message
    }

    /// Notifies the driver if a message has become readable.
    #[inline]
    fn note_readable(&mut self, had_ready: bool) {
        self.take_key_messages();
        if had_ready || !self.inbound.has_ready() || matches!(self.transfer.state, State::Accepting) {
            return;
        }
        if !self.transfer.integrity.is_pending() {
            self.transfer.out.emit(Event::Readable);
        }
    }

    /// Aborts the association.
    pub(crate) fn abort(&mut self, cause: AbortCause, ctx: &mut Context<'_>) {
        if !matches!(self.transfer.state, State::Closed) {
            //= rfc9260#9.1-1
            self.transfer.send_abort(&cause, ctx);
            self.transfer.close(CloseReason::Aborted(cause));
        }
    }

    /// Closes the association, which the peer has replaced with a new one.
    pub(crate) fn on_restart(&mut self) {
        if !matches!(self.transfer.state, State::Closed) {
            //= rfc9260#5.2.4-4
            self.transfer.close(CloseReason::Restarted);
        }
    }

    pub(crate) fn info(&self) -> AssociationInfo {
        let path = |(i, p): (PathIndex, &Path)| {
            p.info(
                i == self.transfer.paths.primary(),
                self.transfer.carries_new_data(i),
                self.transfer.tx.outstanding.flight(i),
            )
        };
        let (local_port, remote_port) = self.transfer.negotiated.ports();
        let (local_tag, peer_tag) = self.transfer.negotiated.tags();
        AssociationInfo {
            state: self.transfer.state.name(),
            local_port,
            remote_port,
            local_tag: local_tag.0,
            peer_tag: peer_tag.0,
            adaptation: self.transfer.negotiated.adaptation(),
            extensions: self.transfer.negotiated.extensions(),
            zero_checksum: self.transfer.integrity.sends_zero_checksum(),
            outbound_streams: self.transfer.negotiated.outbound_streams(),
            inbound_streams: self.transfer.negotiated.inbound_streams(),
            paths: self.transfer.paths.iter().map(path).collect(),
            send_buffered: self.transfer.tx.held(),
            send_waiting: self.transfer.tx.queue.bytes(),
            limited_by: self.limited_by(),
            receive_buffered: self.inbound.held(),
            memory: self.memory(),
            peer_rwnd: self.transfer.tx.window.room(),
            peer_send_buffer: self.transfer.advertising.peer(),
            counters: *self.transfer.out.counters(),
        }
    }

    pub(crate) fn shortest_round_trip(&self) -> Option<Duration> {
        self.transfer.paths.iter().filter_map(|(_, path)| path.srtt()).min()
    }

    fn limited_by(&self) -> LimitedBy {
        match self.transfer.tx.queue.next_length(self.transfer.fragment_size_now()) {
            None => LimitedBy::Driver,
            Some(length) if self.transfer.tx.window.room() < length => LimitedBy::Receiver,
            Some(_) => LimitedBy::Network,
        }
    }

    pub(crate) fn state_name(&self) -> StateName {
        self.transfer.state.name()
    }

    /// Recounts all counters and asserts that they are right.
    pub(crate) fn check_invariants(&self) {
        self.transfer.tx.check_invariants();
        self.inbound.check_invariants();
        for (index, path) in self.transfer.paths.iter() {
            let flight = self.transfer.tx.outstanding.flight(index);
            if self.transfer.state.sends_data() {
                assert_eq!(
                    path.t3.is_some(),
                    flight > 0,
                    "T3 runs just while data is in flight on path {index:?}"
                );
            }
        }
    }
}

/// Returns the address-reconfiguration state, if both ends support it.
fn asconf_of(setup: &Setup<'_>) -> Option<Box<Asconf>> {
    if !setup.agreed.extensions.has(Extension::AddressReconfiguration) {
        return None;
    }
    let mut local: SmallVec<[IpAddr; 4]> = setup.local_addresses.iter().copied().collect();
    if !local.contains(&setup.route.local) {
        local.push(setup.route.local);
    }
    Some(Box::new(Asconf::new(setup.initial_tsns, local, setup.route)))
}

/// Reports whether packets can pass between these addresses: the family is the same, and both or neither are loopback.
fn may_reach(local: IpAddr, remote: IpAddr) -> bool {
    local.is_ipv4() == remote.is_ipv4() && local.is_loopback() == remote.is_loopback()
}

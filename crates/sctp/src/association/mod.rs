//! One association: its state, its paths, and its data in both directions.
//!
//! It begins once both INITs are known: from an INIT ACK ([`Association::from_init_ack`]) or from a cookie
//! ([`Association::from_cookie`]). Its parts: `chunk_dispatch` maps chunks and states to actions; `data` handles DATA
//! and SACK; `reconfig` resets and adds streams; `advertising` reports the send buffer to routers; `packet_builder`
//! writes packets; `shutdown` and `timers` do what their names suggest.

mod addresses;
mod advertising;
mod authentication;
mod buffers;
mod chunk_dispatch;
mod copying;
mod coupling;
mod credit;
mod data;
mod doubt;
mod ecn;
mod handshake_client;
mod hearsay;
mod heartbeat;
mod idle;
mod integrity;
mod liveness;
mod local_queue;
mod lossy;
mod mtu;
mod negotiated;
mod options;
mod outbox;
mod packet_builder;
mod path_errors;
mod peer_addresses;
mod pr_sctp;
mod probes;
mod rebinding;
mod reconfig;
mod recovery;
mod sack_route;
mod schedule;
mod sender;
mod shutdown;
mod slow;
mod state;
mod stranded;
mod timers;
mod vouching;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use base::{Route, Time};
use bytes::Bytes;
use smallvec::SmallVec;
use wire::{Ppid, StreamId, Tsn, VerificationTag};

use crate::config::{AddressProof, AssociationConfig, Limits, Scheduler, Timing};
use crate::cookie::Cookie;
use crate::endpoint::Replies;
use crate::error::{SendError, StreamError};
use crate::event::{AbortCause, CloseReason, Event, Message, SendOptions};
use crate::extension::Extension;
use crate::extension::asconf::Asconf;
use crate::extension::auth::{Auth, Ports};
use crate::extension::reconfig::Reconfig;
use crate::info::{AssociationInfo, LimitedBy, PathState, StateName};
use crate::negotiation::{Agreed, PeerInit};
use crate::path::{Path, PathIndex, Paths};
use crate::random::Random;
use crate::rx::Inbound;
use crate::trace::TraceEvent;
use advertising::Advertising;
pub(crate) use authentication::Screen;
pub(crate) use chunk_dispatch::Verdict;
use credit::Credit;
use ecn::Marks;
pub(crate) use handshake_client::{FirstMessage, INIT_PACKET_MAX, INIT_PACKET_MIN, Opening, own_parameters};
use hearsay::Hearsay;
use idle::Idle;
use integrity::Integrity;
use liveness::Liveness;
use negotiated::Negotiated;
use outbox::{Control, Outbox};
pub(crate) use packet_builder::Joining;
use peer_addresses::PeerAddresses;
use pr_sctp::limit_of;
use sack_route::SackRoute;
use sender::Sender;
pub(crate) use state::State;

/// Resources lent to an association while it works.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    pub(crate) random: &'a mut Random,
    pub(crate) limits: &'a Limits,
    pub(crate) replies: &'a mut Replies,
}

/// The arrival of a packet. Small, since each association has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CameBy {
    /// No path has this pair of addresses.
    Elsewhere,
    /// Exactly the addresses and port of a path.
    Path(u32),
    /// The addresses of a path, but another port.
    OtherPort(u32),
}

impl CameBy {
    fn of_path(index: PathIndex) -> CameBy {
        u32::try_from(index.0).map_or(CameBy::Elsewhere, CameBy::Path)
    }

    fn of_other_port(index: PathIndex) -> CameBy {
        u32::try_from(index.0).map_or(CameBy::Elsewhere, CameBy::OtherPort)
    }

    /// Returns the path with these addresses.
    fn path(self) -> Option<PathIndex> {
        match self {
            CameBy::Elsewhere => None,
            CameBy::Path(index) | CameBy::OtherPort(index) => Some(PathIndex(index as usize)),
        }
    }
}

/// An association beyond its INIT.
pub(crate) struct Association {
    config: AssociationConfig,
    negotiated: Negotiated,
    state: State,
    integrity: Integrity,
    asconf: Option<Box<Asconf>>,
    reconfig: Option<Box<Reconfig>>,
    advertising: Advertising,
    paths: Paths,
    /// The arrival of the current packet.
    came_by: CameBy,
    /// Unsigned claims that the peer is being asked about.
    hearsay: Hearsay,
    peer_addresses: PeerAddresses,
    tx: Sender,
    inbound: Inbound,
    sack_route: SackRoute,
    marks: Marks,
    out: Outbox,
    liveness: Liveness,
    credit: Credit,
    idle: Idle,
}

/// The inputs common to both constructors.
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

    /// Creates the association from a valid cookie; the driver decides whether to accept it.
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
        let timing = &setup.config.timing;
        let mut first = Path::new(setup.route, &setup.config, ctx.now);
        first.confirm(ctx.now, timing, ctx.random);
        let mut paths = Paths::new(first);
        for route in routes(&setup) {
            if paths.len() < ctx.limits.paths && paths.find(&route).is_none() {
                paths.push(Path::new(route, &setup.config, ctx.now));
            }
        }
        let asconf = asconf_of(&setup);
        let reconfig = setup.agreed.extensions.has(Extension::StreamReconfiguration);
        let reconfig = reconfig.then(|| Box::new(Reconfig::new(setup.initial_tsns)));
        let negotiated = Negotiated::new(&setup);
        let tx = Sender::new(&setup.config, &negotiated, setup.peer_rwnd);
        let interleaves = setup.agreed.extensions.has(Extension::Interleaving);
        let ports = Ports { local: setup.ports.0, peer: setup.ports.1 };
        let vectors = setup.agreed.key_vectors.clone();
        let auth = vectors.map(|vectors| Box::new(Auth::new(vectors, ports, &setup.config.auth)));
        Association {
            negotiated,
            state: setup.state,
            asconf,
            reconfig,
            advertising: Advertising::new(setup.config.advertisement, ctx.now),
            integrity: Integrity::new(auth, setup.agreed.zero_checksum),
            paths,
            came_by: CameBy::Elsewhere,
            hearsay: Hearsay::default(),
            peer_addresses: PeerAddresses::new(setup.route.remote, setup.peer_addresses),
            tx,
            inbound: Inbound::new(setup.initial_tsns.1, &setup.config, interleaves, ctx.limits),
            sack_route: SackRoute::new(PathIndex(0)),
            marks: Marks::default(),
            out: Outbox::default(),
            liveness: Liveness::new(ctx.now),
            credit: Credit::default(),
            idle: Idle::default(),
            config: setup.config,
        }
    }

    pub(crate) fn ports(&self) -> (u16, u16) {
        self.negotiated.ports()
    }

    pub(crate) fn tags(&self) -> (VerificationTag, VerificationTag) {
        self.negotiated.tags()
    }

    pub(crate) fn initial_tsn(&self) -> Tsn {
        self.negotiated.initial_tsn()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn config(&self) -> &AssociationConfig {
        &self.config
    }

    /// The remote address of each path.
    pub(crate) fn remote_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.paths.iter().map(|(_, p)| p.route.remote)
    }

    /// The local address of each path.
    pub(crate) fn local_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.paths.iter().map(|(_, p)| p.route.local)
    }

    /// Returns whether `address` is one of the peer's addresses.
    pub(crate) fn peer_has(&self, address: IpAddr) -> bool {
        self.peer_addresses.has(address)
    }

    /// Returns whether the peer has listed `address` and paths lead there, but none of them is confirmed.
    pub(crate) fn only_claims(&self, address: IpAddr) -> bool {
        let mut there = self.paths.iter().filter(|(_, p)| p.route.remote == address).peekable();
        there.peek().is_some() && there.all(|(_, p)| !p.is_confirmed())
    }

    /// Returns whether an INIT that came by `route` may restart the association: from a confirmed location of
    /// the peer, carrier and UDP port included, or from anywhere while no path works.
    pub(crate) fn may_begin_anew_from(&self, route: &Route) -> bool {
        self.paths.is_confirmed_end(route) || self.paths.have_failed()
    }

    /// Returns whether the current packet may end the association with one chunk. If addresses need proof, a
    /// packet from an unconfirmed address of the peer may not: the address may belong to another host, which
    /// truly has no association.
    fn may_end_at_once(&self) -> bool {
        let is_proven = |index: PathIndex| self.paths.get(index).is_confirmed();
        let came_from_peer = self.came_by.path().is_some_and(is_proven);
        let asks_for_proof = self.config.address_proof == AddressProof::ConfirmedPath;
        (came_from_peer || !asks_for_proof) && !self.came_to_leaving_address()
    }

    /// Asks the peer on all confirmed paths whether it is alive, at intervals: another host may have taken its place.
    pub(crate) fn ask_whether_alive(&mut self, ctx: &Context<'_>) {
        if !self.liveness.may_ask(ctx.now) {
            return;
        }
        for index in self.paths.indices() {
            if self.paths.get(index).is_confirmed() {
                self.paths.get_mut(index).request_heartbeat(ctx.now);
            }
        }
    }

    /// Counts `length` bytes that the peer has sent from a confirmed address.
    pub(crate) fn on_bytes_from_peer(&mut self, length: usize) {
        self.credit.earn(length);
    }

    /// Returns `path`, or the path to answer on in its place. RFC 9260 section 5.4: an endpoint "MUST NOT
    /// send any chunks to an UNCONFIRMED address", except HEARTBEAT, its answer, and chunks bundled with it.
    fn proved(&self, path: PathIndex) -> PathIndex {
        if self.paths.get(path).is_confirmed() { path } else { self.paths.current() }
    }

    /// Returns whether there are events, or changed addresses.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.out.has_events() || self.peer_addresses.is_changed()
    }

    /// Returns, and clears, whether the peer's addresses have changed.
    pub(crate) fn take_names_changed(&mut self) -> bool {
        self.peer_addresses.take_changed()
    }

    /// Returns whether packets with a checksum of zero are accepted. RFC 9653 section 5.3 requires it of an
    /// end that has announced it, regardless of the other end.
    pub(crate) fn takes_zero_checksum(&self) -> bool {
        self.config.zero_checksum.is_some()
    }

    /// Returns whether a path leads to `address`.
    pub(crate) fn knows_remote(&self, address: IpAddr) -> bool {
        self.paths.knows_remote(address)
    }

    /// Starts tracing; returns the state before that.
    pub(crate) fn begin_notes(&mut self) -> StateName {
        self.out.begin_trace();
        self.state.name()
    }

    /// Stops tracing; returns the events recorded.
    pub(crate) fn end_notes(&mut self) -> Vec<TraceEvent> {
        self.out.end_trace()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.out.take_event()
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
        if !self.state.takes_data_to_send() {
            return Err(SendError::Closed);
        }
        if message.is_empty() {
            //= rfc9260#3.3.1-5
            return Err(SendError::Empty);
        }
        //= rfc9260#5.1.1-4 6.5-1
        let streams = self.negotiated.outbound_streams();
        if stream.0 >= streams {
            return Err(SendError::NoSuchStream { stream: stream.0, streams });
        }
        if message.len() > self.config.send_buffer {
            return Err(SendError::TooLong { length: message.len(), max: self.config.send_buffer });
        }
        let limit = limit_of(options.reliability, self.negotiated.extensions(), now);
        self.make_room(message.len(), limit, now);
        if !self.tx.takes(message.len()) {
            self.tx.buffer.want_room();
            return Err(SendError::WouldBlock);
        }
        let id = self.tx.queue.push(stream, ppid, message, options.unordered, limit.is_some());
        if let Some(limit) = limit {
            self.tx.pr_messages.on_queued(id, stream, limit);
        }
        Ok(())
    }

    /// Requests an event when there is room to send.
    pub(crate) fn notify_when_writable(&mut self) {
        self.tx.buffer.want_room();
    }

    /// Changes the stream scheduler.
    pub(crate) fn set_scheduler(&mut self, scheduler: Scheduler) {
        self.config.scheduler = scheduler;
        self.tx.queue.set_scheduler(scheduler);
    }

    /// Changes a stream's priority under [`Scheduler::Priority`].
    pub(crate) fn set_stream_priority(&mut self, stream: StreamId, priority: u16) -> Result<(), StreamError> {
        self.negotiated.check_outbound(stream)?;
        self.tx.queue.set_priority(stream, priority);
        Ok(())
    }

    /// Changes a stream's weight under [`Scheduler::WeightedFair`].
    pub(crate) fn set_stream_weight(
        &mut self,
        stream: StreamId,
        weight: NonZeroU16,
    ) -> Result<(), StreamError> {
        self.negotiated.check_outbound(stream)?;
        self.tx.queue.set_weight(stream, weight.get());
        Ok(())
    }

    /// Returns the next message. A window update is sent if reading it makes much room.
    #[inline]
    pub(crate) fn recv(&mut self, now: Time) -> Option<Message> {
        let is_much = self.out.counters().bytes_received > self.config.first_window() as u64 / 4;
        let path = self.paths.get_mut(self.sack_route.data_path());
        let rtt = path.srtt();
        // A pure receiver has no round trip to measure, but needs one to tune the window.
        if rtt.is_none() && is_much {
            path.probe_now(now);
        }
        let message = self.inbound.read(now, rtt);
        if message.is_some() && self.inbound.has_reopened() && self.state.receives_data() {
            self.inbound.ack.on_irregular();
        }
        message
    }

    /// Notifies the driver if a message has become readable.
    fn note_readable(&mut self, had_ready: bool) {
        if !had_ready && self.inbound.has_ready() && !matches!(self.state, State::Accepting) {
            self.out.emit(Event::Readable);
        }
    }

    /// User bytes that fit into one DATA chunk of a full packet on every confirmed path.
    //= rfc9260#6-9 6.9-7
    //= rfc8899#3-20 5-2
    //= rfc9260#6-9 6.9-7
    pub(crate) fn fragment_size(&self) -> usize {
        let usable = self.paths.iter().filter(|(_, p)| p.is_confirmed());
        let packet = usable.map(|(_, p)| p.packet_size()).min().unwrap_or(0);
        packet.saturating_sub(self.data_headers_len() + self.advertising.len(self.integrity.auth())).max(4)
    }

    /// Octets before the user data of a packet's first DATA chunk, without an advertisement.
    fn data_headers_len(&self) -> usize {
        wire::COMMON_HEADER_LEN + self.negotiated.data_header_len() + self.auth_overhead()
    }

    /// User bytes that fit into one DATA chunk of the current packet: more if it has no advertisement, less
    /// if it has a CWR.
    fn fragment_size_now(&self) -> usize {
        let without = self.fragment_size()
            + self.advertising.len(self.integrity.auth()).saturating_sub(self.advertising.reserved());
        without.saturating_sub(self.tx.answer.len()).max(4)
    }

    /// Octets of AUTH before user data.
    fn auth_overhead(&self) -> usize {
        self.integrity.overhead(self.negotiated.data_chunk_type())
    }

    pub(crate) fn set_timing(&mut self, timing: Timing, ctx: &mut Context<'_>) {
        self.config.timing = timing;
        for index in self.paths.indices() {
            self.paths.get_mut(index).on_new_timing(ctx.now, &self.config.timing, ctx.random);
        }
    }

    /// Changes the initial window.
    pub(crate) fn set_initial_packets(&mut self, packets: u8) {
        self.config.initial_packets = packets;
        for index in self.paths.indices() {
            self.paths.get_mut(index).sending.begin_with(packets);
        }
    }

    /// Aborts the association.
    pub(crate) fn abort(&mut self, cause: AbortCause, ctx: &mut Context<'_>) {
        if !matches!(self.state, State::Closed) {
            //= rfc9260#9.1-1
            self.send_abort(&cause, ctx);
            self.close(CloseReason::Aborted(cause));
        }
    }

    fn send_abort(&self, cause: &AbortCause, ctx: &mut Context<'_>) {
        let route = self.paths.get(self.paths.current()).route;
        ctx.replies.abort(route, self.negotiated.header(), cause, self.integrity.auth());
    }

    fn close(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        self.out.clear_chunks();
        self.out.emit(Event::Closed(reason));
    }

    /// Closes the association, which the peer has replaced with a new one.
    pub(crate) fn on_restart(&mut self) {
        if !matches!(self.state, State::Closed) {
            //= rfc9260#5.2.4-4
            self.close(CloseReason::Restarted);
        }
    }

    /// Selects the path of new data again and reports a change; returns the previous path if it changed.
    fn choose_path(&mut self) -> Option<PathIndex> {
        let old = self.paths.choose()?;
        self.on_switch(self.paths.get(old).route);
        Some(old)
    }

    /// Switches new data from `from` to the current path.
    fn on_switch(&mut self, from: Route) {
        let current = self.paths.current();
        let is_idle = self.tx.outstanding.flight(current) == 0;
        let (is_concurrent, path) = (self.is_concurrent(), self.paths.get_mut(current));
        let to = path.route;
        if is_idle && path.srtt().is_some() && !is_concurrent {
            path.sending.begin_evenly();
        }
        path.losses.begin();
        path.delays.begin();
        self.out.note(TraceEvent::PathSwitched { from, to });
        self.out.emit(Event::PathSwitched { from, to });
    }

    fn report_transition(&mut self, index: PathIndex, transition: Option<crate::path::Transition>) {
        if let Some(t) = transition {
            let (route, from, to) = (self.paths.get(index).route, t.from, t.to);
            self.out.note(TraceEvent::PathState { route, from, to });
            //= rfc7829#3.2-19
            self.out.emit(Event::PathChanged { route, from, to });
            let left = self.choose_path();
            // Data sent while no path worked was a gamble.
            if let Some(left) = left.filter(|_| to == PathState::Active)
                && self.paths.get(left).state() != PathState::Active
            {
                self.mark_lost_on(left);
            }
        }
        self.paths.switch_over(&self.config.timing);
    }

    pub(crate) fn info(&self) -> AssociationInfo {
        let path = |(i, p): (PathIndex, &Path)| {
            p.info(i == self.paths.primary(), self.carries_new_data(i), self.tx.outstanding.flight(i))
        };
        let (local_port, remote_port) = self.negotiated.ports();
        let (local_tag, peer_tag) = self.negotiated.tags();
        AssociationInfo {
            state: self.state.name(),
            local_port,
            remote_port,
            local_tag: local_tag.0,
            peer_tag: peer_tag.0,
            adaptation: self.negotiated.adaptation(),
            extensions: self.negotiated.extensions(),
            zero_checksum: self.integrity.sends_zero_checksum(),
            outbound_streams: self.negotiated.outbound_streams(),
            inbound_streams: self.negotiated.inbound_streams(),
            paths: self.paths.iter().map(path).collect(),
            send_buffered: self.tx.held(),
            send_waiting: self.tx.queue.bytes(),
            limited_by: self.limited_by(),
            receive_buffered: self.inbound.held(),
            memory: self.memory(),
            peer_rwnd: self.tx.window.room(),
            peer_send_buffer: self.advertising.peer(),
            counters: *self.out.counters(),
        }
    }

    pub(crate) fn shortest_round_trip(&self) -> Option<Duration> {
        self.paths.iter().filter_map(|(_, path)| path.srtt()).min()
    }

    fn limited_by(&self) -> LimitedBy {
        match self.tx.queue.next_length(self.fragment_size_now()) {
            None => LimitedBy::Driver,
            Some(length) if self.tx.window.room() < length => LimitedBy::Receiver,
            Some(_) => LimitedBy::Network,
        }
    }

    pub(crate) fn state_name(&self) -> StateName {
        self.state.name()
    }

    /// Recounts all counters.
    pub(crate) fn check_invariants(&self) {
        self.tx.check_invariants();
        self.inbound.check_invariants();
        for (index, path) in self.paths.iter() {
            let flight = self.tx.outstanding.flight(index);
            if self.state.sends_data() {
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

/// Returns all pairs of our and the peer's addresses that can be paths, except the handshake's own.
//= rfc9260#5.1.2-5 5.1.2-8 5.1.2-9
fn routes(setup: &Setup<'_>) -> Vec<Route> {
    let mut routes = Vec::new();
    for &remote in std::iter::once(&setup.route.remote).chain(setup.peer_addresses) {
        for &local in std::iter::once(&setup.route.local).chain(setup.local_addresses) {
            let route = Route { local, remote, carrier: setup.route.carrier };
            if may_reach(local, remote) && route != setup.route && !routes.contains(&route) {
                routes.push(route);
            }
        }
    }
    routes
}

/// Returns whether packets between these addresses make sense: one family, and loopback only with loopback.
fn may_reach(local: IpAddr, remote: IpAddr) -> bool {
    local.is_ipv4() == remote.is_ipv4() && local.is_loopback() == remote.is_loopback()
}

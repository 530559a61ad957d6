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
mod data;
mod doubt;
mod ecn;
mod handshake_client;
mod hearsay;
mod heartbeat;
mod idle;
mod local_queue;
mod lossy;
mod mtu;
mod options;
mod packet_builder;
mod path_errors;
mod pr_sctp;
mod rebinding;
mod reconfig;
mod recovery;
mod schedule;
mod shutdown;
mod slow;
mod state;
mod stranded;
mod timers;
mod vouching;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use base::{Ecn, Route, Time};
use bytes::Bytes;
use smallvec::SmallVec;
use wire::{ChunkType, Ppid, StreamId, Tsn, VerificationTag};

use crate::config::{AddressProof, AssociationConfig, Limits, Scheduler, Timing};
use crate::cookie::Cookie;
use crate::endpoint::Replies;
use crate::error::{SendError, StreamError};
use crate::event::{AbortCause, CloseReason, Event, Message, SendOptions};
use crate::extension::asconf::Asconf;
use crate::extension::auth::{Auth, Ports};
use crate::extension::reconfig::Reconfig;
use crate::extension::send_buffer::{Advertiser, PeerSendBuffer};
use crate::extension::{Extension, Extensions};
use crate::info::{AssociationInfo, Counters, LimitedBy, PathState, StateName};
use crate::memory::Pressure;
use crate::negotiation::{Agreed, PeerInit};
use crate::path::{Path, PathIndex, Paths};
use crate::random::Random;
use crate::rx::Inbound;
use crate::trace::{Notes, TraceEvent};
use crate::tx::{Copies, Forward, Outstanding, PrMessages, SendQueue};
pub(crate) use authentication::Screen;
pub(crate) use chunk_dispatch::Verdict;
pub(crate) use handshake_client::{FirstMessage, INIT_PACKET_MAX, INIT_PACKET_MIN, Opening, own_parameters};
use hearsay::Hearsay;
use idle::Idle;
pub(crate) use packet_builder::Joining;
pub(crate) use state::State;

/// Resources lent to an association while it works.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    pub(crate) random: &'a mut Random,
    pub(crate) limits: &'a Limits,
    pub(crate) replies: &'a mut Replies,
}

/// A chunk queued for sending, other than DATA and SACK.
#[derive(Clone, Debug)]
enum Control {
    CookieEcho,
    CookieAck,
    Heartbeat {
        nonce: u64,
    },
    /// A HEARTBEAT about another path than the one that carries it.
    Voucher {
        path: PathIndex,
        nonce: u64,
    },
    /// The value of the HEARTBEAT being answered.
    HeartbeatAck(Bytes),
    /// A HEARTBEAT padded to an IP packet of `size` bytes.
    SizeProbe {
        nonce: u64,
        size: u16,
    },
    /// Encoded error causes.
    Error(Bytes),
    /// Our outstanding ASCONF request.
    Asconf,
    /// Our outstanding RE-CONFIG request.
    Reconfig,
    /// Encoded answers to RE-CONFIG requests.
    ReconfigAnswer(Bytes),
    Shutdown,
    ShutdownAck,
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

/// A chunk sent into a closed window of the peer (RFC 9260 section 6.1 A).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WindowProbe {
    /// No probe is outstanding.
    No,
    /// The probe was sent.
    Sent,
    /// A SACK reported that there is still no room.
    Answered,
}

/// Minimum interval between checks that the peer is alive after an INIT from elsewhere. INITs are
/// retransmitted after 100 ms at the earliest.
const ALIVE_PAUSE: Duration = Duration::from_millis(50);

/// An association beyond its INIT.
pub(crate) struct Association {
    config: AssociationConfig,
    local_port: u16,
    remote_port: u16,
    //= rfc9260#5.3.1-2
    local_tag: VerificationTag,
    peer_tag: VerificationTag,
    state: State,
    adaptation: Option<u32>,
    /// The extensions that both ends offered.
    extensions: Extensions,
    auth: Option<Box<Auth>>,
    /// Set if our packets may carry a checksum of zero (RFC 9653).
    zero_checksum: bool,
    asconf: Option<Box<Asconf>>,
    reconfig: Option<Box<Reconfig>>,
    /// Advertises our send buffer, if so configured.
    advertiser: Option<Advertiser>,
    peer_send_buffer: Option<PeerSendBuffer>,
    /// Octets reserved for an advertisement in the current packet.
    kept: usize,
    /// Set if the peer's addresses changed and the endpoint must index the association by the new ones.
    names_changed: bool,
    outbound_streams: u16,
    inbound_streams: u16,
    paths: Paths,
    /// The arrival of the current packet.
    came_by: CameBy,
    /// Set if a valid AUTH chunk covers the current chunk.
    is_signed: bool,
    /// Unsigned claims that the peer is being asked about.
    hearsay: Hearsay,
    /// All addresses of the peer, including those without a path.
    peer_addresses: SmallVec<[IpAddr; 4]>,
    initial_tsn: Tsn,
    queue: SendQueue,
    outstanding: Outstanding,
    copies: Copies,
    /// Messages that may be abandoned, and the FORWARD TSN state for abandoned ones.
    pr_messages: PrMessages,
    forward: Forward,
    /// The peer's a_rwnd minus the bytes in flight.
    peer_rwnd: usize,
    window_probe: WindowProbe,
    /// The path whose last chunk is retransmitted as a tail-loss probe.
    tail_probe: Option<PathIndex>,
    /// A chunk in flight on a silent path that will also go by another one.
    detour: Option<doubt::Detour>,
    stranded: Option<Box<stranded::Stranded>>,
    /// Silence means nothing until this time, because the driver was late.
    put_off_until: Time,
    pressure: Pressure,
    /// Limit on bytes queued or in flight.
    send_limit: usize,
    /// Set if `send` refused a message and the driver waits for room.
    writable_wanted: bool,
    /// Set if the driver waits until all data is acknowledged.
    dry_wanted: bool,
    inbound: Inbound,
    /// The path on which DATA last arrived, to which SACKs go.
    data_path: PathIndex,
    /// The path on which the last duplicate arrived.
    duplicate_path: PathIndex,
    /// Congestion marks that the peer has not reacted to.
    echoes: ecn::Echoes,
    /// Our answers to the peer's echoes.
    answer: ecn::Answer,
    /// The ECN mark of the current packet; taken by its first DATA.
    packet_ecn: Ecn,
    /// Set if the next SACK that reports duplicates takes another path.
    sack_deviates: bool,
    control: VecDeque<(PathIndex, Control)>,
    /// Consecutive timeouts over all paths.
    errors: u8,
    /// Earliest time of the next check that the peer is alive after an INIT from elsewhere.
    next_alive: Time,
    /// Bytes that may still go to addresses that the peer only claims.
    unproven_credit: usize,
    counters: Counters,
    notes: Notes,
    events: VecDeque<Event>,
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
        //= rfc9260#5.1.2-1 5.1.2-4
        let mut peer_addresses = SmallVec::from_slice(&[setup.route.remote]);
        let others = setup.peer_addresses.iter().filter(|a| **a != setup.route.remote);
        peer_addresses.extend(others.copied());
        let interleaves = setup.agreed.extensions.has(Extension::Interleaving);
        let ports = Ports { local: setup.ports.0, peer: setup.ports.1 };
        Association {
            local_port: setup.ports.0,
            remote_port: setup.ports.1,
            local_tag: setup.tags.0,
            peer_tag: setup.tags.1,
            state: setup.state,
            adaptation: setup.adaptation,
            extensions: setup.agreed.extensions,
            asconf,
            reconfig,
            advertiser: setup.config.advertisement.map(|config| Advertiser::new(config, ctx.now)),
            peer_send_buffer: None,
            kept: 0,
            names_changed: false,
            zero_checksum: setup.agreed.zero_checksum,
            auth: setup.agreed.key_vectors.map(|v| Box::new(Auth::new(v, ports, &setup.config.auth))),
            outbound_streams: setup.streams.0,
            inbound_streams: setup.streams.1,
            paths,
            came_by: CameBy::Elsewhere,
            is_signed: false,
            hearsay: Hearsay::default(),
            peer_addresses,
            initial_tsn: setup.initial_tsns.0,
            queue: SendQueue::new(setup.config.scheduler, interleaves),
            //= rfc9260#5.1-20
            outstanding: Outstanding::default(),
            copies: Copies::default(),
            pr_messages: PrMessages::default(),
            forward: Forward::default(),
            peer_rwnd: setup.peer_rwnd as usize,
            window_probe: WindowProbe::No,
            tail_probe: None,
            detour: None,
            stranded: None,
            put_off_until: Time::ZERO,
            pressure: Pressure::Calm,
            send_limit: setup.config.buffer_start.min(setup.config.send_buffer),
            writable_wanted: false,
            dry_wanted: false,
            inbound: Inbound::new(setup.initial_tsns.1, &setup.config, interleaves, ctx.limits),
            data_path: PathIndex(0),
            duplicate_path: PathIndex(0),
            echoes: ecn::Echoes::new(),
            answer: ecn::Answer::default(),
            packet_ecn: Ecn::NotEct,
            sack_deviates: false,
            control: VecDeque::new(),
            errors: 0,
            next_alive: ctx.now,
            unproven_credit: 0,
            counters: Counters::default(),
            notes: Notes::default(),
            events: VecDeque::new(),
            idle: Idle::default(),
            config: setup.config,
        }
    }

    //= rfc9260#1.3-2
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.local_port, self.remote_port)
    }

    pub(crate) fn tags(&self) -> (VerificationTag, VerificationTag) {
        (self.local_tag, self.peer_tag)
    }

    pub(crate) fn initial_tsn(&self) -> Tsn {
        self.initial_tsn
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
        self.peer_addresses.contains(&address)
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

    /// Asks the peer on all confirmed paths whether it is alive, at most once per [`ALIVE_PAUSE`]; another
    /// host may have taken its place.
    pub(crate) fn ask_whether_alive(&mut self, ctx: &Context<'_>) {
        if ctx.now < self.next_alive {
            return;
        }
        self.next_alive = ctx.now + ALIVE_PAUSE;
        for index in self.paths.indices() {
            if self.paths.get(index).is_confirmed() {
                self.paths.get_mut(index).request_heartbeat(ctx.now);
            }
        }
    }

    /// Returns `path`, or the path to answer on in its place. RFC 9260 section 5.4: an endpoint "MUST NOT
    /// send any chunks to an UNCONFIRMED address", except HEARTBEAT, its answer, and chunks bundled with it.
    fn proved(&self, path: PathIndex) -> PathIndex {
        if self.paths.get(path).is_confirmed() { path } else { self.paths.current() }
    }

    /// Returns whether there are events, or changed addresses.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.events.is_empty() || self.names_changed
    }

    /// Returns, and clears, whether the peer's addresses have changed.
    pub(crate) fn take_names_changed(&mut self) -> bool {
        std::mem::take(&mut self.names_changed)
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

    /// Counts an event, and records it if tracing is on.
    #[inline]
    fn note(&mut self, event: TraceEvent) {
        self.counters.count(&event);
        self.notes.push(event);
    }

    /// Records an uncounted event if tracing is on.
    #[inline]
    fn tell(&mut self, event: impl FnOnce(&Association) -> TraceEvent) {
        if self.notes.is_on() {
            let event = event(self);
            self.notes.push(event);
        }
    }

    /// Starts tracing; returns the state before that.
    pub(crate) fn begin_notes(&mut self) -> StateName {
        self.notes.begin();
        self.state.name()
    }

    /// Stops tracing; returns the events recorded.
    pub(crate) fn end_notes(&mut self) -> Vec<TraceEvent> {
        self.notes.end()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
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
        if stream.0 >= self.outbound_streams {
            return Err(SendError::NoSuchStream { stream: stream.0, streams: self.outbound_streams });
        }
        if message.len() > self.config.send_buffer {
            return Err(SendError::TooLong { length: message.len(), max: self.config.send_buffer });
        }
        let limit = self.limit(options.reliability, now);
        self.make_room(message.len(), limit, now);
        if !self.takes(message.len()) {
            self.writable_wanted = true;
            return Err(SendError::WouldBlock);
        }
        let id = self.queue.push(stream, ppid, message, options.unordered, limit.is_some());
        if let Some(limit) = limit {
            self.pr_messages.on_queued(id, stream, limit);
        }
        Ok(())
    }

    /// Requests an event when there is room to send.
    pub(crate) fn notify_when_writable(&mut self) {
        self.writable_wanted = true;
    }

    /// Changes the stream scheduler.
    pub(crate) fn set_scheduler(&mut self, scheduler: Scheduler) {
        self.config.scheduler = scheduler;
        self.queue.set_scheduler(scheduler);
    }

    /// Changes a stream's priority under [`Scheduler::Priority`].
    pub(crate) fn set_stream_priority(&mut self, stream: StreamId, priority: u16) -> Result<(), StreamError> {
        self.check_outbound(stream)?;
        self.queue.set_priority(stream, priority);
        Ok(())
    }

    /// Changes a stream's weight under [`Scheduler::WeightedFair`].
    pub(crate) fn set_stream_weight(
        &mut self,
        stream: StreamId,
        weight: NonZeroU16,
    ) -> Result<(), StreamError> {
        self.check_outbound(stream)?;
        self.queue.set_weight(stream, weight.get());
        Ok(())
    }

    fn check_outbound(&self, stream: StreamId) -> Result<(), StreamError> {
        let streams = self.outbound_streams;
        if stream.0 < streams { Ok(()) } else { Err(StreamError::NoSuchStream { stream: stream.0, streams }) }
    }

    /// Returns the next message. A window update is sent if reading it makes much room.
    #[inline]
    pub(crate) fn recv(&mut self, now: Time) -> Option<Message> {
        let is_much = self.counters.bytes_received > self.config.first_window() as u64 / 4;
        let path = self.paths.get_mut(self.data_path);
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
            self.events.push_back(Event::Readable);
        }
    }

    /// Octets of a DATA or I-DATA chunk before its user data.
    fn data_header_len(&self) -> usize {
        if self.data_chunk_type() == ChunkType::I_DATA {
            wire::IDATA_HEADER_LEN
        } else {
            wire::DATA_HEADER_LEN
        }
    }

    /// The chunk type of user data: DATA, or I-DATA if negotiated.
    //= rfc8260#2-1
    fn data_chunk_type(&self) -> ChunkType {
        if self.extensions.has(Extension::Interleaving) { ChunkType::I_DATA } else { ChunkType::DATA }
    }

    /// User bytes that fit into one DATA chunk of a full packet on every confirmed path.
    //= rfc9260#6-9 6.9-7
    //= rfc8899#3-20 5-2
    //= rfc9260#6-9 6.9-7
    pub(crate) fn fragment_size(&self) -> usize {
        let usable = self.paths.iter().filter(|(_, p)| p.is_confirmed());
        let packet = usable.map(|(_, p)| p.packet_size()).min().unwrap_or(0);
        packet.saturating_sub(self.data_headers_len() + self.advertisement_len()).max(4)
    }

    /// Octets before the user data of a packet's first DATA chunk, without an advertisement.
    fn data_headers_len(&self) -> usize {
        wire::COMMON_HEADER_LEN + self.data_header_len() + self.auth_overhead()
    }

    /// User bytes that fit into one DATA chunk of the current packet: more if it has no advertisement, less
    /// if it has a CWR.
    fn fragment_size_now(&self) -> usize {
        let without = self.fragment_size() + self.advertisement_len().saturating_sub(self.kept);
        without.saturating_sub(self.answer.len()).max(4)
    }

    /// Octets of AUTH before user data.
    fn auth_overhead(&self) -> usize {
        self.auth.as_ref().map_or(0, |a| a.overhead(self.data_chunk_type()))
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
        ctx.replies.abort(route, self.header(), cause, self.auth.as_deref());
    }

    fn close(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        self.control.clear();
        self.events.push_back(Event::Closed(reason));
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
        let is_idle = self.outstanding.flight(current) == 0;
        let (is_concurrent, path) = (self.is_concurrent(), self.paths.get_mut(current));
        let to = path.route;
        if is_idle && path.srtt().is_some() && !is_concurrent {
            path.sending.begin_evenly();
        }
        path.losses.begin();
        path.delays.begin();
        self.note(TraceEvent::PathSwitched { from, to });
        self.events.push_back(Event::PathSwitched { from, to });
    }

    fn report_transition(&mut self, index: PathIndex, transition: Option<crate::path::Transition>) {
        if let Some(t) = transition {
            let (route, from, to) = (self.paths.get(index).route, t.from, t.to);
            self.note(TraceEvent::PathState { route, from, to });
            //= rfc7829#3.2-19
            self.events.push_back(Event::PathChanged { route, from, to });
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
            p.info(i == self.paths.primary(), self.carries_new_data(i), self.outstanding.flight(i))
        };
        AssociationInfo {
            state: self.state.name(),
            local_port: self.local_port,
            remote_port: self.remote_port,
            local_tag: self.local_tag.0,
            peer_tag: self.peer_tag.0,
            adaptation: self.adaptation,
            extensions: self.extensions,
            zero_checksum: self.zero_checksum,
            outbound_streams: self.outbound_streams,
            inbound_streams: self.inbound_streams,
            paths: self.paths.iter().map(path).collect(),
            send_buffered: self.queue.bytes() + self.outstanding.bytes(),
            send_waiting: self.queue.bytes(),
            limited_by: self.limited_by(),
            receive_buffered: self.inbound.held(),
            memory: self.memory(),
            peer_rwnd: self.peer_rwnd,
            peer_send_buffer: self.peer_send_buffer,
            counters: self.counters,
        }
    }

    pub(crate) fn shortest_round_trip(&self) -> Option<Duration> {
        self.paths.iter().filter_map(|(_, path)| path.srtt()).min()
    }

    fn limited_by(&self) -> LimitedBy {
        match self.queue.next_length(self.fragment_size_now()) {
            None => LimitedBy::Driver,
            Some(length) if self.peer_rwnd < length => LimitedBy::Receiver,
            Some(_) => LimitedBy::Network,
        }
    }

    pub(crate) fn state_name(&self) -> StateName {
        self.state.name()
    }

    /// Recounts all counters.
    pub(crate) fn check_invariants(&self) {
        self.queue.check_invariants();
        self.outstanding.check_invariants();
        self.pr_messages.check_invariants();
        self.inbound.check_invariants();
        for (index, path) in self.paths.iter() {
            let flight = self.outstanding.flight(index);
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

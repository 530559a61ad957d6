//! An SCTP endpoint: all associations of one shard, and the state that belongs to no single association.
//!
//! Begin at [`Endpoint::handle_datagram`] and [`Endpoint::poll_transmit`].

mod addresses;
mod demux;
mod handshake;
mod join;
mod keying;
mod keys;
mod options;
mod rate_limit;
mod replies;
mod slots;
mod spent;
mod streams;
mod terms;
mod tracing;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use base::{Ecn, Route, Time};
use bytes::Bytes;
use wire::{Ppid, StreamId};

use crate::association::{Association, Context, FirstMessage, Opening};
use crate::config::{AssociationConfig, EndpointConfig, Scheduler, Timing};
use crate::cookie::CookieJar;
use crate::error::{ConnectError, SendError, StreamError};
use crate::event::{AbortCause, CloseReason, Event, Message, SendOptions};
use crate::extension::Extensions;
use crate::extension::auth::AuthConfig;
use crate::extension::protection::KEY_PPID;
use crate::info::{AssociationInfo, EndpointCounters, StateName};
use crate::memory::Pressure;
use crate::random::Random;
use crate::trace::{Trace, TraceEvent};
use rate_limit::RateLimit;
pub(crate) use replies::Replies;
pub use slots::AssociationId;
use slots::{Slot, Slots};
use spent::SpentCookies;

/// The engine: the associations of one [shard](crate::Shard) of a host. Its caller is the driver.
///
/// # A turn
///
/// The driver repeats these steps. `examples/udp/mod.rs` is a complete driver:
///
/// 1. It passes each received packet to [`handle_datagram`](Self::handle_datagram). It passes each ICMP error and each error of
///    the kernel to [`handle_path_error`](Self::handle_path_error).
/// 2. It calls [`handle_timeout`](Self::handle_timeout), which does nothing before the time of
///    [`next_timeout`](Self::next_timeout).
/// 3. It takes events from [`poll_event`](Self::poll_event) until `None`, and gives commands: [`accept`](Self::accept),
///    [`recv`](Self::recv), [`send`](Self::send) and the other methods below.
/// 4. It sends the packets that [`poll_transmit`](Self::poll_transmit) writes, until `None`. The packets of all earlier steps
///    leave here.
/// 5. It waits for a packet or for [`next_timeout`](Self::next_timeout). The time is exact only after step 4.
///
/// Commands may come at any time; steps 3 and 4 must follow them. A command about an association that does not exist, or no
/// longer exists, does nothing or returns an error. A `now` before an earlier one counts as the earlier one. No call blocks.
///
/// # An association
///
/// An association begins with [`connect`](Self::connect). Alternatively, the [`Listener`] accepts a peer's INIT,
/// [`Event::Incoming`] follows, and the driver calls [`accept`](Self::accept). From [`Event::Established`] on, both ends may
/// [`send`](Self::send). After [`Event::Readable`], [`recv`](Self::recv) must be called until `None`. After a
/// [`SendError::WouldBlock`], [`Event::Writable`] follows.
///
/// An association ends by [`shutdown`](Self::shutdown) or [`abort`](Self::abort), or through the peer or the network. In each
/// case [`Event::Closed`] follows. The association is kept until [`release`](Self::release), so the driver must release every
/// id.
///
/// # Methods by group
///
/// | group | methods |
/// |---|---|
/// | input | [`handle_datagram`](Self::handle_datagram), [`handle_path_error`](Self::handle_path_error), [`handle_timeout`](Self::handle_timeout), [`note_lateness`](Self::note_lateness) |
/// | output | [`poll_event`](Self::poll_event), [`poll_transmit`](Self::poll_transmit), [`is_waiting_to_transmit`](Self::is_waiting_to_transmit), [`next_timeout`](Self::next_timeout) |
/// | begin and end | [`connect`](Self::connect), [`connect_and_send`](Self::connect_and_send), [`add_init_routes`](Self::add_init_routes), [`accept`](Self::accept), [`refuse`](Self::refuse), [`shutdown`](Self::shutdown), [`abort`](Self::abort), [`release`](Self::release) |
/// | data | [`send`](Self::send), [`recv`](Self::recv), [`send_capacity`](Self::send_capacity), [`unacknowledged`](Self::unacknowledged), [`fragment_size`](Self::fragment_size), [`notify_when_writable`](Self::notify_when_writable), [`notify_when_dry`](Self::notify_when_dry), [`take_unsent`](Self::take_unsent) |
/// | streams | [`set_scheduler`](Self::set_scheduler), [`set_stream_priority`](Self::set_stream_priority), [`set_stream_weight`](Self::set_stream_weight), [`reset_streams`](Self::reset_streams), [`add_streams`](Self::add_streams), [`reset_association`](Self::reset_association), [`set_reconfig_policy`](Self::set_reconfig_policy) |
/// | paths | [`set_primary`](Self::set_primary), [`set_path_options`](Self::set_path_options), [`set_path_weight`](Self::set_path_weight), [`request_heartbeat`](Self::request_heartbeat), [`set_local_link`](Self::set_local_link) |
/// | addresses | [`add_local_address`](Self::add_local_address), [`remove_local_address`](Self::remove_local_address), [`set_peer_primary`](Self::set_peer_primary), [`move_to_local_address`](Self::move_to_local_address), [`set_local_uses`](Self::set_local_uses), [`tell_local_use`](Self::tell_local_use) |
/// | keys | [`set_auth_key`](Self::set_auth_key), [`activate_auth_key`](Self::activate_auth_key), [`deactivate_auth_key`](Self::deactivate_auth_key), [`delete_auth_key`](Self::delete_auth_key), [`is_keyed_by`](Self::is_keyed_by) |
/// | protection | [`protection`](Self::protection), [`epoch`](Self::epoch), [`send_key_message`](Self::send_key_message), [`install_keys`](Self::install_keys), [`know_peer`](Self::know_peer) |
/// | settings | [`set_timing`](Self::set_timing), [`set_initial_packets`](Self::set_initial_packets), [`set_advertisement`](Self::set_advertisement) |
/// | memory | [`set_user_memory`](Self::set_user_memory), [`is_memory_short`](Self::is_memory_short) |
/// | observation | [`info`](Self::info), [`state`](Self::state), [`shortest_round_trip`](Self::shortest_round_trip), [`associations`](Self::associations), [`counters`](Self::counters), [`set_tracing`](Self::set_tracing), [`poll_trace`](Self::poll_trace), [`check_invariants`](Self::check_invariants) |
pub struct Endpoint {
    config: EndpointConfig,
    /// Latest time that the driver has passed. Time never goes back here, even if the driver's clock does.
    latest: Time,
    /// Delay of the next call of `handle_timeout`, as the driver has announced it.
    late: Duration,
    random: Random,
    cookies: CookieJar,
    spent: SpentCookies,
    /// Rate limit on answers to INITs.
    inits: RateLimit,
    strays: RateLimit,
    slots: Slots,
    /// Associations that may have something to send. Before such an association has sent, its timer in `slots` may be out of
    /// date.
    ready: VecDeque<AssociationId>,
    events: VecDeque<(AssociationId, Event)>,
    replies: Replies,
    counters: EndpointCounters,
    trace: Trace,
    /// Buffer for the decrypted contents of a packet.
    opened: Vec<u8>,
}

/// Arguments of [`Endpoint::connect`]. All fields are required; `config` has the settings with defaults.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Our SCTP port.
    pub local_port: u16,
    /// The peer's SCTP port.
    pub remote_port: u16,
    /// Routes to the peer. The INIT goes on all of them at once. The first INIT ACK decides the carrier and the first path.
    pub init_routes: Vec<Route>,
    /// Our addresses, which are announced to the peer. Each pair of one of our addresses and a peer's address of the same
    /// family is a path.
    pub local_addresses: Vec<IpAddr>,
    /// Settings of the association.
    pub config: AssociationConfig,
}

/// Policy that decides which INITs are answered.
pub trait Listener {
    /// Decides on an INIT for a new association. The endpoint keeps no state of this association yet.
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision;

    /// Returns the authentication of a new association with this host. `None` means the authentication of
    /// [`EndpointConfig::association`]. The method is called at the peer's INIT, and again at its COOKIE ECHO.
    fn auth_for(&mut self, _peer: IpAddr) -> Option<AuthConfig> {
        None
    }

    /// Handles the report that a COOKIE ECHO on this route was dropped. The COOKIE ECHO was not signed, or was signed with
    /// another key. Its sender gets no answer, as RFC 4895 section 6.3 requires.
    fn on_unauthenticated(&mut self, _route: &Route) {}
}

/// An INIT that asks for a new association.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IncomingInit {
    /// Route of the INIT.
    pub route: Route,
    /// Our SCTP port.
    pub local_port: u16,
    /// The peer's SCTP port.
    pub remote_port: u16,
    /// The peer's Adaptation Layer Indication.
    pub adaptation: Option<u32>,
    /// Further addresses that the peer lists. None of them is confirmed.
    pub addresses: Vec<IpAddr>,
}

/// The decision on an INIT.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitDecision {
    /// Answers the INIT, and announces these addresses as ours.
    Accept {
        /// Our addresses. The destination of the INIT may be left out.
        local_addresses: Vec<IpAddr>,
    },
    /// Answers the INIT with these settings. All other settings come from [`EndpointConfig::association`].
    AcceptOn {
        /// Our addresses. The destination of the INIT may be left out.
        local_addresses: Vec<IpAddr>,
        /// Number of outbound streams to request, 1 to 65,535.
        outbound_streams: u16,
        /// Number of inbound streams to allow, 1 to 65,535.
        inbound_streams: u16,
        /// Extensions to offer.
        extensions: Extensions,
    },
    /// Answers with ABORT: no program listens on this port.
    Refuse,
    /// Sends no answer.
    Ignore,
}

/// A packet, or a train of packets, written into the caller's buffer. A train may contain packets of several associations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmit {
    /// Route on which the packets must be sent.
    pub route: Route,
    /// ECN bits to set.
    pub ecn: Ecn,
    /// Bytes written.
    pub len: usize,
    /// Length of each packet of the train, in bytes. The last packet may be shorter.
    pub segment_size: usize,
    /// True if IP must be allowed to fragment this packet (no DF bit). The packet is longer than the path MTU, because it
    /// repeats a chunk that was cut when the MTU was larger. Such a packet never has other packets in its train.
    pub may_fragment: bool,
    /// True if the round trips of the path are so long that packets may be waiting in this host. A driver that knows the number
    /// of waiting bytes should report it, with this packet, as [`PathError::LocalQueue`](crate::PathError::LocalQueue). Without
    /// a report, only losses, ECN marks and buffers limit the window.
    pub asks_for_queue: bool,
}

impl Endpoint {
    /// Creates an endpoint without associations. `seed` must be unpredictable to peers, because tags and cookie keys are
    /// derived from it.
    pub fn new(now: Time, config: EndpointConfig, seed: [u8; 32]) -> Endpoint {
        let mut random = Random::new(seed);
        Endpoint {
            cookies: CookieJar::new(now, config.cookie_key_lifetime, &mut random),
            slots: Slots::new(random.u64(), config.limits.memory_of_host),
            spent: SpentCookies::new(config.limits.spent_cookies, random.u64()),
            inits: RateLimit::new(config.limits.inits, config.limits.source_places, random.u64()),
            strays: RateLimit::new(config.limits.stray_answers, config.limits.source_places, random.u64()),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            replies: Replies::new(config.limits.queued_replies),
            counters: EndpointCounters::default(),
            trace: Trace::new(config.limits.trace_records),
            opened: Vec::new(),
            random,
            latest: now,
            late: Duration::ZERO,
            config,
        }
    }

    /// Begins an association; [`Event::Established`] or [`Event::Closed`] follows.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(&mut self, now: Time, connect: Connect) -> Result<AssociationId, ConnectError> {
        self.open(now, connect, None)
    }

    /// Begins an association with a message for stream 0, which leaves with the COOKIE ECHO. The peer gets the message half a
    /// round trip before this end's association is up (RFC 9260 section 5.1). RFC 6458 section 3.1.4 calls this implicit
    /// set-up. A peer that declines the association may have read the message nevertheless.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect_and_send(
        &mut self,
        now: Time,
        connect: Connect,
        ppid: Ppid,
        message: Bytes,
    ) -> Result<AssociationId, ConnectError> {
        let (length, max) = (message.len(), connect.config.send_buffer);
        if length == 0 || length > max {
            return Err(ConnectError::Message { length, max });
        }
        if ppid == KEY_PPID && connect.config.protection.is_some() {
            return Err(ConnectError::ReservedPpid);
        }
        self.open(now, connect, Some(FirstMessage { ppid, message }))
    }

    fn open(
        &mut self,
        now: Time,
        connect: Connect,
        first_message: Option<FirstMessage>,
    ) -> Result<AssociationId, ConnectError> {
        let now = self.not_back(now);
        let Some(first) = connect.init_routes.first().map(|route| route.remote) else {
            return Err(ConnectError::NoRoute);
        };
        //= rfc9260#3.1-1 3.1-2
        if connect.local_port == 0 || connect.remote_port == 0 {
            return Err(ConnectError::NoPort);
        }
        if self.slots.len() >= self.config.limits.associations {
            return Err(ConnectError::TooMany(self.config.limits.associations));
        }
        if self.pressure() >= Pressure::Full {
            return Err(ConnectError::NoMemory {
                used: self.slots.memory(),
                budget: self.config.limits.memory,
            });
        }
        if self.slots.pressure_of_host(first) >= Pressure::Full {
            return Err(ConnectError::NoMemoryForHost {
                host: first,
                used: self.slots.memory_of_host(first),
                budget: self.config.limits.memory_of_host,
            });
        }
        let remotes = connect.init_routes.iter().map(|r| r.remote);
        for remote in remotes {
            if self.owner_of(connect.local_port, connect.remote_port, remote).is_some() {
                //= rfc9260#1.3-1
                return Err(ConnectError::Exists);
            }
        }
        let mut opening = Opening {
            local_port: connect.local_port,
            remote_port: connect.remote_port,
            local_tag: self.new_tag(),
            initial_tsn: self.random.tsn(),
            local_addresses: connect.local_addresses,
            nonce: self.nonce_for(&connect.config),
            init_routes: connect.init_routes,
            first,
            t1: Time::NEVER,
            rto: connect.config.timing.rto_initial,
            retransmits: 0,
            cookie_preservative: None,
            unsent: 0,
            first_message,
            key_message: None,
            config: connect.config,
        };
        opening.begin_round(now);
        let id = self.slots.insert(Slot::Opening(Box::new(opening)));
        self.settle(id);
        Ok(id)
    }

    /// Adds routes for the INIT of an association whose INIT is not answered yet. The INIT leaves on these routes at once, and
    /// again with each retransmission. So a dead first path does not end the attempt. The limit is 32 routes in total. A route
    /// is left out if another association with the same ports has proved the route's remote address. Retransmissions leave out an
    /// address that has refused. Only a refusal by the address that was tried first ends the attempt. After the INIT ACK has
    /// come, the call has no effect.
    pub fn add_init_routes(&mut self, now: Time, id: AssociationId, routes: &[Route]) {
        self.not_back(now);
        let Some(Slot::Opening(opening)) = self.slots.get(id) else { return };
        let (local, remote) = (opening.local_port, opening.remote_port);
        //= rfc9260#1.3-1
        let is_free = |r: &&Route| self.owner_of(local, remote, r.remote).is_none_or(|other| other == id);
        let free: Vec<Route> = routes.iter().filter(is_free).copied().collect();
        if let Some(Slot::Opening(opening)) = self.slots.get_mut(id) {
            opening.add_routes(&free);
        }
        self.slots.rename(id);
        self.settle(id);
    }

    /// Returns the latest time that the driver has passed, including `now`.
    fn not_back(&mut self, now: Time) -> Time {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Reports whether another association may begin with the host at this address.
    fn has_room(&self, remote: IpAddr) -> bool {
        self.slots.len() < self.config.limits.associations
            && self.pressure().max(self.slots.pressure_of_host(remote)) < Pressure::Full
    }

    /// Returns the memory pressure on this association.
    #[inline]
    fn pressure_on(&self, id: AssociationId) -> Pressure {
        self.pressure().max(self.slots.pressure_beside(id))
    }

    fn pressure(&self) -> Pressure {
        Pressure::of(self.slots.memory(), self.config.limits.memory)
    }

    /// Returns a verification tag of our shard that no association has.
    //= rfc9260#5.3.1-3
    fn new_tag(&mut self) -> wire::VerificationTag {
        loop {
            let tag = wire::VerificationTag(self.config.shard.tag_near(self.random.tag().0));
            if self.slots.by_tag(tag).is_none() {
                return tag;
            }
        }
    }

    /// Handles all timers that have expired by `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        let now = self.not_back(now);
        for index in 0..self.ready.len() {
            self.set_timer(self.ready[index]);
        }
        while let Some(id) = self.slots.pop_expired(now) {
            match self.slots.get_mut(id) {
                Some(Slot::Opening(opening)) => {
                    if let Some(reason) = opening.on_timeout(now) {
                        self.close_opening(id, reason);
                    }
                }
                Some(Slot::Association(_)) => {
                    let late = self.late;
                    self.with(id, now, |a, ctx| {
                        a.transfer_mut().put_off(late, ctx.now);
                        a.on_timeout(ctx);
                    });
                }
                Some(Slot::Finished) | None => {}
            }
            self.settle(id);
        }
        self.late = Duration::ZERO;
    }

    /// Announces that the host was busy, so the next [`handle_timeout`](Self::handle_timeout) comes `late` after the time that
    /// [`next_timeout`](Self::next_timeout) requested. Pending timers then run for at least `late` more. During the delay,
    /// answers may have arrived that are still unread, and a peer on the same host was delayed too. A path gets no second
    /// extension before the peer is heard on it. A delay of a few milliseconds need not be announced. Delays above one second,
    /// for example after a suspension of the whole host, count as one second.
    pub fn note_lateness(&mut self, late: Duration) {
        const LATENESS_MAX: Duration = Duration::from_secs(1);
        self.late = late.min(LATENESS_MAX);
    }

    /// Ends an association that never got an INIT ACK.
    fn close_opening(&mut self, id: AssociationId, reason: CloseReason) {
        self.slots.replace(id, Slot::Finished);
        self.record(Some(id), TraceEvent::State { from: StateName::CookieWait, to: StateName::Closed });
        self.events.push_back((id, Event::Closed(reason)));
        self.settle(id);
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due; [`Time::NEVER`] if no timer runs. The time
    /// may be too early, because most timers are postponed again and again. A call of `handle_timeout` at such a time does
    /// nothing.
    pub fn next_timeout(&self) -> Time {
        let unsettled = self.ready.iter().filter_map(|&id| Some(timeout_of(self.slots.get(id)?)));
        unsettled.fold(self.slots.next_timeout(), Time::min)
    }

    /// Writes the next packets into `buf`, which should have room for at least one packet of the largest MTU. The driver must
    /// repeat the call until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.not_back(now);
        let (train, sender) = self.next_train(now, buf)?;
        Some(self.joined(now, train, sender, buf))
    }

    /// Reports whether [`poll_transmit`](Self::poll_transmit) may still return packets of this association.
    pub fn is_waiting_to_transmit(&self, id: AssociationId) -> bool {
        self.slots.is_ready(id)
    }

    /// Returns the next train of one sender: an association, or the replies.
    fn next_train(&mut self, now: Time, buf: &mut [u8]) -> Option<(Transmit, Option<AssociationId>)> {
        if let Some((route, packet)) = self.replies.pop() {
            let room = buf.get_mut(..packet.len())?;
            room.copy_from_slice(&packet);
            let len = packet.len();
            let (ecn, segment_size) = (Ecn::NotEct, len);
            let reply =
                Transmit { route, ecn, len, segment_size, may_fragment: false, asks_for_queue: false };
            return Some((reply, None));
        }
        while let Some(&id) = self.ready.front() {
            let sent = match self.slots.get_mut(id) {
                Some(Slot::Opening(opening)) => opening.poll_transmit(buf).map(|(route, len)| {
                    let (ecn, segment_size) = (Ecn::NotEct, len);
                    Transmit { route, ecn, len, segment_size, may_fragment: false, asks_for_queue: false }
                }),
                Some(Slot::Association(_)) => {
                    self.with(id, now, |a, ctx| a.poll_transmit(buf, ctx)).flatten().map(|t| Transmit {
                        route: t.route,
                        ecn: t.ecn,
                        len: t.len,
                        segment_size: t.segment_size,
                        may_fragment: t.may_fragment,
                        asks_for_queue: t.asks_for_queue,
                    })
                }
                Some(Slot::Finished) | None => None,
            };
            match sent {
                Some(transmit) => {
                    // Other associations get their turn between two trains of one association.
                    self.ready.rotate_left(1);
                    return Some((transmit, Some(id)));
                }
                None => self.end_turn(id),
            }
        }
        None
    }

    /// Removes the first association from the queue of senders, because the association has nothing to send.
    fn end_turn(&mut self, id: AssociationId) {
        self.ready.pop_front();
        self.slots.end_turn(id);
        self.set_timer(id);
    }

    /// Returns the next event. Events come in the order in which they occurred.
    pub fn poll_event(&mut self) -> Option<(AssociationId, Event)> {
        self.events.pop_front()
    }

    /// Accepts an association after [`Event::Incoming`]. COOKIE ACK leaves, and [`Event::Established`] follows.
    pub fn accept(&mut self, now: Time, id: AssociationId) {
        self.with(id, now, |a, ctx| a.accept(ctx));
    }

    /// Refuses an association after [`Event::Incoming`]. ABORT leaves, and [`Event::Closed`] follows.
    pub fn refuse(&mut self, now: Time, id: AssociationId, cause: AbortCause) {
        self.abort(now, id, cause);
    }

    /// Queues a message to be sent on `stream`.
    ///
    /// See [`SendError`]. After an error, the message was not accepted.
    pub fn send(
        &mut self,
        now: Time,
        id: AssociationId,
        stream: StreamId,
        ppid: Ppid,
        message: Bytes,
        options: SendOptions,
    ) -> Result<(), SendError> {
        self.with(id, now, |a, ctx| a.send(stream, ppid, message, options, ctx.now))
            .unwrap_or(Err(SendError::Closed))
    }

    /// Changes the rule that chooses the stream that sends next. If a message was sent in part and must not be interleaved, the
    /// rest of the message is sent first.
    pub fn set_scheduler(&mut self, now: Time, id: AssociationId, scheduler: Scheduler) {
        self.with(id, now, |a, _| a.transfer_mut().set_scheduler(scheduler));
    }

    /// Changes a stream's priority under [`Scheduler::Priority`]; 0 by default. The stream with the lowest number sends first.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn set_stream_priority(
        &mut self,
        now: Time,
        id: AssociationId,
        stream: StreamId,
        priority: u16,
    ) -> Result<(), StreamError> {
        let set = self.with(id, now, |a, _| a.set_stream_priority(stream, priority));
        set.unwrap_or(Err(StreamError::Closed))
    }

    /// Changes a stream's share under [`Scheduler::WeightedFair`]; 1 by default.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn set_stream_weight(
        &mut self,
        now: Time,
        id: AssociationId,
        stream: StreamId,
        weight: NonZeroU16,
    ) -> Result<(), StreamError> {
        let set = self.with(id, now, |a, _| a.set_stream_weight(stream, weight));
        set.unwrap_or(Err(StreamError::Closed))
    }

    /// Requests one [`Event::Writable`] for the time when the send buffer has room again. A refused [`send`](Self::send) makes
    /// the same request. The call is for drivers that do not use all of the buffer. If the buffer has room already, the event
    /// comes with the next acknowledgement.
    pub fn notify_when_writable(&mut self, now: Time, id: AssociationId) {
        self.with(id, now, |a, _| a.transfer_mut().notify_when_writable());
    }

    /// Returns the number of bytes that [`send`](Self::send) would accept now.
    pub fn send_capacity(&self, id: AssociationId) -> usize {
        self.association(id).map_or(0, |a| a.transfer().send_capacity())
    }

    /// Returns the bytes of user data that wait to be sent or are in flight; 0 if the association does not exist.
    pub fn unacknowledged(&self, id: AssociationId) -> usize {
        self.association(id).map_or(0, |a| a.transfer().unacknowledged())
    }

    /// Returns the next received message. Reading frees room in the receive window, and the peer is informed of the larger
    /// window.
    pub fn recv(&mut self, now: Time, id: AssociationId) -> Option<Message> {
        self.with(id, now, |a, ctx| a.recv(ctx.now)).flatten()
    }

    /// Sets the number of bytes that the driver itself holds for the association, for example messages that it has read and
    /// keeps. These bytes count as memory of the association, within [`Limits::memory`](crate::Limits::memory) and
    /// [`Limits::memory_of_host`](crate::Limits::memory_of_host), until the next call or the release of the association.
    pub fn set_user_memory(&mut self, id: AssociationId, bytes: usize) {
        self.slots.set_user_memory(id, bytes);
    }

    /// Reports whether the memory of all associations, or of the associations with the peer's host, has reached three quarters
    /// of its limit. The driver should then hold little data.
    pub fn is_memory_short(&self, id: AssociationId) -> bool {
        self.pressure_on(id) > Pressure::Calm
    }

    /// Returns the user bytes that fit into one DATA chunk of a full packet. Messages of exactly this length have the least
    /// overhead.
    pub fn fragment_size(&self, id: AssociationId) -> usize {
        self.association(id).map_or(0, |a| a.transfer().fragment_size())
    }

    /// Ends an established association after all its data is delivered. An association that is not established yet ends at
    /// once, and its waiting messages are discarded.
    pub fn shutdown(&mut self, now: Time, id: AssociationId) {
        if let Some(Slot::Opening(_)) = self.slots.get(id) {
            return self.abort(now, id, AbortCause::default());
        }
        self.with(id, now, |a, ctx| a.shutdown(ctx));
    }

    /// Ends an association at once, with an ABORT that carries `cause`. Before INIT ACK, no ABORT is sent, because the peer
    /// keeps no state.
    pub fn abort(&mut self, now: Time, id: AssociationId, cause: AbortCause) {
        if let Some(Slot::Opening(_)) = self.slots.get(id) {
            // The peer keeps no state of our INIT, so it needs no ABORT.
            self.close_opening(id, CloseReason::Aborted(cause));
            return self.settle(id);
        }
        self.with(id, now, |a, ctx| a.abort(cause, ctx));
    }

    /// Deletes an association. If it has not ended yet, it is aborted.
    //= rfc9260#9-1
    pub fn release(&mut self, now: Time, id: AssociationId) {
        self.abort(now, id, AbortCause::default());
        self.slots.remove(id);
    }

    /// Changes the timers and thresholds of an association.
    pub fn set_timing(&mut self, now: Time, id: AssociationId, timing: Timing) {
        self.with(id, now, |a, ctx| a.transfer_mut().set_timing(timing, ctx));
    }

    /// Sets the number of packets that may be in flight on each path before its first acknowledgement
    /// ([`AssociationConfig::initial_packets`](crate::AssociationConfig::initial_packets)). A path that has had an
    /// acknowledgement stays unchanged, unless only messages about keys were sent so far. The call is for drivers that learn
    /// the kind of peer only from the handshake.
    pub fn set_initial_packets(&mut self, now: Time, id: AssociationId, packets: u8) {
        self.with(id, now, |a, _| a.transfer_mut().set_initial_packets(packets));
    }

    /// Returns a snapshot of an association past COOKIE-WAIT.
    pub fn info(&self, id: AssociationId) -> Option<AssociationInfo> {
        self.association(id).map(Association::info)
    }

    /// Returns the smoothed round-trip time of an association's quickest path; `None` before the first measurement.
    pub fn shortest_round_trip(&self, id: AssociationId) -> Option<Duration> {
        self.association(id)?.shortest_round_trip()
    }

    /// Returns the state of an association.
    pub fn state(&self, id: AssociationId) -> Option<StateName> {
        match self.slots.get(id)? {
            Slot::Opening(_) => Some(StateName::CookieWait),
            Slot::Association(a) => Some(a.state_name()),
            Slot::Finished => Some(StateName::Closed),
        }
    }

    /// Returns all associations, in the order of their places in the endpoint's table. A new association may get the place of a
    /// released one.
    pub fn associations(&self) -> impl Iterator<Item = AssociationId> {
        self.slots.ids()
    }

    /// Returns the counters that belong to no association.
    pub fn counters(&self) -> EndpointCounters {
        let memory = self.slots.memory();
        EndpointCounters {
            replies_dropped: self.replies.dropped,
            trace_lost: self.trace.lost(),
            memory,
            ..self.counters
        }
    }

    /// Recounts all counters. Panics if one is wrong. For tests and fuzzing.
    pub fn check_invariants(&self) {
        self.slots.check_invariants();
        self.spent.check_invariants();
        for id in self.slots.ids() {
            if let Some(association) = self.association(id) {
                association.check_invariants();
            }
        }
    }

    fn association(&self, id: AssociationId) -> Option<&Association> {
        match self.slots.get(id)? {
            Slot::Association(association) => Some(association),
            Slot::Opening(_) | Slot::Finished => None,
        }
    }

    /// Runs `work` on an association. Then processes the association's events, trace and changed addresses, and queues the
    /// association for sending.
    fn with<R>(
        &mut self,
        id: AssociationId,
        now: Time,
        work: impl FnOnce(&mut Association, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let (now, pressure) = (self.not_back(now), self.pressure_on(id));
        let Some(Slot::Association(association)) = self.slots.get_mut(id) else { return None };
        association.set_pressure(pressure);
        association.transfer_mut().begin_input(now);
        let traced = self.trace.is_on().then(|| association.begin_notes());
        let mut ctx = Context {
            now,
            random: &mut self.random,
            limits: &self.config.limits,
            replies: &mut self.replies,
        };
        let result = work(association, &mut ctx);
        if association.has_news() {
            self.take_news(id);
        }
        if let Some(before) = traced {
            self.take_notes(id, before);
        }
        self.give_turn(id);
        Some(result)
    }

    /// Collects an association's events, and updates its addresses and its tag in the table.
    fn take_news(&mut self, id: AssociationId) {
        let Some(Slot::Association(association)) = self.slots.get_mut(id) else { return };
        while let Some(event) = association.poll_event() {
            self.events.push_back((id, event));
        }
        let renamed = association.take_names_changed();
        if association.state_name() == StateName::Closed {
            // The association has ended, so another one may use its tag and its peer's addresses.
            //= rfc9260#14.2-1
            self.slots.forget_names(id);
        } else if renamed {
            self.slots.rename(id);
        }
    }

    /// Queues an association that may have something to send, and updates the count of its memory. The timer is set only after
    /// the association has sent, so it is set once for all work before that.
    fn give_turn(&mut self, id: AssociationId) {
        if self.slots.on_work(id) {
            self.ready.push_back(id);
        }
    }

    fn set_timer(&mut self, id: AssociationId) {
        if let Some(next) = self.slots.get(id).map(timeout_of) {
            self.slots.set_timeout(id, next);
        }
    }

    /// Processes the events of an association, sets its timer, and queues it for sending. Callers use this after changes that
    /// were not made in [`with`](Self::with).
    fn settle(&mut self, id: AssociationId) {
        self.take_news(id);
        self.set_timer(id);
        self.give_turn(id);
    }
}

/// Returns the time at which the next timer of a slot expires.
fn timeout_of(slot: &Slot) -> Time {
    match slot {
        Slot::Opening(opening) => opening.t1,
        Slot::Association(association) => association.next_timeout(),
        Slot::Finished => Time::NEVER,
    }
}

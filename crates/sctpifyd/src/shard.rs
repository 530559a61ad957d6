//! The event loop: one thread that owns the engine, the carriers, the interceptor and all sockets.
//!
//! A turn: wait; take held SYNs, packets, ICMP reports, arrivals and commands; fire due timers; let the engine's events change
//! connections; move bytes; send packets. Nothing in it waits for anything else, because every new connection of the host hangs
//! while this thread does: the supervisor kills it after two seconds.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::Result;
use base::{Carrier, Time};
use bytes::Bytes;
use control::{Check, DoctorReport, Done, ErrorCode, Level, PathsReport, Request, Response};
use intercept::{FourTuple, Interceptor};
use mio::{Events, Token, Waker};
use relay::{ADAPTATION, Closed, Peer};
use sctp::{
    AbortCause, AddressChange, AssociationId, CloseReason, Endpoint, Event, PathState, StateName, TraceRecord,
};

use crate::accept_policy::AcceptPolicy;
use crate::addresses::AddressBook;
use crate::archive::ArchiveError;
use crate::capture::Ear;
use crate::carriers::PacketIo;
use crate::clock::Clock;
use crate::confinement;
use crate::connection::{ConnectionId, Connections, Stage};
use crate::forwarding::Forwarder;
use crate::history::{History, Line};
use crate::interception::{Interception, LISTENERS_MAX};
use crate::learned_store::LearnedStore;
use crate::policy::Policy;
use crate::poller::Poller;
use crate::probes::Probes;
use crate::pump::Pump;
use crate::report::Report;
use crate::roaming::Roaming;
use crate::rules_store::{Draft, RulesStore};
use crate::shared::{SharedAssociations, asks_to_share};
use crate::supervisor::BEAT;
use crate::survey::{Found, Gathered, Question, Surveys};
use crate::timers::{Timer, Timers};
use crate::timing;
use crate::turns::Turns;

/// Target of log lines about the engine's actions.
const ENGINE_LOG: &str = "engine";

const WAKER: Token = Token(0);
const QUEUE: Token = Token(1);
const CARRIERS: Token = Token(3);
const ADDRESSES: Token = Token(2);
const LISTENERS: Token = Token(CARRIERS.0 + netio::Carriers::TOKENS);
const CONNECTIONS: usize = LISTENERS.0 + LISTENERS_MAX;

/// Limit on the events taken from the poll in one turn.
const EVENTS_PER_TURN: usize = 1024;
/// Limit on the SYNs and arrivals taken in one turn.
const SYNS_PER_TURN: usize = 128;
/// Interval at which a carrier that could not be opened is tried again.
const CARRIERS_PAUSE: Duration = Duration::from_secs(2);
/// A turn that begins this much later than a timer asked for is late: others have the processor.
const LATE: Duration = Duration::from_millis(5);
/// Limit on the loop's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Cause code of a user-initiated ABORT (RFC 9260 section 3.3.10.12).
const USER_INITIATED_ABORT: u16 = 12;

/// Commands of other threads to the shard.
pub(crate) enum Command {
    /// Answer this.
    Ask(Request, Sender<Response>),
    /// Answer this, which covers all connections. The host's TCP listeners come with the question: the kernel takes milliseconds
    /// to list them.
    Survey(Question, Sender<Response>),
    /// Put this in force.
    Change(Box<Draft>, Sender<Result<(), String>>),
    /// Count in the rulebook what the kernel let pass.
    Count(Sender<()>),
    /// Capture traffic; the answer is the receiving end, or None if somebody captures already.
    Capture(Sender<Option<Ear>>),
    /// A plain connection outside the enclosed namespace was opened, or failed.
    Opened(FourTuple, io::Result<()>),
    /// Stop: reset connections over SCTP, release held SYNs, and end.
    Stop,
}

/// Handle by which other threads reach the shard.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl Handle {
    /// Hands a command over. It is lost if the shard has ended.
    pub(crate) fn send(&self, command: Command) {
        if self.commands.send(command).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "the event loop cannot be woken");
        }
    }

    /// Returns the answer to a command; none if the shard has ended, or takes too long.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = channel();
        self.send(question(reply));
        answer.recv_timeout(ANSWER_LIMIT).ok()
    }

    /// Puts a change in force that is written already.
    pub(crate) fn put_in_force(&self, draft: Draft) -> Result<(), ArchiveError> {
        let outcome = self.ask(|reply| Command::Change(Box::new(draft), reply));
        let none = || {
            Err("written, but the daemon is stopping or overloaded and has not said whether it is in force"
                .into())
        };
        outcome.unwrap_or_else(none).map_err(ArchiveError::Failed)
    }
}

/// The event loop and all it owns.
pub(crate) struct Shard {
    pub(crate) poller: Poller,
    pub(crate) now: Time,
    pub(crate) engine: Endpoint,
    pub(crate) interception: Interception,
    pub(crate) packet_io: PacketIo,
    pub(crate) policy: Policy,
    pub(crate) probes: Probes,
    pub(crate) connections: Connections,
    pub(crate) shared: SharedAssociations,
    pub(crate) history: History,
    /// Reports that are being gathered.
    pub(crate) surveys: Surveys,
    /// Durations of turns.
    pub(crate) turns: Turns,
    pub(crate) timers: Timers<Timer>,
    /// Data of an association took another path in this turn: an interface may be gone.
    pub(crate) has_switched: bool,
    /// A program waits for a due packet: it goes before bytes of other connections.
    pub(crate) is_urgent: bool,
    pub(crate) pump: Pump,
    /// Privileges that this process has given up; none until that is reported.
    pub(crate) confinement: control::Confinement,
    /// The reason why there is no page although there should be one.
    pub(crate) page_fault: Option<String>,
    clock: Clock,
    commands: Receiver<Command>,
    heartbeat: Option<io::Stdout>,
    next_beat: Time,
}

/// Returns the token of a connection's socket.
pub(crate) fn token_of(id: ConnectionId) -> Token {
    // 2^64 connections are never reached, and usize is not smaller on the systems we run on.
    Token(CONNECTIONS + id.0 as usize)
}

/// Returns the cause of an ABORT that we or an application request.
pub(crate) fn user_abort() -> AbortCause {
    AbortCause { code: USER_INITIATED_ABORT, reason: Bytes::new() }
}

impl Shard {
    /// Joins all parts; `heartbeat` is set if a supervisor listens on standard output.
    pub(crate) fn new(
        interceptor: Interceptor,
        mut packet_io: PacketIo,
        rules: RulesStore,
        learned: LearnedStore,
        seed: [u8; 32],
        heartbeat: bool,
    ) -> Result<(Shard, Handle)> {
        let clock = Clock::start();
        let poller = Poller::new(clock)?;
        let registry = poller.registry();
        let waker = Arc::new(Waker::new(registry, WAKER)?);
        let interception = Interception::new(interceptor, registry, QUEUE, LISTENERS)?;
        packet_io.open(registry, CARRIERS);
        let settings = rules.settings();
        let addresses = AddressBook::open(settings.interfaces, settings.loopback)?;
        addresses.register(poller.registry(), ADDRESSES)?;
        let config = timing::endpoint_config(addresses.mtu(), &rules.settings());
        let shared = SharedAssociations::new(config.limits.memory);
        let mut engine = Endpoint::new(clock.now(), config, seed);
        engine.set_tracing(tracing::enabled!(target: ENGINE_LOG, tracing::Level::TRACE));
        let (sender, commands) = channel();
        let shard = Shard {
            poller,
            now: clock.now(),
            engine,
            interception,
            packet_io,
            policy: Policy::new(rules, learned, addresses),
            probes: Probes::default(),
            connections: Connections::default(),
            shared,
            history: History::default(),
            surveys: Surveys::default(),
            turns: Turns::default(),
            timers: Timers::new(),
            has_switched: false,
            is_urgent: false,
            pump: Pump::new(),
            confinement: control::Confinement::default(),
            page_fault: None,
            clock,
            commands,
            heartbeat: heartbeat.then(io::stdout),
            next_beat: Time::ZERO,
        };
        Ok((shard, Handle { commands: sender, waker }))
    }

    /// Runs until a command stops it; then takes interception down.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let mut more = true;
        self.timers.set(self.now, Timer::Probes);
        self.interception.forget_old_guard(self.policy.rules());
        self.interception.begin_naming(self.now, &mut self.timers);
        self.timers.set(self.now + CARRIERS_PAUSE, Timer::Carriers);
        while !self.policy.is_stopping() {
            self.wait(&mut events, more)?;
            self.beat();
            self.take_events(&events);
            more = self.turn()?;
            self.turns.note(self.clock.now() - self.now);
        }
        self.release_all_syns();
        for id in self.connections.ids() {
            self.drop_connection(id);
        }
        self.shared.abort_all(self.now, &mut self.engine);
        self.transmit();
        self.interception.tear_down()
    }

    fn wait(&mut self, events: &mut Events, more: bool) -> Result<()> {
        let next = self.engine.next_timeout().min(self.timers.next()).min(self.next_beat);
        self.now = self.poller.wait(events, next, more, &self.pump, &mut self.interception)?;
        let late = self.now.since(next);
        if late > LATE {
            self.engine.note_lateness(late);
        }
        Ok(())
    }

    /// Shows the supervisor and the kernel that this loop turns.
    fn beat(&mut self) {
        if self.now < self.next_beat {
            return;
        }
        self.next_beat = self.now + BEAT;
        self.interception.show_life();
        // A failure is logged there, and the next beat tries again.
        let _ = self.interception.follow_required(self.policy.rules());
        if let Some(out) = &mut self.heartbeat {
            // Without a supervisor nobody minds; its end is noticed on standard input.
            let _ = out.write_all(b".").and_then(|()| out.flush());
        }
    }

    fn take_events(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => {}
                QUEUE => self.interception.on_queue_ready(),
                ADDRESSES => {
                    self.policy.refresh_addresses();
                    self.packet_io.on_interfaces_changed();
                    self.keep_addresses();
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
        match &mut connection.stage {
            Stage::Relaying(flowing) => {
                flowing.readable |= event.is_readable() || event.is_read_closed();
                flowing.writable |= event.is_writable();
                flowing.hung_up |= event.is_read_closed() || event.is_priority();
                flowing.broken |= event.is_error();
                self.pump.mark(id);
            }
            Stage::Connecting(_) if event.is_writable() || event.is_error() => self.on_local_connected(id),
            Stage::Accepting(_) if event.is_error() => self.drop_connection(id),
            _ => {}
        }
    }

    /// Runs one turn; reports whether more can be done at once.
    fn turn(&mut self) -> Result<bool> {
        self.take_commands();
        self.take_syns()?;
        self.take_arrivals();
        let mut more = self.take_packets() | self.interception.has_more();
        self.packet_io.report_errors(self.now, &mut self.engine);
        // Packets that have arrived count before any timer.
        self.look_for_init_acks();
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
            self.keep_unwritten(id);
        }
        self.shared.flush_all(self.now, &mut self.engine);
        self.take_engine_events();
        more |= self.transmit();
        more |= self.survey();
        self.log_trace();
        Ok(more)
    }

    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => self.policy.stop(),
                Command::Capture(reply) => {
                    let _ = reply.send(self.packet_io.tap(self.now));
                }
                Command::Opened(flow, outcome) => self.interception.on_opened(&flow, &outcome),
                // The asker may have given up: then nobody waits for the answer.
                Command::Ask(request, reply) => {
                    let _ = reply.send(self.answer(&request));
                }
                Command::Survey(question, reply) => self.surveys.begin(question, reply),
                Command::Change(draft, reply) => {
                    let _ = reply.send(self.put_in_force(*draft));
                }
                Command::Count(reply) => {
                    self.interception.count_passed(self.policy.rules(), &mut self.history);
                    let _ = reply.send(());
                }
            }
        }
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

    fn take_packets(&mut self) -> bool {
        let now = self.now;
        let (packet_io, engine, mut accept_policy) = self.receivers();
        packet_io.receive(now, |route, ecn, packet| {
            engine.handle_datagram(now, route, ecn, packet, &mut accept_policy)
        })
    }

    /// Returns the parts that take packets: the carriers, the engine, and the admission of connections to local programs.
    pub(crate) fn receivers(&mut self) -> (&mut PacketIo, &mut Endpoint, AcceptPolicy<'_>) {
        let accept_policy = AcceptPolicy {
            now: self.now,
            policy: &self.policy,
            interception: &mut self.interception,
            history: &mut self.history,
            connections: &self.connections,
            shared: &self.shared,
        };
        (&mut self.packet_io, &mut self.engine, accept_policy)
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Race(id) => self.on_race_lost(id),
                Timer::AttemptDelay(id) => self.on_attempt_delay_over(id),
                Timer::Cookie(id) => self.on_cookie_late(id),
                Timer::Claim(id) => self.on_unclaimed(id),
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
                    self.shared.on_opening_late(self.now, association, &mut self.engine);
                }
                Timer::SharedIdle(association) => self.on_shared_idle(association),
            }
        }
    }

    /// Retries carriers that could not be opened: another program may have had the port.
    fn open_carriers(&mut self) {
        if self.packet_io.is_lacking() {
            self.packet_io.open(self.poller.registry(), CARRIERS);
            self.timers.set(self.now + CARRIERS_PAUSE, Timer::Carriers);
        }
    }

    /// Logs the engine's trace, if asked for (`--log engine=trace`).
    fn log_trace(&mut self) {
        while let Some(TraceRecord { association, event, .. }) = self.engine.poll_trace() {
            let association = association.map(AssociationId::number);
            tracing::trace!(target: ENGINE_LOG, association, ?event);
        }
    }

    fn take_engine_events(&mut self) {
        while let Some((association, event)) = self.engine.poll_event() {
            self.on_engine_event(association, event);
        }
    }

    fn on_engine_event(&mut self, association: AssociationId, event: Event) {
        self.on_shared_event(association, &event);
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
                self.on_incoming(association, server, client, (&route, peer));
            }
            (Event::Established { route, adaptation, .. }, Some(id)) => {
                self.on_established(id, association, route.carrier, adaptation);
            }
            (Event::Readable | Event::Writable, Some(id)) => {
                self.pump.mark(id);
            }
            (Event::PeerShutdown, Some(id)) => self.on_peer_shutdown(id),
            (Event::PathSwitched { from, to }, _) => {
                if let Some(left_out) = self.history.admit(Line::Switch, self.now) {
                    tracing::info!(?from, ?to, left_out, "path switched");
                }
                self.packet_io.note_switch(&from, &to);
                let number = id.or_else(|| Some(self.shared.get(association)?.number()));
                self.history.switched(self.now, association, number.map(|id| id.0), (&from, &to));
                self.has_switched = true;
            }
            (Event::PathChanged { route, from, to }, _) => {
                tracing::debug!(?route, ?from, ?to, "path");
                if to == PathState::Active {
                    self.roaming().on_path_up(association, &route);
                }
            }
            (Event::PeerPort { from, to }, _) => {
                if let Some(left_out) = self.history.admit(Line::Port, self.now) {
                    tracing::info!(?from, ?to, left_out, "the peer's UDP port");
                }
            }
            (Event::PathMtu { route, from, to }, _) => tracing::debug!(?route, from, to, "MTU of a path"),
            (Event::AddressChange { change, refusal }, _) => {
                if let Some(left_out) = self.history.admit(Line::Answer, self.now) {
                    tracing::info!(?change, ?refusal, left_out, "the peer answers a change of our addresses");
                }
            }
            // A new path of the data is reported where it is taken.
            (Event::PeerAddressChange(change @ AddressChange::SetPrimary(_)), _) => {
                tracing::debug!(?change, "the peer's wish");
            }
            (Event::PeerAddressChange(change), _) => {
                if let Some(left_out) = self.history.admit(Line::Address, self.now) {
                    tracing::info!(?change, left_out, "the peer's addresses");
                }
            }
            (Event::Closed(reason), id) => self.on_closed(association, id, &reason),
            // The daemon sends nothing that may be abandoned.
            (
                Event::Abandoned { .. }
                | Event::Dry
                | Event::StreamReset { .. }
                | Event::AssociationReset { .. }
                | Event::StreamsChanged { .. }
                | Event::PeerSendBuffer(_),
                _,
            ) => {}
            (Event::Established { .. } | Event::Readable | Event::Writable | Event::PeerShutdown, None) => {}
        }
    }

    fn on_established(
        &mut self,
        id: ConnectionId,
        association: AssociationId,
        carrier: Carrier,
        adaptation: Option<u32>,
    ) {
        tracing::debug!(is_shim = (adaptation == Some(ADAPTATION)), "association up");
        match self.connections.get(id).map(|connection| &connection.stage) {
            Some(Stage::Init(syn) | Stage::Cookie(syn)) => {
                let (syn, peer) = (*syn, Peer::of_adaptation(adaptation));
                self.engine.set_timing(self.now, association, timing::timing(peer, self.connections.len()));
                self.engine.set_initial_packets(self.now, association, timing::initial_packets(peer));
                self.on_client_up(id, syn, peer, carrier);
            }
            Some(Stage::Accepting(_)) => self.on_server_up(id),
            _ => {}
        }
    }

    fn on_peer_shutdown(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.peer_shutdown = true;
        if let Stage::Relaying(flowing) = &mut connection.stage {
            flowing.relay.on_peer_shutdown();
            self.pump.mark(id);
        }
    }

    fn on_closed(&mut self, association: AssociationId, id: Option<ConnectionId>, reason: &CloseReason) {
        self.history.forget(association);
        let counters = self.engine.info(association).map(|info| info.counters);
        tracing::debug!(?reason, ?counters, "association closed");
        let Some(id) = id else {
            self.probes.on_closed(association, reason, &self.policy);
            self.engine.release(self.now, association);
            return;
        };
        let how = if *reason == CloseReason::Graceful { Closed::Gracefully } else { Closed::Lost };
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Stage::Init(syn) | Stage::Cookie(syn) = connection.stage {
            connection.closed = Some(how);
            self.on_client_failed(id, syn, reason);
        } else {
            self.on_association_closed(id, how);
        }
    }

    /// Serves a command's enclosed namespace from now on.
    pub(crate) fn serve_command(&mut self, forwarder: Forwarder) {
        self.interception.serve_command(forwarder);
    }

    pub(crate) const fn interceptor(&self) -> &Interceptor {
        self.interception.interceptor()
    }

    /// Puts a change of rules, settings or keys in force, in the kernel and here.
    ///
    /// # Errors
    /// The change is in force here, but the kernel follows the rules before. It is tried again.
    fn put_in_force(&mut self, draft: Draft) -> Result<(), String> {
        // The old rules decided about connections until now.
        let held = self.interception.begin_change(self.policy.rules(), &mut self.history);
        self.policy.rules().install(draft);
        let required = self.interception.follow_change(self.now, self.policy.rules(), &mut self.timers);
        self.let_go_of_unnamed();
        held.and(required)
    }

    fn report(&self) -> Report<'_> {
        Report {
            now: self.now,
            engine: &self.engine,
            policy: &self.policy,
            packet_io: &self.packet_io,
            connections: &self.connections,
            shared: &self.shared,
            history: &self.history,
        }
    }

    /// Continues the requested reports; reports whether more is to do.
    fn survey(&mut self) -> bool {
        if self.surveys.is_empty() {
            return false;
        }
        let mut surveys = std::mem::take(&mut self.surveys);
        let gathered = surveys.proceed(self.clock, &self.report());
        self.surveys = surveys;
        if let Some(Gathered { question, reply, found }) = gathered {
            // The asker may have given up: then nobody waits for the answer.
            let _ = reply.send(self.answer_survey(question, found));
        }
        !self.surveys.is_empty()
    }

    fn answer_survey(&mut self, question: Question, found: Found) -> Response {
        match question {
            Question::Status(_) => {
                self.interception.count_passed(self.policy.rules(), &mut self.history);
                let (turns, confinement) = (self.turns.report(), self.confinement.clone());
                Response::Status(Box::new(self.report().status(found, turns, confinement)))
            }
            Question::Paths => Response::Paths(PathsReport { associations: found.associations }),
            Question::Explain(destination) => {
                Response::Explanation(Box::new(self.report().explain(destination, found.live)))
            }
        }
    }

    /// Answers requests that need the shard's state.
    fn answer(&mut self, request: &Request) -> Response {
        match request {
            Request::Doctor { peer } => Response::Doctor(self.doctor(*peer)),
            Request::Drain => {
                self.policy.drain();
                Response::Done(Done::new("new connections are plain TCP; live ones go on"))
            }
            _ => Response::error(ErrorCode::BadRequest, "this is not asked of the packet loop"),
        }
    }

    fn doctor(&mut self, peer: Option<IpAddr>) -> DoctorReport {
        let delivery = self.interception.delivery_checks(self.now, self.policy.rules());
        let mut process = confinement::checks(&self.confinement);
        process.extend(self.page_fault.iter().map(|fault| {
            let remedy = "sctpify set page_port=PORT, 0 for no page; then restart sctpifyd";
            Check::bad("page", Level::Warning, fault.clone(), remedy)
        }));
        self.report().doctor(peer, self.interception.is_enclosed(), delivery, process)
    }

    fn roaming(&mut self) -> Roaming<'_> {
        Roaming {
            now: self.now,
            engine: &mut self.engine,
            policy: &mut self.policy,
            interception: &self.interception,
            connections: &self.connections,
            shared: &self.shared,
        }
    }

    fn follow_uplinks(&mut self) {
        self.interception.follow_uplinks(
            &mut self.connections,
            &self.engine,
            self.policy.addresses(),
            &self.packet_io,
        );
    }

    /// Returns the state of an association, if it exists.
    pub(crate) fn state_of(&self, association: AssociationId) -> Option<StateName> {
        self.engine.state(association)
    }

    /// Sends the engine's packets; reports whether it may have more at once.
    pub(crate) fn transmit(&mut self) -> bool {
        self.packet_io.transmit(self.now, &mut self.engine, self.policy.addresses())
    }
}

//! Drives connections from the held SYN to their end. Each step follows from a held SYN, a packet, a timer or an event of the engine.
//!
//! The [`Driver`] owns the engine and the parts around it. Each part keeps its state private. The driver lends one part to another, and
//! acts on the results.
//!
//! Calls have one direction. [`events`] runs a turn, and calls the steps of connections. [`client`] holds the steps for connections of
//! local programs, and [`server`] the steps for connections of peers. The steps call the operations in this file. Most steps involve nearly
//! all parts: they end a connection, send its ABORT, give the verdict on its SYN, and record the outcome. All steps are therefore methods
//! of [`Driver`], which has about 100 methods.

mod client;
mod events;
mod server;

use std::io;
use std::net::IpAddr;

use anyhow::Result;
use base::Time;
use control::{Check, DoctorReport, EventsReport, Role};
use intercept::Interceptor;
use mio::net::TcpStream;
use mio::{Token, Waker};
use relay::{Closed, Role as RelayRole};
use sctp::{AbortCause, Endpoint};

use crate::accept_policy::AcceptPolicy;
use crate::addresses::AddressBook;
use crate::capture::Ear;
use crate::carriers::PacketIo;
use crate::clock::{Clock, unix_ms};
use crate::connection::{ConnectionId, Connections, Stage};
use crate::encryption::Encryption;
use crate::flowing::INTERESTS;
use crate::forwarding::Forwarder;
use crate::framing::relay_for;
use crate::history::History;
use crate::interception::{Interception, LISTENERS_MAX};
use crate::learned_store::LearnedStore;
use crate::path_events::PathEvents;
use crate::policy::Policy;
use crate::poller::Poller;
use crate::probes::Probes;
use crate::pump::Pump;
use crate::report::Report;
use crate::roaming::Roaming;
use crate::rules_store::RulesStore;
use crate::shared::SharedAssociations;
use crate::timers::{Timer, Timers};
use crate::timing;
use crate::unproven::Unproven;

/// Target of log lines about the engine's actions.
const ENGINE_LOG: &str = "engine";

const WAKER: Token = Token(0);
const QUEUE: Token = Token(1);
const CARRIERS: Token = Token(3);
const ADDRESSES: Token = Token(2);
const LISTENERS: Token = Token(CARRIERS.0 + netio::Carriers::TOKENS);
const CONNECTIONS: usize = LISTENERS.0 + LISTENERS_MAX;

/// The engine and the parts around it.
pub(crate) struct Driver {
    poller: Poller,
    /// Time of the current turn.
    now: Time,
    timers: Timers<Timer>,
    engine: Endpoint,
    packet_io: PacketIo,
    policy: Policy,
    interception: Interception,
    connections: Connections,
    shared: SharedAssociations,
    pump: Pump,
    probes: Probes,
    encryption: Encryption,
    unproven: Unproven,
    history: History,
    path_events: PathEvents,
    started_unix_ms: u64,
    /// True if data of an association moved to another path in this turn. The uplinks of connections may then change.
    has_switched: bool,
    /// True if a program waits until a queued packet is sent. The loop sends this packet before it moves bytes of other connections.
    is_urgent: bool,
}

/// Returns the token of a connection's socket.
fn token_of(id: ConnectionId) -> Token {
    // `usize` has 64 bits on all supported systems. 2^64 connections are never reached.
    Token(CONNECTIONS + id.0 as usize)
}

impl Driver {
    /// Creates the driver. Opens the carriers and the address book, and joins them with the given parts.
    pub(crate) fn new(
        clock: Clock,
        interceptor: Interceptor,
        mut packet_io: PacketIo,
        (rules, learned, encryption): (RulesStore, LearnedStore, Encryption),
        seed: [u8; 32],
    ) -> Result<Driver> {
        let poller = Poller::new(clock)?;
        let registry = poller.registry();
        let interception = Interception::new(interceptor, registry, QUEUE, LISTENERS)?;
        packet_io.open(registry, CARRIERS);
        let settings = rules.settings();
        let addresses =
            AddressBook::open(settings.interfaces.clone(), settings.links.clone(), settings.loopback)?;
        addresses.register(registry, ADDRESSES)?;
        let config = timing::endpoint_config(addresses.mtu(), &settings);
        let shared = SharedAssociations::new(config.limits.memory);
        let mut engine = Endpoint::new(clock.now(), config, seed);
        engine.set_tracing(tracing::enabled!(target: ENGINE_LOG, tracing::Level::TRACE));
        Ok(Driver {
            poller,
            now: clock.now(),
            timers: Timers::new(),
            engine,
            packet_io,
            policy: Policy::new(rules, learned, addresses),
            interception,
            connections: Connections::default(),
            shared,
            pump: Pump::new(),
            probes: Probes::default(),
            unproven: Unproven::default(),
            encryption,
            history: History::default(),
            path_events: PathEvents::default(),
            started_unix_ms: unix_ms(),
            has_switched: false,
            is_urgent: false,
        })
    }

    /// Returns the waker with which other threads end the loop's wait.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poller.registry(), WAKER)
    }

    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    pub(crate) const fn interceptor(&self) -> &Interceptor {
        self.interception.interceptor()
    }

    /// Serves the enclosed namespace of a command from now on.
    pub(crate) fn serve_command(&mut self, forwarder: Forwarder) {
        self.interception.serve_command(forwarder);
    }

    pub(crate) const fn policy(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// Starts a capture of packets. Returns `None` if another capture is active.
    pub(crate) fn tap(&mut self) -> Option<Ear> {
        self.packet_io.tap(self.now)
    }

    /// Signals to the kernel that SYNs are served. Restores rules that others have removed from the kernel.
    pub(crate) fn show_life(&mut self) {
        self.interception.show_life();
        // `follow_required` logs a failure. The next call of `show_life` tries again.
        let _ = self.interception.follow_required(self.policy.rules());
    }

    /// Adds to the rulebook's counts the connections that the kernel let pass.
    pub(crate) fn count_passed(&mut self) {
        self.interception.count_passed(self.policy.rules(), &mut self.history);
    }

    /// Returns the path events whose numbers are higher than `number`.
    pub(crate) fn events_after(&self, number: u64) -> EventsReport {
        EventsReport {
            events: self.path_events.after(number),
            count: self.path_events.count(),
            started_unix_ms: self.started_unix_ms,
        }
    }

    pub(crate) fn report(&self) -> Report<'_> {
        Report {
            now: self.now,
            engine: &self.engine,
            policy: &self.policy,
            packet_io: &self.packet_io,
            connections: &self.connections,
            shared: &self.shared,
            encryption: &self.encryption,
            history: &self.history,
            path_events: &self.path_events,
            started_unix_ms: self.started_unix_ms,
        }
    }

    /// Returns the checks of `sctpify doctor`. `process` holds the checks of the process itself.
    pub(crate) fn doctor(&mut self, peer: Option<IpAddr>, process: Vec<Check>) -> DoctorReport {
        let delivery = self.interception.delivery_checks(self.now, self.policy.rules());
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

    /// Returns the parts that handle received packets: the carriers, the engine, and the accept policy.
    fn receivers(&mut self) -> (&mut PacketIo, &mut Endpoint, AcceptPolicy<'_>) {
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

    /// Sends the engine's packets. Reports whether the engine may have more packets now.
    fn transmit(&mut self) -> bool {
        self.packet_io.transmit(self.now, &mut self.engine, self.policy.addresses())
    }

    /// Begins the relay between a local TCP socket and the association of its connection.
    fn begin_relay(&mut self, id: ConnectionId, mut stream: TcpStream, role: RelayRole) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if role == RelayRole::Initiator
            && let Err(error) = self.poller.registry().register(&mut stream, token_of(id), INTERESTS)
        {
            tracing::warn!(%error, "a connection cannot be polled");
            self.drop_connection(id);
            return;
        }
        // A connection on a shared association never shuts the association down.
        let part = if connection.channel().is_some() { RelayRole::Acceptor } else { role };
        let relay = relay_for(connection, self.policy.rules(), part);
        connection.begin_relay(stream, relay);
        self.pump.mark(id);
    }

    /// Forgets a connection and closes its socket. The socket is reset unless the connection's relay has ended in order. Releases the
    /// channel of the connection, or the connection's separate association if this association has ended. A separate association that has
    /// not ended stays in the engine until its end.
    fn finish(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(id) else { return };
        match connection.role() {
            Role::Client => {
                self.interception.end_diversion_later(self.now, connection.flow(), &mut self.timers)
            }
            Role::Server => self.interception.forget_served(self.now, connection.flow(), &mut self.timers),
        }
        match connection.channel() {
            Some(channel) => {
                let (engine, timers) = (&mut self.engine, &mut self.timers);
                let channel = (connection.association(), channel);
                self.shared.release(self.now, channel, engine, &self.policy, timers);
            }
            None if connection.is_closed() => self.engine.release(self.now, connection.association()),
            None => self.engine.set_user_memory(connection.association(), 0),
        }
        self.interception.release_addresses(&self.connections, self.policy.addresses());
    }

    /// Ends a connection at once. Aborts the connection's separate association or releases its channel, and closes its socket.
    fn drop_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        if !connection.is_closed() && connection.channel().is_none() {
            self.engine.abort(self.now, connection.association(), AbortCause::user(""));
        }
        self.finish(id);
    }

    /// Handles the end of a connection's association.
    fn on_association_closed(&mut self, id: ConnectionId, how: Closed) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.on_closed(how);
        match connection.stage() {
            Stage::Relaying(_) => self.pump.mark(id),
            // The program's diverted connection has not arrived yet. When the connection arrives, the program still gets the received data.
            Stage::Diverted => {}
            Stage::Init(_)
            | Stage::Cookie(_)
            | Stage::Asking(_)
            | Stage::Connecting(_)
            | Stage::Accepting(_) => self.drop_connection(id),
        }
    }
}

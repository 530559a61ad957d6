//! The core of a proxy and registrar (RFC 3261 sections 10 and 16, with RFC 6026, 5393, 3581, 3327 and 5658).
//!
//! In: [`Proxy::handle_message`], [`Proxy::handle_timeout`], [`Proxy::handle_send_failure`]. Out: [`Proxy::poll_output`], until
//! it returns `None`, and [`Proxy::next_timeout`]. Invariants: a server transaction gets one final response; a branch
//! ends once; nothing is kept that is not counted in [`ProxyLimits`]. Begin with `inbound` for requests and `response` for
//! responses; `redirect` and `stateless` implement the other modes.

mod access;
mod acks;
mod auth;
pub(crate) mod cancel;
mod cluster;
mod config;
mod contacts;
mod copies;
mod dialogs;
mod drain;
mod flows;
mod forward;
pub(crate) mod inbound;
mod keys;
mod loops;
mod marks;
mod memory_budget;
mod names;
mod ours;
mod outbox;
mod own_routes;
mod performance;
mod redirect;
mod registrar;
mod response;
mod route;
mod routing;
mod shared;
mod stateless;
mod stateless_via;
mod tags;
mod target;
#[cfg(test)]
mod testing;
mod timers;
mod tokens;

pub use access::Access;
pub(crate) use auth::Proof;
pub use cluster::Presence;
pub use config::{
    Authentication, Expiry, Listener, Mode, NextHop, ProxyConfig, ProxyLimits, RecordName, Shared,
};
pub use dialogs::Dialog;
pub use keys::fingerprint;
pub use names::{Lookup, ResolvedTarget};
pub use outbox::{Counters, Outgoing, Output};
pub use performance::{Attempt, Attempts, Histogram, Performance, Times};
pub use shared::{Finding, Query, Record, Wanted};

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use base::Time;
use bytes::Bytes;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use self::auth::Authenticator;
use self::dialogs::Leg;
use self::flows::Flows;
use self::loops::Loops;
use self::marks::DialogMarks;
use self::outbox::{Event, Outbox};
use self::registrar::Registrar;
use self::routing::Routing;
use self::stateless_via::StatelessVia;
use self::tags::Tags;
use self::target::Target;
use self::tokens::HopTokens;
use crate::address::Address;
use crate::digest::Nonces;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::location::{Change, Location};
use crate::message::Message;
use crate::transaction;
use crate::transport::Hop;

/// The number of a server or client transaction; never reused.
type Id = u64;

/// A request that is being answered or forwarded.
#[derive(Debug)]
struct Server {
    machine: transaction::Server,
    key: Box<[u8]>,
    /// The hop for responses.
    hop: Hop,
    dialog: u32,
    /// The sequence number of its CSeq.
    cseq: u32,
    measured: performance::Measured,
    /// The last response.
    last: Option<Bytes>,
    /// The request, until it has its final response.
    request: Option<Message>,
    /// Branches, including ended ones.
    branches: Vec<Id>,
    /// Targets that may have to be tried later.
    plan: Option<Box<forward::Plan>>,
    /// CANCEL has come.
    is_cancelled: bool,
    /// A branch was not sent because too much waited for its next hop.
    is_congested: bool,
    /// Another proxy sent this here for a flow of ours.
    is_by_flow: bool,
    /// The dialog that it may create.
    leg: Option<dialogs::Leg>,
    /// Branches without a final response.
    open: usize,
    /// The best final response not forwarded.
    best: Option<Message>,
    /// Time of its entry in the timer heap.
    wake: Time,
    charge: memory_budget::Charge,
}

/// The key common to an ACK for a 2xx and its INVITE: the dialog's number, and that of CSeq.
type AckKey = (u32, u32);

impl Server {
    fn ack_key(&self) -> AckKey {
        (self.dialog, self.cseq)
    }

    /// Returns the bytes that it keeps.
    fn weight(&self) -> usize {
        let messages = self.request.iter().chain(&self.best).map(memory_budget::weight).sum::<usize>();
        memory_budget::TRANSACTION + 2 * self.key.len() + messages + self.last.as_ref().map_or(0, Bytes::len)
    }
}

/// A request that was sent.
#[derive(Debug)]
struct Client {
    machine: transaction::Client,
    /// The recipient of responses; `None`: nobody, as for CANCEL.
    server: Option<Id>,
    hop: Hop,
    domain: Option<Arc<str>>,
    dialog: u32,
    /// The branch parameter of our Via.
    branch: Box<[u8]>,
    /// The request as sent, until a final response.
    request: Option<Message>,
    /// The message to retransmit: the request, later the ACK.
    bytes: Bytes,
    /// Alternative targets.
    target: Option<Box<target::Target>>,
    /// The transaction of the CANCEL for this one.
    cancel: Option<Id>,
    /// CANCEL is sent as soon as a provisional response has arrived (RFC 3261 section 9.1).
    wants_cancel: bool,
    /// Timer C, for INVITEs.
    timer_c: Time,
    wake: Time,
    charge: memory_budget::Charge,
}

impl Client {
    /// Returns the bytes that it keeps.
    fn weight(&self) -> usize {
        memory_budget::TRANSACTION + self.request.as_ref().map_or(0, memory_budget::weight) + self.bytes.len()
    }
}

/// Server before client, so that the order is total.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Sleeper {
    Server(Id),
    Client(Id),
    Ack(Id),
    Location,
}

/// A proxy with its registrar.
#[derive(Debug)]
pub struct Proxy {
    config: ProxyConfig,
    authenticator: Authenticator,
    loops: Loops,
    marks: DialogMarks,
    flows: Flows,
    tags: Tags,
    stateless_via: StatelessVia,
    registrar: Registrar,
    cluster: cluster::Cluster,
    rng: ChaCha12Rng,
    next_id: Id,
    /// The boxes here and below keep the tables' spare capacity cheap.
    servers: HashMap<Id, Box<Server>>,
    server_keys: HashMap<Box<[u8]>, Id>,
    clients: HashMap<Id, Box<Client>>,
    acks: HashMap<Id, acks::SentAck>,
    /// Accepted INVITEs whose ACK has not passed; each has a transaction.
    unacknowledged: HashSet<AckKey>,
    drain: Option<drain::Drain>,
    wakes: BinaryHeap<Reverse<(Time, Sleeper)>>,
    dialogs: dialogs::Dialogs,
    access_control: access::AccessControl,
    memory_budget: memory_budget::MemoryBudget,
    names: names::Names,
    outbox: Outbox,
}

impl Proxy {
    /// Creates a proxy without bindings; `seed` must be unpredictable.
    pub fn new(now: Time, config: ProxyConfig, seed: [u8; 32]) -> Proxy {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let mut secret = || {
            let mut bytes = [0; 32];
            rng.fill_bytes(&mut bytes);
            bytes
        };
        let (nonce_secret, loop_secret, own) = (secret(), secret(), secret());
        let dialog_secret = config.dialog_secret.unwrap_or(own);
        let nonces = match config.shared {
            None => Nonces::new(nonce_secret),
            Some(Shared { origin }) => {
                Nonces::shared(keys::derived(&dialog_secret, "nonces"), origin, rng.next_u64())
            }
        };
        let registrar = Registrar::new(config.location);
        let dialogs = dialogs::Dialogs::new(config.limits.dialogs);
        let run = rng.next_u64();
        Proxy {
            config,
            authenticator: Authenticator::new(nonces),
            loops: Loops::new(loop_secret),
            marks: DialogMarks::new(dialog_secret),
            flows: Flows::new(HopTokens::new(keys::derived(&dialog_secret, "flows"), run)),
            tags: Tags::new(&keys::derived(&dialog_secret, "tags")),
            stateless_via: StatelessVia::new(&dialog_secret, run),
            registrar,
            cluster: cluster::Cluster::default(),
            rng,
            next_id: 0,
            servers: HashMap::new(),
            server_keys: HashMap::new(),
            clients: HashMap::new(),
            acks: HashMap::new(),
            unacknowledged: HashSet::new(),
            drain: None,
            wakes: BinaryHeap::from([Reverse((now + timers::SWEEP, Sleeper::Location))]),
            dialogs,
            access_control: access::AccessControl::default(),
            memory_budget: memory_budget::MemoryBudget::default(),
            names: names::Names::default(),
            outbox: Outbox::default(),
        }
    }

    /// Applies a change read from a store.
    pub fn restore(&mut self, change: &Change) {
        self.registrar.restore(change);
    }

    /// Changes the settings; work in progress continues with its old ones. Mode, listeners, key, limits on messages and whether users
    /// are shared cannot be changed.
    pub fn set_config(&mut self, config: ProxyConfig) {
        let old = std::mem::take(&mut self.config);
        self.registrar.set_limits(config.location);
        self.dialogs.set_max(config.limits.dialogs);
        let ProxyConfig { mode, listeners, record_names, messages, shared, .. } = old;
        self.config = ProxyConfig { mode, listeners, record_names, messages, shared, ..config };
    }

    /// Returns the next action.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outbox.next()
    }

    /// Returns the registered bindings.
    pub fn location(&self) -> &Location {
        self.registrar.location()
    }

    /// Returns the event counters.
    pub fn counters(&self) -> Counters {
        self.outbox.counters()
    }

    /// Returns the delays and outcomes of registrations and sessions so far.
    pub fn performance(&self) -> &Performance {
        self.outbox.performance()
    }

    /// Returns the number of server and client transactions, including those that only wait to end.
    pub fn transactions(&self) -> (usize, usize) {
        (self.servers.len(), self.clients.len())
    }

    /// Returns the bytes kept of messages.
    pub fn kept_bytes(&self) -> usize {
        self.memory_budget.used()
    }

    /// Returns the knowledge from which requests are routed.
    fn routing(&self, now: Time) -> Routing<'_> {
        Routing {
            now,
            config: &self.config,
            flows: &self.flows,
            names: &self.names,
            cluster: &self.cluster,
            location: self.registrar.location(),
        }
    }

    /// Returns the target of a request within a dialog.
    fn target_within(
        &mut self,
        now: Time,
        leg: &Leg,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<Target, Fault> {
        let routing = Routing {
            now,
            config: &self.config,
            flows: &self.flows,
            names: &self.names,
            cluster: &self.cluster,
            location: self.registrar.location(),
        };
        self.dialogs.target_within(&routing, leg, from, request, known)
    }

    /// Returns known dialogs, the most recently active first; those after the one of a given number ([`Dialog::number`]), if any.
    pub fn dialogs(&self, after: Option<u64>) -> impl Iterator<Item = &Dialog> {
        self.dialogs.list(after)
    }

    /// Returns the number of known dialogs.
    pub fn dialog_count(&self) -> usize {
        self.dialogs.len()
    }

    /// Returns the number of requests that wait for the store.
    pub fn waiting_for_store(&self) -> usize {
        self.registrar.waiting()
    }

    /// Handles a notification from the store: a user's record, which may be outdated already.
    pub fn handle_record(&mut self, user: &str, record: Record) {
        self.registrar.on_record(user, record);
    }

    /// Handles a heartbeat of a proxy, named by its first listener; returns true if its state is new.
    pub fn handle_presence(&mut self, now: Time, address: SocketAddr, presence: Presence) -> bool {
        self.cluster.note(now, address, presence)
    }

    /// Begins a full reload after reconnecting to the store: all records follow with [`Proxy::handle_record`], then
    /// [`Proxy::end_records`].
    pub fn begin_records(&mut self) {
        self.registrar.begin_records();
    }

    /// Ends the reload: users not mentioned in it are removed.
    pub fn end_records(&mut self) {
        self.registrar.end_records();
    }

    /// Reports whether this many more bytes may be kept.
    fn has_room(&self, bytes: usize) -> bool {
        self.memory_budget.used().saturating_add(bytes) <= self.config.limits.kept_bytes
    }

    /// Reports whether a new request of this many bytes may be kept. Long ones may fill half of the budget, so that a flood of them
    /// leaves room for calls, which are short.
    fn may_keep(&self, request: usize) -> bool {
        let half = if request > memory_budget::LONG { self.config.limits.kept_bytes / 2 } else { 0 };
        self.has_room(request.saturating_add(half))
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    /// Returns part of a branch: 64 unpredictable bits.
    fn token(&mut self) -> String {
        format!("{:016x}", self.rng.next_u64())
    }

    /// Sends a response of a server transaction, if it may still have one.
    fn respond(&mut self, now: Time, id: Id, response: &Message) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let status = response.status();
        if !server.machine.on_response(now, status) {
            return;
        }
        self.outbox.count(Event::Response(status));
        let bytes = response.to_bytes();
        let leg = server.leg.clone().filter(|_| status >= 200);
        let (hop, dialog) = (server.hop, server.dialog);
        if status > 100 {
            server.measured.note_indication(now);
        }
        if status >= 200 {
            server.best = None;
            server.plan = None;
            // Further 2xx are no new attempts.
            if server.request.take().is_some() {
                self.outbox.performance_mut().note_final(now, server.measured, dialog, status);
            }
        }
        server.last = Some(bytes.clone());
        let weight = server.weight();
        let more = weight.saturating_sub(server.charge.bytes());
        if more > 0 && self.memory_budget.used().saturating_add(more) > self.config.limits.kept_bytes {
            // Retransmitted requests will get no response.
            server.last = None;
        }
        server.charge.set(server.weight());
        if server.machine.is_accepted() {
            self.unacknowledged.insert(server.ack_key());
        }
        self.outbox.send_back(hop, bytes, dialog);
        self.schedule_server(id);
        if let Some(leg) = leg {
            let to = response.first(Name::To).and_then(|to| Address::parse(to).ok()?.tag());
            self.dialogs.on_answer(now, &leg, status, to);
        }
    }

    /// Records that a request reached nobody.
    fn note_undelivered(&mut self, now: Time, id: Id) {
        if let Some(request) = self.servers.get(&id).and_then(|server| server.request.as_ref()) {
            self.dialogs.note_undelivered(now, request, self.outbox.performance_mut());
        }
    }

    /// Rejects a request.
    fn refuse(&mut self, now: Time, id: Id, fault: Fault) {
        // The recipient cannot be reached.
        if matches!(fault.status, 404 | 416 | 430 | 480 | 500) {
            self.note_undelivered(now, id);
        }
        let seconds = self.config.limits.retry_after.to_string();
        let retry = (fault.status == 503).then(|| Header::new(Name::RetryAfter, &seconds));
        self.reply(now, id, fault.status, fault.reason, retry.into_iter().collect());
    }

    /// Answers a request, with these fields in addition to the standard ones.
    fn reply(&mut self, now: Time, id: Id, status: u16, reason: &str, fields: Vec<Header>) {
        let Some(request) = self.servers.get(&id).and_then(|server| server.request.as_ref()) else { return };
        let mut response = self.tags.response(request, status, reason);
        response.headers.extend(fields);
        self.respond(now, id, &response);
    }
}

/// Returns a number common to all messages of a dialog, from its Call-ID (FNV-1a).
pub(crate) fn dialog_number(call_id: &[u8]) -> u32 {
    call_id.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

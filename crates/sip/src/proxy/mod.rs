//! The core of a proxy and registrar (RFC 3261 sections 10 and 16, with RFC 6026, 5393, 3581, 3327 and 5658).
//!
//! In: [`Proxy::handle_message`], [`Proxy::handle_timeout`], [`Proxy::handle_send_failure`]. Out: [`Proxy::poll_output`], until
//! it gives nothing more, and [`Proxy::next_timeout`]. Invariants: a server transaction gets one final response; a branch
//! ends once; nothing that was not counted in [`ProxyLimits`] is kept. Begin with `inbound` for requests and `response` for
//! responses; `redirect` and `stateless` have the other modes.

mod acks;
mod attempts;
mod auth;
mod budget;
pub(crate) mod cancel;
mod config;
mod dialogs;
mod drain;
mod fellows;
mod flows;
mod forward;
mod gate;
pub(crate) mod inbound;
mod loops;
mod marks;
mod names;
mod performance;
mod redirect;
mod registrar;
mod response;
mod route;
mod shared;
mod stateless;
mod tags;
mod target;
mod timers;

pub(crate) use auth::Proof;
pub use config::{
    Authentication, Expiry, Listener, Mode, NextHop, ProxyConfig, ProxyLimits, RecordName, Shared,
};
pub use dialogs::Dialog;
pub use fellows::Presence;
pub use flows::fingerprint;
pub use gate::Access;
pub use names::{Lookup, Place};
pub use performance::{Attempt, Attempts, Histogram, Performance, Times};
pub use shared::{Finding, Query, Record, Wanted};

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use base::Time;
use bytes::Bytes;
use hmac::Hmac;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::Sha256;

use crate::address::Address;
use crate::digest::Nonces;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::location::{Change, Location};
use crate::message::Message;
use crate::transaction;
use crate::transport::{Hop, Transport};

/// The number of a server or client transaction; not used again.
type Id = u64;

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Where to.
    pub hop: Hop,
    /// The domain that this is meant for: whom a TLS peer has to prove to be (RFC 5922 section 4). `None`: its address.
    pub domain: Option<Arc<str>>,
    /// The message.
    pub bytes: Bytes,
    /// What [`Proxy::handle_send_failure`] is to be told if it cannot be sent; `None`: nothing.
    pub on_failure: Option<u64>,
    /// The same for all messages of a dialog: which stream to take where there are several.
    pub dialog: u32,
    /// Whether it begins something, as a request outside of dialogs does. Where too much waits for the next hop such are refused first,
    /// and [`Proxy::handle_congestion`] is told: what has begun should come to its end.
    pub is_new: bool,
}

/// What the core wants done, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Write this down before any message that comes after it is sent. Only without [`ProxyConfig::shared`].
    Store(Change),
    /// Ask the store that proxies share, and tell [`Proxy::handle_found`]. Only with [`ProxyConfig::shared`].
    Ask(Query),
    /// Send this.
    Send(Outgoing),
    /// Look this up, and tell [`Proxy::handle_resolved`]. Only with [`ProxyConfig::names`].
    Resolve(Lookup),
}

/// What has happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests that were well-formed and new.
    pub requests: u64,
    /// Requests and responses that came again.
    pub retransmissions: u64,
    /// Bytes that were no message, and responses that belong to nothing.
    pub dropped: u64,
    /// Requests refused for want of room.
    pub overloads: u64,
    /// REGISTERs answered with 200.
    pub registrations: u64,
    /// INVITEs answered with 2xx.
    pub calls: u64,
    /// Client transactions without an answer.
    pub timeouts: u64,
    /// Requests refused because of where they came from.
    pub denied: u64,
    /// Requests beyond their source's rate.
    pub limited: u64,
    /// INVITEs that were new and in no dialog.
    pub invites: u64,
    /// Requests refused because the shared store did not answer.
    pub unanswered: u64,
    /// Requests refused because the proxy drains.
    pub late: u64,
    /// Responses of server transactions by their class, 1xx first.
    pub responses: [u64; 6],
}

/// A request that is being answered or forwarded.
#[derive(Debug)]
struct Server {
    machine: transaction::Server,
    key: Box<[u8]>,
    /// Where responses go.
    hop: Hop,
    dialog: u32,
    /// The number of its CSeq.
    cseq: u32,
    measured: performance::Measured,
    /// The last response.
    last: Option<Bytes>,
    /// The request, until it has its final response.
    request: Option<Message>,
    /// Branches, ended ones among them.
    branches: Vec<Id>,
    /// What may have to be tried yet.
    plan: Option<Box<attempts::Plan>>,
    /// CANCEL has come.
    is_cancelled: bool,
    /// A branch was not sent because too much waits for its next hop.
    is_congested: bool,
    /// Another proxy sent this here for a flow of ours.
    is_by_flow: bool,
    /// The dialog that it may make.
    leg: Option<dialogs::Leg>,
    /// Branches without a final response.
    open: usize,
    /// The best final response that was not forwarded.
    best: Option<Message>,
    /// When the heap will wake this.
    wake: Time,
    charge: budget::Charge,
}

/// What an ACK for a 2xx has in common with its INVITE: the dialog's number, and that of CSeq.
type AckKey = (u32, u32);

impl Server {
    fn ack_key(&self) -> AckKey {
        (self.dialog, self.cseq)
    }

    /// The bytes that it keeps.
    fn weight(&self) -> usize {
        let messages = self.request.iter().chain(&self.best).map(budget::weight).sum::<usize>();
        budget::TRANSACTION + 2 * self.key.len() + messages + self.last.as_ref().map_or(0, Bytes::len)
    }
}

/// A request that was sent.
#[derive(Debug)]
struct Client {
    machine: transaction::Client,
    /// Whom responses are for; `None`: nobody, as for CANCEL.
    server: Option<Id>,
    hop: Hop,
    domain: Option<Arc<str>>,
    dialog: u32,
    /// The branch parameter of our Via.
    branch: Box<[u8]>,
    /// As it was sent, until a final response.
    request: Option<Message>,
    /// What is sent again: the request, later the ACK.
    bytes: Bytes,
    /// Where else it may be sent.
    target: Option<Box<target::Target>>,
    /// The transaction of the CANCEL for this one.
    cancel: Option<Id>,
    /// CANCEL goes as soon as there was a provisional response (RFC 3261 section 9.1).
    wants_cancel: bool,
    /// Timer C, of INVITEs.
    timer_c: Time,
    wake: Time,
    charge: budget::Charge,
}

impl Client {
    /// The bytes that it keeps.
    fn weight(&self) -> usize {
        budget::TRANSACTION + self.request.as_ref().map_or(0, budget::weight) + self.bytes.len()
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
    nonces: Nonces,
    loop_secret: [u8; 32],
    dialog_secret: [u8; 32],
    flow_secret: [u8; 32],
    /// Of what the stateless proxy's Via says.
    source_secret: [u8; 32],
    /// With its key, as each request has one.
    tag_mac: Hmac<Sha256>,
    /// Which run of this program it is, among all.
    run: u64,
    shared: shared::Waiting,
    fellows: fellows::Fellows,
    rng: ChaCha12Rng,
    next_id: Id,
    /// Boxed, as are the others: what a table has room for beyond its entries costs little then.
    servers: HashMap<Id, Box<Server>>,
    server_keys: HashMap<Box<[u8]>, Id>,
    clients: HashMap<Id, Box<Client>>,
    acks: HashMap<Id, acks::SentAck>,
    /// Accepted INVITEs whose ACK has not passed; each has a transaction.
    unacknowledged: HashSet<AckKey>,
    drain: Option<drain::Drain>,
    wakes: BinaryHeap<Reverse<(Time, Sleeper)>>,
    location: Location,
    dialogs: dialogs::Dialogs,
    gate: gate::Gate,
    budget: budget::Budget,
    names: names::Names,
    outputs: VecDeque<Output>,
    counters: Counters,
    performance: performance::Performance,
}

impl Proxy {
    /// A proxy without bindings; `seed` must be unpredictable.
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
                Nonces::shared(flows::derived(&dialog_secret, "nonces"), origin, rng.next_u64())
            }
        };
        let location = Location::new(config.location);
        let dialogs = dialogs::Dialogs::new(config.limits.dialogs);
        Proxy {
            config,
            nonces,
            loop_secret,
            dialog_secret,
            flow_secret: flows::derived(&dialog_secret, "flows"),
            source_secret: flows::derived(&dialog_secret, "sources"),
            tag_mac: flows::keyed(&flows::derived(&dialog_secret, "tags")),
            run: rng.next_u64(),
            shared: shared::Waiting::default(),
            fellows: fellows::Fellows::default(),
            rng,
            next_id: 0,
            servers: HashMap::new(),
            server_keys: HashMap::new(),
            clients: HashMap::new(),
            acks: HashMap::new(),
            unacknowledged: HashSet::new(),
            drain: None,
            wakes: BinaryHeap::from([Reverse((now + timers::SWEEP, Sleeper::Location))]),
            location,
            dialogs,
            gate: gate::Gate::default(),
            budget: budget::Budget::default(),
            names: names::Names::default(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            performance: performance::Performance::default(),
        }
    }

    /// Takes over what a store has.
    pub fn restore(&mut self, change: &Change) {
        self.location.apply(change);
    }

    /// Goes on with other settings; what is under way ends by those it began with. Mode, listeners, key, bounds on messages and whether users
    /// are shared are given at the start alone, and stay.
    pub fn set_config(&mut self, config: ProxyConfig) {
        let old = std::mem::take(&mut self.config);
        self.location.set_limits(config.location);
        self.dialogs.set_max(config.limits.dialogs);
        let ProxyConfig { mode, listeners, record_names, messages, shared, .. } = old;
        self.config = ProxyConfig { mode, listeners, record_names, messages, shared, ..config };
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Who is registered where.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How long registrations and sessions have taken so far, and how they have ended.
    pub fn performance(&self) -> &Performance {
        &self.performance
    }

    /// Server and client transactions, those that only wait to be over included.
    pub fn transactions(&self) -> (usize, usize) {
        (self.servers.len(), self.clients.len())
    }

    /// Bytes that are kept of messages.
    pub fn kept_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Whether so many more bytes may be kept.
    fn has_room(&self, bytes: usize) -> bool {
        self.budget.used().saturating_add(bytes) <= self.config.limits.kept_bytes
    }

    /// Whether a new request of so many bytes may be kept. Long ones may fill half of what there is, so that a flood of those leaves room
    /// for calls, which are short.
    fn may_keep(&self, request: usize) -> bool {
        let half = if request > budget::LONG { self.config.limits.kept_bytes / 2 } else { 0 };
        self.has_room(request.saturating_add(half))
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    /// Part of a branch: 64 unpredictable bits.
    fn token(&mut self) -> String {
        format!("{:016x}", self.rng.next_u64())
    }

    fn send(&mut self, hop: Hop, bytes: Bytes, on_failure: Option<Id>, dialog: u32) {
        self.send_to(hop, None, bytes, on_failure, dialog);
    }

    fn send_to(
        &mut self,
        hop: Hop,
        domain: Option<Arc<str>>,
        bytes: Bytes,
        on_failure: Option<Id>,
        dialog: u32,
    ) {
        let message = Outgoing { hop, domain, bytes, on_failure, dialog, is_new: false };
        self.outputs.push_back(Output::Send(message));
    }

    /// The listener for requests by a transport to an address of this family.
    fn listener_for(&self, transport: Transport, is_ipv4: bool) -> Result<usize, Fault> {
        let fits =
            |listener: &Listener| listener.transport == transport && listener.address.is_ipv4() == is_ipv4;
        let found = self.config.listeners.iter().position(fits);
        found.ok_or(Fault { status: 500, reason: "No Listener For The Next Hop's Transport" })
    }

    /// Sends a response of a server transaction, if it may have one still.
    fn respond(&mut self, now: Time, id: Id, response: &Message) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let status = response.status();
        if !server.machine.on_response(now, status) {
            return;
        }
        self.counters.responses[usize::from(status / 100).clamp(1, 6) - 1] += 1;
        let bytes = response.to_bytes();
        let leg = server.leg.clone().filter(|_| status >= 200);
        let (hop, dialog) = (server.hop, server.dialog);
        if status > 100 {
            server.measured.note_indication(now);
        }
        if status >= 200 {
            server.best = None;
            server.plan = None;
            // Further 2xx are no other attempts.
            if server.request.take().is_some() {
                self.performance.note_final(now, server.measured, dialog, status);
            }
        }
        server.last = Some(bytes.clone());
        let weight = server.weight();
        let more = weight.saturating_sub(server.charge.bytes());
        if more > 0 && self.budget.used().saturating_add(more) > self.config.limits.kept_bytes {
            // Repetitions get no answer.
            server.last = None;
        }
        server.charge.set(server.weight());
        if server.machine.is_accepted() {
            self.unacknowledged.insert(server.ack_key());
        }
        self.send(hop, bytes, None, dialog);
        self.schedule_server(id);
        if let Some(leg) = leg {
            let to = response.first(Name::To).and_then(|to| Address::parse(to).ok()?.tag());
            self.on_dialog_answer(now, &leg, status, to);
        }
    }

    /// Answers a request by ourselves.
    fn refuse(&mut self, now: Time, id: Id, fault: Fault) {
        // There is no way to whom it is for.
        if matches!(fault.status, 404 | 416 | 430 | 480 | 500) {
            self.note_undelivered_bye(now, id);
        }
        let seconds = self.config.limits.retry_after.to_string();
        self.reply(now, id, fault.status, fault.reason, |response| {
            if fault.status == 503 {
                response.push(Header::new(Name::RetryAfter, &seconds));
            }
        });
    }

    /// The same, with fields added.
    fn reply(&mut self, now: Time, id: Id, status: u16, reason: &str, add: impl FnOnce(&mut Message)) {
        let Some(request) = self.servers.get(&id).and_then(|server| server.request.as_ref()) else { return };
        let mut response = self.own_response(request, status, reason);
        add(&mut response);
        self.respond(now, id, &response);
    }
}

/// The same for all messages of a dialog, from its Call-ID (FNV-1a).
pub(crate) fn dialog_number(call_id: &[u8]) -> u32 {
    call_id.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

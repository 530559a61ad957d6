//! The server and client transactions of a proxy, and the ACKs that may have to be sent again: their tables, numbers and timers.
//!
//! Invariants: a server transaction gets one final response, and everything that is kept is charged to the memory budget. The module
//! `stateful` decides where requests and responses go. This module keeps the state for these decisions. Begin with
//! [`Transactions::start_server`] and [`Transactions::start_client`].

mod client;
mod drain;
mod response_context;
mod server;
mod timers;
mod wakes;

pub(super) use client::{Client, Departure};
pub(super) use response_context::Conclusion;
pub(super) use server::{Arrival, Server};
pub(super) use timers::Due;

use std::collections::{HashMap, HashSet};

use base::Time;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;

use self::drain::Drain;
use self::wakes::{Sleeper, Wakes};
use super::asked::Ack;
use super::leg::Leg;
use super::memory_budget::{Charge, LONG, MemoryBudget, TRANSACTION, weight};
use super::outbox::{Event, Outbox};
use super::performance::Measured;
use super::target::Target;
use super::{Id, Output, ProxyLimits, dialog_number};
use crate::address::Address;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::transaction::{ClientVerdict, Timers};

/// The key that an ACK for a 2xx shares with its INVITE: the dialog number, and the number in CSeq.
type AckKey = (u32, u32);

/// An ACK that was sent, and can be sent again to an alternative hop.
#[derive(Debug)]
struct SentAck {
    ack: Ack,
    target: Target,
    /// Charge for the bytes of the ACK.
    _charge: Charge,
}

/// All transactions.
#[derive(Debug)]
pub(super) struct Transactions {
    rng: ChaCha12Rng,
    next_id: Id,
    /// Server transactions. The values of this table and of `clients` are boxed, so spare capacity of the tables takes less memory.
    servers: HashMap<Id, Box<Server>>,
    server_keys: HashMap<Box<[u8]>, Id>,
    clients: HashMap<Id, Box<Client>>,
    acks: HashMap<Id, SentAck>,
    /// Keys of accepted INVITEs whose ACK was not forwarded. Each of these INVITEs still has a server transaction.
    unacknowledged: HashSet<AckKey>,
    drain: Option<Drain>,
    wakes: Wakes,
    memory_budget: MemoryBudget,
}

impl Transactions {
    /// Creates empty tables. `rng` must be unpredictable.
    pub(super) fn new(now: Time, rng: ChaCha12Rng) -> Transactions {
        let mut wakes = Wakes::default();
        wakes.push(now + timers::SWEEP, Sleeper::Sweep);
        Transactions {
            rng,
            next_id: 0,
            servers: HashMap::new(),
            server_keys: HashMap::new(),
            clients: HashMap::new(),
            acks: HashMap::new(),
            unacknowledged: HashSet::new(),
            drain: None,
            wakes,
            memory_budget: MemoryBudget::default(),
        }
    }

    /// Returns the number of server and client transactions, including transactions that only wait for retransmissions.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.servers.len(), self.clients.len())
    }

    /// Returns the number of bytes of messages that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.memory_budget.used()
    }

    /// Reports whether `bytes` more bytes fit into the memory budget.
    pub(super) fn has_room(&self, limits: &ProxyLimits, bytes: usize) -> bool {
        self.memory_budget.has_room(limits.kept_bytes, bytes)
    }

    /// Reports whether a new request with a weight of `request` bytes may be kept. Long requests may fill only half of the budget. A
    /// flood of long requests then leaves room for the short messages of calls.
    pub(super) fn may_keep(&self, limits: &ProxyLimits, request: usize) -> bool {
        let half = if request > LONG { limits.kept_bytes / 2 } else { 0 };
        self.servers.len() < limits.transactions && self.has_room(limits, request.saturating_add(half))
    }

    /// Returns a number for a new transaction.
    pub(super) fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    /// Returns a number for a new client transaction, and the branch by which [`Transactions::client_with`] finds the transaction.
    pub(super) fn new_branch(&mut self, mark: &str) -> (Id, String) {
        let id = self.new_id();
        (id, self.branch(id, mark))
    }

    /// Returns a branch for an ACK, which has no transaction.
    pub(super) fn branch_of_ack(&mut self, mark: &str) -> String {
        self.branch(0, mark)
    }

    /// Builds a branch with 64 unpredictable bits.
    fn branch(&mut self, id: Id, mark: &str) -> String {
        format!("z9hG4bK{id:x}.{:016x}.{mark}", self.rng.next_u64())
    }

    /// Starts a server transaction for a new request.
    pub(super) fn start_server(
        &mut self,
        now: Time,
        timers: Timers,
        arrival: Arrival<'_>,
        outbox: &mut Outbox,
    ) -> Id {
        let id = self.new_id();
        let Arrival { known, .. } = arrival;
        let measured = outbox.performance_mut().begin(now, known, dialog_number(&known.call_id));
        let server = Server::start(now, timers, arrival, measured, self.memory_budget.charge(0));
        self.server_keys.insert(server.key().into(), id);
        self.servers.insert(id, Box::new(server));
        self.note_begun(id);
        id
    }

    /// Sends a request in a new client transaction. If `departure` names a server transaction, the client transaction becomes one of its
    /// branches.
    pub(super) fn start_client(
        &mut self,
        now: Time,
        timers: Timers,
        id: Id,
        departure: Departure,
        outbox: &mut Outbox,
    ) {
        let server = departure.server;
        let client = Client::start(now, timers, departure, self.memory_budget.charge(0));
        let message = client.outgoing(id);
        self.clients.insert(id, Box::new(client));
        self.note_begun(id);
        if let Some(server) = server.and_then(|server| self.server_mut(server)) {
            server.context_mut().begin_branch(id);
        }
        outbox.push(Output::Send(message));
        self.schedule_client(id);
    }

    /// Sends the request of a client transaction once more, if [`Client::begin_again`] permits it. Returns false if not.
    pub(super) fn send_again(&mut self, now: Time, id: Id, outbox: &mut Outbox) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        if !client.begin_again(now) {
            return false;
        }
        outbox.push(Output::Send(client.outgoing(id)));
        self.schedule_client(id);
        true
    }

    fn note_begun(&mut self, id: Id) {
        if let Some(drain) = &mut self.drain {
            drain.note_begun(id);
        }
    }

    /// Returns the server transaction with this key.
    pub(super) fn find_server(&self, key: &[u8]) -> Option<Id> {
        self.server_keys.get(key).copied()
    }

    pub(super) fn server(&self, id: Id) -> Option<&Server> {
        self.servers.get(&id).map(|server| &**server)
    }

    pub(super) fn server_mut(&mut self, id: Id) -> Option<&mut Server> {
        self.servers.get_mut(&id).map(|server| &mut **server)
    }

    pub(super) fn client(&self, id: Id) -> Option<&Client> {
        self.clients.get(&id).map(|client| &**client)
    }

    pub(super) fn client_mut(&mut self, id: Id) -> Option<&mut Client> {
        self.clients.get_mut(&id).map(|client| &mut **client)
    }

    /// Returns the client transaction with this branch.
    pub(super) fn client_with(&self, branch: &[u8]) -> Option<(Id, &Client)> {
        let hex = branch.strip_prefix(b"z9hG4bK")?.split(|&b| b == b'.').next()?;
        let id = u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?;
        let client = self.client(id).filter(|client| client.branch() == branch)?;
        Some((id, client))
    }

    /// Handles a retransmission, or an ACK, for an existing server transaction.
    pub(super) fn on_request_again(&mut self, now: Time, id: Id, method: &Method, outbox: &mut Outbox) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        if *method == Method::Ack {
            server.on_ack(now);
            self.schedule_server(id);
            return;
        }
        outbox.count(Event::Retransmission);
        if server.on_request() {
            self.resend_response(id, outbox);
        }
    }

    /// Sends a response of a server transaction, if the state of the transaction permits it. For a final response, returns the dialog that
    /// the request may create.
    pub(super) fn respond(
        &mut self,
        now: Time,
        limits: &ProxyLimits,
        id: Id,
        response: &Message,
        outbox: &mut Outbox,
    ) -> Option<Leg> {
        let server = self.servers.get_mut(&id)?;
        let status = response.status();
        if !server.on_response(now, status) {
            return None;
        }
        outbox.count(Event::Response(status));
        let bytes = response.to_bytes();
        let has_room = |more| self.memory_budget.has_room(limits.kept_bytes, more);
        if let Some(measured) = server.keep_response(now, status, bytes.clone(), has_room) {
            outbox.performance_mut().note_final(now, measured, server.dialog(), status);
        }
        if server.is_accepted() {
            self.unacknowledged.insert(server.ack_key());
        }
        outbox.send_back(server.hop(), bytes, server.dialog());
        let leg = server.leg().filter(|_| status >= 200).cloned();
        self.schedule_server(id);
        leg
    }

    /// Retransmits the last response.
    fn resend_response(&mut self, id: Id, outbox: &mut Outbox) {
        let Some(server) = self.servers.get(&id) else { return };
        if let Some(bytes) = server.last().cloned() {
            outbox.send_back(server.hop(), bytes, server.dialog());
        }
    }

    /// Handles a response to a client transaction.
    pub(super) fn on_response(&mut self, now: Time, id: Id, status: u16) -> Option<ClientVerdict> {
        Some(self.clients.get_mut(&id)?.on_response(now, status))
    }

    /// Records that the ACK for a 2xx was forwarded.
    pub(super) fn note_ack(&mut self, dialog: u32, cseq: u32) {
        self.unacknowledged.remove(&(dialog, cseq));
    }

    /// Ends a server transaction without a response. Returns the measured request.
    pub(super) fn end_server(&mut self, id: Id) -> Option<Measured> {
        let server = self.servers.remove(&id)?;
        self.server_keys.remove(server.key());
        Some(server.measured())
    }

    /// Ends a client transaction.
    pub(super) fn end_client(&mut self, id: Id) -> Option<Box<Client>> {
        self.clients.remove(&id)
    }

    /// Keeps an ACK for 64 × T1 if its target has alternative hops, and returns its number. Returns `None` if the ACK is not kept.
    pub(super) fn keep_ack(
        &mut self,
        now: Time,
        timers: Timers,
        limits: &ProxyLimits,
        ack: &Ack,
        target: Target,
    ) -> Option<Id> {
        let bytes = TRANSACTION + weight(&ack.request);
        let is_full = self.acks.len() >= limits.transactions || !self.has_room(limits, bytes);
        if !target.has_more() || is_full {
            return None;
        }
        let _charge = self.memory_budget.charge(bytes);
        let id = self.new_id();
        self.acks.insert(id, SentAck { ack: ack.clone(), target, _charge });
        self.wakes.push(now + timers.long(), Sleeper::Ack(id));
        Some(id)
    }

    /// Removes and returns an ACK that was kept, with its target.
    pub(super) fn take_ack(&mut self, id: Id) -> Option<(Ack, Target)> {
        self.acks.remove(&id).map(|SentAck { ack, target, .. }| (ack, target))
    }
}

fn is_outside_of_dialogs(request: &Message) -> bool {
    let to = request.first(Name::To).and_then(|to| Address::parse(to).ok());
    to.is_some_and(|to| to.tag().is_none())
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::essentials::Essentials;
    use crate::proxy::testing::{asked, hop, request};

    pub(super) struct World {
        pub(super) table: Transactions,
        pub(super) outbox: Outbox,
        pub(super) limits: ProxyLimits,
    }

    impl World {
        pub(super) fn new() -> World {
            let table = Transactions::new(Time::ZERO, ChaCha12Rng::from_seed([1; 32]));
            World { table, outbox: Outbox::default(), limits: ProxyLimits::default() }
        }

        pub(super) fn server(&mut self, request: &Message) -> Id {
            let known = Essentials::of(request).unwrap();
            let arrival = Arrival { hop: hop("192.0.2.7:5060"), key: b"key", request, known: &known };
            self.table.start_server(Time::ZERO, Timers::default(), arrival, &mut self.outbox)
        }

        pub(super) fn client(&mut self, server: Option<Id>) -> Id {
            let (id, branch) = self.table.new_branch("mark");
            let request = request("INVITE sip:a@192.0.2.8");
            let hop = (hop("192.0.2.8:5060"), None);
            let departure = Departure { server, is_invite: true, hop, request, branch, target: None };
            self.table.start_client(Time::ZERO, Timers::default(), id, departure, &mut self.outbox);
            id
        }

        pub(super) fn respond(&mut self, id: Id, status: u16) {
            let response = request("INVITE sip:a").response(status, "x", "tag");
            self.table.respond(Time::ZERO, &self.limits, id, &response, &mut self.outbox);
        }

        pub(super) fn sent(&mut self) -> usize {
            std::iter::from_fn(|| self.outbox.next()).count()
        }
    }

    #[test]
    fn a_server_transaction_gets_one_final_response_and_repeats_it() {
        let mut world = World::new();
        let id = world.server(&request("INVITE sip:a@example.org"));
        assert_eq!(world.table.find_server(b"key"), Some(id));
        [180, 486, 200].into_iter().for_each(|status| world.respond(id, status));
        assert_eq!((world.sent(), world.outbox.counters().responses), (2, [1, 0, 0, 1, 0, 0]));
        world.table.on_request_again(Time::ZERO, id, &Method::Invite, &mut world.outbox);
        assert_eq!((world.sent(), world.outbox.counters().retransmissions), (1, 1));
        world.table.on_request_again(Time::ZERO, id, &Method::Ack, &mut world.outbox);
        world.table.on_request_again(Time::ZERO, id, &Method::Invite, &mut world.outbox);
        assert_eq!(world.sent(), 0, "an acknowledged rejection is not repeated");
    }

    #[test]
    fn a_client_is_found_by_its_whole_branch_only() {
        let mut world = World::new();
        let id = world.client(None);
        let branch = world.table.client(id).unwrap().branch().to_vec();
        assert_eq!(world.table.client_with(&branch).map(|(id, _)| id), Some(id));
        let forged = format!("z9hG4bK{id:x}.0000000000000000.mark");
        assert!(world.table.client_with(forged.as_bytes()).is_none());
    }

    #[test]
    fn a_transaction_counts_against_the_memory_budget_until_it_ends() {
        let mut world = World::new();
        let server = world.server(&request("INVITE sip:a@example.org"));
        let one = world.table.kept_bytes();
        let client = world.client(Some(server));
        assert!(one > TRANSACTION && world.table.kept_bytes() > one + TRANSACTION);
        assert!(world.table.server(server).unwrap().context().is_open());
        world.table.end_client(client);
        assert_eq!(world.table.kept_bytes(), one);
        world.table.end_server(server);
        assert_eq!((world.table.kept_bytes(), world.table.find_server(b"key")), (0, None));
    }

    #[test]
    fn a_response_beyond_the_memory_budget_is_sent_but_not_kept() {
        let mut world = World::new();
        let id = world.server(&request("OPTIONS sip:a@example.org"));
        world.limits.kept_bytes = 0;
        world.respond(id, 100);
        assert_eq!(world.sent(), 1);
        world.table.on_request_again(Time::ZERO, id, &Method::Options, &mut world.outbox);
        assert_eq!(world.sent(), 0);
    }

    #[test]
    fn a_long_request_may_not_fill_the_second_half_of_the_budget() {
        let world = World::new();
        let limits = ProxyLimits { kept_bytes: 100_000, ..ProxyLimits::default() };
        assert!(world.table.may_keep(&limits, LONG) && world.table.may_keep(&limits, 50_000));
        assert!(!world.table.may_keep(&limits, 50_001));
        assert!(!world.table.may_keep(&ProxyLimits { transactions: 0, ..limits }, 1));
    }

    #[test]
    fn an_ack_without_alternatives_is_not_kept() {
        let mut world = World::new();
        let asked = asked(1, "ACK sip:a@example.org");
        let ack =
            Ack { from: asked.from, request: asked.request, known: asked.known, leg: None, mark: asked.mark };
        let target = || Target::new(b"sip:a", (hop("192.0.2.8:5060"), None));
        let timers = Timers::default();
        assert_eq!(world.table.keep_ack(Time::ZERO, timers, &world.limits, &ack, target()), None);
        let more = target().with_alternates(vec![hop("192.0.2.9:5060")]);
        let id = world.table.keep_ack(Time::ZERO, timers, &world.limits, &ack, more).unwrap();
        assert!(world.table.take_ack(id).is_some() && world.table.take_ack(id).is_none());
    }

    #[test]
    fn a_drain_waits_for_responses_and_acks() {
        let mut world = World::new();
        let invite = request("INVITE sip:a@example.org");
        let (id, known) = (world.server(&invite), Essentials::of(&invite).unwrap());
        world.table.begin_drain();
        assert_eq!(world.table.left(), Some(1));
        world.respond(id, 200);
        assert!(!world.table.is_drained());
        world.table.note_ack(dialog_number(&known.call_id), known.cseq.number);
        assert!(world.table.is_drained());
        let late = world.client(None);
        assert!(!world.table.is_drained(), "work that begins later is waited for, too");
        world.table.end_client(late);
        assert!(world.table.is_drained());
    }
}

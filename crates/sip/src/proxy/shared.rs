//! Users that several proxies share in a store ([`ProxyConfig::shared`](super::ProxyConfig)).
//!
//! The store has one [`Record`] with a version per user. A REGISTER is decided from the local copy, and the result replaces
//! the record if its version is unchanged (optimistic locking); otherwise the decision is repeated from the newer record. So the rules
//! of RFC 3261 section 10.3 (order, limits, instances) hold among all proxies as they do within one. Requests for users are answered from
//! the local copy, which notifications keep current ([`Proxy::handle_record`]); an unknown user is looked up in the store
//! before being reported as absent. Invariants: no more than [`WAITING_MAX`] requests wait; each is answered once the
//! store has answered or failed. Begin with [`Proxy::register_shared`] and [`Proxy::handle_found`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;

use super::auth::{Proof, Refusal};
use super::cluster::Presence;
use super::outbox::Event;
use super::registrar::{Decision, Registration, contacts};
use super::route::Asked;
use super::{Id, Output, Proxy};
use crate::digest::NONCE_LIFETIME;
use crate::fault::Fault;
use crate::location::{Binding, Change};
use crate::message::Method;
use crate::uri::Uri;

/// Requests that may wait for the store at once.
const WAITING_MAX: usize = 10_000;
/// Limit on decisions of one REGISTER: it is repeated each time another proxy was faster.
const TRIES_MAX: u32 = 8;
/// The store does not answer, and this request needs it.
const NO_STORE: Fault = Fault { status: 503, reason: "Location Store Unavailable" };

/// A user's bindings in the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Grows with each change; 0: there is no record.
    pub version: u64,
    /// All bindings, possibly including expired ones.
    pub bindings: Vec<Binding>,
}

/// A query to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// The number for [`Proxy::handle_found`]; never reused.
    pub ticket: u64,
    /// The operation.
    pub wanted: Wanted,
}

/// An operation on the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Reads a user's record.
    Read {
        /// The user's address-of-record.
        user: String,
    },
    /// Replaces a user's bindings if the record still has this version.
    Replace {
        /// The user's address-of-record.
        user: String,
        /// The expected version; 0: there is no record.
        version: u64,
        /// All new bindings; if empty, the record is removed.
        bindings: Vec<Binding>,
    },
    /// Records the use of a nonce, unless any proxy has recorded this count, or a higher one, before.
    Use {
        /// The nonce, in hexadecimal.
        nonce: String,
        /// Number of uses by its user, this one included.
        count: u32,
        /// Time for which this must be remembered.
        lifetime: Duration,
    },
}

/// The store's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The current record: to [`Wanted::Read`], and to [`Wanted::Replace`] if the version differs.
    Is(Record),
    /// To [`Wanted::Use`]: true if it was recorded, and so is the first such use.
    IsFirst(bool),
    /// Replaced, with this new version; the write survives a crash of the store's process.
    Replaced(u64),
    /// The store did not answer in time, or refused. A replacement may have happened or not.
    Failed,
}

/// A request that waits for the store.
#[derive(Debug)]
enum Waiter {
    /// `tries` decisions so far; `bindings` are the new ones, `None` if nothing changes.
    Registration { asked: Box<Registration>, tries: u32, bindings: Option<Vec<Binding>> },
    /// A request for this user.
    Request { asked: Box<Asked>, user: String },
    /// The sender has the right password, and used this nonce.
    Proof { asked: Box<Asked>, is_own: bool },
}

/// All waiting requests, by ticket.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    waiters: BTreeMap<u64, Waiter>,
    next_ticket: u64,
}

impl Proxy {
    /// Returns the number of requests that wait for the store.
    pub fn waiting_for_store(&self) -> usize {
        self.shared.waiters.len()
    }

    fn ask(&mut self, wanted: Wanted, waiter: Waiter) -> Result<(), Fault> {
        if self.shared.waiters.len() >= WAITING_MAX {
            self.outbox.count(Event::Overload);
            return Err(Fault { status: 503, reason: "Too Many Requests Wait For The Store" });
        }
        let ticket = self.shared.next_ticket;
        self.shared.next_ticket += 1;
        self.shared.waiters.insert(ticket, waiter);
        self.outbox.push(Output::Ask(Query { ticket, wanted }));
        Ok(())
    }

    /// Decides a REGISTER from the local copy of its user's record.
    pub(super) fn register_shared(&mut self, now: Time, asked: Registration) -> Result<(), Fault> {
        let version = self.location.version_of(&asked.user);
        let bindings = self.location.of(&asked.user, now).cloned().collect();
        self.register_by(now, asked, Record { version, bindings }, 0)
    }

    /// Decides it from this record.
    fn register_by(
        &mut self,
        now: Time,
        asked: Registration,
        record: Record,
        tries: u32,
    ) -> Result<(), Fault> {
        if tries >= TRIES_MAX {
            return Err(Fault { status: 503, reason: "Too Many Registrations Of This User" });
        }
        let good: Vec<&Binding> = record.bindings.iter().filter(|binding| binding.expires > now).collect();
        let user = asked.user.clone();
        let changes = match self.decide(now, &asked, &good)? {
            Decision::TooBrief(min) => {
                self.answer_too_brief(now, asked.id, min);
                return Ok(());
            }
            Decision::Changes(changes) => changes,
        };
        let asked = Box::new(asked);
        if changes.is_empty() {
            let waiter = Waiter::Registration { asked, tries, bindings: None };
            return self.ask(Wanted::Read { user }, waiter);
        }
        let bindings = with(good.into_iter().cloned().collect(), changes);
        let wanted = Wanted::Replace { user, version: record.version, bindings: bindings.clone() };
        self.ask(wanted, Waiter::Registration { asked, tries, bindings: Some(bindings) })
    }

    /// Queues a request for a user unknown here until the store has answered.
    pub(super) fn wait_for_record(&mut self, now: Time, user: String, asked: Asked) -> Result<(), Fault> {
        let (server, is_invite) = (asked.server, asked.known.cseq.method == Method::Invite);
        let waiter = Waiter::Request { asked: Box::new(asked), user: user.clone() };
        self.ask(Wanted::Read { user }, waiter)?;
        if is_invite {
            self.reply(now, server, 100, "Trying", |_| {});
        }
        Ok(())
    }

    /// Queues a request with the right password; it continues if no proxy has seen this proof before.
    pub(super) fn wait_for_proof(&mut self, asked: Asked, proof: Proof) -> Result<(), Fault> {
        let Proof { nonce, count, is_own } = proof;
        let wanted = Wanted::Use { nonce, count, lifetime: NONCE_LIFETIME };
        self.ask(wanted, Waiter::Proof { asked: Box::new(asked), is_own })
    }

    /// Handles the store's answer to a [`Query`], or its failure.
    pub fn handle_found(&mut self, now: Time, ticket: u64, finding: Finding) {
        let Some(waiter) = self.shared.waiters.remove(&ticket) else { return };
        if finding == Finding::Failed {
            self.outbox.count(Event::Unanswered);
        }
        let (id, done) = match waiter {
            Waiter::Registration { asked, tries, bindings } => {
                (asked.id, self.finish_registration(now, *asked, tries, bindings, finding))
            }
            Waiter::Request { asked, user } => {
                (asked.server, self.finish_request(now, *asked, &user, finding))
            }
            Waiter::Proof { asked, is_own } => {
                (asked.server, self.finish_proof(now, *asked, is_own, &finding))
            }
        };
        if let Err(fault) = done {
            self.refuse(now, id, fault);
        }
    }

    fn finish_registration(
        &mut self,
        now: Time,
        asked: Registration,
        tries: u32,
        wanted: Option<Vec<Binding>>,
        finding: Finding,
    ) -> Result<(), Fault> {
        let bindings = match (finding, wanted) {
            (Finding::Replaced(version), Some(bindings)) => {
                self.learn(&asked.user, version, &bindings);
                bindings
            }
            (Finding::Is(record), None) => {
                self.learn(&asked.user, record.version, &record.bindings);
                record.bindings
            }
            (Finding::Is(record), Some(_)) => {
                self.learn(&asked.user, record.version, &record.bindings);
                return self.register_by(now, asked, record, tries + 1);
            }
            (Finding::Failed | Finding::Replaced(_) | Finding::IsFirst(_), _) => return Err(NO_STORE),
        };
        let good = bindings.iter().filter(|binding| binding.expires > now);
        self.answer_registration(now, &asked, contacts(now, good));
        Ok(())
    }

    fn finish_request(&mut self, now: Time, asked: Asked, user: &str, finding: Finding) -> Result<(), Fault> {
        let Finding::Is(record) = finding else { return Err(NO_STORE) };
        self.learn(user, record.version, &record.bindings);
        self.check_cancelled(asked.server)?;
        let good = record.bindings.iter().filter(|binding| binding.expires > now);
        let routing = self.routing(now);
        let targets = routing.targets_of(good);
        let targets = routing.targets_for(&Uri::parse(asked.request.request_uri())?, targets);
        self.serve_at(now, asked, user, targets)
    }

    /// If the store fails, a nonce of our own is valid as judged locally; another proxy's may have been used there.
    fn finish_proof(
        &mut self,
        now: Time,
        mut asked: Asked,
        is_own: bool,
        finding: &Finding,
    ) -> Result<(), Fault> {
        let is_good = match finding {
            Finding::IsFirst(is_first) => *is_first,
            _ => is_own,
        };
        self.check_cancelled(asked.server)?;
        let is_register = asked.known.cseq.method == Method::Register;
        if !is_good {
            let Refusal { fault, fields } = self.challenge(now, is_register, true);
            self.reply(now, asked.server, fault.status, fault.reason, |response| {
                response.headers.extend(fields)
            });
            return Ok(());
        }
        self.forget_credentials(&mut asked.request, is_register);
        self.route(now, asked)
    }

    /// Fails if a request that has waited was cancelled.
    pub(super) fn check_cancelled(&self, server: Id) -> Result<(), Fault> {
        match self.servers.get(&server) {
            Some(server) if server.is_cancelled => Err(Fault { status: 487, reason: "Request Terminated" }),
            _ => Ok(()),
        }
    }

    /// Updates the local copy from the store; a notification may have come before.
    fn learn(&mut self, user: &str, version: u64, bindings: &[Binding]) {
        if version == 0 || version > self.location.version_of(user) {
            self.location.replace(user, version, bindings.to_vec());
        }
    }

    /// Handles a notification from the store: a user's record, which may be outdated already.
    pub fn handle_record(&mut self, user: &str, record: Record) {
        if record.version > self.location.version_of(user) {
            self.location.replace(user, record.version, record.bindings);
        } else {
            self.location.confirm(user);
        }
    }

    /// Handles a heartbeat of a proxy, named by its first listener; returns true if its state is new.
    pub fn handle_presence(&mut self, now: Time, address: SocketAddr, presence: Presence) -> bool {
        self.cluster.note(now, address, presence)
    }

    /// Begins a full reload after reconnecting to the store: all records follow with [`Proxy::handle_record`], then
    /// [`Proxy::end_records`].
    pub fn begin_records(&mut self) {
        self.location.begin_round();
    }

    /// Ends the reload: users not mentioned in it are removed.
    pub fn end_records(&mut self) {
        self.location.end_round();
    }
}

/// Applies changes to bindings.
fn with(mut bindings: Vec<Binding>, changes: Vec<Change>) -> Vec<Binding> {
    for change in changes {
        match change {
            Change::Remove { uri, .. } => bindings.retain(|binding| binding.uri != uri),
            Change::Put { binding, .. } => match bindings.iter_mut().find(|known| known.is_same(&binding)) {
                Some(known) => *known = binding,
                None => bindings.push(binding),
            },
        }
    }
    bindings
}

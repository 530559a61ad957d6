//! Users that several proxies share in a store ([`ProxyConfig::shared`](super::ProxyConfig)): the queries to it, and the requests that
//! wait for its answers.
//!
//! The store has one [`Record`] with a version per user. [`Registrar`](super::registrar::Registrar) decides a REGISTER from the local
//! copy, and the result replaces the record if its version is unchanged. So the rules of RFC 3261 section 10.3 (order, limits,
//! instances) hold among all proxies as they do within one. Requests for users are answered from the local copy, which notifications
//! keep current; an unknown user is looked up in the store before being reported as absent. Invariants: no more than [`WAITING_MAX`]
//! requests wait; each is answered once the store has answered or failed. Begin with [`StoreQueue::ask`].

use std::collections::BTreeMap;
use std::time::Duration;

use super::Output;
use super::asked::Asked;
use super::outbox::{Event, Outbox};
use super::registrar::Registration;
use crate::fault::Fault;
use crate::location::Binding;

/// Requests that may wait for the store at once.
const WAITING_MAX: usize = 10_000;

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
    /// The number for [`Proxy::handle_found`](super::Proxy::handle_found); never reused.
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

/// A REGISTER that waits for the store.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) asked: Box<Registration>,
    /// Number of decisions so far.
    pub(super) tries: u32,
    /// The new bindings; `None` if nothing changes.
    pub(super) bindings: Option<Vec<Binding>>,
}

/// A request that waits for the store.
#[derive(Debug)]
pub(super) enum Waiter {
    Registration(Pending),
    /// A request for this user.
    Request {
        asked: Box<Asked>,
        user: String,
    },
    /// The sender has the right password, and used this nonce.
    Proof {
        asked: Box<Asked>,
        is_own: bool,
    },
}

/// All waiting requests, by ticket.
#[derive(Debug, Default)]
pub(super) struct StoreQueue {
    waiters: BTreeMap<u64, Waiter>,
    next_ticket: u64,
}

impl StoreQueue {
    /// Sends a query, and keeps the request that waits for its answer.
    pub(super) fn ask(&mut self, wanted: Wanted, waiter: Waiter, outbox: &mut Outbox) -> Result<(), Fault> {
        if self.waiters.len() >= WAITING_MAX {
            outbox.count(Event::Overload);
            return Err(Fault { status: 503, reason: "Too Many Requests Wait For The Store" });
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiters.insert(ticket, waiter);
        outbox.push(Output::Ask(Query { ticket, wanted }));
        Ok(())
    }

    /// Returns the request that waits for the answer to a query.
    pub(super) fn take(&mut self, ticket: u64) -> Option<Waiter> {
        self.waiters.remove(&ticket)
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::asked;

    #[test]
    fn no_more_requests_wait_than_the_limit_and_each_is_taken_once() {
        let waiter = |server| {
            let asked = Box::new(asked(server, "OPTIONS sip:a@example.org"));
            Waiter::Proof { asked, is_own: true }
        };
        let wanted = || Wanted::Read { user: "a@example.org".into() };
        let (mut queue, mut outbox) = (StoreQueue::default(), Outbox::default());
        for server in 0..WAITING_MAX as u64 {
            queue.ask(wanted(), waiter(server), &mut outbox).unwrap();
        }
        assert_eq!(queue.ask(wanted(), waiter(0), &mut outbox).unwrap_err().status, 503);
        assert_eq!((queue.len(), outbox.counters().overloads), (WAITING_MAX, 1));
        assert!(matches!(queue.take(7), Some(Waiter::Proof { asked, .. }) if asked.server == 7));
        assert!(queue.take(7).is_none());
        queue.ask(wanted(), waiter(0), &mut outbox).unwrap();
        assert!(queue.take(WAITING_MAX as u64).is_some(), "a ticket is not used again");
    }
}

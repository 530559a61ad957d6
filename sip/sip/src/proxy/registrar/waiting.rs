//! Requests that wait for the shared store. Invariants: no more than [`WAITING_MAX`] requests wait. A request leaves the queue when the
//! driver reports the store's answer or failure.

use std::collections::BTreeMap;

use super::decision::Registration;
use crate::fault::Fault;
use crate::location::Binding;
use crate::proxy::Output;
use crate::proxy::asked::Asked;
use crate::proxy::outbox::{Event, Outbox};
use crate::proxy::shared::{Query, Wanted};

/// Limit on requests that wait for the store.
const WAITING_MAX: usize = 10_000;

/// A REGISTER that waits for the store.
#[derive(Debug)]
pub(in crate::proxy) struct Pending {
    pub(in crate::proxy) asked: Box<Registration>,
    /// Number of earlier decisions on this REGISTER.
    pub(super) tries: u32,
    /// The new bindings, or `None` if the REGISTER changes nothing.
    pub(super) bindings: Option<Vec<Binding>>,
}

/// A request that waits for the store.
#[derive(Debug)]
pub(in crate::proxy) enum Waiter {
    Registration(Pending),
    /// A request for a user whose record must be read.
    Request {
        asked: Box<Asked>,
        user: String,
    },
    /// A request with the right password. The request continues only if no proxy has recorded its nonce with the same or a higher nonce
    /// count.
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

    /// Removes and returns the request that waits for the answer to a query.
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

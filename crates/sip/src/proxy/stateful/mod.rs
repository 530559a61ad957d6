//! The stateful proxy core (RFC 3261 section 16): requests are answered, or forwarded in transactions of their own.
//!
//! [`Stateful`] borrows the tables that one event may change. Invariants: a server transaction gets one final response; a branch ends
//! once. Requests enter at [`Stateful::forward`], responses at [`Stateful::handle_response`].

mod cancel;
mod forward;
mod response;

use base::Time;

use super::dialogs::Dialogs;
use super::marks::DialogMarks;
use super::outbox::Outbox;
use super::tags::Tags;
use super::transactions::Transactions;
use super::{Id, ProxyConfig};
use crate::address::Address;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::Message;

/// The rejection of new work while draining, and of work that did not finish in time.
pub(super) const ENDING: Fault = Fault { status: 503, reason: "Proxy Is Stopping" };

/// The transactions, with all that one event in them concerns.
pub(super) struct Stateful<'a> {
    pub(super) now: Time,
    pub(super) config: &'a ProxyConfig,
    pub(super) marks: &'a DialogMarks,
    pub(super) tags: &'a Tags,
    pub(super) transactions: &'a mut Transactions,
    pub(super) dialogs: &'a mut Dialogs,
    pub(super) outbox: &'a mut Outbox,
}

impl Stateful<'_> {
    /// Sends a response of a server transaction, if it may still have one.
    fn respond(&mut self, id: Id, response: &Message) {
        let leg = self.transactions.respond(self.now, &self.config.limits, id, response, self.outbox);
        if let Some(leg) = leg {
            let to = response.first(Name::To).and_then(|to| Address::parse(to).ok()?.tag());
            self.dialogs.on_answer(self.now, &leg, response.status(), to);
        }
    }

    /// Answers a request, with these fields in addition to the standard ones.
    pub(super) fn reply(&mut self, id: Id, status: u16, reason: &str, fields: Vec<Header>) {
        let Some(request) = self.transactions.server(id).and_then(|server| server.request()) else { return };
        let mut response = self.tags.response(request, status, reason);
        response.headers.extend(fields);
        self.respond(id, &response);
    }

    /// Rejects a request.
    fn refuse(&mut self, id: Id, fault: Fault) {
        // The recipient cannot be reached.
        if matches!(fault.status, 404 | 416 | 430 | 480 | 500) {
            self.note_undelivered(id);
        }
        let seconds = self.config.limits.retry_after.to_string();
        let retry = (fault.status == 503).then(|| Header::new(Name::RetryAfter, &seconds));
        self.reply(id, fault.status, fault.reason, retry.into_iter().collect());
    }

    /// Rejects a request that could not be served.
    pub(super) fn refuse_if_failed(&mut self, id: Id, served: Result<(), Fault>) {
        if let Err(fault) = served {
            self.refuse(id, fault);
        }
    }

    /// Records that a request reached nobody.
    fn note_undelivered(&mut self, id: Id) {
        if let Some(request) = self.transactions.server(id).and_then(|server| server.request()) {
            self.dialogs.note_undelivered(self.now, request, self.outbox.performance_mut());
        }
    }

    /// Fails if a request that has waited was cancelled.
    pub(super) fn check_cancelled(&self, id: Id) -> Result<(), Fault> {
        let is_cancelled = self.transactions.server(id).is_some_and(|server| server.context().is_cancelled());
        if is_cancelled { Err(Fault { status: 487, reason: "Request Terminated" }) } else { Ok(()) }
    }
}

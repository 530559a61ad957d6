//! A client transaction, with the request that was sent.

use base::Time;
use bytes::Bytes;

use super::is_outside_of_dialogs;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::proxy::hop_by_hop::hop_request;
use crate::proxy::memory_budget::{Charge, TRANSACTION, weight};
use crate::proxy::outbox::Outgoing;
use crate::proxy::target::{Target, VerifiedHop};
use crate::proxy::{Id, dialog_number};
use crate::transaction::{self, ClientTimeout, ClientVerdict, Kind, Timers};
use crate::transport::Hop;

/// A request to send.
#[derive(Debug)]
pub(in crate::proxy) struct Departure {
    /// Server transaction that receives the responses. `None` for a CANCEL, whose responses have no recipient.
    pub(in crate::proxy) server: Option<Id>,
    pub(in crate::proxy) is_invite: bool,
    pub(in crate::proxy) hop: VerifiedHop,
    pub(in crate::proxy) request: Message,
    /// The branch parameter of our Via.
    pub(in crate::proxy) branch: String,
    /// Target with alternative hops, if any.
    pub(in crate::proxy) target: Option<Box<Target>>,
}

/// A client transaction.
#[derive(Debug)]
pub(in crate::proxy) struct Client {
    machine: transaction::Client,
    /// Server transaction that receives the responses. `None` for a CANCEL, whose responses have no recipient.
    server: Option<Id>,
    hop: VerifiedHop,
    dialog: u32,
    /// The branch parameter of our Via.
    branch: Box<[u8]>,
    /// The request as sent, until a final response arrives.
    request: Option<Message>,
    /// The message to retransmit: the request, or later the ACK.
    bytes: Bytes,
    /// Target with alternative hops, if any.
    target: Option<Box<Target>>,
    /// True if the request was sent again over a new association.
    is_resent: bool,
    /// Number of the CANCEL's transaction, if a CANCEL was sent.
    cancel: Option<Id>,
    /// True if CANCEL must be sent as soon as a provisional response has arrived (RFC 3261 section 9.1).
    wants_cancel: bool,
    /// Deadline of timer C. For requests other than INVITE, the deadline is never.
    timer_c: Time,
    /// Time of the transaction's earliest entry in the timer heap.
    wake: Time,
    charge: Charge,
}

impl Client {
    pub(super) fn start(now: Time, timers: Timers, departure: Departure, charge: Charge) -> Client {
        let Departure { server, is_invite, hop, request, branch, target } = departure;
        let kind = Kind { is_invite, is_reliable: hop.0.transport.is_reliable() };
        let is_proxied_invite = is_invite && server.is_some();
        let mut client = Client {
            machine: transaction::Client::start(kind, timers, now),
            server,
            hop,
            dialog: request.first(Name::CallId).map_or(0, |call_id| dialog_number(call_id)),
            branch: branch.into_bytes().into(),
            bytes: request.to_bytes(),
            request: Some(request),
            target,
            is_resent: false,
            cancel: None,
            wants_cancel: false,
            timer_c: if is_proxied_invite { now + timers.c } else { Time::NEVER },
            wake: Time::NEVER,
            charge,
        };
        client.charge.set(client.weight());
        client
    }

    /// Returns the number of bytes that the transaction keeps.
    fn weight(&self) -> usize {
        TRANSACTION + self.request.as_ref().map_or(0, weight) + self.bytes.len()
    }

    /// Returns the server transaction that receives the responses.
    pub(in crate::proxy) fn server(&self) -> Option<Id> {
        self.server
    }

    pub(in crate::proxy) fn hop(&self) -> Hop {
        self.hop.0
    }

    pub(in crate::proxy) fn verified_hop(&self) -> VerifiedHop {
        self.hop.clone()
    }

    /// Returns the request to send, for the transaction with this number.
    pub(in crate::proxy) fn outgoing(&self, id: Id) -> Outgoing {
        let (hop, domain) = self.hop.clone();
        let (bytes, dialog) = (self.bytes.clone(), self.dialog);
        let is_new = self.server.is_some() && self.request.as_ref().is_some_and(is_outside_of_dialogs);
        Outgoing { hop, domain, bytes, on_failure: Some(id), dialog, is_new }
    }

    pub(in crate::proxy) fn dialog(&self) -> u32 {
        self.dialog
    }

    pub(in crate::proxy) fn branch(&self) -> &[u8] {
        &self.branch
    }

    /// Returns the message to retransmit.
    pub(in crate::proxy) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the number of the CANCEL's transaction, if a CANCEL was sent.
    pub(in crate::proxy) fn cancel(&self) -> Option<Id> {
        self.cancel
    }

    pub(in crate::proxy) fn is_invite(&self) -> bool {
        self.machine.is_invite()
    }

    /// Reports whether no final response has arrived.
    pub(in crate::proxy) fn is_pending(&self) -> bool {
        self.machine.is_pending()
    }

    /// Reports whether no response has arrived.
    pub(in crate::proxy) fn awaits_first_response(&self) -> bool {
        self.machine.awaits_first_response()
    }

    /// Reports whether a CANCEL was requested.
    pub(in crate::proxy) fn wants_cancel(&self) -> bool {
        self.wants_cancel
    }

    /// Reports whether a failure to send the request ends the transaction. If the request was sent again, and a response has arrived, the
    /// failure is that of one sending only.
    pub(in crate::proxy) fn is_ended_by_failure(&self) -> bool {
        if self.is_resent { self.awaits_first_response() } else { self.is_pending() }
    }

    /// Begins the transaction anew, to send its request once more to its hop after the hop's association has failed. Returns false if the
    /// request must not be sent again: this was done before, an alternative hop exists, the hop was a flow, or a CANCEL was requested.
    pub(in crate::proxy) fn begin_again(&mut self, now: Time) -> bool {
        let has_other = self.target.as_ref().is_some_and(|target| target.has_more());
        let is_flow = self.hop.0.connection.is_some();
        if self.is_resent || has_other || is_flow || self.wants_cancel {
            return false;
        }
        self.is_resent = true;
        self.machine.restart(now);
        true
    }

    /// Reports whether the transaction must be cancelled when timer C fires, because a provisional response has arrived (section 16.8).
    /// If no response has arrived, or CANCEL was already sent, the transaction ends with the effect of a 408.
    pub(in crate::proxy) fn is_cancelled_by_timer_c(&self) -> bool {
        self.machine.is_proceeding() && self.cancel.is_none()
    }

    pub(super) fn on_response(&mut self, now: Time, status: u16) -> ClientVerdict {
        self.machine.on_response(now, status)
    }

    /// Replaces the message to retransmit with the hop-by-hop ACK for a rejection (section 17.1.1.3).
    pub(in crate::proxy) fn acknowledge(&mut self, rejection: &Message) {
        if let Some(request) = self.request.take() {
            let to = rejection.all(Name::To).next().cloned();
            self.bytes = hop_request(&request, Method::Ack, to).to_bytes();
            self.charge.set(self.weight());
        }
    }

    /// Records a final response. Returns true for the first final response, and false for a further 2xx.
    pub(in crate::proxy) fn finish(&mut self, status: u16) -> bool {
        let is_first = self.request.take().is_some() || status >= 300;
        self.charge.set(self.weight());
        is_first
    }

    /// Restarts timer C after a provisional response (section 16.7, step 2).
    pub(in crate::proxy) fn restart_timer_c(&mut self, timer_c: Time) {
        if self.cancel.is_none() && self.timer_c != Time::NEVER {
            self.timer_c = timer_c;
        }
    }

    /// Requests a CANCEL. The CANCEL may have to wait, because "the CANCEL … MUST NOT be sent" before a provisional response
    /// (section 9.1).
    pub(in crate::proxy) fn want_cancel(&mut self) {
        if self.machine.is_pending() && self.cancel.is_none() {
            self.wants_cancel = true;
        }
    }

    /// Returns the CANCEL if it was requested and may be sent now. Only an INVITE is cancelled, because other requests are answered
    /// immediately (section 9.1).
    pub(in crate::proxy) fn due_cancel(&self) -> Option<Message> {
        let may_go =
            self.wants_cancel && self.is_invite() && self.cancel.is_none() && self.machine.is_proceeding();
        let request = self.request.as_ref().filter(|_| may_go)?;
        Some(hop_request(request, Method::Cancel, request.all(Name::To).next().cloned()))
    }

    /// Records that CANCEL was sent. If no final response arrives by `timer_c`, the branch ends at that time (section 9.1, last
    /// paragraph).
    pub(in crate::proxy) fn note_cancel(&mut self, cancel: Id, timer_c: Time) {
        self.cancel = Some(cancel);
        self.timer_c = timer_c;
    }

    /// Takes the target with alternative hops, unless a CANCEL was requested.
    pub(in crate::proxy) fn take_target(&mut self) -> Option<Box<Target>> {
        if self.wants_cancel { None } else { self.target.take() }
    }

    /// Handles the transaction's timer. Returns `None` for timer C.
    pub(super) fn on_timeout(&mut self, now: Time) -> Option<ClientTimeout> {
        self.wake = Time::NEVER;
        let is_timer_c = self.timer_c <= now && self.machine.is_pending();
        (!is_timer_c).then(|| self.machine.on_timeout(now))
    }

    /// Returns the time of the next timer, if the timer heap needs a new entry for it. Returns `None` if the heap already has an entry at
    /// or before this time.
    pub(super) fn next_wake(&mut self) -> Option<Time> {
        let mut next = self.machine.next_timeout();
        if self.machine.is_pending() {
            next = next.min(self.timer_c);
        }
        let is_earlier = next < self.wake;
        self.wake = self.wake.min(next);
        is_earlier.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::memory_budget::MemoryBudget;
    use crate::proxy::testing::{hop, request};

    fn invite() -> Client {
        let departure = Departure {
            server: Some(1),
            is_invite: true,
            hop: (hop("192.0.2.8:5060"), None),
            request: request("INVITE sip:a@192.0.2.8"),
            branch: "z9hG4bK2.x.y".into(),
            target: Some(Box::new(Target::new(b"sip:a", (hop("192.0.2.9:5060"), None)))),
        };
        Client::start(Time::ZERO, Timers::default(), departure, MemoryBudget::default().charge(0))
    }

    #[test]
    fn cancel_waits_for_a_provisional_response_and_goes_once() {
        let mut client = invite();
        client.want_cancel();
        assert!(client.due_cancel().is_none());
        client.on_response(Time::ZERO, 180);
        assert_eq!(client.due_cancel().unwrap().method(), Some(&Method::Cancel));
        client.note_cancel(3, Time::from_millis(32_000));
        assert!(client.due_cancel().is_none());
        assert_eq!(client.cancel(), Some(3));
    }

    #[test]
    fn a_cancelled_request_has_no_further_targets() {
        let mut client = invite();
        client.want_cancel();
        assert!(client.take_target().is_none());
        assert!(invite().take_target().is_some());
    }

    #[test]
    fn an_answered_request_is_not_cancelled() {
        let mut client = invite();
        client.on_response(Time::ZERO, 486);
        client.want_cancel();
        assert!(client.take_target().is_some());
    }

    #[test]
    fn timer_c_fires_after_185_s_and_a_restart_postpones_it() {
        let mut client = invite();
        client.on_response(Time::ZERO, 180);
        assert_eq!(client.on_timeout(Time::from_millis(185_000)), None);
        client.restart_timer_c(Time::from_millis(300_000));
        assert_eq!(client.on_timeout(Time::from_millis(299_999)), Some(ClientTimeout::Nothing));
        assert_eq!(client.next_wake(), Some(Time::from_millis(300_000)));
        assert_eq!(client.next_wake(), None, "it has that entry");
    }

    #[test]
    fn after_a_rejection_the_client_retransmits_its_ack() {
        let mut client = invite();
        client.acknowledge(&request("INVITE sip:a").response(486, "Busy Here", "callee"));
        let ack = Message::parse(client.bytes().clone(), &crate::Limits::default()).unwrap();
        assert_eq!(ack.method(), Some(&Method::Ack));
        assert!(ack.first(Name::To).unwrap().ends_with(b";tag=callee"));
        assert!(client.finish(486) && client.finish(486));
    }
}

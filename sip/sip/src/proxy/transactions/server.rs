//! A server transaction, with its request and the state of the request's branches.

use base::Time;
use bytes::Bytes;

use super::AckKey;
use super::response_context::ResponseContext;
use crate::essentials::Essentials;
use crate::message::{Message, Method};
use crate::proxy::dialog_number;
use crate::proxy::leg::Leg;
use crate::proxy::memory_budget::{Charge, TRANSACTION, weight};
use crate::proxy::performance::Measured;
use crate::transaction::{self, Kind, ServerTimeout, Timers};
use crate::transport::Hop;

/// A new request.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Arrival<'a> {
    /// The hop for responses.
    pub(in crate::proxy) hop: Hop,
    pub(in crate::proxy) key: &'a [u8],
    /// The request, with its source added to Via.
    pub(in crate::proxy) request: &'a Message,
    pub(in crate::proxy) known: &'a Essentials,
}

/// A server transaction.
#[derive(Debug)]
pub(in crate::proxy) struct Server {
    machine: transaction::Server,
    key: Box<[u8]>,
    /// The hop for responses.
    hop: Hop,
    dialog: u32,
    /// Sequence number in the request's CSeq.
    cseq: u32,
    measured: Measured,
    /// The last response.
    last: Option<Bytes>,
    /// The request. `None` after the first final response.
    request: Option<Message>,
    context: ResponseContext,
    /// Dialog that the request may create.
    leg: Option<Leg>,
    /// Time of the transaction's earliest entry in the timer heap.
    wake: Time,
    charge: Charge,
}

impl Server {
    pub(super) fn start(
        now: Time,
        timers: Timers,
        arrival: Arrival<'_>,
        measured: Measured,
        charge: Charge,
    ) -> Server {
        let Arrival { hop, key, request, known } = arrival;
        let is_invite = known.cseq.method == Method::Invite;
        let kind = Kind { is_invite, is_reliable: hop.transport.is_reliable() };
        let mut server = Server {
            machine: transaction::Server::start(kind, timers, now),
            key: key.into(),
            hop,
            dialog: dialog_number(&known.call_id),
            cseq: known.cseq.number,
            measured,
            last: None,
            request: Some(request.clone()),
            context: ResponseContext::default(),
            leg: None,
            wake: Time::NEVER,
            charge,
        };
        server.charge.set(server.weight());
        server
    }

    /// Returns the number of bytes that the transaction keeps.
    fn weight(&self) -> usize {
        let request = self.request.as_ref().map_or(0, weight);
        TRANSACTION
            + 2 * self.key.len()
            + request
            + self.context.weight()
            + self.last.as_ref().map_or(0, Bytes::len)
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the hop for responses.
    pub(super) fn hop(&self) -> Hop {
        self.hop
    }

    pub(super) fn dialog(&self) -> u32 {
        self.dialog
    }

    pub(super) fn ack_key(&self) -> AckKey {
        (self.dialog, self.cseq)
    }

    pub(super) fn measured(&self) -> Measured {
        self.measured
    }

    /// Returns the arrival time of the request. If an earlier request of the same attempt was challenged, returns the arrival time of the
    /// earlier request.
    pub(in crate::proxy) fn began(&self) -> Time {
        self.measured.began()
    }

    /// Returns the request, or `None` after its final response.
    pub(in crate::proxy) fn request(&self) -> Option<&Message> {
        self.request.as_ref()
    }

    /// Reports whether the request is an INVITE without a final response.
    pub(in crate::proxy) fn is_open_invite(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.method() == Some(&Method::Invite))
    }

    /// Returns the last response.
    pub(in crate::proxy) fn last(&self) -> Option<&Bytes> {
        self.last.as_ref()
    }

    /// Returns the dialog that the request may create.
    pub(in crate::proxy) fn leg(&self) -> Option<&Leg> {
        self.leg.as_ref()
    }

    pub(in crate::proxy) fn set_leg(&mut self, leg: Option<Leg>) {
        self.leg = leg;
    }

    pub(in crate::proxy) fn context(&self) -> &ResponseContext {
        &self.context
    }

    pub(in crate::proxy) fn context_mut(&mut self) -> &mut ResponseContext {
        &mut self.context
    }

    /// Keeps a final response of a branch, if it is the best so far.
    pub(in crate::proxy) fn keep_best(&mut self, response: Message) {
        self.context.note_response(response);
        self.charge.set(self.weight());
    }

    /// Reports whether no final response was sent.
    pub(in crate::proxy) fn is_pending(&self) -> bool {
        self.machine.is_pending()
    }

    /// Reports whether an INVITE was rejected, and its ACK has not arrived.
    pub(super) fn awaits_ack(&self) -> bool {
        self.machine.awaits_ack()
    }

    /// Reports whether an INVITE was accepted.
    pub(super) fn is_accepted(&self) -> bool {
        self.machine.is_accepted()
    }

    /// Handles a retransmitted request. Returns true if the last response must be sent again.
    pub(super) fn on_request(&self) -> bool {
        self.machine.on_request()
    }

    pub(super) fn on_ack(&mut self, now: Time) {
        self.machine.on_ack(now);
    }

    /// Changes the state for a response to send. Returns false if the response must not be sent.
    pub(super) fn on_response(&mut self, now: Time, status: u16) -> bool {
        self.machine.on_response(now, status)
    }

    /// Keeps a sent response for retransmission, and drops the state that is no longer needed. `has_room` reports whether more bytes may
    /// be kept. Without room, the response is not kept, and retransmitted requests get no response. For the first final response, returns
    /// the state of the measured request.
    pub(super) fn keep_response(
        &mut self,
        now: Time,
        status: u16,
        bytes: Bytes,
        has_room: impl Fn(usize) -> bool,
    ) -> Option<Measured> {
        if status > 100 {
            self.measured.note_indication(now);
        }
        let mut is_first = false;
        if status >= 200 {
            self.context.finish();
            is_first = self.request.take().is_some();
        }
        self.last = Some(bytes);
        let more = self.weight().saturating_sub(self.charge.bytes());
        if more > 0 && !has_room(more) {
            self.last = None;
        }
        self.charge.set(self.weight());
        // Further 2xx belong to the same attempt.
        is_first.then_some(self.measured)
    }

    /// Handles the transaction's timer.
    pub(super) fn on_timeout(&mut self, now: Time) -> ServerTimeout {
        self.wake = Time::NEVER;
        self.machine.on_timeout(now)
    }

    /// Returns the time of the next timer, if the timer heap needs a new entry for it. Returns `None` if the heap already has an entry at
    /// or before this time.
    pub(super) fn next_wake(&mut self) -> Option<Time> {
        let next = self.machine.next_timeout();
        let is_earlier = next < self.wake;
        self.wake = self.wake.min(next);
        is_earlier.then_some(next)
    }
}

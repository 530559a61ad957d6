//! Output of the proxy core: actions for the driver in their order, and counters.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::lookup::Lookup;
use super::performance::Performance;
use super::shared::Query;
use super::target::VerifiedHop;
use crate::location::Change;
use crate::transport::Hop;

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The destination.
    pub hop: Hop,
    /// Domain that a TLS peer must prove to serve (RFC 5922 section 4). With `None`, the peer must prove its address.
    pub domain: Option<Arc<str>>,
    /// The message.
    pub bytes: Bytes,
    /// Number for [`Proxy::handle_send_failure`](super::Proxy::handle_send_failure) if the message cannot be sent. With `None`, failures
    /// are not reported.
    pub on_failure: Option<u64>,
    /// Number that is common to all messages of a dialog. The number selects the stream if the transport has several streams.
    pub dialog: u32,
    /// True if the message begins new work, as a request outside of dialogs does. If the queue of the next hop is almost full, the driver
    /// refuses such messages and keeps room for work in progress. The driver then calls
    /// [`Proxy::handle_congestion`](super::Proxy::handle_congestion).
    pub is_new: bool,
}

/// A request that was sent over an association, and the association has failed. The request may have been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostRequest {
    /// The request's [`Outgoing::on_failure`].
    pub on_failure: u64,
    /// True if the peer itself ended the association, for example after a restart. A new association may then succeed.
    pub may_resend: bool,
}

/// An action for the driver. The driver must execute actions in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A change to persist. The driver must persist the change before it executes later actions. Occurs only without
    /// [`ProxyConfig::shared`](super::ProxyConfig::shared).
    Store(Change),
    /// A query to the shared store. The driver passes the answer to [`Proxy::handle_found`](super::Proxy::handle_found). Occurs only with
    /// [`ProxyConfig::shared`](super::ProxyConfig::shared).
    Ask(Query),
    /// A message to send.
    Send(Outgoing),
    /// A name to look up. The driver passes the answer to [`Proxy::handle_resolved`](super::Proxy::handle_resolved). Occurs only with
    /// [`ProxyConfig::names`](super::ProxyConfig::names).
    Resolve(Lookup),
}

/// Event counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// New requests that passed the checks of syntax, access, drain and memory, even if the proxy rejects them later. ACKs do not count. In
    /// stateless mode, forwarded ACKs also count, and requests that are rejected instead of forwarded do not.
    pub requests: u64,
    /// Retransmitted requests and responses.
    pub retransmissions: u64,
    /// Malformed messages, responses that match no transaction, and ACKs that cannot be forwarded.
    pub dropped: u64,
    /// Requests rejected because a limit was reached, and requests that were not sent because the queue of the next hop was full.
    pub overloads: u64,
    /// REGISTERs answered with 200.
    pub registrations: u64,
    /// INVITEs answered with 2xx.
    pub calls: u64,
    /// Client transactions that timed out without a final response.
    pub timeouts: u64,
    /// Requests rejected because of their source address.
    pub denied: u64,
    /// Requests above their source's rate limit.
    pub limited: u64,
    /// New INVITEs outside of dialogs.
    pub invites: u64,
    /// Requests rejected because the shared store did not answer.
    pub unanswered: u64,
    /// Requests rejected because the proxy drains.
    pub late: u64,
    /// Responses by class, 1xx first. Rejections that are counted in `dropped`, `denied`, `limited` or `late` are not counted here.
    /// Rejections because of a memory limit are not counted here either.
    pub responses: [u64; 6],
}

/// An event that [`Counters`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Request,
    Retransmission,
    Dropped,
    Overload,
    Registration,
    Call,
    Timeout,
    Denied,
    Limited,
    Invite,
    Unanswered,
    Late,
    /// A response with this status.
    Response(u16),
}

/// The actions to execute, and the counters so far.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    outputs: VecDeque<Output>,
    counters: Counters,
    performance: Performance,
}

impl Outbox {
    /// Returns the next action.
    pub(super) fn next(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Sends a message to a next hop. The message belongs to existing work (`is_new` is false).
    pub(super) fn send(
        &mut self,
        (hop, domain): VerifiedHop,
        bytes: Bytes,
        on_failure: Option<u64>,
        dialog: u32,
    ) {
        self.push(Output::Send(Outgoing { hop, domain, bytes, on_failure, dialog, is_new: false }));
    }

    /// Sends a response to the source of its request. A failure is not reported.
    pub(super) fn send_back(&mut self, hop: Hop, bytes: Bytes, dialog: u32) {
        self.send((hop, None), bytes, None, dialog);
    }

    pub(super) fn count(&mut self, event: Event) {
        let counters = &mut self.counters;
        let counter = match event {
            Event::Request => &mut counters.requests,
            Event::Retransmission => &mut counters.retransmissions,
            Event::Dropped => &mut counters.dropped,
            Event::Overload => &mut counters.overloads,
            Event::Registration => &mut counters.registrations,
            Event::Call => &mut counters.calls,
            Event::Timeout => &mut counters.timeouts,
            Event::Denied => &mut counters.denied,
            Event::Limited => &mut counters.limited,
            Event::Invite => &mut counters.invites,
            Event::Unanswered => &mut counters.unanswered,
            Event::Late => &mut counters.late,
            Event::Response(status) => &mut counters.responses[usize::from(status / 100).clamp(1, 6) - 1],
        };
        *counter += 1;
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    pub(super) fn performance(&self) -> &Performance {
        &self.performance
    }

    pub(super) fn performance_mut(&mut self) -> &mut Performance {
        &mut self.performance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::hop;

    #[test]
    fn each_event_is_counted_once_and_responses_by_class() {
        let mut outbox = Outbox::default();
        for event in [Event::Dropped, Event::Response(200), Event::Response(299), Event::Response(699)] {
            outbox.count(event);
        }
        let expected = Counters { dropped: 1, responses: [0, 2, 0, 0, 0, 1], ..Counters::default() };
        assert_eq!(outbox.counters(), expected);
    }

    #[test]
    fn actions_leave_in_their_order() {
        let mut outbox = Outbox::default();
        outbox.send_back(hop("192.0.2.7:5060"), "first".into(), 1);
        outbox.send((hop("192.0.2.8:5060"), Some("example.com".into())), "second".into(), Some(7), 1);
        let mut next = || match outbox.next() {
            Some(Output::Send(out)) => Some((out.bytes, out.domain.is_some(), out.on_failure, out.is_new)),
            _ => None,
        };
        assert_eq!(next(), Some(("first".into(), false, None, false)));
        assert_eq!(next(), Some(("second".into(), true, Some(7), false)));
        assert_eq!(next(), None);
    }
}

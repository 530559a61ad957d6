//! The stateful proxy core (RFC 3261 section 16). The core answers a request, or forwards copies of it in client transactions.
//!
//! [`Stateful`] borrows the tables that one event may change. Invariants: a server transaction gets one final response, and a branch ends
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

/// The rejection of new work while the proxy drains. Also the rejection of work that did not finish before the end of the drain.
pub(super) const ENDING: Fault = Fault { status: 503, reason: "Proxy Is Stopping" };

/// A view of the transactions, and of all other tables that one event may change.
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
    /// Sends a response of a server transaction, if the state of the transaction permits it.
    fn respond(&mut self, id: Id, response: &Message) {
        let leg = self.transactions.respond(self.now, &self.config.limits, id, response, self.outbox);
        if let Some(leg) = leg {
            let to = response.first(Name::To).and_then(|to| Address::parse(to).ok()?.tag());
            self.dialogs.on_answer(self.now, &leg, response.status(), to);
        }
    }

    /// Answers a request. `fields` are added to the fields that every response has.
    pub(super) fn reply(&mut self, id: Id, status: u16, reason: &str, fields: Vec<Header>) {
        let Some(request) = self.transactions.server(id).and_then(|server| server.request()) else { return };
        let mut response = self.tags.response(request, status, reason);
        response.headers.extend(fields);
        self.respond(id, &response);
    }

    /// Rejects a request.
    fn refuse(&mut self, id: Id, fault: Fault) {
        // These statuses mean that the request can reach no user agent.
        if matches!(fault.status, 404 | 416 | 430 | 480 | 500) {
            self.note_undelivered(id);
        }
        let seconds = self.config.limits.retry_after.to_string();
        let retry = (fault.status == 503).then(|| Header::new(Name::RetryAfter, &seconds));
        self.reply(id, fault.status, fault.reason, retry.into_iter().collect());
    }

    /// Rejects a request if `served` is an error.
    pub(super) fn refuse_if_failed(&mut self, id: Id, served: Result<(), Fault>) {
        if let Err(fault) = served {
            self.refuse(id, fault);
        }
    }

    /// Records that a request reached no user agent.
    fn note_undelivered(&mut self, id: Id) {
        if let Some(request) = self.transactions.server(id).and_then(|server| server.request()) {
            self.dialogs.note_undelivered(self.now, request, self.outbox.performance_mut());
        }
    }

    /// Fails if a CANCEL for a request has arrived while the request waited for a name or for the store.
    pub(super) fn check_cancelled(&self, id: Id) -> Result<(), Fault> {
        let is_cancelled = self.transactions.server(id).is_some_and(|server| server.context().is_cancelled());
        if is_cancelled { Err(Fault { status: 487, reason: "Request Terminated" }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::essentials::Essentials;
    use crate::proxy::target::Target;
    use crate::proxy::testing::{asked, config, hop};
    use crate::proxy::transactions::Arrival;
    use crate::proxy::{Outgoing, Output};

    struct World {
        config: ProxyConfig,
        marks: DialogMarks,
        tags: Tags,
        transactions: Transactions,
        dialogs: Dialogs,
        outbox: Outbox,
    }

    impl World {
        fn new() -> World {
            World {
                config: config(),
                marks: DialogMarks::new([1; 32]),
                tags: Tags::new(&[2; 32]),
                transactions: Transactions::new(Time::ZERO, ChaCha12Rng::from_seed([3; 32])),
                dialogs: Dialogs::new(10),
                outbox: Outbox::default(),
            }
        }

        fn stateful(&mut self) -> Stateful<'_> {
            let World { config, marks, tags, transactions, dialogs, outbox } = self;
            Stateful { now: Time::ZERO, config, marks, tags, transactions, dialogs, outbox }
        }

        /// Starts a server transaction whose key is the text of the request.
        fn start(&mut self, text: &str) -> Id {
            let asked = asked(0, text);
            let key = text.as_bytes();
            let arrival = Arrival { hop: asked.from, key, request: &asked.request, known: &asked.known };
            let timers = self.config.timers;
            self.transactions.start_server(Time::ZERO, timers, arrival, &mut self.outbox)
        }

        /// Forwards a request to these targets, and returns its server transaction.
        fn forward(&mut self, text: &str, targets: Vec<Target>) -> Id {
            let server = self.start(text);
            self.stateful().forward(asked(server, text), targets);
            server
        }

        /// Returns the messages sent since the last call, each as its destination port and its method or status.
        fn sent(&mut self) -> Vec<(u16, String)> {
            self.messages().into_iter().map(|(port, message)| (port, first_line(&message))).collect()
        }

        fn messages(&mut self) -> Vec<(u16, Message)> {
            let mut messages = Vec::new();
            while let Some(Output::Send(Outgoing { hop, bytes, .. })) = self.outbox.next() {
                messages.push((hop.address.port(), Message::parse(bytes, &self.config.messages).unwrap()));
            }
            messages
        }

        /// Handles a next hop's response to a request that was sent to it.
        fn answer(&mut self, request: &Message, status: u16) {
            let response = request.response(status, "x", "callee");
            let known = Essentials::of(&response).unwrap();
            let id = self.stateful().branch_of(&known).unwrap();
            self.stateful().handle_response(id, response, &known);
        }
    }

    fn first_line(message: &Message) -> String {
        let method = message.method().map(|method| String::from_utf8_lossy(method.as_bytes()).into_owned());
        method.unwrap_or_else(|| message.status().to_string())
    }

    fn target(port: u16, q: u16) -> Target {
        Target::new(b"sip:a@192.0.2.8", (hop(&format!("192.0.2.8:{port}")), None)).with_preference(q)
    }

    fn lines(lines: &[(u16, &str)]) -> Vec<(u16, String)> {
        lines.iter().map(|(port, line)| (*port, (*line).to_owned())).collect()
    }

    const INVITE: &str = "INVITE sip:callee@example.org";

    #[test]
    fn a_success_is_passed_back_and_cancels_the_branch_that_rings() {
        let mut world = World::new();
        world.forward(INVITE, vec![target(1, 1000), target(2, 1000)]);
        let messages = world.messages();
        let [(5060, trying), (1, first), (2, second)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(trying.status(), 100);
        world.answer(second, 180);
        assert_eq!(world.sent(), lines(&[(5060, "180")]));
        world.answer(first, 200);
        assert_eq!(world.sent(), lines(&[(5060, "200"), (2, "CANCEL")]));
        assert_eq!(world.outbox.counters().calls, 1);
    }

    #[test]
    fn a_less_preferred_target_is_tried_after_the_others_have_rejected() {
        let mut world = World::new();
        world.forward(INVITE, vec![target(2, 500), target(1, 1000)]);
        let (_, first) = world.messages().remove(1);
        world.answer(&first, 404);
        let messages = world.messages();
        let [(1, ack), (2, second)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(first_line(ack), "ACK");
        world.answer(second, 486);
        assert_eq!(world.sent(), lines(&[(2, "ACK"), (5060, "404")]));
        assert_eq!(world.dialogs.len(), 0, "the rejected dialog is forgotten");
    }

    #[test]
    fn a_request_that_cannot_be_sent_is_tried_at_its_alternate_hop_and_then_fails() {
        let mut world = World::new();
        let targets = vec![target(1, 1000).with_alternates(vec![hop("192.0.2.8:2")])];
        let server = world.forward("OPTIONS sip:callee@example.org", targets);
        assert_eq!(world.sent(), lines(&[(1, "OPTIONS")]));
        world.stateful().fail_branch(server + 1);
        assert_eq!(world.sent(), lines(&[(2, "OPTIONS")]));
        world.stateful().fail_branch(server + 2);
        assert_eq!(world.sent(), lines(&[(5060, "500")]));
    }

    #[test]
    fn the_senders_cancel_is_answered_and_no_further_target_is_tried() {
        let mut world = World::new();
        let server = world.forward(INVITE, vec![target(1, 1000), target(2, 500)]);
        let (_, first) = world.messages().remove(1);
        world.answer(&first, 180);
        world.sent();
        let cancel = world.start("CANCEL sip:callee@example.org");
        world.stateful().handle_cancel(cancel, INVITE.as_bytes());
        assert!(world.stateful().check_cancelled(server).is_err());
        assert_eq!(world.sent(), lines(&[(5060, "200"), (1, "CANCEL")]));
        world.answer(&first, 487);
        assert_eq!(world.sent(), lines(&[(1, "ACK"), (5060, "487")]));
    }

    #[test]
    fn a_truncated_or_foreign_icmp_quotation_matches_no_branch() {
        let mut world = World::new();
        let server = world.forward(INVITE, vec![target(1, 1000)]);
        let (_, sent) = world.messages().remove(1);
        let quoted = sent.to_bytes();
        let address = |port| hop(&format!("192.0.2.8:{port}")).address;
        assert_eq!(world.stateful().branch_quoted(address(1), &quoted), Some(server + 1));
        assert_eq!(world.stateful().branch_quoted(address(2), &quoted), None);
        let end = quoted.windows(8).position(|part| part == b";branch=").unwrap() + 30;
        assert_eq!(world.stateful().branch_quoted(address(1), &quoted[..end]), None);
    }
}

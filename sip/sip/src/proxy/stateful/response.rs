//! Handles responses (RFC 3261 section 16.7). A provisional response or a 2xx is forwarded at once. Any other final response waits until
//! all branches have ended. Then the best response is forwarded. A branch without a final response counts as a branch with a 408 (time-out)
//! or a 503 (send failure).

use std::net::SocketAddr;

use super::Stateful;
use crate::essentials::Essentials;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::proxy::Id;
use crate::proxy::copies::push_via;
use crate::proxy::memory_budget::weight;
use crate::proxy::outbox::{Event, LostRequest};
use crate::proxy::transactions::Conclusion;
use crate::via::Via;

impl Stateful<'_> {
    /// Returns the client transaction that the first Via of a response identifies (section 17.1.3).
    pub(in crate::proxy) fn branch_of(&self, known: &Essentials) -> Option<Id> {
        let via = Via::parse(&known.via).ok().filter(|via| self.config.is_our_via(via))?;
        let (id, client) = self.transactions.client_with(via.branch()?)?;
        // A CANCEL has the branch of the request that it cancels.
        if known.cseq.method == Method::Cancel { client.cancel() } else { Some(id) }
    }

    /// Handles a response to a client transaction.
    pub(in crate::proxy) fn handle_response(&mut self, id: Id, response: Message, known: &Essentials) {
        let status = response.status();
        let Some(verdict) = self.transactions.on_response(self.now, id, status) else { return };
        if verdict.ack {
            self.acknowledge(id, &response);
        }
        if !verdict.pass {
            self.outbox.count(Event::Retransmission);
            return;
        }
        self.note_in_dialog(id, &response, known);
        match status {
            100..=199 => self.on_provisional(id, response),
            _ => self.on_final(id, response),
        }
        self.transactions.schedule_client(id);
    }

    /// Sends the hop-by-hop ACK for a rejection, and again for each retransmission of the rejection (section 17.1.1.3).
    fn acknowledge(&mut self, id: Id, response: &Message) {
        let Some(client) = self.transactions.client_mut(id) else { return };
        client.acknowledge(response);
        self.outbox.send(client.verified_hop(), client.bytes().clone(), None, client.dialog());
    }

    /// Updates the dialog to which a response belongs. A response to BYE can end the dialog. A response to the request that creates the
    /// dialog contains the callee's Contact.
    fn note_in_dialog(&mut self, id: Id, response: &Message, known: &Essentials) {
        let Some(client) = self.transactions.client(id) else { return };
        let server = client.server().and_then(|server| self.transactions.server(server));
        let status = response.status();
        if known.cseq.method == Method::Bye {
            let came = server.map(|server| server.began());
            self.dialogs.on_bye_answer(self.now, status, known, came, self.outbox.performance_mut());
        }
        if let (101..=299, Some(leg)) = (status, server.and_then(|server| server.leg())) {
            self.dialogs.learn_callee(self.config, leg, client.hop(), response);
        }
    }

    fn on_provisional(&mut self, id: Id, response: Message) {
        let Some(client) = self.transactions.client_mut(id) else { return };
        // Step 2: "for all provisional responses … except 100".
        if response.status() != 100 {
            client.restart_timer_c(self.now + self.config.timers.c);
        }
        // "MUST NOT send any provisional response … other than 100 to a non-INVITE" (RFC 4320 section 4.1).
        let may_pass = response.status() != 100 && client.is_invite();
        let server = client.server().filter(|_| may_pass);
        self.send_due_cancel(id);
        if let Some(server) = server {
            self.pass_back(server, response);
        }
    }

    fn on_final(&mut self, id: Id, response: Message) {
        let status = response.status();
        let Some(client) = self.transactions.client_mut(id) else { return };
        let is_first = client.finish(status);
        let Some(server) = client.server() else { return };
        // "If the SIP request fails … 503 …, the client SHOULD try" the next hop (RFC 3263 section 4.3). After a 430, the next hop is
        // also tried, because the Contact's address can be reachable without the lost flow (RFC 5626 section 5.3.1).
        let is_begun_anew = matches!(status, 430 | 503) && self.try_next_hop(id);
        if is_first {
            self.close_branch(server);
        }
        if is_begun_anew {
            return;
        }
        if status < 300 {
            if response.first(Name::CSeq).is_some_and(|value| value.ends_with(b"INVITE")) && is_first {
                self.outbox.count(Event::Call);
            }
            self.pass_back(server, response);
            self.cancel_branches(server);
            return;
        }
        self.keep_best(server, response);
        if status >= 600 {
            self.cancel_branches(server);
        }
        self.answer_if_all_ended(server);
    }

    fn close_branch(&mut self, server: Id) {
        if let Some(server) = self.transactions.server_mut(server) {
            server.context_mut().close_branch();
        }
    }

    /// Forwards a response upstream, without our Via.
    fn pass_back(&mut self, server: Id, mut response: Message) {
        response.pop_first(Name::Via);
        self.respond(server, &response);
    }

    /// Handles the time-out of a client transaction.
    pub(in crate::proxy) fn time_out(&mut self, id: Id) {
        self.outbox.count(Event::Timeout);
        self.end_branch_without_response(id, 408, "Request Timeout");
    }

    /// Handles timer C (section 16.8). If a provisional response has arrived, sends CANCEL. If no response has arrived, ends the branch
    /// with the effect of a 408.
    pub(in crate::proxy) fn on_timer_c(&mut self, id: Id) {
        match self.transactions.client(id) {
            Some(client) if client.is_cancelled_by_timer_c() => self.cancel_branch(id),
            Some(_) => self.time_out(id),
            None => {}
        }
    }

    /// Handles a failure to send the request of a branch. The effect is the same as the arrival of a 503 (section 16.9).
    pub(in crate::proxy) fn fail_branch(&mut self, id: Id) {
        if self.transactions.client(id).is_some_and(|client| client.is_ended_by_failure()) {
            self.end_branch_without_response(id, 503, "Next Hop Cannot Be Reached");
        }
    }

    /// Handles the failure of the association over which the request of a branch was sent. If a response has arrived, the branch remains.
    pub(in crate::proxy) fn handle_lost_request(&mut self, lost: LostRequest) {
        let id = lost.on_failure;
        let client = self.transactions.client(id).filter(|client| client.awaits_first_response());
        let Some(client) = client else { return };
        let is_cancelled = client.wants_cancel();
        // A CANCEL has no server transaction.
        let is_pending = |server| self.transactions.server(server).is_some_and(|server| server.is_pending());
        let may_resend = lost.may_resend && client.server().is_none_or(is_pending);
        if may_resend && self.transactions.send_again(self.now, id, self.outbox) {
            return;
        }
        match is_cancelled {
            true => self.end_branch_without_response(id, 487, "Request Terminated"),
            false => self.end_branch_without_response(id, 503, "Next Hop Was Lost"),
        }
    }

    /// Handles a request that was not sent because the queue of its next hop is full. If the request has no alternative hop, its sender
    /// gets 503 with Retry-After. A proxy may forward 503 if "it knows that any subsequent requests it might proxy will also generate a
    /// 503" (section 16.7, step 6). After a send failure ([`Stateful::fail_branch`]), the sender gets 500.
    pub(in crate::proxy) fn handle_congestion(&mut self, id: Id) {
        let client = self.transactions.client(id).filter(|client| client.is_ended_by_failure());
        let Some(client) = client else { return };
        let server = client.server();
        self.outbox.count(Event::Overload);
        if let Some(server) = server.and_then(|server| self.transactions.server_mut(server)) {
            server.context_mut().note_congestion();
        }
        self.end_branch_without_response(id, 503, "Send Queue Of The Next Hop Is Full");
    }

    /// Returns the branch of the request to `address` that begins with `quoted`. Returns `None` if `quoted` does not contain our whole
    /// branch parameter, which is unpredictable.
    pub(in crate::proxy) fn branch_quoted(&self, address: SocketAddr, quoted: &[u8]) -> Option<Id> {
        let (id, client) = self.transactions.client_with(branch_in(quoted)?)?;
        (client.hop().address == address).then_some(id)
    }

    /// Ends a branch that will get no final response. `status` is the status that the branch counts as.
    fn end_branch_without_response(&mut self, id: Id, status: u16, reason: &str) {
        let is_begun_anew = self.try_next_hop(id);
        let Some(client) = self.transactions.end_client(id) else { return };
        let Some(server_id) = client.server() else { return };
        self.close_branch(server_id);
        if is_begun_anew {
            return;
        }
        let Some(server) = self.transactions.server(server_id) else { return };
        if let Some(request) = server.request() {
            let mut response = self.tags.response(request, status, reason);
            // Each kept response has our own Via, which is removed before the response is forwarded.
            push_via(self.config, &mut response, client.hop(), &String::from_utf8_lossy(client.branch()));
            self.keep_best(server_id, response);
        }
        self.answer_if_all_ended(server_id);
    }

    /// Keeps the best response so far (step 6).
    fn keep_best(&mut self, server: Id, response: Message) {
        let response = self.within_budget(server, response);
        if let Some(server) = self.transactions.server_mut(server) {
            server.keep_best(response);
        }
    }

    /// Returns the response if the memory budget has room for it. Otherwise returns our own short response with the same status.
    fn within_budget(&self, server: Id, response: Message) -> Message {
        if self.transactions.has_room(&self.config.limits, weight(&response)) {
            return response;
        }
        let Some(request) = self.transactions.server(server).and_then(|server| server.request()) else {
            return response;
        };
        let mut short = self.tags.response(request, response.status(), "Refused");
        if let Some(ours) = response.elements(Name::Via).next() {
            short.push_front(Header::of_bytes(Name::Via, ours));
        }
        short
    }

    /// Sends the best response if no branch is open and no further targets exist.
    fn answer_if_all_ended(&mut self, id: Id) {
        let Some(server) = self.transactions.server(id) else { return };
        if server.context().is_open() || !server.is_pending() {
            return;
        }
        if self.attempt_next(id) {
            return;
        }
        if self.transactions.server(id).is_some_and(|server| server.context().reached_nobody()) {
            self.note_undelivered(id);
        }
        let Some(server) = self.transactions.server_mut(id) else { return };
        let is_invite = server.is_open_invite();
        match server.context_mut().conclude(is_invite, self.config.limits.retry_after) {
            Some(Conclusion::Response(response)) => self.pass_back(id, response),
            Some(Conclusion::Silence) => {
                if let Some(measured) = self.transactions.end_server(id) {
                    self.outbox.performance_mut().note_silence(self.now, measured);
                }
            }
            None => {}
        }
    }
}

/// Returns the branch of the first Via in the quoted beginning of a request, if the branch is complete.
fn branch_in(quoted: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b";branch=";
    let start = quoted.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let rest = quoted.get(start..)?;
    let end = rest.iter().position(|b| b";,\r ".contains(b))?;
    rest.get(..end)
}

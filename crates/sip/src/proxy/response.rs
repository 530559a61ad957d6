//! Responses (RFC 3261 section 16.7): forwards them at once or waits for the other branches, and selects the best.

use std::net::SocketAddr;

use base::Time;

use super::cancel::hop_request;
use super::copies::push_via;
use super::memory_budget::weight;
use super::outbox::Event;
use super::tokens::FLOW_FAILED;
use super::{Client, Id, Mode, Proxy, Server};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::via::Via;

impl Proxy {
    /// Handles a response. One that matches no branch is dropped (RFC 6026 section 7.3 forbids proxies to forward it).
    pub(super) fn handle_response(&mut self, now: Time, response: Message, known: &Essentials) {
        let Some(id) = self.branch_of(known) else {
            if self.config.mode != Mode::Stateless || !self.pass_response(response, known) {
                self.outbox.count(Event::Dropped);
            }
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else { return };
        let status = response.status();
        let verdict = client.machine.on_response(now, status);
        let (asked_by, hop) = (client.server, client.hop);
        if verdict.ack {
            self.acknowledge(id, &response);
        }
        if !verdict.pass {
            self.outbox.count(Event::Retransmission);
            return;
        }
        if known.cseq.method == Method::Bye {
            let server = asked_by.and_then(|server| self.servers.get(&server));
            let came = server.map(|server| server.measured.began());
            self.dialogs.on_bye_answer(now, status, known, came, self.outbox.performance_mut());
        }
        let leg = asked_by.and_then(|server| self.servers.get(&server)?.leg.as_ref());
        if let (101..=299, Some(leg)) = (status, leg) {
            self.dialogs.learn_callee(&self.config, leg, hop, &response);
        }
        match status {
            100..=199 => self.on_provisional(now, id, response),
            _ => self.on_final(now, id, response),
        }
        self.schedule_client(id);
    }

    /// Returns the client transaction named by a response's first Via (section 17.1.3).
    fn branch_of(&self, known: &Essentials) -> Option<Id> {
        let via = Via::parse(&known.via).ok().filter(|via| self.config.is_our_via(via))?;
        let (id, client) = self.client_with(via.branch()?)?;
        // CANCEL has the branch of the request that it cancels.
        if known.cseq.method == Method::Cancel { client.cancel } else { Some(id) }
    }

    fn client_with(&self, branch: &[u8]) -> Option<(Id, &Client)> {
        let hex = branch.strip_prefix(b"z9hG4bK")?.split(|&b| b == b'.').next()?;
        let id = u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?;
        let client = self.clients.get(&id).filter(|client| *client.branch == *branch)?;
        Some((id, client))
    }

    /// Sends the hop-by-hop ACK for a rejection (section 17.1.1.3), again for each retransmission.
    fn acknowledge(&mut self, id: Id, response: &Message) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Some(request) = client.request.take() {
            let to = response.all(Name::To).next().cloned();
            client.bytes = hop_request(&request, Method::Ack, to).to_bytes();
            client.charge.set(client.weight());
        }
        let (hop, domain) = (client.hop, client.domain.clone());
        let (bytes, dialog) = (client.bytes.clone(), client.dialog);
        self.outbox.send((hop, domain), bytes, None, dialog);
    }

    fn on_provisional(&mut self, now: Time, id: Id, response: Message) {
        let timer_c = now + self.config.timers.c;
        let Some(client) = self.clients.get_mut(&id) else { return };
        // Step 2: "for all provisional responses … except 100".
        if response.status() != 100 && client.cancel.is_none() && client.timer_c != Time::NEVER {
            client.timer_c = timer_c;
        }
        let server = client.server;
        // "MUST NOT send any provisional response … other than 100 to a non-INVITE" (RFC 4320 section 4.1).
        let may_pass = response.status() != 100 && client.machine.is_invite();
        self.send_wanted_cancel(now, id);
        if let Some(server) = server.filter(|_| may_pass) {
            self.pass_back(now, server, response);
        }
    }

    fn on_final(&mut self, now: Time, id: Id, response: Message) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let is_first = client.request.take().is_some() || response.status() >= 300;
        client.charge.set(client.weight());
        let Some(server) = client.server else { return };
        let is_success = response.status() < 300;
        // "If the SIP request fails … 503 …, the client SHOULD try" the next hop (RFC 3263 section 4.3).
        // The same for 430: a lost flow (RFC 5626 section 5.3.1) does not rule out the address in the Contact.
        let is_begun_anew = matches!(response.status(), 430 | 503) && self.try_next_hop(now, id);
        if is_first {
            self.close_branch(server);
        }
        if is_begun_anew {
            return;
        }
        if is_success {
            if response.first(Name::CSeq).is_some_and(|value| value.ends_with(b"INVITE")) && is_first {
                self.outbox.count(Event::Call);
            }
            self.pass_back(now, server, response);
            self.cancel_branches(now, server);
            return;
        }
        let is_global = response.status() >= 600;
        self.keep_best(server, response);
        if is_global {
            self.cancel_branches(now, server);
        }
        self.answer_if_all_ended(now, server);
    }

    fn close_branch(&mut self, server: Id) {
        if let Some(server) = self.servers.get_mut(&server) {
            server.open = server.open.saturating_sub(1);
        }
    }

    /// Forwards a response upstream, without our Via.
    fn pass_back(&mut self, now: Time, server: Id, mut response: Message) {
        response.pop_first(Name::Via);
        self.respond(now, server, &response);
    }

    /// Forwards a response upstream with another status.
    fn pass_back_as(&mut self, now: Time, server: Id, mut response: Message, fault: Fault) {
        let (status, reason) = (fault.status, bytes::Bytes::from_static(fault.reason.as_bytes()));
        response.start = crate::message::Start::Response { status, reason };
        self.pass_back(now, server, response);
    }

    /// Ends a branch that had no final response, and will not have one.
    pub(super) fn end_branch_without_response(&mut self, now: Time, id: Id, status: u16, reason: &str) {
        let is_begun_anew = self.try_next_hop(now, id);
        let Some(client) = self.clients.remove(&id) else { return };
        let Some(server_id) = client.server else { return };
        self.close_branch(server_id);
        if is_begun_anew {
            return;
        }
        let Some(server) = self.servers.get(&server_id) else { return };
        if let Some(request) = &server.request {
            let mut response = self.tags.response(request, status, reason);
            // Kept responses have our own Via, which is removed when they are forwarded.
            push_via(&self.config, &mut response, client.hop, &String::from_utf8_lossy(&client.branch));
            self.keep_best(server_id, response);
        }
        self.answer_if_all_ended(now, server_id);
    }

    /// Handles a driver's failure to send the request of this branch: as if 503 had come (section 16.9).
    pub fn handle_send_failure(&mut self, now: Time, on_failure: u64) {
        if self.clients.get(&on_failure).is_some_and(|client| client.machine.is_pending()) {
            self.end_branch_without_response(now, on_failure, 503, "Next Hop Cannot Be Reached");
        }
        self.send_ack_elsewhere(now, on_failure);
    }

    /// Handles a request that the driver did not send because too much already waits for its next hop. If there is no alternative,
    /// the sender gets 503 with Retry-After, and not 500 as for a broken next hop: "it knows that any subsequent
    /// requests it might proxy will also generate a 503" (section 16.7, step 6).
    pub fn handle_congestion(&mut self, now: Time, on_failure: u64) {
        let client = self.clients.get(&on_failure).filter(|client| client.machine.is_pending());
        let Some(server) = client.map(|client| client.server) else { return };
        self.outbox.count(Event::Overload);
        if let Some(server) = server.and_then(|server| self.servers.get_mut(&server)) {
            server.is_congested = true;
        }
        self.end_branch_without_response(now, on_failure, 503, "Too Much Waits For The Next Hop");
    }

    /// Handles an ICMP report that a datagram to `address` can never arrive: "inform the transport user of a failure in
    /// sending" (section 18.4). `quoted` is its beginning. Since ICMP can be forged, it must contain our unpredictable branch;
    /// shorter quotations are ignored.
    pub fn handle_unreachable(&mut self, now: Time, address: SocketAddr, quoted: &[u8]) {
        let found = branch_in(quoted).and_then(|branch| self.client_with(branch));
        if let Some((id, client)) = found
            && client.hop.address == address
        {
            self.handle_send_failure(now, id);
        }
    }

    /// Step 6: keeps the best response so far; challenges of all branches are combined (step 7).
    fn keep_best(&mut self, server: Id, response: Message) {
        let response = self.within_budget(server, response);
        let Some(server) = self.servers.get_mut(&server) else { return };
        server.note_best(response);
        server.charge.set(server.weight());
    }

    /// Returns the response, or a short one of our own with the same status if there is no room to keep it.
    fn within_budget(&self, server: Id, response: Message) -> Message {
        if self.has_room(weight(&response)) {
            return response;
        }
        let Some(request) = self.servers.get(&server).and_then(|server| server.request.as_ref()) else {
            return response;
        };
        let mut short = self.tags.response(request, response.status(), "Refused");
        if let Some(ours) = response.elements(Name::Via).next() {
            short.push_front(Header::of_bytes(Name::Via, ours));
        }
        short
    }

    /// Notes an undelivered BYE if the best response means that nobody was reached, except in congestion, when the sender may retry.
    fn note_if_undelivered(&mut self, now: Time, id: Id) {
        let Some(server) = self.servers.get(&id).filter(|server| !server.is_congested) else { return };
        if server.best.as_ref().is_some_and(|best| matches!(best.status(), 408 | 430 | 503)) {
            self.note_undelivered(now, id);
        }
    }

    /// Sends the best response once no branch is open.
    fn answer_if_all_ended(&mut self, now: Time, id: Id) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        if server.open > 0 || !server.machine.is_pending() {
            return;
        }
        if self.attempt_next(now, id) {
            return;
        }
        self.note_if_undelivered(now, id);
        let Some(server) = self.servers.get_mut(&id) else { return };
        let is_invite = server.request.as_ref().is_some_and(|r| r.method() == Some(&Method::Invite));
        let is_by_flow = server.is_by_flow;
        let Some(mut best) = server.best.take() else { return };
        match best.status() {
            // "MUST NOT send a 408 … to a non-INVITE" (RFC 4320 section 4.1): the client itself has given up by then.
            408 if !is_invite => {
                if let Some(server) = self.servers.remove(&id) {
                    self.outbox.performance_mut().note_silence(now, server.measured);
                    self.server_keys.remove(&server.key);
                }
            }
            503 if server.is_congested => {
                best.set(Header::new(Name::RetryAfter, &self.config.limits.retry_after.to_string()));
                self.pass_back(now, id, best);
            }
            503 if is_by_flow => self.pass_back_as(now, id, best, FLOW_FAILED),
            // Step 6: 503 would mean that this proxy is overloaded.
            503 => {
                best.remove(Name::RetryAfter);
                self.pass_back_as(now, id, best, Fault { status: 500, reason: "Next Hop Unavailable" });
            }
            // 430 is for use between proxies; it "MUST NOT be sent to" the caller (RFC 5626 section 11.5 defines it for edge proxies
            // and registrars).
            430 => self.pass_back_as(now, id, best, Fault { status: 480, reason: "Flow Is Gone" }),
            _ => self.pass_back(now, id, best),
        }
    }
}

impl Server {
    fn note_best(&mut self, mut response: Message) {
        let Some(best) = self.best.take() else {
            self.best = Some(response);
            return;
        };
        let is_better = rank(response.status()) < rank(best.status());
        let (mut kept, other) = if is_better {
            (response, best)
        } else {
            (best, {
                response.body.clear();
                response
            })
        };
        if matches!(kept.status(), 401 | 407) {
            let names = [Name::WwwAuthenticate, Name::ProxyAuthenticate];
            let challenges = other.headers.into_iter().filter(|header| names.contains(&header.name));
            kept.headers.extend(challenges);
        }
        self.best = Some(kept);
    }
}

/// Returns the first Via's branch at the beginning of a request that we sent, if it is complete.
fn branch_in(quoted: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b";branch=";
    let start = quoted.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let rest = quoted.get(start..)?;
    let end = rest.iter().position(|b| b";,\r ".contains(b))?;
    rest.get(..end)
}

/// Ranks a status, the lower the better (step 6): first 6xx, then the lowest class; within 4xx first those that help the client try
/// again; 503 last in its class.
fn rank(status: u16) -> u16 {
    match status {
        600.. => 0,
        401 | 407 | 415 | 420 | 484 => 400,
        400..=499 => 401,
        503 => 599,
        _ => status / 100 * 100,
    }
}

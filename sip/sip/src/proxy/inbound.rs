//! Handles incoming messages: finds their transactions, and checks new requests (RFC 3261 section 16.3).

use std::net::SocketAddr;

use base::Time;
use bytes::Bytes;

use super::access::Admission;
use super::asked::Asked;
use super::auth::Verdict;
use super::leg::Leg;
use super::loops::is_loop;
use super::matching::{response_hop, server_key};
use super::memory_budget::weight;
use super::outbox::Event;
use super::own_routes::{Taken, take_own_routes};
use super::refusal::{Refusal, bad_extensions};
use super::stateful::ENDING;
use super::transactions::Arrival;
use super::{Id, LostRequest, Mode, Proxy};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::via::Via;

impl Proxy {
    /// Handles a complete message from hop `from`.
    pub fn handle_message(&mut self, now: Time, from: Hop, bytes: Bytes) {
        let Ok(message) = Message::parse(bytes, &self.config.messages) else {
            self.outbox.count(Event::Dropped);
            return;
        };
        match (Essentials::of(&message), message.method().is_some()) {
            (Ok(known), true) => self.handle_request(now, from, message, known),
            (Ok(known), false) => self.handle_response(now, message, &known),
            (Err(fault), true) => self.refuse_malformed(from, &message, fault),
            (Err(_), false) => self.outbox.count(Event::Dropped),
        }
    }

    /// Rejects a malformed request without keeping state (section 8.2.7). If the first Via is invalid, the request is dropped. An ACK gets no
    /// response.
    fn refuse_malformed(&mut self, from: Hop, message: &Message, fault: Fault) {
        self.outbox.count(Event::Dropped);
        let via = message.elements(Name::Via).next().map(Via::parse);
        let Some(Ok(via)) = via else { return };
        if message.method() != Some(&Method::Ack) {
            let (hop, value) = response_hop(from, &via);
            self.refuse_statelessly(hop, message, &value, fault.into());
        }
    }

    /// Handles a response. A response that matches no branch is dropped, except in stateless mode. RFC 6026 section 7.3 forbids stateful
    /// proxies to forward such a response.
    fn handle_response(&mut self, now: Time, response: Message, known: &Essentials) {
        let mut stateful = self.stateful(now);
        if let Some(id) = stateful.branch_of(known) {
            stateful.handle_response(id, response, known);
        } else if self.config.mode != Mode::Stateless || !self.pass_response(response, known) {
            self.outbox.count(Event::Dropped);
        }
    }

    /// Handles the driver's failure to send a request, as if 503 had arrived (section 16.9). If the request is an ACK, it goes to its
    /// next alternative hop.
    pub fn handle_send_failure(&mut self, now: Time, on_failure: u64) {
        self.stateful(now).fail_branch(on_failure);
        self.send_ack_elsewhere(now, on_failure);
    }

    /// Handles the failure of the association over which a request was sent: "inform the transport user of a failure in sending" (section
    /// 18.4). If no response has arrived, the request goes to its next alternative hop. Without an alternative hop, the request is sent
    /// once more if [`LostRequest::may_resend`] is set, or else fails. If a provisional response has arrived, the final response may come
    /// over a new association. If the request is an ACK, it goes to its next alternative hop.
    pub fn handle_lost_request(&mut self, now: Time, lost: LostRequest) {
        self.stateful(now).handle_lost_request(lost);
        self.send_ack_elsewhere(now, lost.on_failure);
    }

    /// Handles a request that the driver did not send because the queue of its next hop is full. If the request has no alternative hop,
    /// its sender gets 503 with Retry-After.
    pub fn handle_congestion(&mut self, now: Time, on_failure: u64) {
        self.stateful(now).handle_congestion(on_failure);
    }

    /// Handles an ICMP report that a datagram to `address` cannot arrive: "inform the transport user of a failure in sending" (section
    /// 18.4). `quoted` is the beginning of the datagram. Forged reports are possible, so a report counts only if `quoted` contains our
    /// whole branch, which is unpredictable.
    pub fn handle_unreachable(&mut self, now: Time, address: SocketAddr, quoted: &[u8]) {
        let mut stateful = self.stateful(now);
        if let Some(id) = stateful.branch_quoted(address, quoted) {
            stateful.fail_branch(id);
        }
    }

    fn handle_request(&mut self, now: Time, from: Hop, mut request: Message, known: Essentials) {
        let Ok(via) = Via::parse(&known.via) else { return };
        if known.cseq.method != Method::Ack && !self.admit(now, from, &request, &via) {
            return;
        }
        let key = server_key(&request, &known, &via, &known.cseq.method);
        if let Some(id) = self.transactions.find_server(&key) {
            self.transactions.on_request_again(now, id, &known.cseq.method, &mut self.outbox);
            return;
        }
        let (hop, value) = response_hop(from, &via);
        let is_too_late = self.is_too_late(&request, &known);
        let is_passed_on = self.config.mode == Mode::Stateless
            && !is_too_late
            && self.pass_on(now, from, &via, &request, &known);
        if is_passed_on {
            return;
        }
        if known.cseq.method == Method::Ack {
            request.replace_first(Name::Via, &value);
            self.forward_ack(now, from, request, known);
            return;
        }
        if is_too_late {
            self.outbox.count(Event::Late);
            self.outbox.performance_mut().note_refused(now, &known, ENDING.status);
            self.refuse_statelessly(hop, &request, &value, ENDING.into());
            return;
        }
        if !self.transactions.may_keep(&self.config.limits, weight(&request)) {
            self.outbox.count(Event::Overload);
            let fault = Fault { status: 503, reason: "Overloaded" };
            self.outbox.performance_mut().note_refused(now, &known, fault.status);
            self.refuse_statelessly(hop, &request, &value, fault.into());
            return;
        }
        self.outbox.count(Event::Request);
        if known.cseq.method == Method::Invite && known.to_tag.is_none() {
            self.outbox.count(Event::Invite);
        }
        let invite_key = server_key(&request, &known, &via, &Method::Invite);
        request.replace_first(Name::Via, &value);
        let arrival = Arrival { hop, key: &key, request: &request, known: &known };
        let timers = self.config.timers;
        if known.cseq.method == Method::Cancel {
            let id = self.transactions.start_server(now, timers, arrival, &mut self.outbox);
            self.stateful(now).handle_cancel(id, &invite_key);
            self.transactions.schedule_server(id);
            return;
        }
        let vetted = match self.vet(now, &request, &known) {
            Ok(vetted) => Ok(vetted),
            // A BYE that is rejected without extra fields gets a transaction like an accepted
            // request, because its rejection can end the dialog.
            Err(refusal) if known.cseq.method == Method::Bye && refusal.fields.is_empty() => {
                Err(refusal.fault)
            }
            // The rejections of all other requests keep no state, so a flood of rejected requests costs no memory. A retransmission of
            // such a request is checked again.
            Err(refusal) => {
                let status = refusal.fault.status;
                self.outbox.performance_mut().note_refused(now, &known, status);
                self.outbox.count(Event::Response(status));
                return self.refuse_statelessly(hop, &request, &value, refusal);
            }
        };
        let id = self.transactions.start_server(now, timers, arrival, &mut self.outbox);
        let served = vetted.and_then(|vetted| self.serve_vetted(now, id, from, vetted, known));
        self.stateful(now).refuse_if_failed(id, served);
        // If a non-INVITE request has no response yet, the timer for its 100 must run.
        self.transactions.schedule_server(id);
    }

    /// Checks the source of a request against the access lists and the rate limit. Returns false if the request was rejected or dropped. A
    /// rejected or dropped request gets no transaction.
    fn admit(&mut self, now: Time, from: Hop, request: &Message, via: &Via<'_>) -> bool {
        let address = from.address.ip();
        let fault = match self.access_control.judge(now, &self.config.access, address) {
            Admission::Granted => return true,
            Admission::Denied => {
                self.outbox.count(Event::Denied);
                Fault { status: 403, reason: "Forbidden" }
            }
            _ if self.config.next_hops.iter().any(|hop| hop.address.ip() == address) => return true,
            Admission::Limited => {
                self.outbox.count(Event::Limited);
                Fault { status: 503, reason: "Too Many Requests" }
            }
            Admission::Ignored => {
                self.outbox.count(Event::Limited);
                return false;
            }
        };
        let (hop, value) = response_hop(from, via);
        self.refuse_statelessly(hop, request, &value, fault.into());
        false
    }

    /// Reports whether a request must be rejected because it begins new work while the proxy drains.
    fn is_too_late(&self, request: &Message, known: &Essentials) -> bool {
        let begins = match known.cseq.method {
            Method::Cancel | Method::Ack => false,
            Method::Register => true,
            _ => known.to_tag.is_none(),
        };
        begins && self.transactions.is_draining() && !self.flows.leads_by_flow(&self.config, request)
    }

    /// Checks a request in the order of section 16.3, and removes our own Routes as section 16.4 requires. If the result is an error, the
    /// caller must reject the request. This function keeps no state of the request.
    fn vet(&mut self, now: Time, request: &Message, known: &Essentials) -> Result<Vetted, Refusal> {
        if known.max_forwards == 0 {
            return Err(Fault { status: 483, reason: "Too Many Hops" }.into());
        }
        let mark = self.loops.mark(request, known);
        if is_loop(&self.config, request, &mark) {
            return Err(Fault { status: 482, reason: "Loop Detected" }.into());
        }
        if known.max_breadth == 0 {
            return Err(Fault { status: 440, reason: "Max-Breadth Exceeded" }.into());
        }
        if request.first(Name::ProxyRequire).is_some() {
            return Err(bad_extensions(request));
        }
        let asked_for = request.request_uri();
        let mut request = request.clone();
        let Taken { leg, flow } =
            take_own_routes(&self.config, &self.marks, &self.flows, &mut request, known)?;
        let verdict = match flow {
            // The proxy that sent the request here has authenticated the caller.
            Some(_) => Verdict::Passed,
            None => {
                let is_in_dialog = leg.is_some();
                self.authenticator.authenticate(
                    now,
                    &self.config,
                    &mut request,
                    known,
                    asked_for,
                    is_in_dialog,
                )?
            }
        };
        Ok(Vetted { request, leg, flow, mark, verdict })
    }

    /// Serves a checked request, as section 16.5 and the sections after it require.
    fn serve_vetted(
        &mut self,
        now: Time,
        id: Id,
        from: Hop,
        vetted: Vetted,
        known: Essentials,
    ) -> Result<(), Fault> {
        let Vetted { request, leg, flow, mark, verdict } = vetted;
        let asked = Asked { server: id, from, request, known, leg, mark };
        match (flow, verdict) {
            (Some(flow), _) => self.stateful(now).follow_flow(asked, flow),
            (None, Verdict::Passed) => self.route(now, asked)?,
            (None, Verdict::Unless(proof)) => self.wait_for_proof(asked, proof)?,
        }
        Ok(())
    }
}

/// A checked request.
struct Vetted {
    /// The request without the Routes that lead to this proxy. Accepted credentials are removed.
    request: Message,
    /// Dialog that the mark in one of our Routes identifies.
    leg: Option<Leg>,
    /// Flow to which another proxy directs the request.
    flow: Option<Hop>,
    mark: String,
    verdict: Verdict,
}

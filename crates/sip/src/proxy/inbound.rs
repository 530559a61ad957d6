//! Incoming messages: finds their transaction, and checks new requests (RFC 3261 section 16.3).

use base::Time;
use bytes::Bytes;

use super::access::Admission;
use super::auth::{Refusal, Verdict};
use super::dialogs::Leg;
use super::drain::ENDING;
use super::loops::is_loop;
use super::memory_budget::weight;
use super::outbox::Event;
use super::own_routes::{Taken, take_own_routes};
use super::route::Asked;
use super::{Id, Mode, Proxy, Server, dialog_number};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::transaction::{self, Kind};
use crate::transport::{Hop, Transport};
use crate::via::Via;

impl Proxy {
    /// Handles a complete message that came from hop `from`.
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

    /// Rejects a malformed request without keeping state (section 8.2.7), if its Via names a return address.
    fn refuse_malformed(&mut self, from: Hop, message: &Message, fault: Fault) {
        self.outbox.count(Event::Dropped);
        let via = message.elements(Name::Via).next().map(Via::parse);
        let Some(Ok(via)) = via else { return };
        if message.method() != Some(&Method::Ack) {
            let (hop, value) = response_hop(from, &via);
            self.refuse_statelessly(hop, message, &value, fault);
        }
    }

    /// Rejects a new request without keeping state: a flood of those costs no memory. A retransmission is checked anew.
    fn refuse_unkept(
        &mut self,
        now: Time,
        hop: Hop,
        request: &Message,
        via: &[u8],
        known: &Essentials,
        Refusal { fault, fields }: Refusal,
    ) {
        self.outbox.performance_mut().note_refused(now, known, fault.status);
        self.outbox.count(Event::Response(fault.status));
        self.refuse_statelessly_with(hop, request, via, fault, fields);
    }

    fn refuse_statelessly(&mut self, hop: Hop, request: &Message, via: &[u8], fault: Fault) {
        self.refuse_statelessly_with(hop, request, via, fault, Vec::new());
    }

    pub(super) fn refuse_statelessly_with(
        &mut self,
        hop: Hop,
        request: &Message,
        via: &[u8],
        fault: Fault,
        fields: Vec<Header>,
    ) {
        let mut response = self.tags.response(request, fault.status, fault.reason);
        response.replace_first(Name::Via, via);
        response.headers.extend(fields);
        if fault.status == 503 {
            let seconds = self.config.limits.retry_after.to_string();
            response.push(Header::new(Name::RetryAfter, &seconds));
        }
        let dialog = request.first(Name::CallId).map_or(0, |call_id| dialog_number(call_id));
        self.outbox.send_back(hop, response.to_bytes(), dialog);
    }

    fn handle_request(&mut self, now: Time, from: Hop, mut request: Message, known: Essentials) {
        let Ok(via) = Via::parse(&known.via) else { return };
        if known.cseq.method != Method::Ack && !self.admit(now, from, &request, &via) {
            return;
        }
        let key = server_key(&request, &known, &via, &known.cseq.method);
        if let Some(&id) = self.server_keys.get(&key) {
            self.handle_again(now, id, &known.cseq.method);
            return;
        }
        let (hop, value) = response_hop(from, &via);
        let is_too_late = known.cseq.method != Method::Ack && self.is_too_late(&request, &known);
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
            self.refuse_statelessly(hop, &request, &value, ENDING);
            return;
        }
        let is_full = self.servers.len() >= self.config.limits.transactions;
        if is_full || !self.may_keep(weight(&request)) {
            self.outbox.count(Event::Overload);
            let fault = Fault { status: 503, reason: "Overloaded" };
            self.outbox.performance_mut().note_refused(now, &known, fault.status);
            self.refuse_statelessly(hop, &request, &value, fault);
            return;
        }
        self.outbox.count(Event::Request);
        if known.cseq.method == Method::Invite && known.to_tag.is_none() {
            self.outbox.count(Event::Invite);
        }
        let invite_key = server_key(&request, &known, &via, &Method::Invite);
        request.replace_first(Name::Via, &value);
        if known.cseq.method == Method::Cancel {
            let id = self.start_server(now, hop, key, &request, &known);
            self.handle_cancel(now, id, &invite_key);
            self.schedule_server(id);
            return;
        }
        let vetted = match self.vet(now, &request, &known) {
            Ok(vetted) => Ok(vetted),
            // The dialog of a BYE is known.
            Err(refusal) if known.cseq.method == Method::Bye && refusal.fields.is_empty() => {
                Err(refusal.fault)
            }
            Err(refusal) => return self.refuse_unkept(now, hop, &request, &value, &known, refusal),
        };
        let id = self.start_server(now, hop, key, &request, &known);
        if let Err(fault) = vetted.and_then(|vetted| self.serve_vetted(now, id, from, vetted, known)) {
            self.refuse(now, id, fault);
        }
        // A request that waits may later need a 100 to its sender.
        self.schedule_server(id);
    }

    /// Reports whether a request is processed further; if not, it was rejected without keeping state.
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
        self.refuse_statelessly(hop, request, &value, fault);
        false
    }

    /// Handles a retransmission, or an ACK, for an existing transaction.
    fn handle_again(&mut self, now: Time, id: Id, method: &Method) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        if *method == Method::Ack {
            server.machine.on_ack(now);
            self.schedule_server(id);
            return;
        }
        self.outbox.count(Event::Retransmission);
        if server.machine.on_request() {
            self.resend_response(id);
        }
    }

    fn start_server(
        &mut self,
        now: Time,
        hop: Hop,
        key: Box<[u8]>,
        request: &Message,
        known: &Essentials,
    ) -> Id {
        let (id, dialog) = (self.new_id(), dialog_number(&known.call_id));
        let is_invite = known.cseq.method == Method::Invite;
        let kind = Kind { is_invite, is_reliable: hop.transport.is_reliable() };
        self.server_keys.insert(key.clone(), id);
        let mut server = Server {
            machine: transaction::Server::start(kind, self.config.timers, now),
            key,
            hop,
            dialog,
            cseq: known.cseq.number,
            measured: self.outbox.performance_mut().begin(now, known, dialog),
            last: None,
            request: Some(request.clone()),
            branches: Vec::new(),
            plan: None,
            is_cancelled: false,
            is_congested: false,
            is_by_flow: false,
            leg: None,
            open: 0,
            best: None,
            wake: Time::NEVER,
            charge: self.memory_budget.charge(0),
        };
        server.charge.set(server.weight());
        self.servers.insert(id, Box::new(server));
        self.note_begun(id);
        id
    }

    /// Checks a request by section 16.3, in its order, and 16.4; an error rejects it. Nothing is kept of it yet.
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
            // The proxy that sent it here has authenticated the caller.
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

    /// Serves a checked request: section 16.5 and on.
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
            (Some(flow), _) => self.follow_flow(now, asked, flow),
            (None, Verdict::Passed) => self.route(now, asked)?,
            (None, Verdict::Unless(proof)) => self.wait_for_proof(asked, proof)?,
        }
        Ok(())
    }
}

/// A checked request.
struct Vetted {
    /// The request without the Routes that lead here, and without credentials for us.
    request: Message,
    /// The dialog for which one of those Routes was marked.
    leg: Option<Leg>,
    /// The flow for which another proxy sent this here.
    flow: Option<Hop>,
    mark: String,
    verdict: Verdict,
}

/// Rejects all Proxy-Require options: no such extension is supported (section 16.3, step 5).
pub(super) fn bad_extensions(request: &Message) -> Refusal {
    let wanted: Vec<_> = request.elements(Name::ProxyRequire).collect();
    let unsupported = Header::of_bytes(Name::Unsupported, &wanted.join(&b","[..]));
    Refusal { fault: Fault { status: 420, reason: "Bad Extension" }, fields: vec![unsupported] }
}

/// Returns the hop for responses to a request (section 18.2.2, RFC 3581 section 4), and the Via value with its source noted.
pub(crate) fn response_hop(from: Hop, via: &Via<'_>) -> (Hop, Vec<u8>) {
    let value = via.with_source(from.address.ip(), from.address.port());
    let mut hop = from;
    if !(via.has_rport() && from.transport == Transport::Udp) {
        hop.address.set_port(via.port.unwrap_or(from.transport.default_port()));
    }
    (hop, value)
}

/// Returns the key of a server transaction (section 17.2.3). `method` is the request's; for ACK it is INVITE.
pub(crate) fn server_key(request: &Message, known: &Essentials, via: &Via<'_>, method: &Method) -> Box<[u8]> {
    let method = if *method == Method::Ack { Method::Invite } else { method.clone() };
    let parts: Vec<&[u8]> = match via.branch() {
        Some(branch) => vec![branch, via.sent_by(), method.as_bytes()],
        // For RFC 2543 clients; To's tag is not compared, since that of ACK differs from that of INVITE.
        None => vec![
            request.request_uri(),
            known.from_tag.as_deref().unwrap_or_default(),
            &known.call_id,
            &known.via,
            method.as_bytes(),
        ],
    };
    let mut key = parts.join(&0);
    if via.branch().is_none() {
        key.extend_from_slice(&known.cseq.number.to_be_bytes());
    }
    key.into()
}

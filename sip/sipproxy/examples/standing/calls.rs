//! Calls between phones: their planned outcomes, and the timed actions of caller and callee.

use std::time::Duration;

use sip::{Message, Name};

use super::phone::{Side, Wanted, contact_of, routes_of, text_of};
use super::world::{Event, World};

/// Session interval that callers request. The caller refreshes the session after half of this interval (RFC 4028 section 7.4).
const SESSION_EXPIRES: Duration = Duration::from_secs(180);
/// Time between the first ringing response and the caller's CANCEL.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time limit for the answer or rejection of a call. It exceeds the proxy's timer C.
const CALLING_MAX: Duration = Duration::from_secs(200);
/// Limit on the wait for the response to BYE (RFC 3261 timer F).
const LEAVING_MAX: Duration = Duration::from_secs(32);

/// The planned outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Answered,
    Busy,
    /// The callee's phone rings until the caller gives up.
    Cancelled,
    /// The callee's phone sends no response.
    Ignored,
}

/// The state of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Calling,
    Up,
    Leaving,
}

/// A call, with the state of both phones.
#[derive(Debug)]
pub(crate) struct Call {
    fate: Fate,
    state: State,
    caller: Side,
    callee: Side,
    cseq: [u32; 2],
    /// INVITE that the callee has received and not yet answered.
    invite: Option<Message>,
    /// Branch of the last INVITE. The CANCEL and the ACK of a rejection repeat this branch.
    branch: String,
    /// Request-URI and Route fields. Element 0 is for the caller's requests, and element 1 for the callee's requests.
    remotes: [(String, String); 2],
}

/// A timed event of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Ring,
    Answer,
    GiveUp,
    Refresh,
    HangUp,
    /// A time limit has passed. A call that is being set up or ended is removed; an established call continues.
    TimeOut,
}

fn id_of(message: &Message) -> Option<u64> {
    text_of(message, Name::CallId).strip_prefix('c')?.parse().ok()
}

impl World {
    /// Begins a call between two random users.
    pub(crate) fn begin_call(&mut self) {
        let users = self.size.users;
        let (caller, callee) = (self.rng.u32(..users), self.rng.u32(..users));
        if caller == callee || !self.phones[caller as usize].is_on {
            return self.after(Duration::from_secs(1), Event::Begin);
        }
        let id = self.new_number();
        let fate = match self.rng.u32(..100) {
            0..5 => Fate::Busy,
            5..10 => Fate::Cancelled,
            10 => Fate::Ignored,
            _ => Fate::Answered,
        };
        let (caller, callee) =
            (Side { user: caller, tag: Some(format!("a{id}")) }, Side { user: callee, tag: None });
        let target = (format!("sip:{}@example.com", super::phone::user(callee.user)), String::new());
        let remotes = [target, Default::default()];
        let call = Call {
            fate,
            state: State::Calling,
            caller,
            callee,
            cseq: [0; 2],
            invite: None,
            branch: String::new(),
            remotes,
        };
        self.calls.insert(id, call);
        self.after(CALLING_MAX, Event::Call(id, Step::TimeOut));
        self.send_invite(id, "");
    }

    /// Sends an INVITE of the caller: the first INVITE, its repetition with credentials, or a refresh. `more` holds further header fields,
    /// each with its line end.
    fn send_invite(&mut self, id: u64, more: &str) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.branch = format!("z9hG4bKi{id}.{}", call.cseq[0] + 1);
        let more = format!("Session-Expires: {};refresher=uac\r\n{more}", SESSION_EXPIRES.as_secs());
        self.send_within(id, "INVITE", true, &more);
    }

    /// Sends a request from the caller or from the callee. `more` holds further header fields, each with its line end.
    fn send_within(&mut self, id: u64, method: &str, is_caller: bool, more: &str) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let side = usize::from(!is_caller);
        if !matches!(method, "ACK" | "CANCEL") {
            call.cseq[side] += 1;
        }
        let (from, to) = if is_caller { (&call.caller, &call.callee) } else { (&call.callee, &call.caller) };
        let own = format!("z9hG4bK{method}{id}.{side}.{}", call.cseq[side]);
        let branch = if matches!(method, "INVITE" | "CANCEL") { &call.branch } else { &own };
        let (uri, routes) = &call.remotes[side];
        let wanted = Wanted {
            method,
            uri,
            from,
            to,
            call_id: &format!("c{id}"),
            cseq: call.cseq[side],
            branch,
            more: &format!("{routes}{more}"),
        };
        let phone = &self.phones[from.user as usize];
        let (hop, text) = (phone.hop(), phone.request(&wanted));
        self.send(hop, text.into());
    }

    /// Handles a call's request that arrives at phone `to`.
    pub(crate) fn handle_call_request(&mut self, to: u32, request: Message) {
        let method = request.method().map(|method| method.as_bytes().to_vec()).unwrap_or_default();
        let known = id_of(&request).filter(|id| self.calls.contains_key(id));
        let Some(id) = known else {
            // The request may be a retransmitted BYE of a call that has ended.
            if method != b"ACK" {
                self.answer(to, &request, 481);
            }
            return;
        };
        match &method[..] {
            b"INVITE" => self.on_invite(id, to, request),
            b"BYE" => self.answer(to, &request, 200),
            b"CANCEL" => self.on_cancel(id, to, &request),
            _ => {}
        }
    }

    fn on_invite(&mut self, id: u64, to: u32, request: Message) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.state == State::Up {
            return self.answer(to, &request, 200);
        }
        // A user may have two contacts, and the proxy sends the INVITE to both. Only the contact that the INVITE reaches first rings.
        if call.invite.is_some() || call.fate == Fate::Ignored {
            return;
        }
        if call.fate == Fate::Busy {
            return self.answer(to, &request, 486);
        }
        (call.callee.tag, call.invite) = (Some(format!("b{id}")), Some(request));
        let answered = call.fate == Fate::Answered;
        self.after(Duration::from_millis(100), Event::Call(id, Step::Ring));
        if answered {
            let ring = Duration::from_millis(self.rng.u64(1000..8000));
            self.after(ring, Event::Call(id, Step::Answer));
        }
    }

    fn on_cancel(&mut self, id: u64, to: u32, request: &Message) {
        self.answer(to, request, 200);
        if let Some(invite) = self.calls.get_mut(&id).and_then(|call| call.invite.take()) {
            self.answer(to, &invite, 487);
        }
    }

    fn answer(&mut self, from: u32, request: &Message, status: u16) {
        let tag = id_of(request).map_or_else(|| "t".to_owned(), |id| format!("b{id}"));
        let phone = &self.phones[from as usize];
        let (hop, bytes) = (phone.hop(), phone.answer(request, status, &tag));
        self.send(hop, bytes);
    }

    /// Handles a timed event of a call.
    pub(crate) fn on_step(&mut self, id: u64, step: Step) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        match (step, call.state) {
            (Step::Ring | Step::Answer, State::Calling) => {
                let Some(invite) = call.invite.take() else { return };
                let (callee, status) = (call.callee.user, if step == Step::Ring { 180 } else { 200 });
                if step == Step::Ring {
                    call.invite = Some(invite.clone());
                } else {
                    call.remotes[1] = (contact_of(&invite), routes_of(&invite, false));
                }
                self.answer(callee, &invite, status);
            }
            (Step::GiveUp, State::Calling) => self.send_within(id, "CANCEL", true, ""),
            (Step::Refresh, State::Up) => {
                self.send_invite(id, "");
                self.after(SESSION_EXPIRES / 2, Event::Call(id, Step::Refresh));
            }
            (Step::HangUp, State::Up) => {
                call.state = State::Leaving;
                self.up -= 1;
                let is_caller = self.rng.u32(..10) < 7;
                self.after(LEAVING_MAX, Event::Call(id, Step::TimeOut));
                self.send_within(id, "BYE", is_caller, "");
            }
            (Step::TimeOut, State::Calling | State::Leaving) => self.end_call(id),
            _ => {}
        }
    }

    /// Handles a response that one of a call's phones has received.
    pub(crate) fn handle_call_response(&mut self, response: &Message) {
        let cseq = text_of(response, Name::CSeq);
        let Some(call) = id_of(response).and_then(|id| Some((id, self.calls.get_mut(&id)?))) else { return };
        let (id, call) = call;
        let status = response.status();
        *self.statuses.entry((cseq.split(' ').nth(1).unwrap_or_default().to_owned(), status)).or_default() +=
            1;
        match (cseq.split(' ').nth(1), status) {
            (Some("INVITE"), 101..200) if call.fate == Fate::Cancelled => {
                self.after(PATIENCE, Event::Call(id, Step::GiveUp));
            }
            (Some("INVITE"), 200..300) => self.on_accepted(id, response),
            (Some("INVITE"), 300..) => self.on_refused(id, &cseq, response),
            (Some("BYE"), 200..) => self.end_call(id),
            _ => {}
        }
    }

    fn on_accepted(&mut self, id: u64, response: &Message) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let is_new = call.state == State::Calling;
        if is_new {
            call.state = State::Up;
            let tag = sip::Address::parse(response.first(Name::To).map_or(b"", |to| &to[..]));
            call.callee.tag = tag.ok().and_then(|to| Some(String::from_utf8_lossy(to.tag()?).into_owned()));
            call.remotes[0] = (contact_of(response), routes_of(response, true));
            self.up += 1;
            self.answered += 1;
            let talk = self.size.talk_s * -(1.0 - self.rng.f64()).ln();
            self.after(SESSION_EXPIRES / 2, Event::Call(id, Step::Refresh));
            self.after(Duration::from_secs_f64(1.0 + talk), Event::Call(id, Step::HangUp));
        }
        self.send_within(id, "ACK", true, "");
    }

    fn on_refused(&mut self, id: u64, cseq: &str, response: &Message) {
        let Some(call) = self.calls.get(&id) else { return };
        let is_up = call.state == State::Up;
        let is_current = cseq.split(' ').next() == Some(call.cseq[0].to_string().as_str());
        let (caller, uri, branch) = (call.caller.user, call.remotes[0].0.clone(), call.branch.clone());
        // The ACK of a rejection is hop by hop: it repeats the INVITE's branch (RFC 3261 section 17.1.1.3).
        let ack = Wanted {
            method: "ACK",
            uri: &uri,
            from: &call.caller,
            to: &call.callee,
            call_id: &format!("c{id}"),
            cseq: call.cseq[0],
            branch: &branch,
            more: "",
        };
        let phone = &self.phones[caller as usize];
        let (hop, text) = (phone.hop(), phone.request(&ack));
        let credentials = phone.credentials(response, "INVITE", &uri);
        self.send(hop, text.into());
        match response.status() {
            _ if !is_current => {}
            401 | 407 => self.send_invite(id, &credentials),
            // RFC 3261 section 12.2.1.2 recommends to end a dialog in which a request gets 481 or 408. This program also hangs up after
            // other rejections.
            _ if is_up => self.on_step(id, Step::HangUp),
            _ => self.end_call(id),
        }
    }

    /// Removes a call, and schedules the start of another call.
    fn end_call(&mut self, id: u64) {
        if let Some(call) = self.calls.remove(&id) {
            self.up -= u32::from(call.state == State::Up);
            self.after(Duration::from_millis(500), Event::Begin);
        }
    }
}

//! Answers incoming requests: INVITE, BYE, CANCEL and OPTIONS (RFC 3261 sections 8.2, 11, 13.3 and 15.1.2).

use base::Time;
use bytes::Bytes;

use super::dialog::{Call, State, contact_of};
use super::{Agent, AgentEvent, CallId, Sleeper, audio_address};
use crate::essentials::Essentials;
use crate::header::{Header, Name};
use crate::message::{Message, Method};

const ALLOW: &str = "INVITE, ACK, CANCEL, BYE, OPTIONS";

impl Agent {
    /// Answers a new request. `server` is the number of the request's server transaction. `invite_key` is the key of the INVITE that a
    /// CANCEL cancels.
    pub(super) fn serve(
        &mut self,
        now: Time,
        server: u64,
        request: &Message,
        known: &Essentials,
        invite_key: &[u8],
    ) {
        match known.cseq.method {
            Method::Invite => self.on_invite(now, server, request, known),
            Method::Bye => self.on_bye(now, server, request, known),
            Method::Cancel => self.on_cancel(now, server, request, invite_key),
            Method::Options => self.reply(now, server, request, 200, "OK"),
            _ => self.reply(now, server, request, 405, "Method Not Allowed"),
        }
    }

    fn reply(&mut self, now: Time, server: u64, request: &Message, status: u16, reason: &str) {
        let tag = self.token();
        let mut response = request.response(status, reason, &tag);
        if matches!(status, 200 | 405) {
            response.push(Header::new(Name::Allow, ALLOW));
        }
        self.respond(now, server, &response);
    }

    fn on_invite(&mut self, now: Time, server: u64, request: &Message, known: &Essentials) {
        if known.to_tag.is_some() {
            // The agent does not support changes to an existing session (section 14.2).
            return self.reply(now, server, request, 488, "Not Acceptable Here");
        }
        if self.calls.len() >= self.config.calls_max {
            return self.reply(now, server, request, 486, "Busy Here");
        }
        let Some(target) = contact_of(request) else {
            return self.reply(now, server, request, 400, "Contact Is Missing");
        };
        let (id, tag) = (self.new_id(), self.token());
        let ringing = self.answer(request, 180, "Ringing", &tag);
        let mut call = Call {
            call_id: known.call_id.clone(),
            tag: tag.into(),
            local: ringing.first(Name::To).cloned().unwrap_or_default(),
            remote: request.first(Name::From).cloned().unwrap_or_default(),
            target,
            routes: Vec::new(),
            cseq: 0,
            ack: None,
            hop: self.config.proxy,
            state: State::Ringing { since: now, answer_at: now + self.config.ring, server },
            forks: Vec::new(),
        };
        call.learn(request, false);
        call.hop = self.hop_in_dialog(&call);
        self.dialogs.insert((call.call_id.clone(), call.tag.clone()), id);
        self.calls.insert(id, call);
        self.ringing.insert(id, request.clone());
        self.respond(now, server, &ringing);
        self.wake_at(now + self.config.ring, Sleeper::Call(id));
    }

    /// Builds a 180 or 200 to an INVITE.
    fn answer(&self, request: &Message, status: u16, reason: &str, tag: &str) -> Message {
        let mut response = request.response(status, reason, tag);
        response.headers.extend(request.all(Name::RecordRoute).cloned());
        response.push(Header::new(Name::Contact, &self.contact()));
        if status == 200 {
            response.body = self.session();
            response.set(Header::new(Name::ContentLength, &response.body.len().to_string()));
            response.push(Header::new(Name::ContentType, "application/sdp"));
        }
        response
    }

    /// Handles the timer of an incoming call. When the ring time has elapsed, the agent answers the call. The agent then retransmits the
    /// 200 until the ACK arrives. If no ACK arrives within 64 × T1, the call fails with 408.
    pub(super) fn wake_call(&mut self, now: Time, id: CallId) {
        let t2 = self.config.timers.t2;
        let Some(call) = self.calls.get_mut(&id) else { return };
        match &mut call.state {
            State::Ringing { answer_at, .. } if *answer_at <= now => self.accept(now, id),
            State::Answered { give_up, .. } if *give_up <= now => {
                self.forget_call(id);
                self.ringing.remove(&id);
                self.tell(AgentEvent::Failed { call: id, status: 408, is_answer: false });
            }
            State::Answered { resend, interval, bytes, hop, .. } if *resend <= now => {
                *interval = (*interval * 2).min(t2);
                *resend = now + *interval;
                let (next, hop, bytes, call_id) = (*resend, *hop, bytes.clone(), call.call_id.clone());
                self.send(hop, bytes, None, &call_id);
                self.wake_at(next, Sleeper::Call(id));
            }
            _ => {}
        }
    }

    fn accept(&mut self, now: Time, id: CallId) {
        let (Some(call), Some(request)) = (self.calls.get(&id), self.ringing.get(&id)) else { return };
        let State::Ringing { since, server, .. } = call.state else { return };
        let response = self.answer(request, 200, "OK", &String::from_utf8_lossy(&call.tag));
        let Some(hop) = self.servers.get(&server).map(|server| server.hop) else { return };
        self.respond(now, server, &response);
        let timers = self.config.timers;
        let resend = now + timers.t1;
        if let Some(call) = self.calls.get_mut(&id) {
            call.state = State::Answered {
                since,
                resend,
                interval: timers.t1,
                give_up: now + timers.long(),
                bytes: response.to_bytes(),
                hop,
            };
        }
        self.wake_at(resend, Sleeper::Call(id));
    }

    /// Handles the ACK for our 200, which establishes the call.
    pub(super) fn on_ack(&mut self, now: Time, known: &Essentials) {
        let Some(id) = self.call_of(known) else { return };
        let Some(call) = self.calls.get_mut(&id) else { return };
        let State::Answered { since, .. } = call.state else { return };
        call.state = State::Up;
        let rtp = self.ringing.remove(&id).and_then(|invite| audio_address(&invite.body));
        self.tell(AgentEvent::Answered { call: id, is_caller: false, took: now.since(since), rtp });
    }

    fn call_of(&self, known: &Essentials) -> Option<CallId> {
        let tag: Bytes = known.to_tag.clone()?;
        self.dialogs.get(&(known.call_id.clone(), tag)).copied()
    }

    fn on_bye(&mut self, now: Time, server: u64, request: &Message, known: &Essentials) {
        // A BYE of another callee of a forked INVITE does not end the call.
        let tag = known.from_tag.as_ref();
        let is_of_call = |id: &CallId| self.calls.get(id).is_some_and(|call| call.is_with(tag));
        let Some(id) = self.call_of(known).filter(is_of_call) else {
            return self.reply(now, server, request, 481, "No Such Call");
        };
        self.reply(now, server, request, 200, "OK");
        // A BYE in an early dialog also ends the INVITE (section 15.1.2).
        match self.calls.get(&id).map(|call| &call.state) {
            Some(&State::Ringing { server, .. }) => self.terminate(now, id, server),
            _ => {
                self.forget_call(id);
                self.ringing.remove(&id);
                self.tell(AgentEvent::Ended { call: id, took: None });
            }
        }
    }

    /// Ends a call that is not answered with 487 to its INVITE, whose server transaction is `invite`.
    fn terminate(&mut self, now: Time, id: CallId, invite: u64) {
        let Some(call) = self.calls.get(&id) else { return };
        let tag = String::from_utf8_lossy(&call.tag).into_owned();
        self.forget_call(id);
        if let Some(request) = self.ringing.remove(&id) {
            self.respond(now, invite, &request.response(487, "Request Terminated", &tag));
        }
        self.tell(AgentEvent::Failed { call: id, status: 487, is_answer: true });
    }

    fn on_cancel(&mut self, now: Time, server: u64, request: &Message, invite_key: &[u8]) {
        let Some(&invite) = self.server_keys.get(invite_key) else {
            return self.reply(now, server, request, 481, "No Such Transaction");
        };
        self.reply(now, server, request, 200, "OK");
        let is_it = |call: &Call| matches!(call.state, State::Ringing { server, .. } if server == invite);
        if let Some((&id, _)) = self.calls.iter().find(|(_, call)| is_it(call)) {
            self.terminate(now, id, invite);
        }
    }
}

//! Makes and ends calls: INVITE, ACK and BYE (RFC 3261 sections 13.2 and 15).

use base::Time;
use bytes::Bytes;

use super::dialog::{Call, Fork, State};
use super::{Agent, AgentEvent, CallId, Purpose, audio_address, request};
use crate::address::Address;
use crate::essentials::Essentials;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::transport::{Hop, Transport};
use crate::uri::{Scheme, Uri};
use crate::via::parse_ip;

/// Limit on the further callees of one call whose dialogs the agent ends.
const FORKS_MAX: usize = 16;

impl Agent {
    /// Calls a URI such as `sip:bob@example.com`. Returns `None` if the number of calls has reached its limit.
    pub fn call(&mut self, now: Time, uri: &str) -> Option<CallId> {
        if self.calls.len() >= self.config.calls_max {
            return None;
        }
        let id = self.new_id();
        let (call_id, tag) = (Bytes::from(self.token()), Bytes::from(self.token()));
        let (user, domain) = (&self.config.user, &self.config.domain);
        let local = format!("<sip:{user}@{domain}>;tag={}", String::from_utf8_lossy(&tag));
        let call = Call {
            call_id: call_id.clone(),
            tag: tag.clone(),
            local: local.into(),
            remote: format!("<{uri}>").into(),
            target: Bytes::copy_from_slice(uri.as_bytes()),
            routes: Vec::new(),
            cseq: 1,
            ack: None,
            hop: self.config.proxy,
            state: State::Calling { since: now, hang_up: false },
            forks: Vec::new(),
        };
        let headers = vec![
            Header::of_bytes(Name::From, &call.local),
            Header::of_bytes(Name::To, &call.remote),
            Header::of_bytes(Name::CallId, &call_id),
            Header::new(Name::CSeq, "1 INVITE"),
            Header::new(Name::Contact, &self.contact()),
            Header::new(Name::ContentType, "application/sdp"),
        ];
        let body = self.session();
        let invite = request(Method::Invite, call.target.clone(), headers, body);
        self.dialogs.insert((call_id, tag), id);
        self.calls.insert(id, call);
        let hop = self.config.proxy;
        self.start_client(now, Purpose::Invite(id), hop, invite, false);
        Some(id)
    }

    /// Ends an established call with BYE. If an outgoing call is not answered yet, the agent sends BYE as soon as the call is answered.
    /// If the ACK of an incoming call has not arrived, this function does nothing.
    pub fn hang_up(&mut self, now: Time, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        match &mut call.state {
            State::Calling { hang_up, .. } => *hang_up = true,
            State::Up => {
                call.state = State::Leaving { since: now };
                let cseq = call.next_cseq();
                let (bye, hop) = (call.request(Method::Bye, cseq), call.hop);
                self.start_client(now, Purpose::Bye(id), hop, bye, false);
            }
            State::Ringing { .. } | State::Answered { .. } | State::Leaving { .. } => {}
        }
    }

    pub(super) fn on_invite_final(&mut self, now: Time, id: CallId, status: u16, response: Option<&Message>) {
        let is_answer = response.is_some();
        let Some(response) = response.filter(|_| (200..300).contains(&status)) else {
            self.forget_call(id);
            self.tell(AgentEvent::Failed { call: id, status, is_answer });
            return;
        };
        let Some(call) = self.calls.get_mut(&id) else { return };
        // A retransmitted 2xx means that our ACK was lost. The same ACK is then sent again.
        let is_first = call.ack.is_none();
        if let Ok(known) = Essentials::of(response)
            && !is_first
            && !call.is_with(known.to_tag.as_ref())
        {
            return self.refuse_fork(now, id, response, &known);
        }
        if is_first {
            call.learn(response, true);
            if let Some(to) = response.first(Name::To) {
                call.remote = Bytes::copy_from_slice(to);
            }
            self.acknowledge(id);
        }
        let Some(call) = self.calls.get(&id) else { return };
        let (hop, ack, call_id) = (call.hop, call.ack.clone(), call.call_id.clone());
        if let Some(ack) = ack {
            self.send(hop, ack, None, &call_id);
        }
        if is_first {
            self.come_up(now, id, response);
        }
    }

    /// Builds the ACK for the 2xx (section 13.2.2.4), and determines the hop for requests in the dialog.
    fn acknowledge(&mut self, id: CallId) {
        let Some(call) = self.calls.get(&id) else { return };
        let hop = self.hop_in_dialog(call);
        let mut ack = call.request(Method::Ack, call.cseq);
        let branch = format!("z9hG4bK0.{}", self.token());
        self.push_via(&mut ack, &branch);
        if let Some(call) = self.calls.get_mut(&id) {
            (call.hop, call.ack) = (hop, Some(ack.to_bytes()));
        }
    }

    /// Acknowledges the 2xx of a further callee, and ends this callee's dialog with BYE (section 13.2.2.4).
    fn refuse_fork(&mut self, now: Time, id: CallId, response: &Message, known: &Essentials) {
        let Some(call) = self.calls.get(&id) else { return };
        let tag = known.to_tag.clone().unwrap_or_default();
        if let Some(fork) = call.forks.iter().find(|fork| fork.tag == tag) {
            let (hop, ack, call_id) = (fork.hop, fork.ack.clone(), call.call_id.clone());
            return self.send(hop, ack, None, &call_id);
        }
        if call.forks.len() >= FORKS_MAX {
            return;
        }
        let mut dialog = Call { forks: Vec::new(), ..call.clone() };
        dialog.learn(response, true);
        if let Some(to) = response.first(Name::To) {
            dialog.remote = Bytes::copy_from_slice(to);
        }
        let hop = self.hop_in_dialog(&dialog);
        let mut ack = dialog.request(Method::Ack, known.cseq.number);
        let branch = format!("z9hG4bK0.{}", self.token());
        self.push_via(&mut ack, &branch);
        let ack = ack.to_bytes();
        self.send(hop, ack.clone(), None, &dialog.call_id);
        let cseq = known.cseq.number + 1;
        self.start_client(now, Purpose::ForkBye { cseq }, hop, dialog.request(Method::Bye, cseq), false);
        if let Some(call) = self.calls.get_mut(&id) {
            call.forks.push(Fork { tag, hop, ack });
        }
    }

    /// Reports whether a request is the INVITE of a call that was hung up before its response.
    pub(super) fn is_hung_up(&self, purpose: Purpose) -> bool {
        let Purpose::Invite(call) = purpose else { return false };
        let state = self.calls.get(&call).map(|call| &call.state);
        matches!(state, None | Some(State::Calling { hang_up: true, .. }))
    }

    fn come_up(&mut self, now: Time, id: CallId, response: &Message) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let State::Calling { since, hang_up } = call.state else { return };
        call.state = State::Up;
        let (rtp, took) = (audio_address(&response.body), now.since(since));
        self.tell(AgentEvent::Answered { call: id, is_caller: true, took, rtp });
        if hang_up {
            self.hang_up(now, id);
        }
    }

    /// Handles any final response to BYE, which ends the dialog (section 15.1.1).
    pub(super) fn on_bye_final(&mut self, now: Time, id: CallId) {
        let Some(call) = self.calls.get(&id) else { return };
        let took = match call.state {
            State::Leaving { since } => Some(now.since(since)),
            _ => None,
        };
        self.forget_call(id);
        self.tell(AgentEvent::Ended { call: id, took });
    }

    pub(super) fn forget_call(&mut self, id: CallId) {
        if let Some(call) = self.calls.remove(&id) {
            self.dialogs.remove(&(call.call_id, call.tag));
        }
    }

    /// Returns the hop for requests in a dialog. The next URI is the URI in the first Route, or the remote target if no Route exists. If
    /// the next URI contains an IP address, and its transport is the proxy's transport, the hop has this address. Otherwise the hop is the
    /// proxy.
    pub(super) fn hop_in_dialog(&self, call: &Call) -> Hop {
        let route = call.routes.first().and_then(|route| Address::parse(route).ok());
        let uri = route.map_or(&call.target[..], |address| address.uri);
        let proxy = self.config.proxy;
        let Ok(uri) = Uri::parse(uri) else { return proxy };
        let transport = transport_of(&uri);
        match (transport, parse_ip(uri.host)) {
            (Some(transport), Some(ip)) if transport == proxy.transport => {
                let address = (ip, uri.port.unwrap_or(transport.default_port())).into();
                Hop { address, connection: None, ..proxy }
            }
            _ => proxy,
        }
    }
}

/// Returns the transport for requests to a URI, or `None` if the URI names an unknown transport.
fn transport_of(uri: &Uri<'_>) -> Option<Transport> {
    match (uri.scheme, uri.transport()) {
        (Scheme::Sips, _) => Some(Transport::Tls),
        (_, None) => Some(Transport::Udp),
        (_, Some(name)) => Transport::from_bytes(name),
    }
}

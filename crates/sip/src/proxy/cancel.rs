//! CANCEL (RFC 3261 sections 9 and 16.10), timer C, and the other hop-by-hop request: ACK for rejections.

use base::Time;

use super::outbox::Event;
use super::{Id, Proxy};
use crate::header::{Header, Name};
use crate::message::{Message, Method, Start};
use crate::transaction::Kind;

impl Proxy {
    /// Handles a CANCEL: the proxy answers it itself, and cancels all branches of the INVITE.
    pub(super) fn handle_cancel(&mut self, now: Time, id: Id, invite_key: &[u8]) {
        let Some(&invite) = self.server_keys.get(invite_key) else {
            self.reply(now, id, 481, "No Such Transaction", Vec::new());
            return;
        };
        self.reply(now, id, 200, "OK", Vec::new());
        if let Some(server) = self.servers.get_mut(&invite) {
            server.is_cancelled = true;
        }
        self.cancel_branches(now, invite);
    }

    /// Cancels all branches without a final response (section 16.7, step 10).
    pub(super) fn cancel_branches(&mut self, now: Time, server: Id) {
        if let Some(server) = self.servers.get_mut(&server) {
            server.plan = None;
        }
        let branches = self.servers.get(&server).map(|server| server.branches.clone()).unwrap_or_default();
        for id in branches {
            self.cancel_branch(now, id);
        }
    }

    fn cancel_branch(&mut self, now: Time, id: Id) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !client.machine.is_pending() || client.cancel.is_some() {
            return;
        }
        // "the CANCEL … MUST NOT be sent" before a provisional response (section 9.1).
        client.wants_cancel = true;
        self.send_wanted_cancel(now, id);
    }

    /// Sends the pending CANCEL, if it may go.
    pub(super) fn send_wanted_cancel(&mut self, now: Time, id: Id) {
        let Some(client) = self.clients.get(&id) else { return };
        if !client.wants_cancel || client.cancel.is_some() || !client.machine.is_proceeding() {
            return;
        }
        let Some(request) = &client.request else { return };
        let to = request.all(Name::To).next().cloned();
        let cancel = hop_request(request, Method::Cancel, to);
        let verified_hop = (client.hop, client.domain.clone());
        let (hop, branch) = (client.hop, String::from_utf8_lossy(&client.branch).into_owned());
        let cancel_id = self.new_id();
        let kind = Kind { is_invite: false, is_reliable: hop.transport.is_reliable() };
        self.start_client(now, cancel_id, kind, None, verified_hop, cancel, branch);
        if let Some(client) = self.clients.get_mut(&id) {
            client.cancel = Some(cancel_id);
            // A branch that does not answer CANCEL either ends after this time (section 9.1, last paragraph).
            client.timer_c = now + self.config.timers.long();
            self.schedule_client(id);
        }
    }

    /// Handles timer C (section 16.8): CANCEL after a provisional response, otherwise as if 408 had come.
    pub(super) fn on_timer_c(&mut self, now: Time, id: Id) {
        let Some(client) = self.clients.get(&id) else { return };
        if client.machine.is_proceeding() && client.cancel.is_none() {
            self.cancel_branch(now, id);
        } else {
            self.outbox.count(Event::Timeout);
            self.end_branch_without_response(now, id, 408, "Request Timeout");
        }
    }
}

/// Builds CANCEL, or ACK for a rejection: Request-URI, first Via, Routes, From, Call-ID and CSeq's number of the request (sections
/// 9.1 and 17.1.1.3).
pub(crate) fn hop_request(request: &Message, method: Method, to: Option<Header>) -> Message {
    let mut headers = Vec::with_capacity(8);
    for header in &request.headers {
        match header.name {
            // A Route may precede it.
            Name::Via if headers.iter().all(|h: &Header| h.name != Name::Via) => headers.push(header.clone()),
            Name::From | Name::CallId | Name::Route => headers.push(header.clone()),
            Name::CSeq => {
                let number: Vec<u8> = header.value.iter().copied().take_while(u8::is_ascii_digit).collect();
                let value = [&number[..], b" ", method.as_bytes()].concat();
                headers.push(Header::of_bytes(Name::CSeq, &value));
            }
            _ => {}
        }
    }
    headers.extend(to);
    headers.push(Header::new(Name::MaxForwards, "70"));
    headers.push(Header::new(Name::ContentLength, "0"));
    let uri = bytes::Bytes::copy_from_slice(request.request_uri());
    Message { start: Start::Request { method, uri }, headers, body: bytes::Bytes::new(), fault: None }
}

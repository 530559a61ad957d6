//! Handles and sends CANCEL (RFC 3261 sections 9 and 16.10).

use super::{ENDING, Stateful};
use crate::proxy::Id;
use crate::proxy::transactions::Departure;

impl Stateful<'_> {
    /// Handles a CANCEL. The proxy answers the CANCEL itself, and cancels all branches of the INVITE that has the key `invite_key`.
    pub(in crate::proxy) fn handle_cancel(&mut self, id: Id, invite_key: &[u8]) {
        let Some(invite) = self.transactions.find_server(invite_key) else {
            self.reply(id, 481, "No Such Transaction", Vec::new());
            return;
        };
        self.reply(id, 200, "OK", Vec::new());
        if let Some(server) = self.transactions.server_mut(invite) {
            server.context_mut().cancel();
        }
        self.cancel_branches(invite);
    }

    /// Cancels all branches without a final response (section 16.7, step 10).
    pub(super) fn cancel_branches(&mut self, server: Id) {
        let Some(server) = self.transactions.server_mut(server) else { return };
        for id in server.context_mut().give_up() {
            self.cancel_branch(id);
        }
    }

    pub(super) fn cancel_branch(&mut self, id: Id) {
        let Some(client) = self.transactions.client_mut(id) else { return };
        client.want_cancel();
        self.send_due_cancel(id);
    }

    /// Sends the requested CANCEL of a branch, if a provisional response permits the CANCEL.
    pub(super) fn send_due_cancel(&mut self, id: Id) {
        let Some(client) = self.transactions.client(id) else { return };
        let Some(cancel) = client.due_cancel() else { return };
        let departure = Departure {
            server: None,
            is_invite: false,
            hop: client.verified_hop(),
            request: cancel,
            branch: String::from_utf8_lossy(client.branch()).into_owned(),
            target: None,
        };
        let cancel_id = self.transactions.new_id();
        self.transactions.start_client(self.now, self.config.timers, cancel_id, departure, self.outbox);
        if let Some(client) = self.transactions.client_mut(id) {
            client.note_cancel(cancel_id, self.now + self.config.timers.long());
            self.transactions.schedule_client(id);
        }
    }

    /// Ends all pending work of a drain at once (section 16.10). Requests without a final response get 503, and pending INVITEs at next
    /// hops get CANCEL. Returns the number of requests that got 503.
    pub(in crate::proxy) fn cut_off(&mut self) -> usize {
        let left = self.transactions.cut_off();
        for id in &left {
            if self.transactions.server(*id).is_some_and(|server| server.is_open_invite()) {
                self.cancel_branches(*id);
            }
            self.refuse(*id, ENDING);
        }
        left.len()
    }
}

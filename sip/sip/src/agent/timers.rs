//! One heap of deadlines for all timers of the agent. When the deadline of a transaction or call changes, its old entry stays in the
//! heap, and the new deadline gets a separate entry. When the old entry fires, nothing is due, so the entry has no effect.

use std::cmp::Reverse;

use base::Time;

use super::{Agent, Sleeper};
use crate::transaction::{ClientTimeout, ServerTimeout};

impl Agent {
    /// Returns the time at which [`Agent::handle_timeout`] must be called next.
    pub fn next_timeout(&self) -> Time {
        self.wakes.peek().map_or(Time::NEVER, |Reverse((time, _))| *time)
    }

    /// Handles all timers that are due. The driver calls this function at [`Agent::next_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(Reverse((time, sleeper))) = self.wakes.peek().copied() {
            if time > now {
                break;
            }
            self.wakes.pop();
            match sleeper {
                Sleeper::Client(id) => self.wake_client(now, id),
                Sleeper::Server(id) => self.wake_server(now, id),
                Sleeper::Call(id) => self.wake_call(now, id),
                Sleeper::Register => self.refresh(now),
            }
        }
    }

    fn wake_client(&mut self, now: Time, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.machine.on_timeout(now) {
            ClientTimeout::Nothing => {}
            ClientTimeout::Resend => {
                let (hop, bytes) = (client.hop, client.bytes.clone());
                let call_id = client.request.first(crate::Name::CallId).cloned().unwrap_or_default();
                self.send(hop, bytes, Some(id), &call_id);
                self.schedule_client(id);
            }
            ClientTimeout::TimedOut => {
                let purpose = client.purpose;
                self.clients.remove(&id);
                self.on_final(now, purpose, 408, None);
            }
            ClientTimeout::Ended => {
                self.clients.remove(&id);
            }
        }
    }

    fn wake_server(&mut self, now: Time, id: u64) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        match server.machine.on_timeout(now) {
            // No 100 is necessary, because the agent responds to every request at once.
            ServerTimeout::Nothing | ServerTimeout::SayTrying => {}
            ServerTimeout::Resend => {
                self.resend_response(id);
                self.schedule_server(id);
            }
            ServerTimeout::NoAck | ServerTimeout::Ended => {
                if let Some(server) = self.servers.remove(&id) {
                    self.server_keys.remove(&server.key);
                }
            }
        }
    }

    pub(super) fn resend_response(&mut self, id: u64) {
        let Some(server) = self.servers.get(&id) else { return };
        if let Some(bytes) = server.last.clone() {
            self.send(server.hop, bytes, None, b"");
        }
    }

    pub(super) fn schedule_client(&mut self, id: u64) {
        let next = self.clients.get(&id).map_or(Time::NEVER, |client| client.machine.next_timeout());
        self.wake_at(next, Sleeper::Client(id));
    }

    pub(super) fn schedule_server(&mut self, id: u64) {
        let next = self.servers.get(&id).map_or(Time::NEVER, |server| server.machine.next_timeout());
        self.wake_at(next, Sleeper::Server(id));
    }

    pub(super) fn wake_at(&mut self, time: Time, sleeper: Sleeper) {
        if time != Time::NEVER {
            self.wakes.push(Reverse((time, sleeper)));
        }
    }
}

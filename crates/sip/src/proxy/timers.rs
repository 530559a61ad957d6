//! One timer heap for all transactions. Each sleeper has an entry that is not later than its deadline; an entry that
//! fires too early is reinserted.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use base::Time;

use super::outbox::Event;
use super::{Id, Proxy, Sleeper};
use crate::transaction::{ClientTimeout, ServerTimeout};

/// Interval at which all bindings are checked for expiry; a user's are checked at each lookup.
pub(super) const SWEEP: Duration = Duration::from_secs(60);

impl Proxy {
    /// Returns the time of the next [`Proxy::handle_timeout`] call.
    pub fn next_timeout(&self) -> Time {
        self.wakes.peek().map_or(Time::NEVER, |Reverse((time, _))| *time)
    }

    /// Handles all timers that are due; call it at [`Proxy::next_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(Reverse((time, sleeper))) = self.wakes.peek().copied() {
            if time > now {
                break;
            }
            self.wakes.pop();
            match sleeper {
                Sleeper::Server(id) => self.wake_server(now, id),
                Sleeper::Client(id) => self.wake_client(now, id),
                Sleeper::Ack(id) => _ = self.acks.remove(&id),
                Sleeper::Location => {
                    self.dialogs.expire(now);
                    self.outbox.performance_mut().forget(now, self.config.timers.long());
                    self.registrar.expire(now, &self.config, &mut self.outbox);
                    self.shrink();
                    self.wakes.push(Reverse((now + SWEEP, Sleeper::Location)));
                }
            }
        }
    }

    /// Shrinks tables after a burst of traffic; otherwise each keeps the capacity of its peak.
    fn shrink(&mut self) {
        fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
            if table.len() < table.capacity() / 4 {
                table.shrink_to(2 * table.len());
            }
        }
        shrink(&mut self.servers);
        shrink(&mut self.server_keys);
        shrink(&mut self.clients);
        shrink(&mut self.acks);
        if self.unacknowledged.len() < self.unacknowledged.capacity() / 4 {
            self.unacknowledged.shrink_to(2 * self.unacknowledged.len());
        }
        if self.wakes.len() < self.wakes.capacity() / 4 {
            self.wakes.shrink_to(2 * self.wakes.len());
        }
    }

    fn wake_server(&mut self, now: Time, id: Id) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.wake = Time::NEVER;
        let is_accepted = server.machine.is_accepted();
        match server.machine.on_timeout(now) {
            ServerTimeout::Nothing => self.schedule_server(id),
            ServerTimeout::SayTrying => self.reply(now, id, 100, "Trying", Vec::new()),
            ServerTimeout::Resend => {
                self.resend_response(id);
                self.schedule_server(id);
            }
            ServerTimeout::NoAck | ServerTimeout::Ended => {
                if let Some(server) = self.servers.remove(&id) {
                    if is_accepted {
                        self.unacknowledged.remove(&server.ack_key());
                    }
                    self.server_keys.remove(&server.key);
                }
            }
        }
    }

    /// Retransmits the last response.
    pub(super) fn resend_response(&mut self, id: Id) {
        let Some(server) = self.servers.get(&id) else { return };
        let (hop, dialog) = (server.hop, server.dialog);
        if let Some(bytes) = server.last.clone() {
            self.outbox.send_back(hop, bytes, dialog);
        }
    }

    fn wake_client(&mut self, now: Time, id: Id) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.wake = Time::NEVER;
        if client.timer_c <= now && client.machine.is_pending() {
            self.on_timer_c(now, id);
            return;
        }
        match client.machine.on_timeout(now) {
            ClientTimeout::Nothing => self.schedule_client(id),
            ClientTimeout::Resend => {
                let (hop, domain) = (client.hop, client.domain.clone());
                let (bytes, dialog) = (client.bytes.clone(), client.dialog);
                self.outbox.send((hop, domain), bytes, Some(id), dialog);
                self.schedule_client(id);
            }
            ClientTimeout::TimedOut => {
                self.outbox.count(Event::Timeout);
                self.end_branch_without_response(now, id, 408, "Request Timeout");
            }
            ClientTimeout::Ended => {
                self.clients.remove(&id);
            }
        }
    }

    pub(super) fn schedule_server(&mut self, id: Id) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let next = server.machine.next_timeout();
        if next < server.wake {
            server.wake = next;
            self.wakes.push(Reverse((next, Sleeper::Server(id))));
        }
    }

    pub(super) fn schedule_client(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let mut next = client.machine.next_timeout();
        if client.machine.is_pending() {
            next = next.min(client.timer_c);
        }
        if next < client.wake {
            client.wake = next;
            self.wakes.push(Reverse((next, Sleeper::Client(id))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ProxyConfig;
    use super::*;

    #[test]
    fn after_a_storm_tables_are_as_small_as_what_is_left_and_before_they_are_left_alone() {
        let mut proxy = Proxy::new(Time::ZERO, ProxyConfig::default(), [1; 32]);
        let room = |proxy: &Proxy| {
            [
                proxy.servers.capacity(),
                proxy.server_keys.capacity(),
                proxy.clients.capacity(),
                proxy.acks.capacity(),
                proxy.unacknowledged.capacity(),
                proxy.wakes.capacity(),
            ]
        };
        proxy.servers.reserve(10_000);
        proxy.server_keys.reserve(10_000);
        proxy.clients.reserve(10_000);
        proxy.acks.reserve(10_000);
        proxy.unacknowledged.reserve(10_000);
        proxy.wakes.reserve(10_000);
        proxy.handle_timeout(Time::ZERO + SWEEP / 2);
        assert!(room(&proxy).into_iter().all(|room| room >= 10_000), "{:?}", room(&proxy));
        proxy.handle_timeout(Time::ZERO + SWEEP);
        assert!(room(&proxy).into_iter().all(|room| room < 100), "{:?}", room(&proxy));
    }
}

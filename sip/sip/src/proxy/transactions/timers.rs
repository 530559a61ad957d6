//! Runs the timers of all transactions from one heap. Begin with [`Transactions::next_due`].

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use base::Time;

use super::Transactions;
use super::wakes::Sleeper;
use crate::proxy::Id;
use crate::proxy::outbox::Outbox;
use crate::transaction::{ClientTimeout, ServerTimeout};

/// Interval at which expired bindings and silent dialogs are removed. Lookups ignore expired bindings even before they are removed.
pub(super) const SWEEP: Duration = Duration::from_secs(60);

/// An event for the user of the transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::proxy) enum Due {
    /// No response to the request of this server transaction was sent in time, so 100 must be sent.
    SayTrying(Id),
    /// Timer C of this client transaction has fired (RFC 3261 section 16.8).
    TimerC(Id),
    /// No final response to this client transaction arrived in time.
    TimedOut(Id),
    /// The interval [`SWEEP`] has passed, so expired state must be removed.
    Sweep,
}

impl Transactions {
    /// Returns the time of the next timer.
    pub(in crate::proxy) fn next_timeout(&self) -> Time {
        self.wakes.next()
    }

    /// Handles due timers until one of them is an event for the caller. The caller must handle the event before the next call.
    pub(in crate::proxy) fn next_due(&mut self, now: Time, outbox: &mut Outbox) -> Option<Due> {
        while let Some(sleeper) = self.wakes.pop_due(now) {
            let due = match sleeper {
                Sleeper::Server(id) => self.wake_server(now, id, outbox),
                Sleeper::Client(id) => self.wake_client(now, id, outbox),
                Sleeper::Ack(id) => {
                    self.acks.remove(&id);
                    None
                }
                Sleeper::Sweep => {
                    self.shrink();
                    self.wakes.push(now + SWEEP, Sleeper::Sweep);
                    Some(Due::Sweep)
                }
            };
            if due.is_some() {
                return due;
            }
        }
        None
    }

    /// Shrinks tables after a burst of traffic. Without this function, each table would keep the capacity that it had at the peak.
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
        self.wakes.shrink();
    }

    fn wake_server(&mut self, now: Time, id: Id, outbox: &mut Outbox) -> Option<Due> {
        let server = self.servers.get_mut(&id)?;
        let (is_accepted, ack_key) = (server.is_accepted(), server.ack_key());
        match server.on_timeout(now) {
            ServerTimeout::Nothing => self.schedule_server(id),
            ServerTimeout::SayTrying => return Some(Due::SayTrying(id)),
            ServerTimeout::Resend => {
                self.resend_response(id, outbox);
                self.schedule_server(id);
            }
            ServerTimeout::NoAck | ServerTimeout::Ended => {
                if is_accepted {
                    self.unacknowledged.remove(&ack_key);
                }
                self.end_server(id);
            }
        }
        None
    }

    fn wake_client(&mut self, now: Time, id: Id, outbox: &mut Outbox) -> Option<Due> {
        let client = self.clients.get_mut(&id)?;
        let Some(timeout) = client.on_timeout(now) else { return Some(Due::TimerC(id)) };
        match timeout {
            ClientTimeout::Nothing => self.schedule_client(id),
            ClientTimeout::Resend => {
                outbox.send(client.verified_hop(), client.bytes().clone(), Some(id), client.dialog());
                self.schedule_client(id);
            }
            ClientTimeout::TimedOut => return Some(Due::TimedOut(id)),
            ClientTimeout::Ended => _ = self.end_client(id),
        }
        None
    }

    /// Sets the timer that a server transaction needs now.
    pub(in crate::proxy) fn schedule_server(&mut self, id: Id) {
        if let Some(next) = self.servers.get_mut(&id).and_then(|server| server.next_wake()) {
            self.wakes.push(next, Sleeper::Server(id));
        }
    }

    /// Sets the timer that a client transaction needs now.
    pub(in crate::proxy) fn schedule_client(&mut self, id: Id) {
        if let Some(next) = self.clients.get_mut(&id).and_then(|client| client.next_wake()) {
            self.wakes.push(next, Sleeper::Client(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::World;
    use super::*;
    use crate::proxy::testing::request;

    /// Runs all timers up to a time, and returns the events except sweeps.
    fn run(world: &mut World, until: u64) -> Vec<(u64, Due)> {
        let mut events = Vec::new();
        while world.table.next_timeout() <= Time::from_millis(until) {
            let now = world.table.next_timeout();
            while let Some(due) = world.table.next_due(now, &mut world.outbox) {
                events.push((now.as_millis(), due));
            }
        }
        events.retain(|(_, due)| *due != Due::Sweep);
        events
    }

    #[test]
    fn a_request_without_a_response_is_repeated_and_times_out() {
        let mut world = World::new();
        let id = world.client(None);
        assert_eq!(run(&mut world, 40_000), [(32_000, Due::TimedOut(id))]);
        assert_eq!(world.sent(), 7, "at 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s");
    }

    #[test]
    fn an_invite_that_rings_has_timer_c() {
        let mut world = World::new();
        let server = world.server(&request("INVITE sip:a@example.org"));
        let id = world.client(Some(server));
        world.table.on_response(Time::ZERO, id, 180);
        world.table.schedule_client(id);
        assert_eq!(run(&mut world, 200_000), [(185_000, Due::TimerC(id))]);
    }

    #[test]
    fn a_request_that_waits_gets_100_and_a_rejection_that_is_not_acknowledged_ends() {
        let mut world = World::new();
        let options = world.server(&request("OPTIONS sip:a@example.org"));
        world.table.schedule_server(options);
        assert_eq!(run(&mut world, 4000), [(3500, Due::SayTrying(options))]);
        let mut world = World::new();
        let invite = world.server(&request("INVITE sip:a@example.org"));
        world.respond(invite, 486);
        assert_eq!(run(&mut world, 40_000), []);
        assert_eq!(world.table.counts(), (0, 0));
    }

    #[test]
    fn tables_shrink_at_the_periodic_sweep_and_not_before() {
        let mut world = World::new();
        let table = &mut world.table;
        let room = |table: &Transactions| {
            [
                table.servers.capacity(),
                table.server_keys.capacity(),
                table.clients.capacity(),
                table.acks.capacity(),
                table.unacknowledged.capacity(),
                table.wakes.capacity(),
            ]
        };
        table.servers.reserve(10_000);
        table.server_keys.reserve(10_000);
        table.clients.reserve(10_000);
        table.acks.reserve(10_000);
        table.unacknowledged.reserve(10_000);
        table.wakes.reserve(10_000);
        assert_eq!(table.next_due(Time::ZERO + SWEEP / 2, &mut world.outbox), None);
        assert!(room(table).into_iter().all(|room| room >= 10_000), "{:?}", room(table));
        assert_eq!(table.next_due(Time::ZERO + SWEEP, &mut world.outbox), Some(Due::Sweep));
        assert!(room(table).into_iter().all(|room| room < 100), "{:?}", room(table));
    }
}

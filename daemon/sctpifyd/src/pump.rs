//! Serves, one after the other, the connections whose bytes can flow.
//!
//! Each connection may move a limited number of bytes per turn ([`crate::flowing`]). A connection that can move more bytes is
//! served again in the next turn, so one bulk transfer does not starve other connections. The pause between turns depends on
//! the traffic ([`Coalescing`]).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use base::Time;
use relay::UNSENT_MAX;
use sctp::Endpoint;

use crate::coalescing::Coalescing;
use crate::connection::{ConnectionId, Connections};
use crate::flowing::Medium;
use crate::history::{History, Line};
use crate::shared::SharedAssociations;

/// Limit on the bytes that all connections together move in one turn. Further bytes wait for the next turn, so packets and new
/// connections wait only for milliseconds.
pub(crate) const BYTES_PER_TURN: u64 = 1 << 20;

/// The connections whose bytes can flow.
pub(crate) struct Pump {
    ready: BTreeSet<ConnectionId>,
    /// The connection that was served most recently.
    served: ConnectionId,
    scratch: Box<[u8]>,
    /// Calculation of the pause between turns.
    coalescing: Coalescing,
}

/// Result of serving one connection.
pub(crate) struct Served {
    pub(crate) id: ConnectionId,
    pub(crate) moved: u64,
    /// The connection's relay has finished, and the connection must be ended.
    pub(crate) is_finished: bool,
}

impl Pump {
    pub(crate) fn new() -> Pump {
        Pump {
            ready: BTreeSet::new(),
            served: ConnectionId(0),
            scratch: vec![0; UNSENT_MAX].into(),
            coalescing: Coalescing::new(),
        }
    }

    /// Notes that bytes of this connection may flow.
    pub(crate) fn mark(&mut self, id: ConnectionId) {
        self.ready.insert(id);
    }

    /// Notes that bytes of these connections may flow.
    pub(crate) fn mark_all(&mut self, mut ids: BTreeSet<ConnectionId>) {
        self.ready.append(&mut ids);
    }

    /// Returns the number of ready connections.
    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns the pause before the next turn; zero means no pause.
    pub(crate) fn pause(&self, now: Time) -> Duration {
        self.coalescing.pause(now)
    }

    /// Takes the next ready connection in the order of identifiers. The search starts after the connection that was served
    /// last.
    fn take_next(&mut self) -> Option<ConnectionId> {
        let after = (Bound::Excluded(self.served), Bound::Unbounded);
        let id = self.ready.range(after).next().or(self.ready.first()).copied()?;
        self.ready.remove(&id);
        self.served = id;
        Some(id)
    }

    /// Serves the next connection, if any is ready.
    pub(crate) fn serve_next(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        connections: &mut Connections,
        shared: &mut SharedAssociations,
        history: &mut History,
    ) -> Option<Served> {
        let id = self.take_next()?;
        let mut served = Served { id, moved: 0, is_finished: false };
        let Some(connection) = connections.get_mut(id) else { return Some(served) };
        let association = connection.association();
        let channel = connection.channel();
        let Some(flowing) = connection.flowing() else { return Some(served) };
        let medium = match channel.zip(shared.get_mut(association)) {
            Some((id, state)) => Medium::Channel { mux: state.mux(), id },
            None => Medium::Association,
        };
        let Some(outcome) = flowing.serve(now, engine, association, medium, &mut self.scratch) else {
            self.ready.insert(id);
            return Some(served);
        };
        if outcome.is_full
            && let Some(state) = shared.get_mut(association)
        {
            state.wait(id);
        }
        let framing_error = flowing.take_framing_error();
        if let Some(error) = framing_error
            && let Some(left_out) = history.admit(Line::Framing, now)
        {
            tracing::warn!(flow = %connection.flow(), %error, left_out, "no valid message, although the rule has --framing");
        }
        history.count_bytes(outcome.sent, outcome.received);
        served.moved = outcome.sent + outcome.received;
        served.is_finished = outcome.finished;
        if served.moved > 0 {
            let traffic = connection.note_moved(now, outcome.sent, outcome.received);
            let round_trip = engine.shortest_round_trip(association);
            self.coalescing.note(now, served.moved, round_trip, traffic);
        }
        if outcome.more && !outcome.finished {
            self.ready.insert(id);
        }
        Some(served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_served_in_turn_however_often_one_is_ready_again() {
        let mut pump = Pump::new();
        (1..=3).for_each(|n| pump.mark(ConnectionId(n)));
        let mut order = Vec::new();
        for _ in 0..6 {
            let ConnectionId(n) = pump.take_next().expect("one is ready");
            order.push(n);
            pump.mark(ConnectionId(1));
            pump.mark(ConnectionId(n));
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 3]);
        assert_eq!(pump.len(), 3);
    }
}

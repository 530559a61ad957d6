//! Reduction of a congestion window that only lengthens a queue inside this host.
//!
//! If this host itself is the bottleneck (a traffic shaper, the queue before a modem), its interface queues a
//! thousand packets and more, each perhaps a train of 64 KiB. Nothing is lost or marked there, so a window
//! would grow until the round trip takes many seconds. Heartbeats, SACKs and other connections wait behind
//! the data, and so does the kernel's neighbour discovery, whose failure it reports as an unreachable host;
//! working paths are then abandoned. TCP has its small queues against that. The engine has no socket, so it
//! asks the driver ([`Transmit::asks_for_queue`](crate::Transmit::asks_for_queue)) when round trips have
//! grown, and treats the answer ([`PathError::LocalQueue`](crate::PathError::LocalQueue)) like a congestion
//! mark (RFC 3168): once per window. It does not ask about paths whose round trips stay short, whatever else
//! fills the same socket. Start at [`Transfer::on_local_queue`].

use std::time::Duration;

use base::Time;

use super::Transfer;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// The excess over the shortest round trip that indicates a local queue.
const LONGER: Duration = Duration::from_millis(50);

/// Permitted local queueing time at the path's rate: enough to keep a link busy while a reduced window grows
/// again.
const WAIT: Duration = Duration::from_millis(100);

/// Permitted local queue on however slow a link: one train of maximum length.
const BYTES_MIN: usize = 64 << 10;

impl Transfer {
    /// Returns whether a path's round trips have grown enough for a local queue to be the cause.
    pub(crate) fn may_wait_here(&self, path: PathIndex) -> bool {
        let round_trips = self.paths.get(path).srtt().zip(self.tx.outstanding.least_round_trip(path));
        round_trips.is_some_and(|(srtt, least)| srtt > least + LONGER)
    }

    /// Handles a report of `bytes` queued in this host where packets of a path leave, possibly including
    /// other traffic.
    pub(crate) fn on_local_queue(&mut self, index: PathIndex, bytes: usize, now: Time) {
        let path = self.paths.get(index);
        let may_wait =
            path.srtt().map_or(usize::MAX, |srtt| path.sending.bytes_in(WAIT, srtt)).max(BYTES_MIN);
        let is_answered = self.tx.outstanding.first() < path.reduced_until;
        if bytes <= may_wait || is_answered || !self.may_wait_here(index) {
            return;
        }
        let (next, route) = (self.tx.outstanding.next(), path.route);
        let seen = self.seen(index, self.tx.outstanding.flight(index), now);
        let path = self.paths.get_mut(index);
        path.reduced_until = next;
        path.sending.on_marked(&seen);
        self.out.note(TraceEvent::LocalQueueObeyed { route, bytes });
    }
}

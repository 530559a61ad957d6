//! Reduces a congestion window that only lengthens a queue inside this host.
//!
//! This host itself may be the bottleneck, for example because of a traffic shaper or a modem. Its interface then
//! queues a thousand packets or more, and each may be a train of 64 KiB. Nothing is lost or marked in this queue, so a
//! window would grow until the round trip takes many seconds. Heartbeats, SACKs and other connections wait behind the
//! data. The kernel's neighbour discovery waits too, and after its failure the kernel reports the peer as unreachable.
//! Working paths are then abandoned.
//!
//! TCP avoids this with TCP small queues. The engine has no socket, so it asks the driver when round trips have grown
//! ([`Transmit::asks_for_queue`](crate::Transmit::asks_for_queue)). The engine treats the driver's answer
//! ([`PathError::LocalQueue`](crate::PathError::LocalQueue)) like a congestion mark (RFC 3168), once per window of
//! data. The engine does not ask about paths whose round trips have not grown, even if data of other paths fills the
//! same socket. Start at [`Transfer::on_local_queue`].

use std::time::Duration;

use base::Time;

use super::Transfer;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// Increase of a round trip over the minimum RTT. A larger increase suggests a local queue.
const LONGER: Duration = Duration::from_millis(50);

/// Permitted local queueing time at the path's rate. It keeps a link busy while a reduced window grows again.
const WAIT: Duration = Duration::from_millis(100);

/// Permitted local queue on a link of any rate, in bytes: one train of maximum length.
const BYTES_MIN: usize = 64 << 10;

impl Transfer {
    /// Returns whether a path's round trips have grown enough for a local queue to be the cause.
    pub(crate) fn may_wait_here(&self, path: PathIndex) -> bool {
        let round_trips = self.paths.get(path).srtt().zip(self.tx.outstanding.least_round_trip(path));
        round_trips.is_some_and(|(srtt, least)| srtt > least + LONGER)
    }

    /// Handles a report that `bytes` bytes wait in this host's queue for packets of a path. The bytes may include other
    /// traffic.
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

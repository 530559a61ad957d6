//! Packets that wait in this host, before they leave it: a window that only makes them wait longer is reduced.
//!
//! Where this host itself is the bottleneck (a traffic shaper, the queue before a modem) its interface lets a thousand packets
//! wait and more, each perhaps a train of 64 KiB. Nothing is lost there and nothing marked, so a window would grow until the round
//! trip takes many seconds: heartbeats, SACKs and other connections wait behind the data, and so does the kernel's neighbour
//! discovery, whose failure it reports as an unreachable host. Paths that work are left. TCP has its small queues against that;
//! the engine has no socket, so it asks the driver ([`Transmit::asks_for_queue`](crate::Transmit::asks_for_queue)) where round
//! trips have become longer, and answers what it is told ([`PathError::LocalQueue`](crate::PathError::LocalQueue)) as it does a
//! mark for congestion (RFC 3168): once a window. It asks nothing of paths whose round trips stay short, whoever else fills the
//! same socket. Begin at [`Association::on_local_queue`].

use std::time::Duration;

use base::Time;

use super::Association;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// By how much round trips are longer than the shortest where packets wait here.
const LONGER: Duration = Duration::from_millis(50);

/// For how long packets may wait here at the path's rate: enough for a link to stay busy while a window that was reduced grows again.
const WAIT: Duration = Duration::from_millis(100);

/// What may wait here however slow the link is: one train of the longest.
const BYTES_MIN: usize = 64 << 10;

impl Association {
    /// Whether round trips of a path have become so long that packets may be waiting in this host.
    pub(super) fn may_wait_here(&self, path: PathIndex) -> bool {
        let round_trips = self.paths.get(path).srtt().zip(self.outstanding.least_round_trip(path));
        round_trips.is_some_and(|(srtt, least)| srtt > least + LONGER)
    }

    /// So many bytes wait in this host where packets of a path leave it, perhaps those to others among them.
    pub(super) fn on_local_queue(&mut self, index: PathIndex, bytes: usize, now: Time) {
        let path = self.paths.get(index);
        let may_wait =
            path.srtt().map_or(usize::MAX, |srtt| path.sending.bytes_in(WAIT, srtt)).max(BYTES_MIN);
        let is_answered = self.outstanding.first() < path.reduced_until;
        if bytes <= may_wait || is_answered || !self.may_wait_here(index) {
            return;
        }
        let (next, route) = (self.outstanding.next(), path.route);
        let seen = self.seen(index, self.outstanding.flight(index), now);
        let path = self.paths.get_mut(index);
        path.reduced_until = next;
        path.sending.on_marked(&seen);
        self.note(TraceEvent::LocalQueueObeyed { route, bytes });
    }
}

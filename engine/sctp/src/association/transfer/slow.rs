//! Detection of a path that has become slow. Such a path loses nothing and is never silent, but its
//! acknowledgements arrive later and later.
//!
//! If another path is known to be much faster, the slow path counts as potentially failed (RFC 7829). All
//! data, including data in flight, moves to the other path. The slow path must answer heartbeats for some
//! time before it carries data again. As soon as the delay is noticed, a heartbeat is sent on the other path.
//! Data moves only after the answer to this heartbeat. If both paths share a bottleneck, the answer is late
//! too, so no data moves. Start at [`Transfer::count_delays`].

use std::time::Duration;

use base::Time;

use super::Transfer;
use crate::event::PathReason;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::PathAcks;

/// Time for which the delay must last before data moves.
const PATIENCE: Duration = Duration::from_millis(200);

/// Factor on the other path's delay. Data moves if the slow path's delay exceeds the product by more than the
/// configured limit.
const FACTOR: u32 = 4;

impl Transfer {
    /// Measures a path's delay from a SACK. Moves data off the current path if the delay is too long.
    pub(crate) fn count_delays(&mut self, index: PathIndex, acks: &PathAcks, now: Time) {
        let (Some(most), Some(sent_at)) = (self.config.timing.delay_max, acks.newest_sent_at) else { return };
        if index != self.paths.current() || self.is_concurrent() || self.is_redundant() {
            return;
        }
        let flight = self.tx.outstanding.flight(index);
        let path = self.paths.get_mut(index);
        path.delays.on_acks(acks.bytes, flight, now);
        let takes = path.delays.time_to_deliver(flight, now - sent_at);
        let may_be = takes > most && path.delays.may_be_slow(flight);
        let quicker = if may_be { self.quicker_path(index, flight, takes, most, now) } else { None };
        let since = self.paths.get_mut(index).delays.note(quicker.is_some(), now);
        match (quicker, since) {
            (Some(other), None) => _ = self.paths.get_mut(other).ask_again(now, &self.config.timing),
            (Some(other), Some(since)) => {
                if now - since >= PATIENCE && self.paths.get(other).heard() > since {
                    let route = self.paths.get(index).route;
                    let (why, reason) =
                        (TraceEvent::PathSlow { route, delay: takes }, PathReason::Delay { delay: takes });
                    self.leave_poor(index, why, reason, now);
                }
            }
            (None, _) => {}
        }
    }

    /// Returns another path if it is known to deliver `flight` bytes fast enough to justify a move. `takes`
    /// is the time that the path `index` needs for these bytes, and `most` is the configured limit on the
    /// delay.
    fn quicker_path(
        &self,
        index: PathIndex,
        flight: usize,
        takes: Duration,
        most: Duration,
        now: Time,
    ) -> Option<PathIndex> {
        let other = self.paths.quicker_refuge(index, now)?;
        let path = self.paths.get(other);
        let elsewhere = path.delays.time_elsewhere(flight, path.srtt()?, now);
        (takes > elsewhere * FACTOR + most).then_some(other)
    }
}

//! Detection of a path that loses much of its data but is never silent. Later packets reveal the losses, so no timer
//! expires. Congestion control treats every loss as congestion, so the congestion window becomes very small, and the
//! data waits.
//!
//! Another path is better if it is not known to lose as much, and does not share the link that may be to blame. If such
//! a path exists, the lossy path becomes potentially failed (RFC 7829). All data moves to the better path, including
//! data in flight. The lossy path is watched before it is used again. MPTCP likewise abandons a subflow that makes no
//! progress while data waits. Start at [`Transfer::count_losses`].

use base::Time;

use super::Transfer;
use crate::event::PathReason;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::PathAcks;

impl Transfer {
    /// Counts a path's losses that a SACK reveals. Leaves the current path if it loses too much.
    pub(crate) fn count_losses(&mut self, index: PathIndex, acks: &PathAcks, now: Time) {
        let Some(allowed) = self.config.timing.loss_max else { return };
        let losses = &mut self.paths.get_mut(index).losses;
        losses.on_acks(acks, allowed, now);
        if losses.take_verdict(now) && index == self.paths.current() && !self.is_concurrent() {
            self.leave_lossy(index, now);
        }
    }

    fn leave_lossy(&mut self, index: PathIndex, now: Time) {
        if self.paths.refuge(index, now).is_none() {
            self.paths.blame_shared_end(index, now);
            self.choose_path(PathReason::PrimaryReturned);
            return;
        }
        let path = self.paths.get(index);
        let (route, percent) = (path.route, path.losses.known_percent(now).unwrap_or_default());
        self.leave_poor(index, TraceEvent::PathLossy { route, percent }, PathReason::Loss { percent }, now);
    }

    /// Leaves a working path for a better one. The path becomes potentially failed and is probed immediately. Its data
    /// in flight moves to the better path.
    pub(crate) fn leave_poor(&mut self, index: PathIndex, why: TraceEvent, reason: PathReason, now: Time) {
        let path = self.paths.get_mut(index);
        let transition = path.on_poor();
        path.probe_now(now);
        self.out.note(why);
        self.report_transition(index, transition, reason);
        if self.paths.current() != index {
            self.mark_lost_on(index);
        }
    }
}

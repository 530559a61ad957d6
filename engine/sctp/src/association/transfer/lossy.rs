//! Detection of a path that loses much of its data without ever being silent: later packets reveal the
//! losses, and no timer expires. The congestion window shrinks to almost nothing there, since it treats every
//! loss as congestion, and the data waits.
//!
//! If there is another path that is not known to lose as much and does not share the link that may be to blame, the lossy one counts as potentially failed
//! (RFC 7829): data, including that in flight, moves elsewhere, and the path is watched before it is used
//! again. MPTCP likewise abandons a subflow that makes no progress while data waits. Start at
//! [`Transfer::count_losses`].

use base::Time;

use super::Transfer;
use crate::event::PathReason;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::PathAcks;

impl Transfer {
    /// Counts a path's losses from a SACK; leaves the current path if it loses too much.
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

    /// Leaves a working path for a better one: it becomes potentially failed, is probed at once, and its data
    /// in flight goes elsewhere.
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

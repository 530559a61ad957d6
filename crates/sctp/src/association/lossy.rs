//! A path that loses much of what it carries, and yet is never silent: what is lost is found by what comes after it, and no timer
//! expires. A congestion window shrinks to almost nothing there, for it takes all loss for congestion, and the data waits.
//!
//! If another path is there, and is not known to lose as much, the lossy one counts as potentially failed (RFC 7829): data and what is
//! in flight go elsewhere, and it is watched before it is used again. MPTCP leaves a subflow that makes no progress while
//! data waits in the same way. Begin at [`Association::count_losses`].

use base::Time;

use super::Association;
use crate::path::PathIndex;
use crate::trace::TraceEvent;
use crate::tx::PathAcks;

impl Association {
    /// What a SACK told of a path: the path in use is left if it loses too much.
    pub(super) fn count_losses(&mut self, index: PathIndex, acks: &PathAcks, now: Time) {
        let Some(allowed) = self.config.timing.loss_max else { return };
        let losses = &mut self.paths.get_mut(index).losses;
        losses.on_acks(acks, allowed, now);
        if losses.take_verdict(now) && index == self.paths.current() && !self.is_concurrent() {
            self.leave_lossy(index, now);
        }
    }

    fn leave_lossy(&mut self, index: PathIndex, now: Time) {
        if self.paths.refuge(index, now).is_none() {
            return;
        }
        let path = self.paths.get(index);
        let (route, percent) = (path.route, path.losses.known_percent(now).unwrap_or_default());
        self.leave_poor(index, TraceEvent::PathLossy { route, percent }, now);
    }

    /// The path in use works, but another one is better: it is potentially failed, and asked at once. What is in flight goes elsewhere.
    pub(super) fn leave_poor(&mut self, index: PathIndex, why: TraceEvent, now: Time) {
        let path = self.paths.get_mut(index);
        let transition = path.on_poor();
        path.probe_now(now);
        self.note(why);
        self.report_transition(index, transition);
        if self.paths.current() != index {
            self.mark_lost_on(index);
        }
    }
}

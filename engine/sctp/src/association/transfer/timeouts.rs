//! Timeouts of paths and their consequences: T3-rtx, unanswered HEARTBEATs, and the error counts (RFC 9260 section
//! 8).

use std::time::Duration;

use base::Time;

use super::Transfer;
use crate::association::Context;
use crate::event::{CloseReason, PathReason};
use crate::info::PathState;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

impl Transfer {
    /// Compensates for a driver that is late by `late`. The deadline of each awaited answer is moved to `late` from
    /// now, or stays if it is later. A path gets no second extension before the peer is heard on the path.
    pub(crate) fn put_off(&mut self, late: Duration, now: Time) {
        if late.is_zero() {
            return;
        }
        self.liveness.put_off(now + late * 2);
        for index in self.paths.indices() {
            self.paths.get_mut(index).put_off(now + late);
        }
    }

    /// Handles the expiry of T3-rtx (RFC 9260 section 6.3.3). The congestion window collapses, the timeout doubles,
    /// and data in flight counts as lost. If the path has answered a HEARTBEAT since it fell silent, no error is
    /// counted.
    pub(crate) fn on_t3(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let now = ctx.now;
        self.count_timeout(index);
        // If the peer has answered a window probe without opening its window, the timeout does not count against the
        // path (section 6.1 A).
        //= rfc9260#6.1-6
        if self.tx.window.on_timeout() {
            self.mark_lost_on(index);
            return;
        }
        self.doubt_mtu_after_timeout(index, ctx);
        let is_alive = self.paths.get_mut(index).sending.on_t3_after_heartbeat();
        self.paths.get_mut(index).ecn.on_timeout();
        self.probe_all(now);
        self.tx.outstanding.on_t3(index, now);
        let given_up = self.mark_lost_on(index);
        self.paths.get_mut(index).sending.on_timeout(given_up, now);
        if !is_alive {
            self.count_error_on(index, PathReason::Timeout);
            self.count_error();
        }
    }

    /// Counts an expiry of T3-rtx or an equivalent timeout, and backs off the RTO of the path.
    pub(crate) fn count_timeout(&mut self, index: PathIndex) {
        let path = self.paths.get_mut(index);
        path.counters.timeouts += 1;
        path.back_off(&self.config.timing);
        let route = path.route;
        self.out.note(TraceEvent::Timeout { route });
    }

    /// Sends heartbeats on all confirmed paths, because other paths may share the link that has just failed. The
    /// answers show within a round trip which paths still work.
    fn probe_all(&mut self, now: Time) {
        for index in self.paths.indices() {
            if self.paths.get(index).is_confirmed() {
                self.paths.get_mut(index).ask_again(now, &self.config.timing);
            }
        }
    }

    /// Counts an unanswered heartbeat against its path. If the path is the current one, the heartbeat also counts
    /// against the association. A heartbeat on another path does not count against the association, because the
    /// failures of unused paths would end an idle association (section 8.1). While T3 runs on the path, the
    /// heartbeat is not counted at all, so one silence does not count twice. In an association that sends every
    /// chunk on all paths, the heartbeat is counted even while T3 runs.
    //= rfc9260#8.3-3
    //= rfc6951#5.5-2
    //= rfc9260#8.3-3
    pub(crate) fn on_heartbeat_lost(&mut self, index: PathIndex) {
        if self.paths.get(index).t3.is_some() && !self.is_redundant() {
            return;
        }
        let is_current = index == self.paths.current();
        //= rfc9260#8.3-5
        if self.paths.get(index).state() != PathState::Inactive {
            self.count_error_on(index, PathReason::Timeout);
        }
        //= rfc9260#8.1-2
        if is_current {
            self.count_error();
        }
    }

    /// Counts a timeout against a path. If the path was already failing, chooses the path of data again. While no
    /// path is active, data uses the path with the fewest errors.
    //= rfc7829#3.2-9
    pub(crate) fn count_error_on(&mut self, index: PathIndex, reason: PathReason) {
        let transition = self.paths.get_mut(index).on_error(&self.config.timing);
        if transition.is_none() && self.paths.get(index).state() != PathState::Active {
            self.choose_path(reason);
        }
        self.report_transition(index, transition, reason);
    }

    /// Counts a timeout against the association, and closes it after too many. Returns whether the association
    /// survives.
    pub(crate) fn count_error(&mut self) -> bool {
        let survives = self.liveness.on_timeout(self.config.timing.association_max_retrans);
        if !survives {
            self.close(CloseReason::LostContact);
        }
        survives
    }
}

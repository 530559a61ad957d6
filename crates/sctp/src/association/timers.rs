//! The timers of an association: T1-cookie, T2-shutdown, T3-rtx, T5, heartbeats, delayed SACK, the idle
//! check, and advertisements.

use std::time::Duration;

use base::Time;

use super::{Association, Context, Control, State};
use crate::event::CloseReason;
use crate::info::PathState;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

impl Association {
    /// Time of the next timer expiry.
    pub(crate) fn next_timeout(&self) -> Time {
        let heartbeats = self.state.probes_paths();
        let paths = self.paths.iter().map(|(_, p)| p.next_timeout(heartbeats)).min().unwrap_or(Time::NEVER);
        match self.state {
            State::CookieEchoed { t1, .. } => t1.at.min(self.hearsay_timeout()),
            State::ShutdownSent { t2, guard, .. } | State::ShutdownAckSent { t2, guard, .. } => {
                t2.at.min(guard).min(self.inbound.ack.next_timeout()).min(self.hearsay_timeout())
            }
            State::Established | State::ShutdownPending | State::ShutdownReceived => {
                let partial = self.tx.forward.next_timeout().min(self.tx.pr_messages.next_deadline());
                let requests = self.asconf_timeout().min(self.reconfig_timeout());
                let quiet = self.idle.next_timeout().min(self.advertising.next_timeout());
                let others = requests.min(partial).min(quiet).min(self.tx.stranded.until());
                paths.min(self.inbound.ack.next_timeout()).min(others).min(self.hearsay_timeout())
            }
            State::CookieWaitOver | State::Accepting | State::Closed => Time::NEVER,
        }
    }

    /// Handles every expired timer.
    pub(crate) fn on_timeout(&mut self, ctx: &mut Context<'_>) {
        self.inbound.ack.on_timeout(ctx.now);
        if self.hearsay_timeout() <= ctx.now {
            self.on_hearsay_timeout(ctx);
        }
        match self.state {
            State::CookieEchoed { t1, .. } if t1.at <= ctx.now => self.on_t1(ctx.now),
            State::ShutdownSent { guard, .. } | State::ShutdownAckSent { guard, .. } if guard <= ctx.now => {
                //= rfc9260#9.2-11
                self.abort(crate::event::AbortCause::default(), ctx);
            }
            State::ShutdownSent { t2, by, .. } if t2.at <= ctx.now => self.on_t2(by, Control::Shutdown, ctx),
            State::ShutdownAckSent { t2, by, .. } if t2.at <= ctx.now => {
                self.on_t2(by, Control::ShutdownAck, ctx)
            }
            State::Established | State::ShutdownPending | State::ShutdownReceived => self.on_path_timers(ctx),
            State::CookieWaitOver
            | State::CookieEchoed { .. }
            | State::Accepting
            | State::ShutdownSent { .. }
            | State::ShutdownAckSent { .. }
            | State::Closed => {}
        }
    }

    /// Compensates for a late driver: pending answers get as much extra time, once until their path is heard.
    pub(crate) fn put_off(&mut self, late: Duration, now: Time) {
        if late.is_zero() {
            return;
        }
        self.liveness.put_off(now + late * 2);
        for index in self.paths.indices() {
            self.paths.get_mut(index).put_off(now + late);
        }
    }

    /// T1-cookie (RFC 9260 section 5.1, and 4.2.2 for the count).
    fn on_t1(&mut self, now: Time) {
        let max = self.config.max_init_retransmits;
        let State::CookieEchoed { t1, opening, .. } = &mut self.state else { return };
        //= rfc9260#4-7
        if t1.count >= max {
            return self.close(CloseReason::NoAnswer);
        }
        t1.count += 1;
        opening.rto = self.config.next_t1(opening.rto, t1.count);
        //= rfc9260#5.1.4-3
        t1.at = now + opening.rto;
        if self.out.next_chunk().is_none() {
            self.out.queue(PathIndex(0), Control::CookieEcho);
        }
    }

    /// T2-shutdown (RFC 9260 section 9.2): repeats the chunk that `used` carried, on another path if there is one. The error
    /// counts against `used`: the current path may have become another meanwhile, which nothing was sent on.
    //= rfc9260#9.2-14
    fn on_t2(&mut self, used: PathIndex, control: Control, ctx: &mut Context<'_>) {
        if !self.count_error() {
            return;
        }
        let path = self.paths.get_mut(used);
        let waited = path.rto();
        path.back_off(&self.config.timing);
        let rto = path.rto();
        self.count_error_on(used);
        let mut count = 0;
        if let State::ShutdownSent { t2, .. } | State::ShutdownAckSent { t2, .. } = &mut self.state {
            t2.at = ctx.now + rto;
            t2.count = t2.count.saturating_add(1);
            count = t2.count;
        }
        self.queue_shutdown_by(self.closing_path(count, waited, ctx.now), control);
        self.prove_while_closing(ctx);
    }

    /// Returns the path for the nth shutdown chunk after a wait of `waited`. If no path is active, every
    /// second one takes the path on which the peer was last heard meanwhile, confirmed or not, like an answer
    /// would: no HEARTBEAT of ours reveals recovered paths any more.
    fn closing_path(&self, nth: u8, waited: Duration, now: Time) -> PathIndex {
        let current = self.paths.current();
        if nth.is_multiple_of(2) || self.paths.get(current).state() == PathState::Active {
            return current;
        }
        let heard = self.paths.iter().filter(|(_, path)| now - path.heard() <= waited);
        heard.max_by_key(|(_, path)| path.heard()).map_or(current, |(index, _)| index)
    }

    fn on_path_timers(&mut self, ctx: &mut Context<'_>) {
        self.tx.stranded.expire(ctx.now);
        self.give_up_expired(ctx.now);
        self.expire_forward(ctx.now);
        if self.idle.is_quiet(self.out.carried(), ctx.now) {
            self.tx.shrink();
            self.inbound.shrink();
            self.out.shrink();
        }
        self.on_advertisement_timeout(ctx.now);
        if matches!(self.state, State::Closed) {
            return;
        }
        for index in self.paths.indices() {
            self.on_recovery_timers(index, ctx);
            self.on_size_timeout(index, ctx.now);
            if self.paths.get(index).rebinding.next_timeout() <= ctx.now {
                self.on_rebinding_timeout(index, ctx);
            }
            if self.paths.get(index).t3.is_some_and(|at| at <= ctx.now) {
                self.on_t3(index, ctx);
            }
            if matches!(self.state, State::Closed) {
                return;
            }
            self.judge_doubt(index, ctx);
            if self.paths.get_mut(index).ends_watch(ctx.now) {
                self.choose_path();
            }
            if self.paths.get_mut(index).expire_heartbeat(ctx.now, &self.config.timing, ctx.random) {
                self.on_heartbeat_lost(index);
            }
            if matches!(self.state, State::Closed) {
                return;
            }
        }
        if self.asconf_timeout() <= ctx.now {
            self.on_t4(ctx.now);
        }
        if self.reconfig_timeout() <= ctx.now && !matches!(self.state, State::Closed) {
            self.on_reconfig_timeout(ctx.now);
        }
        self.queue_heartbeats(ctx);
    }

    /// T3-rtx (RFC 9260 section 6.3.3): the window collapses, the timeout doubles, data in flight counts as
    /// lost. If the path has answered a HEARTBEAT since it fell silent, the silence is over, and no error is counted.
    fn on_t3(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        let now = ctx.now;
        self.count_timeout(index);
        // A window probe that was answered without room does not count against the path (section 6.1 A).
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
            self.count_error_on(index);
            self.count_error();
        }
    }

    /// Counts a timeout of T3-rtx, or an equivalent one.
    pub(super) fn count_timeout(&mut self, index: PathIndex) {
        let path = self.paths.get_mut(index);
        path.counters.timeouts += 1;
        path.back_off(&self.config.timing);
        let route = path.route;
        self.out.note(TraceEvent::Timeout { route });
    }

    /// Probes all paths, some of which may share the link that has just failed: heartbeats reveal within a
    /// round trip which do not.
    fn probe_all(&mut self, now: Time) {
        for index in self.paths.indices() {
            if self.paths.get(index).is_confirmed() {
                self.paths.get_mut(index).ask_again(now, &self.config.timing);
            }
        }
    }

    /// Counts an unanswered heartbeat against its path, and against the association only on the current path;
    /// otherwise an idle association would fail because of its other paths (section 8.1). While data is in
    /// flight on the path, only T3 counts, so one silence is not counted twice.
    //= rfc9260#8.3-3
    //= rfc6951#5.5-2
    //= rfc9260#8.3-3
    pub(super) fn on_heartbeat_lost(&mut self, index: PathIndex) {
        if self.paths.get(index).t3.is_some() && !self.is_redundant() {
            return;
        }
        let is_current = index == self.paths.current();
        //= rfc9260#8.3-5
        if self.paths.get(index).state() != PathState::Inactive {
            self.count_error_on(index);
        }
        //= rfc9260#8.1-2
        if is_current {
            self.count_error();
        }
    }

    /// Counts a timeout against a path. While no path is active, data takes the one with the fewest errors.
    //= rfc7829#3.2-9
    pub(super) fn count_error_on(&mut self, index: PathIndex) {
        let transition = self.paths.get_mut(index).on_error(&self.config.timing);
        if transition.is_none() && self.paths.get(index).state() != PathState::Active {
            self.choose_path();
        }
        self.report_transition(index, transition);
    }

    /// Counts a timeout against the association; returns whether it survives.
    pub(super) fn count_error(&mut self) -> bool {
        let survives = self.liveness.on_timeout(self.config.timing.association_max_retrans);
        if !survives {
            self.close(CloseReason::LostContact);
        }
        survives
    }
}

//! The timers of an association: T1-cookie, T2-shutdown, T3-rtx, T4-rto, T5, the Re-configuration Timer, heartbeats,
//! delayed SACK, lifetimes of messages, the idle check, and advertisements.

use std::time::Duration;

use base::Time;

use super::{Association, Context, Control, State};
use crate::event::{CloseReason, PathReason};
use crate::info::PathState;
use crate::path::PathIndex;

impl Association {
    /// Returns the time of the next timer expiry.
    pub(crate) fn next_timeout(&self) -> Time {
        match self.transfer.integrity.protection() {
            Some(protection) if !matches!(self.transfer.state, State::Closed) => {
                self.next_timer().min(protection.limit())
            }
            _ => self.next_timer(),
        }
    }

    #[inline]
    fn next_timer(&self) -> Time {
        let heartbeats = self.transfer.probes_paths();
        let paths =
            self.transfer.paths.iter().map(|(_, p)| p.next_timeout(heartbeats)).min().unwrap_or(Time::NEVER);
        match self.transfer.state {
            State::CookieEchoed { t1, .. } => t1.at.min(self.transfer.hearsay_timeout()),
            State::ShutdownSent { t2, guard, .. } | State::ShutdownAckSent { t2, guard, .. } => {
                t2.at.min(guard).min(self.inbound.ack.next_timeout()).min(self.transfer.hearsay_timeout())
            }
            State::Established | State::ShutdownPending | State::ShutdownReceived { .. } => {
                let partial =
                    self.transfer.tx.forward.next_timeout().min(self.transfer.tx.pr_messages.next_deadline());
                let requests = self.asconf_timeout().min(self.reconfig_timeout());
                let quiet = self.idle.next_timeout().min(self.transfer.advertising.next_timeout());
                let others = requests.min(partial).min(quiet).min(self.transfer.tx.stranded.until());
                paths.min(self.inbound.ack.next_timeout()).min(others).min(self.transfer.hearsay_timeout())
            }
            State::CookieWaitOver | State::Accepting | State::Closed => Time::NEVER,
        }
    }

    /// Handles every expired timer.
    pub(crate) fn on_timeout(&mut self, ctx: &mut Context<'_>) {
        if self.transfer.integrity.protection().is_some_and(|p| p.limit() <= ctx.now) {
            let cause = crate::event::AbortCause::new(0, "no keys were agreed on in time");
            return self.abort(cause, ctx);
        }
        self.forget_expired_keys(ctx.now);
        self.inbound.ack.on_timeout(ctx.now);
        if self.transfer.hearsay_timeout() <= ctx.now {
            self.transfer.on_hearsay_timeout(ctx);
        }
        match self.transfer.state {
            State::CookieEchoed { t1, .. } if t1.at <= ctx.now => self.on_t1(ctx.now),
            State::ShutdownSent { guard, .. } | State::ShutdownAckSent { guard, .. } if guard <= ctx.now => {
                //= rfc9260#9.2-11
                self.abort(crate::event::AbortCause::default(), ctx);
            }
            State::ShutdownSent { t2, by, .. } if t2.at <= ctx.now => self.on_t2(by, Control::Shutdown, ctx),
            State::ShutdownAckSent { t2, by, .. } if t2.at <= ctx.now => {
                self.on_t2(by, Control::ShutdownAck, ctx)
            }
            State::Established | State::ShutdownPending | State::ShutdownReceived { .. } => {
                self.on_path_timers(ctx)
            }
            State::CookieWaitOver
            | State::CookieEchoed { .. }
            | State::Accepting
            | State::ShutdownSent { .. }
            | State::ShutdownAckSent { .. }
            | State::Closed => {}
        }
    }

    /// Handles expiry of T1-cookie (RFC 9260 section 5.1, and section 4 for the limit on retransmissions).
    fn on_t1(&mut self, now: Time) {
        let max = self.transfer.config.max_init_retransmits;
        let State::CookieEchoed { t1, opening, .. } = &mut self.transfer.state else { return };
        //= rfc9260#4-7
        if t1.count >= max {
            return self.transfer.close(CloseReason::NoAnswer);
        }
        t1.count += 1;
        opening.rto = self.transfer.config.next_t1(opening.rto, t1.count);
        //= rfc9260#5.1.4-3
        t1.at = now + opening.rto;
        if self.transfer.out.next_chunk().is_none() {
            self.transfer.out.queue(PathIndex::new(0), Control::CookieEcho);
        }
    }

    /// Handles expiry of T2-shutdown (RFC 9260 section 9.2). Repeats the shutdown chunk that was last sent on the path
    /// `used`, if possible on another path. The error counts against `used`, because the current path may be a
    /// different one by now.
    //= rfc9260#9.2-14
    fn on_t2(&mut self, used: PathIndex, control: Control, ctx: &mut Context<'_>) {
        if !self.transfer.count_error() {
            return;
        }
        let path = self.transfer.paths.get_mut(used);
        let waited = path.rto();
        path.back_off(&self.transfer.config.timing);
        let rto = path.rto();
        self.transfer.count_error_on(used, PathReason::Timeout);
        let mut count = 0;
        if let State::ShutdownSent { t2, .. } | State::ShutdownAckSent { t2, .. } = &mut self.transfer.state {
            t2.at = ctx.now + rto;
            t2.count = t2.count.saturating_add(1);
            count = t2.count;
        }
        self.queue_shutdown_by(self.closing_path(count, waited, ctx.now), control);
        self.transfer.prove_while_closing(ctx);
    }

    /// Returns the path for the shutdown chunk of retransmission `nth`, after a wait of `waited`. If the current path
    /// is not active, every second chunk takes the path on which the peer was last heard during the wait. Like the path
    /// of an answer, the path of this chunk may be unconfirmed. The choice depends on the peer's packets, because this
    /// end sends no HEARTBEAT on confirmed paths during shutdown.
    fn closing_path(&self, nth: u8, waited: Duration, now: Time) -> PathIndex {
        let current = self.transfer.paths.current();
        if nth.is_multiple_of(2) || self.transfer.paths.get(current).state() == PathState::Active {
            return current;
        }
        let heard = self.transfer.paths.iter().filter(|(_, path)| now - path.heard() <= waited);
        heard.max_by_key(|(_, path)| path.heard()).map_or(current, |(index, _)| index)
    }

    fn on_path_timers(&mut self, ctx: &mut Context<'_>) {
        self.transfer.tx.stranded.expire(ctx.now);
        self.give_up_expired(ctx.now);
        self.expire_forward(ctx.now);
        if self.idle.is_quiet(self.transfer.out.carried(), ctx.now) {
            self.transfer.tx.shrink();
            self.inbound.shrink();
            self.transfer.out.shrink();
        }
        self.transfer.on_advertisement_timeout(ctx.now);
        if matches!(self.transfer.state, State::Closed) {
            return;
        }
        for index in self.transfer.paths.indices() {
            self.transfer.on_recovery_timers(index, ctx);
            self.transfer.on_size_timeout(index, ctx.now);
            if self.transfer.paths.get(index).rebinding.next_timeout() <= ctx.now {
                self.on_rebinding_timeout(index, ctx);
            }
            if self.transfer.paths.get(index).t3.is_some_and(|at| at <= ctx.now) {
                self.transfer.on_t3(index, ctx);
            }
            if matches!(self.transfer.state, State::Closed) {
                return;
            }
            self.transfer.judge_doubt(index, ctx);
            if self.transfer.paths.get_mut(index).ends_watch(ctx.now) {
                self.transfer.choose_path(PathReason::PrimaryReturned);
            }
            if self.transfer.paths.get_mut(index).expire_heartbeat(
                ctx.now,
                &self.transfer.config.timing,
                ctx.random,
            ) {
                self.transfer.on_heartbeat_lost(index);
            }
            if matches!(self.transfer.state, State::Closed) {
                return;
            }
        }
        if self.asconf_timeout() <= ctx.now {
            self.on_t4(ctx.now);
        }
        if self.reconfig_timeout() <= ctx.now && !matches!(self.transfer.state, State::Closed) {
            self.on_reconfig_timeout(ctx.now);
        }
        self.transfer.queue_heartbeats(ctx);
    }
}

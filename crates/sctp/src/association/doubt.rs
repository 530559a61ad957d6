//! A path that is silent while data is in flight on it is doubted long before its T3 expires, if another path is active
//! ([`Timing::doubts_silence`](crate::Timing::doubts_silence)).
//!
//! What is asked then: is it the path, or the peer? The earliest chunk in flight goes once more, by the other path, and a
//! HEARTBEAT by the doubted one. If the peer acknowledges the chunk and does not answer the HEARTBEAT, the path is potentially
//! failed at once (RFC 7829), and what it carried goes elsewhere. If nobody answers, nothing is known, and T3 judges as ever. An
//! answer on the doubted path ends the doubt. This takes the place of the tail-loss probe (RFC 8985 section 7), which goes by
//! the same path. Begin at [`Association::on_silence`].

use std::time::Duration;

use base::Time;
use wire::PacketWriter;

use super::{Association, Context};
use crate::info::PathState;
use crate::path::{Doubt, PathIndex};
use crate::trace::TraceEvent;
use crate::tx::Seq;

/// How much later than the acknowledgement by the other path the answer on the doubted one may come: below it, the scheduling
/// of both hosts looks like loss.
pub(super) const LEAST_PATIENCE: Duration = Duration::from_millis(5);

/// A chunk in flight that is to go once more, by another path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detour {
    from: PathIndex,
    to: PathIndex,
}

impl Association {
    /// The path that shows whether silence on `index` is its own fault: another active one.
    pub(super) fn witness(&self, index: PathIndex) -> Option<PathIndex> {
        let asks = self.config.timing.doubts_silence && !self.is_redundant();
        let witness = if asks { self.paths.witness(index) } else { None };
        witness.filter(|_| self.paths.get(index).state() == PathState::Active)
    }

    /// Nothing was heard on a path for about two round trips, and another may tell why.
    pub(super) fn on_silence(&mut self, index: PathIndex, witness: PathIndex, now: Time) {
        let Some(seq) = self.outstanding.earliest_in_flight(index) else { return };
        let path = self.paths.get_mut(index);
        path.sending.on_probe_timeout();
        let answer = path.srtt().unwrap_or_else(|| path.rto());
        path.doubt = Some(Doubt { seq, judge_at: now + answer * 5 / 4 + LEAST_PATIENCE, is_received: false });
        path.probe_now(now);
        let route = path.route;
        self.note(TraceEvent::TailProbe { route });
        self.detour = Some(Detour { from: index, to: witness });
    }

    /// The path that a chunk makes its detour by.
    pub(super) fn detour_path(&self) -> Option<PathIndex> {
        self.detour.map(|detour| detour.to)
    }

    /// The chunk that makes its detour by `path`.
    pub(super) fn detouring(&self, path: PathIndex) -> Option<Seq> {
        let detour = self.detour.filter(|detour| detour.to == path)?;
        self.outstanding.earliest_in_flight(detour.from)
    }

    pub(super) fn fill_detour(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let Some(Detour { from, .. }) = self.detour.filter(|detour| detour.to == path) else { return };
        self.detour = None;
        // A message that may not be sent again is not for probing, either.
        let earliest = self.outstanding.earliest_in_flight(from);
        let seq = earliest.filter(|seq| self.limited.exhausted(*seq, now).is_none());
        let Some((seq, fragment)) = seq.and_then(|seq| Some((seq, self.outstanding.unfinished(seq)?))) else {
            return;
        };
        let (length, tsn) = (fragment.payload.len(), seq.tsn(self.initial_tsn));
        // The answer shall not be delayed (RFC 7053 section 4.1).
        if self.push_fragment(packet, fragment, tsn, true).is_err() {
            return;
        }
        self.outstanding.mark_lost(seq);
        self.outstanding.on_retransmit(seq, path, now);
        self.limited.on_retransmitted(seq);
        self.count_retransmission(path, tsn, true);
        self.paths.get_mut(path).on_data_sent(length, now);
        if self.outstanding.flight(from) == 0 {
            self.paths.get_mut(from).stop_data_timers();
        }
    }

    /// A SACK came: what it says of doubted paths.
    pub(super) fn hear_witnesses(&mut self, now: Time) {
        for index in self.paths.indices() {
            let Some(doubt) = self.paths.get(index).doubt.filter(|doubt| !doubt.is_received) else {
                continue;
            };
            if !self.outstanding.is_done(doubt.seq) {
                continue;
            }
            let path = self.paths.get_mut(index);
            let later = path.srtt().unwrap_or_default() / 4;
            let judge_at = doubt.judge_at.max(now + later.max(LEAST_PATIENCE));
            path.doubt = Some(Doubt { judge_at, is_received: true, ..doubt });
        }
    }

    /// DATA came by `path`, and until now it came by the one that our own data takes. If nothing has come by that for a whole
    /// RTO, the peer has found out what we would find out only with data of ours: the answer goes where the question came from.
    //= rfc7829#3.2-2
    pub(super) fn follow_peer(&mut self, path: PathIndex, ctx: &mut Context<'_>) {
        let left = self.paths.current();
        let has_moved = path != left && self.data_path == left;
        if !has_moved || !self.config.timing.doubts_silence || self.is_concurrent() || self.is_redundant() {
            return;
        }
        let is_silent = !self.was_just_heard(left, ctx.now) && !self.was_late(ctx.now);
        if self.paths.get(left).state() != PathState::Active || !is_silent || !self.paths.follow(path) {
            return;
        }
        let from = self.paths.get(left).route;
        self.note(TraceEvent::PathDoubted { route: from });
        self.on_switch(from);
        self.paths.get_mut(left).probe_now(ctx.now);
        self.count_error_on(left);
        self.mark_lost_on(left);
    }

    /// The time for an answer on a doubted path is over: the peer lives, so it is the path.
    //= rfc7829#3.2-2
    pub(super) fn judge_doubt(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        if self.paths.get(index).doubted_until() > ctx.now {
            return;
        }
        let path = self.paths.get_mut(index);
        path.probe_now(ctx.now);
        let route = path.route;
        self.note(TraceEvent::PathDoubted { route });
        self.count_error_on(index);
        if self.paths.get(index).state() != PathState::Active && self.paths.current() != index {
            self.mark_lost_on(index);
        }
    }
}

//! Early detection of a failed path. A path becomes doubted if it is silent with data in flight while another path is
//! active, long before its T3 expires ([`Timing::doubts_silence`](crate::Timing::doubts_silence)).
//!
//! Either the path or the peer may have failed. To find out, this end repeats the earliest chunk in flight on the other
//! path, and sends a HEARTBEAT on the doubted path. The doubted path has failed if the peer acknowledges the chunk but
//! does not answer the HEARTBEAT. The failed path then becomes potentially failed immediately (RFC 7829), and its data
//! moves to another path. If the peer answers neither the chunk nor the HEARTBEAT, T3 decides as usual. An answer on
//! the doubted path ends the doubt. This check replaces the tail-loss probe (RFC 8985 section 7), because that probe
//! would use the silent path. Start at [`Transfer::on_silence`].

use std::time::Duration;

use base::Time;
use wire::PacketWriter;

use super::Transfer;
use super::probes::Detour;
use crate::association::Context;
use crate::event::PathReason;
use crate::info::PathState;
use crate::path::{Doubt, PathIndex};
use crate::trace::TraceEvent;
use crate::tx::Seq;

/// Minimum time by which an answer on the doubted path may lag behind the acknowledgement on the other path. With a
/// shorter time, delays of the process schedulers of both hosts would look like loss.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_millis(5);

impl Transfer {
    /// Returns the witness of `index`: another active path that can show whether this path or the peer has failed.
    pub(crate) fn witness(&self, index: PathIndex) -> Option<PathIndex> {
        let asks = self.config.timing.doubts_silence && !self.is_redundant();
        let witness = if asks { self.paths.witness(index) } else { None };
        witness.filter(|_| self.paths.get(index).state() == PathState::Active)
    }

    /// Begins to doubt the path `index`, which was silent for about two round trips. `witness` is the path on which the
    /// earliest chunk is repeated.
    pub(crate) fn on_silence(&mut self, index: PathIndex, witness: PathIndex, now: Time) {
        let Some(seq) = self.tx.outstanding.earliest_in_flight(index) else { return };
        let witness = self.doubt_least_mtu(index, seq, now).unwrap_or(witness);
        let path = self.paths.get_mut(index);
        path.sending.on_probe_timeout();
        let answer = path.srtt().unwrap_or_else(|| path.rto());
        path.doubt = Some(Doubt { seq, judge_at: now + answer * 5 / 4 + LEAST_PATIENCE, is_received: false });
        path.probe_now(now);
        let route = path.route;
        self.out.note(TraceEvent::TailProbe { route });
        self.tx.probes.set_detour(Some(Detour { from: index, to: witness }));
    }

    /// Doubts a silent path when another one has just become active. Until now, the silent path had no witness, or only
    /// witnesses that share its link.
    pub(crate) fn on_new_witness(&mut self, witness: PathIndex, now: Time) {
        let is_open = |index: &PathIndex| {
            let path = self.paths.get(*index);
            let is_unanswered = path.doubt.is_none_or(|doubt| !doubt.is_received);
            *index != witness && path.is_silent() && is_unanswered && self.witness(*index).is_some()
        };
        let silent =
            self.paths.indices().filter(is_open).max_by_key(|index| self.tx.outstanding.flight(*index));
        if let Some(silent) = silent {
            // The last HEARTBEAT may have been lost in an outage. A missing answer to this HEARTBEAT must not make the
            // path fail, so a new HEARTBEAT is sent.
            self.paths.get_mut(silent).probe_again(now);
            self.on_silence(silent, witness, now);
        }
    }

    /// Doubts that the path carries packets as long as the least MTU, if `seq` needs a packet of about this length and
    /// was retransmitted before. Without this doubt, answers to short heartbeats would prove the path, and the chunk
    /// would alternate between paths that drop the chunk. Returns the new witness if the MTU is doubted.
    fn doubt_least_mtu(&mut self, index: PathIndex, seq: Seq, now: Time) -> Option<PathIndex> {
        let length = self.tx.outstanding.unfinished(seq)?.payload.len();
        if self.tx.outstanding.was_sent_once(seq) || !self.is_about_least(index, length) {
            return None;
        }
        self.paths.get_mut(index).doubt_least_mtu(now);
        self.witness(index)
    }

    /// Returns the path on which a chunk must be repeated.
    pub(crate) fn detour_path(&self) -> Option<PathIndex> {
        self.tx.probes.detour().map(|detour| detour.to)
    }

    /// Returns the chunk that must be repeated on `path`.
    pub(crate) fn detouring(&self, path: PathIndex) -> Option<Seq> {
        let detour = self.tx.probes.detour_by(path)?;
        self.tx.outstanding.earliest_in_flight(detour.from)
    }

    pub(crate) fn fill_detour(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        let Some(Detour { from, .. }) = self.tx.probes.detour_by(path) else { return };
        // A message that must not be retransmitted cannot serve as a probe either.
        let earliest = self.tx.outstanding.earliest_in_flight(from);
        let seq = earliest.filter(|seq| self.tx.pr_messages.exhausted(*seq, now).is_none());
        let Some((seq, fragment)) = seq.and_then(|seq| Some((seq, self.tx.outstanding.unfinished(seq)?)))
        else {
            self.tx.probes.set_detour(None);
            return;
        };
        let (length, tsn) = (fragment.payload.len(), seq.tsn(self.negotiated.initial_tsn()));
        // The answer must not be delayed (RFC 7053 section 4.1).
        if self.push_fragment(packet, fragment, tsn, true).is_err() {
            // A packet may not be longer than the first packet of its train. If the chunk does not fit, it leaves in
            // the next train.
            return;
        }
        self.tx.probes.set_detour(None);
        self.tx.outstanding.mark_lost(seq);
        self.tx.outstanding.on_retransmit(seq, path, now);
        self.tx.pr_messages.on_retransmitted(seq);
        self.count_retransmission(path, tsn, true);
        self.paths.get_mut(path).on_data_sent(length, now);
        if self.tx.outstanding.flight(from) == 0 {
            self.paths.get_mut(from).stop_data_timers();
        }
    }

    /// Updates doubted paths after a SACK. If the SACK reports the repeated chunk, sets the time of the decision about
    /// the doubted path.
    pub(crate) fn hear_witnesses(&mut self, now: Time) {
        for index in self.paths.indices() {
            let Some(doubt) = self.paths.get(index).doubt.filter(|doubt| !doubt.is_received) else {
                continue;
            };
            if !self.tx.outstanding.is_done(doubt.seq) {
                continue;
            }
            let path = self.paths.get_mut(index);
            let later = path.srtt().unwrap_or_default() / 4;
            let judge_at = doubt.judge_at.max(now + later.max(LEAST_PATIENCE));
            path.doubt = Some(Doubt { judge_at, is_received: true, ..doubt });
        }
    }

    /// Follows the peer, whose DATA has moved from `data_path` to `path`, if our own data uses `data_path`. If no
    /// packet has arrived on `data_path` for an RTO, the peer has noticed a failure. This end alone would notice the
    /// failure only after it has sent data. This end therefore moves its data to the new path at once.
    //= rfc7829#3.2-2
    pub(crate) fn follow_peer(&mut self, path: PathIndex, data_path: PathIndex, ctx: &mut Context<'_>) {
        let left = self.paths.current();
        let has_moved = path != left && data_path == left;
        if !has_moved || !self.config.timing.doubts_silence || self.is_concurrent() || self.is_redundant() {
            return;
        }
        let is_silent = !self.was_just_heard(left, ctx.now) && !self.liveness.was_late(ctx.now);
        if self.paths.get(left).state() != PathState::Active || !is_silent || !self.paths.follow(path) {
            return;
        }
        let from = self.paths.get(left).route;
        self.out.note(TraceEvent::PathDoubted { route: from });
        self.on_switch(from, PathReason::Silence);
        self.paths.get_mut(left).probe_now(ctx.now);
        self.count_error_on(left, PathReason::Silence);
        self.mark_lost_on(left);
    }

    /// Decides about a doubted path when the time for its answer has ended. The peer has answered on another path, so
    /// the doubted path has failed.
    //= rfc7829#3.2-2
    pub(crate) fn judge_doubt(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        if self.paths.get(index).doubted_until() > ctx.now {
            return;
        }
        let path = self.paths.get_mut(index);
        path.probe_now(ctx.now);
        let route = path.route;
        self.out.note(TraceEvent::PathDoubted { route });
        self.count_error_on(index, PathReason::Silence);
        if self.paths.get(index).state() != PathState::Active && self.paths.current() != index {
            self.mark_lost_on(index);
        }
    }
}

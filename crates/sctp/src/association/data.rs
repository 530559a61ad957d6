//! DATA and SACK (RFC 9260 section 6).

use smallvec::SmallVec;
use wire::{Cause, GapBlock, Sack};

use super::{Association, Context, State};
use crate::event::Event;
use crate::extension::Extension;
use crate::path::{PathIndex, Seen};
use crate::rx::{DataOutcome, Piece};
use crate::trace::TraceEvent;
use crate::tx::{FAR_AHEAD, PathAcks, Seq};

impl Association {
    pub(super) fn on_data(&mut self, path: PathIndex, data: &Piece<'_>, ctx: &mut Context<'_>) {
        //= rfc9260#6-4
        if !self.state.receives_data() {
            return;
        }
        // RFC 9260 section 6.2: DATA without user data ends the association.
        if data.payload.is_empty() {
            //= rfc9260#6.2-31
            let cause = Cause::NoUserData { tsn: data.tsn };
            let reason = data.tsn.0.to_be_bytes().to_vec().into();
            let cause = crate::event::AbortCause { code: cause.code(), reason };
            return self.end_for_fault(cause, ctx);
        }
        let ecn = self.marks.take();
        let had_ready = self.inbound.has_ready();
        if data.stream.0 >= self.negotiated.inbound_streams() {
            return self.on_data_of_no_stream(path, data, ctx);
        }
        let is_first = !self.inbound.ack.is_pending();
        let outcome = self.inbound.on_data(data, ctx.now, &self.config.timing);
        // If a key is in force, a duplicate does not prove that the peer has left a path: anybody may have
        // copied the packet.
        if outcome == DataOutcome::Taken || !self.is_keyed() {
            self.follow_peer(path, self.sack_route.data_path(), ctx);
            let begins = is_first || !self.is_concurrent();
            self.sack_route.on_data(path, begins, &self.paths);
        }
        // A sender numbers its chunks upwards: the first one has the lowest TSN. Anybody who has seen a
        // packet may mark a copy of it, signed or not; retransmissions are never marked.
        if outcome != DataOutcome::Duplicate {
            self.on_marked(path, ecn, data.tsn);
        }
        match outcome {
            DataOutcome::Taken => {
                self.out.count_received(data.payload.len());
            }
            DataOutcome::Duplicate => {
                self.sack_route.on_duplicate(path);
                self.out.note(TraceEvent::Duplicate { tsn: data.tsn.0 });
            }
            DataOutcome::Dropped => self.out.note(TraceEvent::NoRoom { tsn: data.tsn.0 }),
        }
        self.note_readable(had_ready);
    }

    /// Acknowledges, reports, and drops DATA of an invalid stream (RFC 9260 section 6.5).
    //= rfc9260#6.5-2
    fn on_data_of_no_stream(&mut self, path: PathIndex, data: &Piece<'_>, ctx: &mut Context<'_>) {
        if self.inbound.on_discarded(data.tsn) == DataOutcome::Taken {
            self.report(path, &Cause::InvalidStreamIdentifier { stream: data.stream }, ctx);
        }
    }

    pub(super) fn on_sack(&mut self, sack: &Sack<'_>, ctx: &mut Context<'_>) {
        match self.state {
            //= rfc9260#6-7
            State::CookieWaitOver | State::CookieEchoed { .. } | State::Accepting | State::Closed => return,
            State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived
            | State::ShutdownAckSent { .. } => {}
        }
        //= rfc9260#6-5
        self.out.note(TraceEvent::SackReceived {
            cumulative: sack.cumulative_tsn.0,
            gaps: sack.gaps().count(),
            a_rwnd: sack.a_rwnd,
        });
        let Some(first) = self.tx.sequence_after(self.negotiated.initial_tsn(), sack.cumulative_tsn) else {
            return;
        };
        // A SACK from before a reset of the association is late, not invalid.
        let resets = self.negotiated.has(Extension::StreamReconfiguration);
        if resets && first.0.saturating_sub(self.tx.outstanding.next().0) > FAR_AHEAD {
            return;
        }
        let gaps = gap_ranges(first, sack);
        //= rfc3758#3.5-19
        if first < self.tx.outstanding.first() {
            return;
        }
        let duplicates: SmallVec<[Seq; 16]> = sack
            .duplicates()
            .filter_map(|tsn| self.tx.outstanding.first().nearest(self.negotiated.initial_tsn(), tsn))
            .collect();
        self.tx.outstanding.on_duplicates(duplicates.iter().copied());
        self.tx.stranded.on_duplicates(&duplicates, ctx.now);
        self.acknowledge(first, &gaps, sack.a_rwnd, ctx);
        if self.is_redundant() {
            self.settle_copies(&duplicates, ctx);
        }
    }

    /// Applies an acknowledgement.
    pub(super) fn acknowledge(
        &mut self,
        first: Seq,
        gaps: &[(Seq, Seq)],
        a_rwnd: u32,
        ctx: &mut Context<'_>,
    ) {
        let advanced = first > self.tx.outstanding.first();
        let is_stale = self.tx.outstanding.is_stale(first, gaps);
        let flights: SmallVec<[usize; 8]> =
            self.paths.indices().map(|i| self.tx.outstanding.flight(i)).collect();
        let Ok(acks) = self.tx.outstanding.on_sack(first, gaps, ctx.now) else {
            //= rfc9260#12.4-4
            return self.violation("SACK of data that was never sent", ctx);
        };
        for (index, acks) in acks.iter().enumerate() {
            self.on_path_acks(PathIndex(index), acks, flights[index], advanced, ctx);
        }
        if self.paths.iter().any(|(_, path)| path.doubt.is_some()) {
            self.hear_witnesses(ctx.now);
        }
        self.tx.stranded.on_acks(&acks, &self.tx.outstanding, ctx.now);
        let acknowledged: usize = acks.iter().map(|a| a.bytes).sum();
        self.out.count_acknowledged(acknowledged);
        // A SACK overtaken by another, perhaps on another path, carries an older window.
        if !is_stale {
            self.tx.window.on_sack(a_rwnd as usize, self.tx.outstanding.total_flight());
            self.on_window(acknowledged > 0, a_rwnd as usize);
        }
        // Answers to window probes prove that the peer is alive (RFC 9260 section 6.1 A).
        //= rfc9260#8.1-5
        if acknowledged > 0 || self.tx.window.is_probe_answered() {
            self.liveness.on_answer();
        } else if advanced {
            self.on_forward_answered(ctx.now);
        }
        self.tx.pr_messages.on_cumulative(self.tx.outstanding.first());
        //= rfc3758#3.5-5
        self.follow_forward(ctx.now);
        self.tune_send_buffer();
        self.wake_writer();
    }

    /// Notifies a waiting driver of room in the send buffer, and of its emptiness.
    pub(super) fn wake_writer(&mut self) {
        self.tell_if_dry();
        if self.tx.take_room() && self.state.takes_data_to_send() {
            self.out.emit(Event::Writable);
        }
    }

    /// Updates the window probe after a SACK. If the window has opened, the probe was dropped or is about to
    /// be acknowledged: it is retransmitted at once rather than after a backed-off T3.
    fn on_window(&mut self, acknowledged: bool, a_rwnd: usize) {
        let Some((seq, length, path)) = self.tx.outstanding.first_in_flight().filter(|_| !acknowledged)
        else {
            return self.tx.window.end_probe();
        };
        if self.tx.window.on_unmoved(a_rwnd, length, self.tx.outstanding.total_flight()) {
            self.tx.outstanding.mark_lost(seq);
            self.tx.window.on_lost(length);
            if self.tx.outstanding.flight(path) == 0 {
                self.paths.get_mut(path).stop_data_timers();
            }
        }
    }

    //= rfc9260#7.2.1-9 8.2-3
    fn on_path_acks(
        &mut self,
        index: PathIndex,
        acks: &PathAcks,
        flight_before: usize,
        cumulative_advanced: bool,
        ctx: &mut Context<'_>,
    ) {
        let next = self.tx.outstanding.next();
        let path = self.paths.get_mut(index);
        if let Some((seq, rtt)) = acks.newest {
            path.on_round_trip(seq, rtt, next, &self.config.timing);
        }
        // A path's own earliest chunk replaces the cumulative TSN, which other paths may hold back ("pseudo
        // cumack").
        let earliest = acks.earliest || (self.is_concurrent() && acks.front_moved);
        let cumulative_advanced = cumulative_advanced || earliest;
        let seen = Seen { cumulative_advanced, ..self.seen(index, flight_before, ctx.now) };
        if acks.bytes > 0 && self.is_concurrent() {
            self.couple(index);
        }
        let outcome = self.paths.get_mut(index).sending.on_acks(acks, &seen);
        self.count_recovery(index, outcome);
        if acks.bytes + acks.lost.bytes > 0 {
            self.tell_window(index, acks);
        }
        self.learn_mtu(index, acks.longest, ctx.now);
        self.doubt_mtu_after(index, &acks.lost, ctx);
        // RFC 9260 section 6.3.2, R2 and R3.
        if seen.flight == 0 {
            self.paths.get_mut(index).stop_data_timers();
        } else if earliest || self.paths.get(index).t3.is_none() {
            self.restart_t3(index, ctx.now);
        }
        if acks.bytes > 0 {
            self.paths.get_mut(index).ecn.on_acknowledged();
            self.arm_probe(index, false, ctx.now);
        }
        let path = self.paths.get_mut(index);
        // A doubted path must be heard itself: its witness also reports chunks that passed before it fell
        // silent.
        let has_proof = acks.proves_path && path.pmtu.size_that_proves().is_none();
        if has_proof && (path.doubt.is_none() || path.heard() == ctx.now) {
            let transition = path.on_success(ctx.now, &self.config.timing);
            self.hearsay.on_path_lives(index);
            self.report_transition(index, transition);
            self.on_heard(index);
        }
        self.count_losses(index, acks, ctx.now);
        self.count_delays(index, acks, ctx.now);
    }
}

/// Gap blocks as disjoint, ordered ranges of sequences, ends included. Blocks that are reversed, or contain
/// the chunk that the SACK reports missing, are left out.
fn gap_ranges(first: Seq, sack: &Sack<'_>) -> SmallVec<[(Seq, Seq); 8]> {
    let mut ranges = SmallVec::<[(Seq, Seq); 8]>::new();
    let (mut least, mut in_order) = (2, true);
    for GapBlock { start, end } in sack.gaps().filter(|gap| (2..=gap.end).contains(&gap.start)) {
        // Offsets count from the cumulative TSN, which is just before `first`.
        ranges.push((Seq(first.0 + u64::from(start) - 1), Seq(first.0 + u64::from(end) - 1)));
        in_order &= start >= least;
        least = end.saturating_add(1);
    }
    if !in_order {
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let overlaps = next.0 <= kept.1;
            kept.1 = if overlaps { kept.1.max(next.1) } else { kept.1 };
            overlaps
        });
    }
    ranges
}

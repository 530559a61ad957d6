//! Handling of received DATA and SACK chunks (RFC 9260 section 6).

use smallvec::SmallVec;
use wire::{Cause, ChunkType, GapBlock, Sack};

use super::{Association, Context, State};
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::rx::{DataOutcome, Piece};
use crate::trace::TraceEvent;
use crate::tx::{FAR_AHEAD, Seq};

impl Association {
    pub(super) fn on_data(&mut self, path: PathIndex, data: &Piece<'_>, ctx: &mut Context<'_>) {
        //= rfc9260#6-4
        if !self.transfer.state.receives_data() {
            return;
        }
        if self.is_protected() && !self.may_come_so(data) {
            return self.transfer.out.note(TraceEvent::Unauthenticated { chunk_type: ChunkType::DATA.0 });
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
        if data.stream.0 >= self.transfer.negotiated.inbound_streams() {
            return self.on_data_of_no_stream(path, data, ctx);
        }
        let is_first = !self.inbound.ack.is_pending();
        let outcome = self.inbound.on_data(data, ctx.now, &self.transfer.config.timing);
        // If a key is in force, a duplicate does not prove that the peer has moved to another path. A third party may
        // have copied the packet, unless it was sealed.
        let is_peers = || !self.transfer.is_keyed() || self.transfer.integrity.is_sealed();
        if outcome == DataOutcome::Taken || is_peers() {
            self.transfer.follow_peer(path, self.sack_route.data_path(), ctx);
            let begins = is_first || !self.transfer.is_concurrent();
            self.sack_route.on_data(path, begins, &self.transfer.paths);
        }
        // A sender numbers its chunks in ascending order, so the first DATA chunk has the packet's lowest TSN. The mark
        // of a duplicate does not count: a third party can mark a copy of any packet, and retransmissions are never
        // marked.
        if outcome != DataOutcome::Duplicate {
            self.on_marked(path, ecn, data.tsn);
        }
        match outcome {
            DataOutcome::Taken => {
                self.transfer.out.count_received(data.payload.len());
            }
            DataOutcome::Duplicate => {
                self.sack_route.on_duplicate(path);
                self.transfer.out.note(TraceEvent::Duplicate { tsn: data.tsn.0 });
            }
            DataOutcome::Dropped => self.transfer.out.note(TraceEvent::NoRoom { tsn: data.tsn.0 }),
        }
        self.note_readable(had_ready);
    }

    /// Drops DATA of an invalid stream, but acknowledges its TSN and reports the error (RFC 9260 section 6.5).
    //= rfc9260#6.5-2
    fn on_data_of_no_stream(&mut self, path: PathIndex, data: &Piece<'_>, ctx: &mut Context<'_>) {
        if self.inbound.on_discarded(data.tsn) == DataOutcome::Taken {
            self.report(path, &Cause::InvalidStreamIdentifier { stream: data.stream }, ctx);
        }
    }

    pub(super) fn on_sack(&mut self, sack: &Sack<'_>, ctx: &mut Context<'_>) {
        match self.transfer.state {
            //= rfc9260#6-7
            State::CookieWaitOver | State::CookieEchoed { .. } | State::Accepting | State::Closed => return,
            State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived { .. }
            | State::ShutdownAckSent { .. } => {}
        }
        //= rfc9260#6-5
        self.transfer.out.note(TraceEvent::SackReceived {
            cumulative: sack.cumulative_tsn.0,
            gaps: sack.gaps().count(),
            a_rwnd: sack.a_rwnd,
        });
        let Some(first) = self.transfer.sequence_after(sack.cumulative_tsn) else {
            return;
        };
        // A SACK from before a reset of the association may arrive after the reset. Such a SACK is ignored: it is late,
        // but no protocol violation.
        let resets = self.transfer.negotiated.has(Extension::StreamReconfiguration);
        if resets && first.0.saturating_sub(self.transfer.tx.outstanding.next().0) > FAR_AHEAD {
            return;
        }
        let gaps = gap_ranges(first, sack);
        //= rfc3758#3.5-19
        if first < self.transfer.tx.outstanding.first() {
            return;
        }
        let duplicates: SmallVec<[Seq; 16]> = sack
            .duplicates()
            .filter_map(|tsn| {
                self.transfer.tx.outstanding.first().nearest(self.transfer.negotiated.initial_tsn(), tsn)
            })
            .collect();
        self.transfer.tx.outstanding.on_duplicates(duplicates.iter().copied());
        self.transfer.tx.stranded.on_duplicates(&duplicates, ctx.now);
        self.acknowledge(first, &gaps, sack.a_rwnd, ctx);
        if self.transfer.is_redundant() {
            self.transfer.settle_copies(&duplicates, ctx);
        }
    }

    /// Applies a SACK that acknowledges all sequences before `first`, and the ranges in `gaps`.
    pub(super) fn acknowledge(
        &mut self,
        first: Seq,
        gaps: &[(Seq, Seq)],
        a_rwnd: u32,
        ctx: &mut Context<'_>,
    ) {
        let advanced = first > self.transfer.tx.outstanding.first();
        let is_stale = self.transfer.tx.outstanding.is_stale(first, gaps);
        let flights: SmallVec<[usize; 8]> =
            self.transfer.paths.indices().map(|i| self.transfer.tx.outstanding.flight(i)).collect();
        let Ok(acks) = self.transfer.tx.outstanding.on_sack(first, gaps, ctx.now) else {
            //= rfc9260#12.4-4
            return self.violation("SACK of data that was never sent", ctx);
        };
        for (index, acks) in acks.iter().enumerate() {
            self.transfer.on_path_acks(PathIndex::new(index), acks, flights[index], advanced, ctx);
        }
        if self.transfer.paths.iter().any(|(_, path)| path.doubt.is_some()) {
            self.transfer.hear_witnesses(ctx.now);
        }
        self.transfer.tx.stranded.on_acks(&acks, &self.transfer.tx.outstanding, ctx.now);
        let acknowledged: usize = acks.iter().map(|a| a.bytes).sum();
        self.transfer.out.count_acknowledged(acknowledged);
        // If a newer SACK has overtaken this SACK, perhaps on another path, the window in this SACK is outdated.
        if !is_stale {
            self.transfer.tx.window.on_sack(a_rwnd as usize, self.transfer.tx.outstanding.total_flight());
            self.transfer.on_window(acknowledged > 0, a_rwnd as usize);
        }
        // An answer to a window probe proves that the peer is alive, even if it acknowledges nothing (RFC 9260 section
        // 6.1 A).
        //= rfc9260#8.1-5
        if acknowledged > 0 || self.transfer.tx.window.is_probe_answered() {
            self.transfer.liveness.on_answer();
        } else if advanced {
            self.on_forward_answered(ctx.now);
        }
        self.transfer.tx.pr_messages.on_cumulative(self.transfer.tx.outstanding.first());
        //= rfc3758#3.5-5
        self.follow_forward(ctx.now);
        self.transfer.tune_send_buffer();
        self.transfer.wake_writer();
    }
}

/// Returns the gap blocks as disjoint, ordered ranges of sequences. A range includes its first and its last sequence.
/// Leaves out blocks whose end is before their start. Leaves out blocks that contain the chunk after the cumulative
/// TSN, because the SACK reports this chunk as missing.
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

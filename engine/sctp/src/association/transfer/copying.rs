//! Redundant scheduling: every chunk is sent on all active paths, and the first copy to arrive counts.
//!
//! Each chunk belongs to one path. The other paths carry copies ([`Copies`](crate::tx::Copies)), which count only for
//! congestion control. The acknowledgement of a copied chunk confirms no path (RFC 7829 section 3.2), so heartbeats
//! determine whether a path works. Start at [`Transfer::copy_to_others`].

use base::Time;
use wire::PacketWriter;

use super::Transfer;
use crate::association::Context;
use crate::info::PathState;
use crate::multipath::{Multipath, PathScheduler};
use crate::path::{PathIndex, Seen};
use crate::trace::TraceEvent;
use crate::tx::{Losses, PathAcks, Seq};

impl Transfer {
    /// Returns whether every chunk is sent on all paths.
    pub(crate) fn is_redundant(&self) -> bool {
        self.config.multipath == Multipath::Concurrent { scheduler: PathScheduler::Redundant }
    }

    /// Queues copies of a chunk that was just sent on `path`, for the other active paths.
    pub(crate) fn copy_to_others(&mut self, seq: Seq, path: PathIndex) {
        if !self.is_redundant() {
            return;
        }
        for other in self.paths.indices() {
            let is_active = self.paths.get(other).state() == PathState::Active;
            if other != path && is_active && self.paths.joins_current(other) {
                self.tx.copies.wish(seq, other);
                self.tx.outstanding.on_copied(seq);
            }
        }
    }

    /// Drops needless copies, and copies that cannot be sent, at the front of the paths' queues. Their chunk is
    /// acknowledged or too long for the path's MTU, or their path is not active.
    pub(crate) fn drop_needless_copies(&mut self) {
        for path in self.tx.copies.wanted() {
            let is_active = self.paths.get(path).state() == PathState::Active;
            let headers = wire::COMMON_HEADER_LEN + self.auth_overhead();
            let room = self.paths.get(path).packet_size().saturating_sub(headers);
            let chunk = self.negotiated.data_header_len();
            while let Some(seq) = self.tx.copies.next(path) {
                let fragment = self.tx.outstanding.unfinished(seq).filter(|_| is_active);
                if fragment.is_some_and(|f| wire::padded(chunk + f.payload.len()) <= room) {
                    break;
                }
                self.tx.copies.skip(path);
            }
        }
    }

    /// Returns the path of the next copy that may leave now. The caller has dropped needless copies.
    pub(crate) fn copy_path(&self) -> Option<PathIndex> {
        if !self.is_redundant() {
            return None;
        }
        self.tx.copies.wanted().into_iter().find(|&path| self.window_allows_copy(path))
    }

    /// Returns whether the congestion window and pacing let a copy leave.
    fn window_allows_copy(&self, path: PathIndex) -> bool {
        self.paths.get(path).sending.allows(self.tx.flight_with_copies(path))
    }

    /// Writes copies as long as the packet and the congestion window have room.
    pub(crate) fn fill_copies(&mut self, path: PathIndex, packet: &mut PacketWriter<'_>, now: Time) {
        while let Some(seq) = self.tx.copies.next(path) {
            let Some(fragment) = self.tx.outstanding.unfinished(seq) else { return };
            let length = fragment.payload.len();
            let (has_room, tsn) = (self.window_allows_copy(path), seq.tsn(self.negotiated.initial_tsn()));
            if !has_room || self.push_fragment(packet, fragment, tsn, false).is_err() {
                return;
            }
            self.tx.copies.on_sent(path, length, now);
            self.tx.pr_messages.on_retransmitted(seq);
            let route = self.paths.get(path).route;
            self.out.note(TraceEvent::Copied { route, tsn: tsn.0 });
            self.paths.get_mut(path).sending.on_sent(length);
            self.drop_needless_copies();
        }
    }

    /// Applies a SACK to copies: increases or reduces the congestion windows of their paths.
    pub(crate) fn settle_copies(&mut self, duplicates: &[Seq], ctx: &mut Context<'_>) {
        for path in self.paths.indices() {
            let flight_before = self.tx.flight_with_copies(path);
            let srtt = self.paths.get(path).srtt();
            let outstanding = &self.tx.outstanding;
            let settled =
                self.tx.copies.settle(path, srtt, duplicates, |seq| outstanding.is_done(seq), ctx.now);
            if settled.bytes == 0 && settled.lost == 0 {
                continue;
            }
            let flight = self.tx.flight_with_copies(path);
            let seen = Seen { flight, cumulative_advanced: true, ..self.seen(path, flight_before, ctx.now) };
            let sending = &mut self.paths.get_mut(path).sending;
            let lost = Losses {
                chunks: settled.lost,
                bytes: settled.lost_bytes,
                newest: settled.newest_lost,
                next_at: sending.reorder_at,
                ..Losses::default()
            };
            let acks = PathAcks {
                bytes: settled.bytes,
                newest_sent_at: settled.newest,
                lost,
                ..PathAcks::default()
            };
            let outcome = sending.on_acks(&acks, &seen);
            self.count_recovery(path, outcome);
            // If copies were lost, the path may have failed, and only a heartbeat can reveal the failure.
            if settled.lost > 0 {
                self.paths.get_mut(path).probe_now(ctx.now);
            }
        }
        if self.tx.copies.take_silence() {
            self.probe_active(ctx.now);
        }
    }

    /// Probes all active paths, because one of them may have failed. Each path gets one heartbeat per RTO (RFC 9260
    /// section 8.3).
    fn probe_active(&mut self, now: Time) {
        for path in self.paths.indices() {
            if self.paths.get(path).state() == PathState::Active {
                self.paths.get_mut(path).probe_now(now);
            }
        }
    }

    /// Records the paths whose copies wait for the congestion window or the pacer.
    pub(crate) fn note_waiting_copies(&mut self, now: Time) {
        for path in self.tx.copies.wanted() {
            let flight = self.tx.flight_with_copies(path);
            self.paths.get_mut(path).sending.on_waiting(flight, now);
        }
    }
}

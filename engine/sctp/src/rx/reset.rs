//! Resets of incoming streams and TSNs, at the peer's request or at our own request (RFC 6525 sections 5.2.2, 5.2.4 and 5.2.7).
//!
//! While a reset is in progress, chunks that may belong to the new numbering are acknowledged and held back. They count against the limit
//! of the receive buffer. Invariant: `Inbound::held` counts the chunks that are held back. Start at [`Inbound::reset_streams`].

use bytes::BytesMut;
use wire::{StreamId, Tsn};

use super::{Inbound, MESSAGE_OVERHEAD, Piece, Skip};
use crate::memory::heap;
use crate::tx::Seq;

/// Limit on FORWARD TSNs that wait for a reset. At the limit, a further FORWARD TSN is ignored until the peer retransmits it.
const MAX_SKIPS: usize = 32;

/// Limit on the number of streams named in waiting FORWARD TSNs. At the limit, a further FORWARD TSN is ignored.
const MAX_SKIPPED: usize = 1024;

/// Chunks and FORWARD TSNs that wait for the end of a reset.
#[derive(Debug)]
pub(super) struct HeldBack {
    /// The streams to reset; empty for all streams.
    streams: Vec<StreamId>,
    /// First sequence whose chunks wait.
    from: Seq,
    /// True if the reset happens as soon as all data before `from` has arrived. False if the caller decides when the hold ends.
    by_itself: bool,
    pieces: Vec<(Seq, Piece<'static>, BytesMut)>,
    /// Skips from FORWARD TSNs. Each list is stored with the sequence after the New Cumulative TSN of its chunk. The skips wait until it is
    /// known whether their message numbers come from before or after the reset.
    skips: Vec<(Seq, Vec<Skip>)>,
    /// Number of streams named in `skips`.
    skipped: usize,
}

impl HeldBack {
    fn takes(&self, seq: Seq, stream: StreamId) -> bool {
        seq >= self.from && (self.streams.is_empty() || self.streams.contains(&stream))
    }

    /// Returns the user bytes held back, plus `overhead` bytes per piece.
    pub(super) fn held(&self, overhead: usize) -> usize {
        self.pieces.iter().map(|(_, _, payload)| payload.len() + overhead).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the bytes of memory in use, without the payloads.
    pub(super) fn memory(&self) -> usize {
        heap(size_of::<HeldBack>())
            + heap(self.streams.capacity() * size_of::<StreamId>())
            + (self.pieces.len() + self.growth()) * size_of::<(Seq, Piece<'static>, BytesMut)>()
            + 2 * self.skips.len() * heap(size_of::<(Seq, Vec<Skip>)>())
            + self.skipped * size_of::<Skip>()
    }

    /// Returns the number of places by which the full list of pieces grows. The list grows by one eighth plus 16 places instead of
    /// doubling, because its free places count as used memory.
    fn growth(&self) -> usize {
        self.pieces.len() / 8 + 16
    }

    /// Recounts the skipped streams.
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.skipped, self.skips.iter().map(|s| s.1.len()).sum::<usize>(), "streams skipped");
    }
}

impl Inbound {
    /// Handles the peer's reset of these streams; `last` is the last TSN of the old numbering. Returns whether the reset is done. If the
    /// reset is deferred, [`take_reset_done`](Self::take_reset_done) reports its end later.
    //= rfc6525#section-5.2.2
    //# E2: If the Sender's Last Assigned TSN is greater than the cumulative acknowledgment point, then the endpoint MUST enter
    //# "deferred reset processing".
    //= rfc6525#5.2.2-3 5.2.2-6 5.2.2-7
    pub(crate) fn reset_streams(&mut self, last: Tsn, streams: &[StreamId]) -> bool {
        let first_missing = self.tracker.first_missing();
        let from = first_missing.nearest(self.initial, last.next()).unwrap_or_default();
        if from <= first_missing {
            self.restart_streams(from, streams);
            return true;
        }
        let streams = streams.to_vec();
        self.held_back = Some(Box::new(HeldBack {
            streams,
            from,
            by_itself: true,
            pieces: Vec::new(),
            skips: Vec::new(),
            skipped: 0,
        }));
        false
    }

    /// Reports, once, that a deferred reset is done.
    pub(crate) fn take_reset_done(&mut self) -> bool {
        std::mem::take(&mut self.reset_done)
    }

    /// Reports whether a reset is in progress.
    pub(crate) fn is_resetting(&self) -> bool {
        self.held_back.is_some()
    }

    /// Holds back all data that arrives from now on. We have asked the peer to reset all streams, and do not know yet whether the peer has
    /// done so or refuses.
    pub(crate) fn hold_back_all(&mut self) {
        let from = self.tracker.first_missing();
        let streams = Vec::new();
        self.held_back = Some(Box::new(HeldBack {
            streams,
            from,
            by_itself: false,
            pieces: Vec::new(),
            skips: Vec::new(),
            skipped: 0,
        }));
    }

    /// Passes all held-back chunks and skips to the reassembly, and ends the hold. The streams keep their numbering.
    pub(crate) fn release_all(&mut self) {
        self.place_held_back(|_| true);
        self.held_back = None;
        self.deliver_partially();
    }

    /// Handles the peer's reset of all streams and TSNs; its next chunk has the TSN `next`.
    //= rfc6525#section-5.2.7
    //# H5: [...] All incoming streams MUST be reset to 0 as the next expected SSN. The peer will send DATA chunks starting with
    //# the Sender's Next TSN.
    //= rfc6525#5.2.7-6
    pub(crate) fn on_peer_began_anew(&mut self, next: Tsn) {
        let least = self.held_back.as_ref().map_or(self.tracker.first_missing(), |h| h.from);
        let Some(next) = least.nearest(self.initial, next).filter(|next| *next >= least) else {
            self.release_all();
            return self.begin_anew(next);
        };
        self.place_held_back(|seq| seq < next);
        self.tracker.forward(next);
        self.restart_streams(next, &[]);
        self.release_all();
        self.ack.on_irregular();
    }

    /// Restarts all streams and TSNs at the TSN `next`, which is too far from the earlier TSNs to belong to their numbering.
    //= rfc6525#section-5.2.4
    //# G4: The same processing as though a FWD-TSN chunk (as defined in [RFC3758]) with all streams affected and a new
    //# cumulative TSN ACK of the Receiver's Next TSN minus 1 were received MUST be performed.
    //= rfc6525#5.2.4-4
    pub(crate) fn begin_anew(&mut self, next: Tsn) {
        self.restart_streams(Seq(u64::MAX), &[]);
        self.tracker.restart();
        self.initial = next;
        self.ack.on_irregular();
    }

    /// Holds a chunk back if it must wait. Otherwise returns its payload.
    //= rfc6525#5.2.2-4
    pub(super) fn hold_back(&mut self, seq: Seq, chunk: &Piece<'_>, payload: BytesMut) -> Option<BytesMut> {
        let Some(held_back) = self.held_back.as_deref_mut().filter(|h| h.takes(seq, chunk.stream)) else {
            return Some(payload);
        };
        if held_back.pieces.len() == held_back.pieces.capacity() {
            held_back.pieces.reserve_exact(held_back.growth());
        }
        held_back.pieces.push((seq, chunk.header(), payload));
        None
    }

    /// Reports whether the limits allow another FORWARD TSN to wait.
    pub(super) fn has_room_for_skips(&self) -> bool {
        self.held_back.as_ref().is_none_or(|h| h.skips.len() < MAX_SKIPS && h.skipped < MAX_SKIPPED)
    }

    /// Holds back the skips of a FORWARD TSN if the caller decides when the hold ends. Returns whether the skips wait.
    pub(super) fn hold_back_skips(&mut self, skipped: Seq, skips: &[Skip]) -> bool {
        let Some(held_back) = self.held_back.as_deref_mut().filter(|h| !h.by_itself) else { return false };
        held_back.skips.push((skipped, skips.to_vec()));
        held_back.skipped += skips.len();
        true
    }

    /// Performs a deferred reset if all TSNs before the reset have arrived, and releases the chunks held back.
    //= rfc6525#section-5.2.2
    //# E4: Any queued TSNs (queued at step E2) MUST now be released and processed normally.
    //= rfc6525#5.2.2-8
    pub(super) fn finish_reset(&mut self) {
        let first_missing = self.tracker.first_missing();
        if self.held_back.as_ref().is_none_or(|h| !h.by_itself || first_missing < h.from) {
            return;
        }
        let Some(held_back) = self.held_back.take() else { return };
        self.restart_streams(held_back.from, &held_back.streams);
        self.reset_done = true;
        for (seq, piece, payload) in held_back.pieces {
            self.place(seq, &piece, payload);
        }
    }

    /// Passes the held-back chunks that `picks` selects to the reassembly, then applies the skips whose last sequence `picks` also selects.
    fn place_held_back(&mut self, picks: impl Fn(Seq) -> bool) {
        let Some(mut held_back) = self.held_back.take() else { return };
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut held_back.pieces).into_iter().partition(|p| picks(p.0));
        held_back.pieces = later;
        for (seq, piece, payload) in now {
            self.place(seq, &piece, payload);
        }
        // The sequence stored with a skip is the first one after the skipped data.
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut held_back.skips)
            .into_iter()
            .partition(|s| picks(Seq(s.0.0.saturating_sub(1))));
        held_back.skips = later;
        held_back.skipped -= now.iter().map(|s| s.1.len()).sum::<usize>();
        for (skipped, skips) in now {
            self.skip(skipped, &skips);
        }
        self.held_back = Some(held_back);
    }

    fn restart_streams(&mut self, before: Seq, streams: &[StreamId]) {
        for bytes in self.reassembly.restart(before, streams, &mut self.ready) {
            self.held -= bytes.len() + MESSAGE_OVERHEAD;
            self.payload -= bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DataOutcome;
    use super::*;
    use crate::config::{AssociationConfig, Limits, Timing};
    use base::Time;
    use bytes::Bytes;
    use wire::{Fsn, Ppid};

    struct Rig(Inbound);

    fn rig(interleaved: bool) -> Rig {
        let config = AssociationConfig { receive_buffer: 10_000, ..AssociationConfig::default() };
        Rig(Inbound::new(Tsn(u32::MAX), &config, interleaved, &Limits::default()))
    }

    impl Rig {
        /// Feeds a chunk whose TSN is the initial TSN plus `n`. `flags` may hold `B` (begin) and `E` (end).
        fn feed(&mut self, n: u32, stream: u16, number: u32, flags: &str, payload: &'static [u8]) {
            let piece = Piece {
                immediate: false,
                unordered: false,
                begin: flags.contains('B'),
                end: flags.contains('E'),
                tsn: tsn(n),
                stream: StreamId(stream),
                number,
                fsn: Fsn(u32::from(!flags.contains('B'))),
                ppid: Ppid(0),
                payload,
            };
            assert_eq!(self.0.on_data(&piece, Time::ZERO, &Timing::default()), DataOutcome::Taken);
            self.0.check_invariants();
        }

        /// Skips a message, and all TSNs before the initial TSN plus `before`.
        fn skip(&mut self, before: u32, stream: u16, number: u32) {
            let skip = Skip { stream: StreamId(stream), unordered: false, number };
            let cumulative = tsn(before).prev();
            assert!(self.0.on_forward(cumulative, std::iter::once(skip), Time::ZERO, &Timing::default()));
            self.0.check_invariants();
        }

        fn read(&mut self) -> Vec<Bytes> {
            self.0.check_invariants();
            std::iter::from_fn(|| self.0.read(Time::ZERO, None)).map(|m| m.into_bytes()).collect()
        }
    }

    fn tsn(n: u32) -> Tsn {
        Tsn(u32::MAX).plus(n)
    }

    #[test]
    fn a_stream_reset_in_time_begins_with_number_zero_and_others_go_on() {
        for interleaved in [false, true] {
            let mut t = rig(interleaved);
            t.feed(0, 1, 0, "BE", b"a");
            t.feed(1, 2, 0, "BE", b"b");
            assert!(t.0.reset_streams(tsn(1), &[StreamId(1)]));
            t.feed(2, 1, 0, "BE", b"c");
            t.feed(3, 2, 0, "BE", b"not in turn");
            t.feed(4, 2, 1, "BE", b"d");
            let expected: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
            assert_eq!(t.read()[..], expected, "interleaved: {interleaved}");
        }
    }

    #[test]
    fn a_reset_waits_for_what_was_sent_before_and_new_numbers_wait_for_the_reset() {
        for interleaved in [false, true] {
            let mut t = rig(interleaved);
            t.feed(0, 1, 0, "BE", b"a");
            assert!(!t.0.reset_streams(tsn(2), &[StreamId(1)]));
            t.feed(3, 1, 0, "B", b"ne");
            t.feed(4, 1, 0, "E", b"w");
            t.feed(5, 2, 0, "BE", b"other");
            t.feed(2, 1, 2, "BE", b"c");
            assert!(!t.0.take_reset_done() && t.0.is_resetting());
            t.feed(1, 1, 1, "BE", b"b");
            assert!(t.0.take_reset_done() && !t.0.take_reset_done() && !t.0.is_resetting());
            let expected: [&[u8]; 5] = [b"a", b"other", b"b", b"c", b"new"];
            assert_eq!(t.read()[..], expected, "interleaved: {interleaved}");
            assert_eq!(t.0.held(), 0);
        }
    }

    #[test]
    fn a_stream_reset_delivers_complete_messages_and_drops_the_rest() {
        for interleaved in [false, true] {
            let mut t = rig(interleaved);
            t.feed(0, 1, 5, "BE", b"early");
            t.feed(1, 1, 6, "B", b"never whole");
            t.feed(2, 3, 0, "B", b"kept ");
            assert!(t.0.reset_streams(tsn(2), &[StreamId(1)]));
            t.feed(3, 3, 0, "E", b"whole");
            let expected: [&[u8]; 2] = [b"early", b"kept whole"];
            assert_eq!(t.read()[..], expected, "interleaved: {interleaved}");
            assert_eq!(t.0.held(), 0);
        }
    }

    #[test]
    fn data_that_overtook_the_answer_to_a_reset_of_the_association_is_of_the_new_numbering() {
        for interleaved in [false, true] {
            let mut t = rig(interleaved);
            t.feed(0, 1, 0, "BE", b"a");
            t.0.hold_back_all();
            t.feed(1, 1, 1, "BE", b"old");
            t.feed(3, 1, 0, "BE", b"new");
            assert_eq!(t.read(), [&b"a"[..]]);
            t.0.on_peer_began_anew(tsn(3));
            assert_eq!(t.read(), [&b"old"[..], b"new"], "interleaved: {interleaved}");
            assert_eq!(t.0.cumulative_tsn(), tsn(3));
            t.feed(4, 1, 1, "BE", b"next");
            assert_eq!(t.read(), [&b"next"[..]]);
        }
    }

    #[test]
    fn a_refused_reset_of_the_association_changes_nothing() {
        let mut t = rig(false);
        t.feed(0, 1, 0, "BE", b"a");
        t.0.hold_back_all();
        t.feed(1, 1, 1, "BE", b"b");
        t.0.release_all();
        t.feed(2, 1, 2, "BE", b"c");
        assert_eq!(t.read(), [&b"a"[..], b"b", b"c"]);
    }

    #[test]
    fn skips_during_a_hold_apply_to_the_numbering_they_belong_to() {
        for interleaved in [false, true] {
            let mut t = rig(interleaved);
            t.0.hold_back_all();
            t.feed(0, 1, 0, "BE", b"given up, but here");
            t.skip(2, 1, 1);
            t.feed(2, 1, 2, "BE", b"old");
            t.skip(4, 1, 0);
            t.feed(4, 1, 1, "BE", b"new");
            t.0.on_peer_began_anew(tsn(3));
            let expected: [&[u8]; 3] = [b"given up, but here", b"old", b"new"];
            assert_eq!(t.read()[..], expected, "interleaved: {interleaved}");
            assert_eq!((t.0.cumulative_tsn(), t.0.held()), (tsn(4), 0));
        }
    }

    #[test]
    fn after_a_refused_association_reset_a_delayed_skip_takes_effect_in_order() {
        for interleaved in [false, true] {
            let mut t = rig(interleaved);
            t.0.hold_back_all();
            t.feed(0, 1, 0, "BE", b"a");
            t.skip(2, 1, 1);
            t.0.release_all();
            t.feed(2, 1, 2, "BE", b"b");
            assert_eq!(t.read(), [&b"a"[..], b"b"], "interleaved: {interleaved}");
        }
    }

    #[test]
    fn a_skip_beyond_the_limit_is_ignored_for_now() {
        let mut t = rig(false);
        t.0.hold_back_all();
        (1..=32).for_each(|n| t.skip(n, 1, n - 1));
        let more = t.0.on_forward(tsn(32), std::iter::empty(), Time::ZERO, &Timing::default());
        assert!(!more && t.0.cumulative_tsn() == tsn(31));
        t.0.release_all();
        t.skip(33, 1, 32);
        t.feed(33, 1, 33, "BE", b"a");
        assert_eq!(t.read(), [&b"a"[..]]);
    }

    #[test]
    fn after_an_association_reset_the_peer_may_begin_at_any_tsn() {
        for next in [tsn(0), tsn(1 << 31), tsn(u32::MAX - 5)] {
            let mut t = rig(false);
            t.feed(0, 1, 0, "BE", b"a");
            t.0.hold_back_all();
            t.0.on_peer_began_anew(next);
            assert_eq!(t.0.cumulative_tsn(), next.prev());
            t.feed(next.0.wrapping_sub(u32::MAX), 1, 0, "BE", b"b");
            assert_eq!(t.read(), [&b"a"[..], b"b"], "{next:?}");
        }
    }
}

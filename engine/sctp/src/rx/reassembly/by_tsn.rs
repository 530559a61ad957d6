//! Reassembly of DATA chunks. The fragments of a message have consecutive TSNs (RFC 9260 section 6.9).
//!
//! A *run* is a series of consecutive fragments of one message. Invariant: adjacent runs belong to different messages.
//! Begin at [`ByTsn::insert`].

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use smallvec::{SmallVec, smallvec};
use wire::{Ppid, StreamId};

use super::order::Order;
use super::{Piece, Placed, Skip, aborted, push_or_join};
use crate::event::Message;
use crate::memory::tree;
use crate::tx::Seq;

/// Consecutive fragments of one message.
#[derive(Debug)]
struct Run {
    last: Seq,
    stream: StreamId,
    ssn: u32,
    ppid: Ppid,
    unordered: bool,
    begin: bool,
    end: bool,
    /// True if a first part of the message was already delivered. The run then only contains later fragments.
    partly_delivered: bool,
    pieces: SmallVec<[BytesMut; 2]>,
}

impl Run {
    fn is_of(&self, chunk: &Piece<'_>) -> bool {
        self.stream == chunk.stream
            && self.unordered == chunk.unordered
            //= rfc9260#3.3.1-2
            && (chunk.unordered || self.ssn == chunk.number)
    }

    fn take_message(&mut self) -> Message {
        Message {
            stream: self.stream,
            ppid: self.ppid,
            unordered: self.unordered,
            begin: !self.partly_delivered,
            end: self.end,
            aborted: false,
            pieces: std::mem::take(&mut self.pieces).into_iter().map(BytesMut::freeze).collect(),
        }
    }
}

/// Incomplete messages, and messages that arrived before their turn.
#[derive(Debug)]
pub(crate) struct ByTsn {
    runs: BTreeMap<Seq, Run>,
    order: Order,
}

impl Default for ByTsn {
    fn default() -> Self {
        ByTsn { runs: BTreeMap::new(), order: Order::new(u16::MAX.into()) }
    }
}

impl ByTsn {
    pub(super) fn parked(&self) -> usize {
        self.runs.len() + self.order.parked()
    }

    /// Returns the memory of the next numbers of all streams in bytes. This memory is not released when messages are
    /// delivered.
    #[inline]
    pub(super) fn turns_memory(&self) -> usize {
        self.order.turns_memory()
    }

    /// Returns the memory of the bookkeeping for waiting messages and fragments in bytes, without the pieces.
    pub(super) fn memory(&self) -> usize {
        self.order.memory() + tree(self.runs.len(), size_of::<(Seq, Run)>())
    }

    pub(super) fn insert(
        &mut self,
        seq: Seq,
        chunk: &Piece<'_>,
        payload: BytesMut,
        ready: &mut VecDeque<Message>,
    ) -> Placed {
        if chunk.begin && chunk.end {
            let message = Message {
                stream: chunk.stream,
                ppid: chunk.ppid,
                unordered: chunk.unordered,
                begin: true,
                end: true,
                aborted: false,
                pieces: smallvec![payload.freeze()],
            };
            return Placed::refused(self.order.deliver(chunk.number, message, ready));
        }
        let (first, joined) = self.extend_or_begin(seq, chunk, payload);
        self.join_next(first);
        Placed { joined, unplaceable: self.finish(first, ready) }
    }

    /// Appends the fragment to the run that ends directly before the fragment, or begins a new run. Returns the number
    /// of the run's first chunk, and whether the fragment's bytes joined the preceding piece.
    //= rfc9260#6-11 6.9-1
    fn extend_or_begin(&mut self, seq: Seq, chunk: &Piece<'_>, payload: BytesMut) -> (Seq, bool) {
        if let Some((&first, run)) = self.runs.range_mut(..seq).next_back()
            && run.last.next() == seq
            && !run.end
            && !chunk.begin
            && run.is_of(chunk)
        {
            run.last = seq;
            run.end = chunk.end;
            return (first, push_or_join(&mut run.pieces, payload));
        }
        let run = Run {
            last: seq,
            stream: chunk.stream,
            ssn: chunk.number,
            ppid: chunk.ppid,
            unordered: chunk.unordered,
            begin: chunk.begin,
            end: chunk.end,
            partly_delivered: false,
            pieces: smallvec![payload],
        };
        self.runs.insert(seq, run);
        (seq, false)
    }

    /// Joins the run at `first` with the run directly behind this run, if the two runs belong to one message.
    fn join_next(&mut self, first: Seq) {
        let Some(run) = self.runs.get(&first) else { return };
        let behind = run.last.next();
        let joins = self.runs.get(&behind).is_some_and(|next| {
            !run.end
                && !next.begin
                && next.stream == run.stream
                && next.unordered == run.unordered
                && (run.unordered || next.ssn == run.ssn)
        });
        if !joins {
            return;
        }
        let Some(next) = self.runs.remove(&behind) else { return };
        if let Some(run) = self.runs.get_mut(&first) {
            run.last = next.last;
            run.end = next.end;
            run.pieces.extend(next.pieces);
        }
    }

    /// Delivers the run at `first`, if the run is a whole message, or the next part of a partly delivered message.
    /// Returns a message that cannot be placed.
    fn finish(&mut self, first: Seq, ready: &mut VecDeque<Message>) -> Option<Message> {
        let run = self.runs.get_mut(&first)?;
        if run.partly_delivered {
            ready.push_back(run.take_message());
            if run.end {
                let (stream, unordered) = (run.stream, run.unordered);
                self.runs.remove(&first);
                self.close(stream, unordered, ready);
            }
        } else if run.begin && run.end {
            let message = run.take_message();
            let ssn = run.ssn;
            self.runs.remove(&first);
            return self.order.deliver(ssn, message, ready);
        }
        None
    }

    /// Ends a message that was delivered in parts.
    fn close(&mut self, stream: StreamId, unordered: bool, ready: &mut VecDeque<Message>) {
        if unordered {
            self.order.close(stream, ready);
        } else {
            self.order.advance(stream, ready);
        }
    }

    /// Delivers the beginning of a message. Only the run that ends directly before `first_missing` is considered,
    /// because only this run grows with the next in-order chunk.
    //= rfc9260#6.9-15
    pub(super) fn deliver_partially(&mut self, first_missing: Seq, ready: &mut VecDeque<Message>) {
        let last = self.runs.range_mut(..first_missing).next_back().map(|(_, run)| run);
        let Some(run) = last.filter(|r| r.begin && !r.partly_delivered && r.last.next() == first_missing)
        else {
            return;
        };
        if run.unordered && !self.order.is_open(run.stream) {
            self.order.open(run.stream);
        } else if run.unordered || !self.order.is_turn(run.stream, run.ssn) {
            return;
        }
        ready.push_back(run.take_message());
        run.partly_delivered = true;
    }

    //= rfc3758#section-3.6
    //# The receiver MUST remove any partially reassembled message, which is still missing one or more TSNs earlier than or
    //# equal to the new cumulative TSN point.
    pub(super) fn forward(
        &mut self,
        skipped: Seq,
        first_missing: Seq,
        skips: impl Iterator<Item = Skip>,
        ready: &mut VecDeque<Message>,
    ) -> Vec<Bytes> {
        // A run that began before `skipped` belongs to an abandoned message. A run without the beginning of its message
        // can no longer get the beginning.
        //= rfc3758#3.6-10
        let gone = |(first, run): &(&Seq, &Run)| **first < skipped || !run.begin;
        let gone: Vec<Seq> = self.runs.range(..first_missing).filter(gone).map(|(first, _)| *first).collect();
        let mut dropped = Vec::new();
        for first in gone {
            let Some(run) = self.runs.remove(&first) else { continue };
            dropped.extend(run.pieces.into_iter().map(BytesMut::freeze));
            if run.partly_delivered {
                //= rfc3758#3.6-11
                ready.push_back(aborted(run.stream, run.ppid, run.unordered));
                self.close(run.stream, run.unordered, ready);
            }
        }
        for skip in skips {
            self.order.skip(skip.stream, skip.number, ready);
        }
        dropped
    }

    pub(super) fn restart(
        &mut self,
        before: Seq,
        streams: &[StreamId],
        ready: &mut VecDeque<Message>,
    ) -> Vec<Bytes> {
        let affected = |run: &Run| streams.is_empty() || streams.contains(&run.stream);
        let gone = self.runs.range(..before).filter(|(_, run)| affected(run)).map(|(first, _)| *first);
        let mut dropped = Vec::new();
        for first in gone.collect::<Vec<Seq>>() {
            let Some(run) = self.runs.remove(&first) else { continue };
            if run.partly_delivered {
                ready.push_back(aborted(run.stream, run.ppid, run.unordered));
            }
            dropped.extend(run.pieces.into_iter().map(BytesMut::freeze));
        }
        self.order.restart(streams, ready);
        dropped
    }

    pub(super) fn shrink(&mut self) {
        if self.runs.is_empty() {
            self.runs = BTreeMap::new();
        }
        self.order.shrink();
    }

    pub(super) fn held(&self, overhead: usize) -> usize {
        let runs = self.runs.values().flat_map(|r| &r.pieces).map(|p| p.len());
        let waiting = self.order.waiting().flat_map(|m| &m.pieces).map(|p| p.len());
        runs.chain(waiting).map(|length| length + overhead).sum()
    }

    pub(super) fn check_invariants(&self) {
        self.order.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Fsn, Tsn};

    fn chunk(flags: &str, ssn: u16, payload: &'static [u8]) -> Piece<'static> {
        Piece {
            immediate: false,
            unordered: flags.contains('U'),
            begin: flags.contains('B'),
            end: flags.contains('E'),
            tsn: Tsn(0),
            stream: StreamId(0),
            number: ssn.into(),
            fsn: Fsn(0),
            ppid: Ppid(0),
            payload,
        }
    }

    fn feed(r: &mut ByTsn, seq: u64, flags: &str, ssn: u16, payload: &'static [u8]) -> Vec<Bytes> {
        let mut ready = VecDeque::new();
        r.insert(Seq(seq), &chunk(flags, ssn, payload), BytesMut::from(payload), &mut ready);
        ready.into_iter().map(Message::into_bytes).collect()
    }

    #[test]
    //= rfc9260#6-11 6.9-1
    fn fragments_in_any_order_make_one_message() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut r = ByTsn::default();
            let parts: [(&str, &[u8]); 3] = [("B", b"ab"), ("", b"cd"), ("E", b"e")];
            let mut out = Vec::new();
            for i in order {
                out.extend(feed(&mut r, i as u64, parts[i].0, 0, parts[i].1));
            }
            assert_eq!(out, [Bytes::from_static(b"abcde")], "order {order:?}");
            assert_eq!((r.parked(), r.held(0)), (0, 0));
        }
    }

    #[test]
    //= rfc9260#3.3.1-2 3.3.1-3 6.6-1 6.6-2
    fn an_early_message_waits_for_its_turn_and_an_unordered_one_does_not() {
        let mut r = ByTsn::default();
        assert!(feed(&mut r, 1, "BE", 1, b"second").is_empty());
        assert_eq!(feed(&mut r, 2, "BEU", 0, b"now"), [Bytes::from_static(b"now")]);
        assert_eq!(
            feed(&mut r, 0, "BE", 0, b"first"),
            [Bytes::from_static(b"first"), Bytes::from_static(b"second")]
        );
    }

    #[test]
    //= rfc9260#1.6-5 6.5-5
    fn order_holds_across_the_wrap_of_the_ssn() {
        let mut r = ByTsn::default();
        r.order.set_next(StreamId(0), u16::MAX.into());
        assert!(feed(&mut r, 1, "BE", 0, b"b").is_empty());
        assert_eq!(
            feed(&mut r, 0, "BE", u16::MAX, b"a"),
            [Bytes::from_static(b"a"), Bytes::from_static(b"b")]
        );
    }

    #[test]
    fn neighbouring_messages_do_not_flow_into_each_other() {
        let mut r = ByTsn::default();
        assert!(feed(&mut r, 0, "B", 0, b"a").is_empty());
        assert!(feed(&mut r, 2, "B", 1, b"c").is_empty());
        assert_eq!(feed(&mut r, 1, "E", 0, b"b"), [Bytes::from_static(b"ab")]);
        assert_eq!(feed(&mut r, 3, "E", 1, b"d"), [Bytes::from_static(b"cd")]);
    }

    #[test]
    fn a_message_begun_by_partial_delivery_goes_on_in_parts_and_then_gives_way() {
        let mut r = ByTsn::default();
        feed(&mut r, 0, "B", 0, b"ab");
        feed(&mut r, 3, "BE", 1, b"next");
        let mut ready = VecDeque::new();
        r.deliver_partially(Seq(1), &mut ready);
        let first = ready.pop_front().unwrap();
        assert!(first.begin && !first.end && ready.is_empty());
        r.insert(Seq(1), &chunk("", 0, b"cd"), BytesMut::from(&b"cd"[..]), &mut ready);
        let middle = ready.pop_front().unwrap();
        assert!(!middle.begin && !middle.end);
        r.insert(Seq(2), &chunk("E", 0, b"e"), BytesMut::from(&b"e"[..]), &mut ready);
        let last = ready.pop_front().unwrap();
        assert!(!last.begin && last.end);
        assert_eq!(ready.pop_front().unwrap().into_bytes(), Bytes::from_static(b"next"));
    }
    fn forward(
        r: &mut ByTsn,
        skipped: u64,
        first_missing: u64,
        ssns: &[u32],
        ready: &mut VecDeque<Message>,
    ) -> usize {
        let skips = ssns.iter().map(|&number| Skip { stream: StreamId(0), unordered: false, number });
        r.forward(Seq(skipped), Seq(first_missing), skips, ready).len()
    }

    #[test]
    //= rfc3758#3.6-7 3.6-8 3.6-10
    fn a_skip_drops_half_assembled_messages_and_delivers_those_that_waited() {
        let mut r = ByTsn::default();
        feed(&mut r, 0, "B", 0, b"a");
        feed(&mut r, 2, "BE", 1, b"whole");
        feed(&mut r, 3, "B", 2, b"c");
        feed(&mut r, 5, "BE", 3, b"next");
        feed(&mut r, 6, "B", 4, b"still coming");
        let mut ready = VecDeque::new();
        assert_eq!(forward(&mut r, 5, 7, &[2], &mut ready), 2);
        let read: Vec<_> = ready.into_iter().map(Message::into_bytes).collect();
        assert_eq!(read, [Bytes::from_static(b"whole"), Bytes::from_static(b"next")]);
        assert_eq!(feed(&mut r, 7, "E", 4, b"!"), [Bytes::from_static(b"still coming!")]);
        assert_eq!((r.parked(), r.held(0)), (0, 0));
    }

    #[test]
    fn a_skip_that_ends_within_a_message_also_drops_its_later_fragments() {
        let mut r = ByTsn::default();
        feed(&mut r, 1, "", 0, b"b");
        feed(&mut r, 2, "E", 0, b"c");
        assert_eq!(forward(&mut r, 1, 3, &[0], &mut VecDeque::new()), 2);
        assert_eq!(r.parked(), 0);
    }

    #[test]
    fn a_message_given_up_after_its_first_part_ends_with_an_aborted_part() {
        for flags in ["B", "BU"] {
            let mut r = ByTsn::default();
            feed(&mut r, 0, flags, 0, b"part");
            let mut ready = VecDeque::new();
            r.deliver_partially(Seq(1), &mut ready);
            r.insert(
                Seq(2),
                &chunk(if flags == "B" { "BE" } else { "BEU" }, 1, b"next"),
                BytesMut::from(&b"next"[..]),
                &mut ready,
            );
            forward(&mut r, 2, 3, if flags == "B" { &[0] } else { &[] }, &mut ready);
            let parts: Vec<_> = ready.iter().map(|m| (m.begin, m.end, m.aborted, m.len())).collect();
            assert_eq!(parts, [(true, false, false, 4), (false, true, true, 0), (true, true, false, 4)]);
        }
    }

    #[test]
    fn skips_hold_across_the_wrap_of_the_ssn_and_old_ones_change_nothing() {
        let mut r = ByTsn::default();
        r.order.set_next(StreamId(0), 65_534);
        feed(&mut r, 1, "BE", 65_535, b"a");
        feed(&mut r, 2, "BE", 0, b"b");
        feed(&mut r, 4, "BE", 2, b"d");
        let mut ready = VecDeque::new();
        forward(&mut r, 0, 0, &[65_533], &mut ready);
        assert!(ready.is_empty());
        forward(&mut r, 1, 3, &[1], &mut ready);
        let read: Vec<_> = ready.into_iter().map(Message::into_bytes).collect();
        assert_eq!(read, [&b"a"[..], b"b", b"d"]);
        assert_eq!(r.parked(), 0);
    }
}

//! Reassembly of I-DATA. Fragments of several messages may alternate, because each fragment carries its message number and
//! fragment number (RFC 8260 section 2.2.3).
//!
//! Begin at [`ByMid::insert`]. Invariants:
//!
//! * An assembly lacks at least one fragment.
//! * `eligible` contains only keys of assemblies whose beginning has arrived and was not delivered.
//! * `ahead` is the memory of the assemblies' maps of fragments behind gaps, in bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use smallvec::{SmallVec, smallvec};
use wire::{Ppid, StreamId};

use super::order::Order;
use super::{Piece, Placed, Skip, aborted, push_or_join};
use crate::event::Message;
use crate::memory::{heap, tree};

/// Key of a message: its stream, its unordered flag, and its MID.
type Key = (u16, bool, u32);

/// A message that is not whole. Fragment numbers in an assembly begin with zero and do not wrap.
#[derive(Debug, Default)]
struct Assembly {
    ppid: Ppid,
    /// Fragments that were received without gaps and are not yet delivered.
    pieces: SmallVec<[BytesMut; 2]>,
    /// Fragments behind the first gap, by their numbers.
    ahead: BTreeMap<u64, BytesMut>,
    /// Number of fragments that were delivered.
    delivered: u64,
    /// Number of the first fragment that has not arrived.
    missing: u64,
    /// Number of the last fragment, once known.
    last: Option<u64>,
}

impl Assembly {
    /// Places a fragment. Returns whether the fragment's bytes joined the preceding piece. If the fragment's number is already
    /// used or impossible, returns the bytes as an error.
    fn place(&mut self, piece: &Piece<'_>, payload: BytesMut) -> Result<bool, BytesMut> {
        let Some(at) = self.position(piece) else { return Err(payload) };
        let beyond = self.last.is_some_and(|last| at > last || piece.end);
        let behind = piece.end && self.ahead.last_key_value().is_some_and(|(&f, _)| f > at);
        if at < self.missing || self.ahead.contains_key(&at) || beyond || behind {
            return Err(payload);
        }
        if piece.begin {
            self.ppid = piece.ppid;
        }
        if piece.end {
            self.last = Some(at);
        }
        if at != self.missing {
            self.ahead.insert(at, payload);
            return Ok(false);
        }
        let joined = push_or_join(&mut self.pieces, payload);
        self.missing += 1;
        while let Some(next) = self.ahead.first_entry().filter(|next| *next.key() == self.missing) {
            self.pieces.push(next.remove());
            self.missing += 1;
        }
        Ok(joined)
    }

    /// Returns the memory of the map `ahead` in bytes.
    fn ahead_memory(&self) -> usize {
        tree(self.ahead.len(), size_of::<(u64, BytesMut)>())
    }

    /// Returns the bytes of all fragments that have arrived and were not delivered.
    fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        self.pieces.into_iter().chain(self.ahead.into_values()).map(BytesMut::freeze)
    }

    /// Returns the fragment number without wrapping. Among the numbers with the same low 32 bits, this is the number nearest
    /// to the first missing fragment.
    #[expect(clippy::cast_possible_truncation, reason = "the FSN is the number modulo 2^32")]
    fn position(&self, piece: &Piece<'_>) -> Option<u64> {
        // The number 0 and the B bit belong together: the first fragment has both, and no later fragment has either.
        if piece.begin || piece.fsn.0 == 0 && self.missing < 1 << 31 {
            return piece.begin.then_some(0);
        }
        let ahead = piece.fsn.0.wrapping_sub(self.missing as u32).cast_signed();
        self.missing.checked_add_signed(ahead.into())
    }

    fn is_whole(&self) -> bool {
        self.last.is_some_and(|last| self.missing > last)
    }

    fn has_beginning(&self) -> bool {
        self.missing > self.delivered
    }

    /// Removes the fragments that were received without gaps, and returns them as the next part of the message.
    fn take(&mut self, key: Key) -> Message {
        let pieces = std::mem::take(&mut self.pieces).into_iter().map(BytesMut::freeze).collect();
        let begin = self.delivered == 0;
        self.delivered = self.missing;
        Message {
            stream: StreamId(key.0),
            ppid: self.ppid,
            unordered: key.1,
            begin,
            end: self.is_whole(),
            aborted: false,
            pieces,
        }
    }
}

/// Incomplete messages, and messages that arrived before their turn.
#[derive(Debug)]
pub(crate) struct ByMid {
    assemblies: BTreeMap<Key, Box<Assembly>>,
    /// Memory of the assemblies' maps of fragments behind gaps, in bytes.
    ahead: usize,
    /// Keys of assemblies whose beginning could be delivered now.
    eligible: BTreeSet<Key>,
    order: Order,
}

impl Default for ByMid {
    fn default() -> Self {
        ByMid {
            assemblies: BTreeMap::new(),
            ahead: 0,
            eligible: BTreeSet::new(),
            order: Order::new(u32::MAX),
        }
    }
}

impl ByMid {
    pub(super) fn parked(&self) -> usize {
        self.assemblies.len() + self.order.parked()
    }

    /// Returns the memory of the next numbers of all streams in bytes. This memory is not released when messages are
    /// delivered.
    #[inline]
    pub(super) fn turns_memory(&self) -> usize {
        self.order.turns_memory()
    }

    /// Returns the memory of the bookkeeping for waiting messages and fragments in bytes, without the pieces.
    pub(super) fn memory(&self) -> usize {
        let assemblies = self.assemblies.len();
        if assemblies == 0 {
            return self.order.memory();
        }
        self.order.memory()
            + tree(assemblies, size_of::<(Key, Box<Assembly>)>())
            + assemblies * heap(size_of::<Assembly>())
            + tree(self.eligible.len(), size_of::<Key>())
            + self.ahead
    }

    //= rfc8260#2.2.3-1 2.2.3-2
    pub(super) fn insert(
        &mut self,
        piece: &Piece<'_>,
        payload: BytesMut,
        ready: &mut VecDeque<Message>,
    ) -> Placed {
        let unplaceable = |payload: BytesMut| Placed::refused(Some(single(piece, payload.freeze())));
        let key = (piece.stream.0, piece.unordered, piece.number);
        let whole = piece.begin && piece.end;
        let over = !piece.unordered && self.order.is_over(piece.stream, piece.number);
        if over || whole && self.assemblies.contains_key(&key) {
            return unplaceable(payload);
        }
        if whole {
            let message = single(piece, payload.freeze());
            let unplaceable = self.order.deliver(piece.number, message, ready);
            self.after_turn(key);
            return Placed::refused(unplaceable);
        }
        let assembly = self.assemblies.entry(key).or_default();
        self.ahead -= assembly.ahead_memory();
        let placed = assembly.place(piece, payload);
        self.ahead += assembly.ahead_memory();
        match placed {
            Ok(joined) => Placed { joined, unplaceable: self.after_fragment(key, ready) },
            Err(payload) => {
                if assembly.pieces.is_empty() && assembly.ahead.is_empty() && assembly.delivered == 0 {
                    self.assemblies.remove(&key);
                }
                unplaceable(payload)
            }
        }
    }

    fn after_fragment(&mut self, key: Key, ready: &mut VecDeque<Message>) -> Option<Message> {
        let assembly = self.assemblies.get_mut(&key)?;
        if assembly.is_whole() {
            let partly = assembly.delivered > 0;
            let message = assembly.take(key);
            self.assemblies.remove(&key);
            self.eligible.remove(&key);
            if partly {
                ready.push_back(message);
                self.close(key, ready);
                return None;
            }
            let unplaceable = self.order.deliver(key.2, message, ready);
            self.after_turn(key);
            return unplaceable;
        }
        if assembly.delivered > 0 && assembly.has_beginning() {
            ready.push_back(assembly.take(key));
        } else {
            self.judge(key);
        }
        None
    }

    /// Ends a message that was delivered in parts.
    fn close(&mut self, key: Key, ready: &mut VecDeque<Message>) {
        let stream = StreamId(key.0);
        if !key.1 {
            self.order.advance(stream, ready);
            return self.after_turn(key);
        }
        self.order.close(stream, ready);
        let begun = self.assemblies.range(messages(key, 0..=u32::MAX));
        self.eligible.extend(begun.filter(|(_, a)| a.has_beginning()).map(|(k, _)| *k));
    }

    /// Handles a change of a stream's next number. The message with this number may now be eligible.
    fn after_turn(&mut self, key: Key) {
        if !key.1 && !self.assemblies.is_empty() {
            self.judge((key.0, false, self.order.next(StreamId(key.0))));
        }
    }

    /// Adds the message to `eligible` if its beginning could be delivered now.
    fn judge(&mut self, key: Key) {
        let stream = StreamId(key.0);
        let in_turn = if key.1 { !self.order.is_open(stream) } else { self.order.is_turn(stream, key.2) };
        if in_turn && self.assemblies.get(&key).is_some_and(|a| a.delivered == 0 && a.has_beginning()) {
            self.eligible.insert(key);
        }
    }

    pub(super) fn deliver_partially(&mut self, ready: &mut VecDeque<Message>) {
        while let Some(key) = self.eligible.pop_first() {
            // Another unordered message of the stream may be partly delivered already. The end of the other message makes this
            // message eligible again.
            if key.1 && self.order.is_open(StreamId(key.0)) {
                continue;
            }
            let Some(assembly) = self.assemblies.get_mut(&key) else { continue };
            ready.push_back(assembly.take(key));
            if key.1 {
                self.order.open(StreamId(key.0));
            }
            return;
        }
    }

    //= rfc8260#section-2.3.1
    //# This field holds the largest Message Identifier for ordered or unordered messages indicated by the U bit that was
    //# skipped for the stream specified by the Stream Identifier.
    pub(super) fn forward(
        &mut self,
        skips: impl Iterator<Item = Skip>,
        ready: &mut VecDeque<Message>,
    ) -> Vec<Bytes> {
        let mut dropped = Vec::new();
        for skip in skips {
            let key = (skip.stream.0, skip.unordered, skip.number);
            for gone in self.up_to(key) {
                let Some(assembly) = self.assemblies.remove(&gone) else { continue };
                self.eligible.remove(&gone);
                self.ahead -= assembly.ahead_memory();
                let (delivered, ppid) = (assembly.delivered, assembly.ppid);
                dropped.extend(assembly.into_pieces());
                if delivered > 0 {
                    ready.push_back(aborted(skip.stream, ppid, skip.unordered));
                    if skip.unordered {
                        self.close(gone, ready);
                    }
                }
            }
            if !skip.unordered {
                self.order.skip(skip.stream, skip.number, ready);
                self.after_turn(key);
            }
        }
        dropped
    }

    /// Returns the keys of the incomplete messages that have the stream and the unordered flag of `key`, up to the number of
    /// `key`.
    fn up_to(&self, key: Key) -> Vec<Key> {
        let least = key.2.wrapping_sub(u32::MAX / 2);
        let keys = |numbers| self.assemblies.range(messages(key, numbers)).map(|(k, _)| *k);
        if least <= key.2 {
            keys(least..=key.2).collect()
        } else {
            keys(least..=u32::MAX).chain(keys(0..=key.2)).collect()
        }
    }

    /// Restarts streams. All incomplete messages have numbers from before the reset, because chunks that may have new numbers
    /// are held back.
    pub(super) fn restart(&mut self, streams: &[StreamId], ready: &mut VecDeque<Message>) -> Vec<Bytes> {
        let affected = |key: &Key| streams.is_empty() || streams.contains(&StreamId(key.0));
        let mut dropped = Vec::new();
        self.eligible.retain(|key| !affected(key));
        self.assemblies.retain(|key, assembly| {
            if !affected(key) {
                return true;
            }
            if assembly.delivered > 0 {
                ready.push_back(aborted(StreamId(key.0), assembly.ppid, key.1));
            }
            self.ahead -= assembly.ahead_memory();
            dropped.extend(std::mem::take(&mut **assembly).into_pieces());
            false
        });
        self.order.restart(streams, ready);
        dropped
    }

    pub(super) fn shrink(&mut self) {
        if self.assemblies.is_empty() {
            self.assemblies = BTreeMap::new();
            self.eligible = BTreeSet::new();
        }
        self.order.shrink();
    }

    pub(super) fn held(&self, overhead: usize) -> usize {
        let open = self.assemblies.values().flat_map(|a| a.pieces.iter().chain(a.ahead.values()));
        let waiting = self.order.waiting().flat_map(|m| &m.pieces).map(|p| p.len());
        open.map(|p| p.len()).chain(waiting).map(|length| length + overhead).sum()
    }

    /// Checks the stored memory of the maps, and the invariants of the assemblies.
    pub(super) fn check_invariants(&self) {
        let ahead = self.assemblies.values().map(|a| a.ahead_memory()).sum::<usize>();
        assert_eq!(self.ahead, ahead, "bytes for fragments behind gaps");
        assert!(self.assemblies.values().all(|a| a.pieces.is_empty() != a.has_beginning()));
        self.order.check_invariants();
    }
}

/// Returns the range of keys for `numbers`, with the stream and the unordered flag of `key`.
fn messages(key: Key, numbers: RangeInclusive<u32>) -> RangeInclusive<Key> {
    (key.0, key.1, *numbers.start())..=(key.0, key.1, *numbers.end())
}

/// Returns a message of one fragment.
fn single(piece: &Piece<'_>, payload: Bytes) -> Message {
    Message {
        stream: piece.stream,
        ppid: piece.ppid,
        unordered: piece.unordered,
        begin: true,
        end: true,
        aborted: false,
        pieces: smallvec![payload],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{Fsn, Tsn};

    struct Rig {
        r: ByMid,
        ready: VecDeque<Message>,
        unplaceable: usize,
    }

    fn rig() -> Rig {
        Rig { r: ByMid::default(), ready: VecDeque::new(), unplaceable: 0 }
    }

    impl Rig {
        /// Feeds fragment `fsn` of message `mid`. `flags` may contain U and E. If `fsn` is zero, the B bit is set.
        fn feed(&mut self, stream: u16, mid: u32, fsn: u32, flags: &str, payload: &'static [u8]) {
            let piece = Piece {
                immediate: false,
                unordered: flags.contains('U'),
                begin: fsn == 0,
                end: flags.contains('E'),
                tsn: Tsn(0),
                stream: StreamId(stream),
                number: mid,
                fsn: Fsn(fsn),
                ppid: Ppid(if fsn == 0 { 7 } else { 0 }),
                payload,
            };
            let placed = self.r.insert(&piece, BytesMut::from(payload), &mut self.ready);
            self.unplaceable += usize::from(placed.unplaceable.is_some());
            self.r.check_invariants();
        }

        fn skip(&mut self, stream: u16, unordered: bool, number: u32) -> usize {
            let skip = Skip { stream: StreamId(stream), unordered, number };
            self.r.forward([skip].into_iter(), &mut self.ready).len()
        }

        fn read(&mut self) -> Vec<Bytes> {
            self.ready.drain(..).map(Message::into_bytes).collect()
        }
    }

    #[test]
    //= rfc8260#2.2.3-1 2.2.3-2
    fn fragments_of_two_messages_in_turn_make_two_messages() {
        let mut t = rig();
        t.feed(1, 0, 0, "", b"a");
        t.feed(2, 0, 0, "", b"x");
        t.feed(1, 0, 1, "", b"b");
        t.feed(2, 0, 1, "E", b"y");
        t.feed(1, 0, 2, "E", b"c");
        assert_eq!(t.ready[1].ppid, Ppid(7));
        assert_eq!(t.read(), [&b"xy"[..], b"abc"]);
        assert_eq!((t.r.parked(), t.r.held(0)), (0, 0));
    }

    #[test]
    fn ordered_messages_wait_for_their_turn_across_the_wrap_of_the_mid() {
        let mut t = rig();
        t.r.order.set_next(StreamId(1), u32::MAX);
        t.feed(1, 0, 0, "", b"c");
        t.feed(1, 0, 1, "E", b"d");
        t.feed(1, u32::MAX, 0, "", b"a");
        assert!(t.ready.is_empty());
        t.feed(1, u32::MAX, 1, "E", b"b");
        assert_eq!(t.read(), [&b"ab"[..], b"cd"]);
    }

    #[test]
    fn unordered_messages_are_delivered_as_they_become_whole() {
        let mut t = rig();
        t.feed(1, 0, 0, "U", b"a");
        t.feed(1, 5, 0, "UE", b"m");
        t.feed(1, 1, 0, "U", b"x");
        t.feed(1, 1, 1, "UE", b"y");
        t.feed(1, 0, 1, "UE", b"b");
        assert_eq!(t.read(), [&b"m"[..], b"xy", b"ab"]);
    }

    #[test]
    fn crafted_numbers_are_refused_and_hold_nothing() {
        let mut t = rig();
        t.feed(1, 0, 0, "E", b"first");
        t.feed(1, 0, 0, "E", b"again");
        t.feed(1, u32::MAX, 0, "", b"before all");
        t.feed(1, 1, 1, "", b"b");
        t.feed(1, 1, 1, "", b"twice");
        t.feed(1, 1, 2, "E", b"c");
        t.feed(1, 1, 3, "", b"behind the end");
        t.feed(1, 1, 4, "E", b"another end");
        t.feed(1, 1, u32::MAX, "", b"before the first");
        t.feed(1, 1, 0, "E", b"whole, but in pieces too");
        assert_eq!(t.unplaceable, 7);
        assert_eq!(t.r.held(0), 2);
        t.feed(1, 1, 0, "", b"a");
        assert_eq!(t.read(), [&b"first"[..], b"abc"]);
    }

    #[test]
    fn an_end_before_fragments_that_came_already_is_refused() {
        let mut t = rig();
        t.feed(1, 0, 5, "", b"f");
        t.feed(1, 0, 3, "E", b"d");
        assert_eq!(t.unplaceable, 1);
    }

    #[test]
    fn a_later_fragment_that_claims_number_zero_is_refused() {
        let mut t = rig();
        let piece = Piece {
            immediate: false,
            unordered: false,
            begin: false,
            end: true,
            tsn: Tsn(0),
            stream: StreamId(0),
            number: 0,
            fsn: Fsn(0),
            ppid: Ppid(0),
            payload: b"x",
        };
        assert!(t.r.insert(&piece, BytesMut::from(&b"x"[..]), &mut t.ready).unplaceable.is_some());
        assert_eq!(t.r.parked(), 0);
    }

    #[test]
    fn long_messages_of_two_streams_are_delivered_in_parts_side_by_side() {
        let mut t = rig();
        t.feed(1, 0, 0, "", b"a");
        t.feed(2, 0, 0, "", b"x");
        t.r.deliver_partially(&mut t.ready);
        t.r.deliver_partially(&mut t.ready);
        t.r.deliver_partially(&mut t.ready);
        assert_eq!(t.read(), [&b"a"[..], b"x"]);
        t.feed(2, 0, 1, "", b"y");
        t.feed(1, 0, 2, "E", b"c");
        t.feed(1, 0, 1, "", b"b");
        t.feed(2, 0, 2, "E", b"z");
        assert_eq!(t.read(), [&b"y"[..], b"bc", b"z"]);
        t.feed(1, 1, 0, "E", b"next");
        assert_eq!(t.read(), [&b"next"[..]]);
    }

    #[test]
    fn parts_of_two_unordered_messages_of_one_stream_never_mix() {
        let mut t = rig();
        t.feed(1, 0, 0, "U", b"a");
        t.feed(1, 1, 0, "U", b"x");
        t.r.deliver_partially(&mut t.ready);
        t.r.deliver_partially(&mut t.ready);
        t.feed(1, 1, 1, "UE", b"y");
        assert_eq!(t.read(), [&b"a"[..]]);
        t.feed(1, 2, 0, "U", b"m");
        t.feed(1, 0, 1, "UE", b"b");
        assert_eq!(t.read(), [&b"b"[..], b"xy"]);
        t.r.deliver_partially(&mut t.ready);
        assert_eq!(t.read(), [&b"m"[..]]);
    }

    #[test]
    fn a_skip_drops_what_is_incomplete_and_lets_pass_what_waited() {
        let mut t = rig();
        t.feed(1, 0, 1, "E", b"half");
        t.feed(1, 1, 0, "E", b"whole");
        t.feed(1, 2, 0, "", b"begun");
        t.feed(1, 3, 0, "E", b"after");
        t.feed(1, 2, 0, "U", b"other kind");
        assert_eq!(t.skip(1, false, 2), 2);
        assert_eq!(t.read(), [&b"whole"[..], b"after"]);
        assert_eq!(t.r.parked(), 1);
        assert_eq!(t.skip(1, true, 2), 1);
        assert_eq!((t.r.parked(), t.r.held(0)), (0, 0));
    }

    #[test]
    fn a_skip_across_the_wrap_drops_both_sides_of_it() {
        let mut t = rig();
        t.feed(1, u32::MAX, 0, "U", b"a");
        t.feed(1, 0, 0, "U", b"b");
        t.feed(1, 1, 0, "U", b"c");
        assert_eq!(t.skip(1, true, 0), 2);
        assert_eq!(t.r.parked(), 1);
    }

    #[test]
    fn a_message_given_up_after_its_first_part_ends_with_an_aborted_part() {
        for unordered in [false, true] {
            let flags = if unordered { "U" } else { "" };
            let mut t = rig();
            t.feed(1, 0, 0, flags, b"part");
            t.r.deliver_partially(&mut t.ready);
            t.feed(1, 1, 0, if unordered { "UE" } else { "E" }, b"next");
            t.skip(1, unordered, 0);
            let parts: Vec<_> = t.ready.iter().map(|m| (m.begin, m.end, m.aborted, m.len())).collect();
            assert_eq!(parts, [(true, false, false, 4), (false, true, true, 0), (true, true, false, 4)]);
        }
    }

    proptest! {
        #[test]
        //= rfc8260#2.2.3-2
        fn any_order_of_fragments_gives_every_message_once_and_in_order(
            lengths in prop::collection::vec((0u16..3, any::<bool>(), 1u32..6), 1..20),
            seed in prop::collection::vec(any::<u16>(), 120),
            partial: bool,
        ) {
            let mut next = BTreeMap::<(u16, bool), u32>::new();
            let mut pieces = Vec::new();
            for &(stream, unordered, count) in &lengths {
                let number = next.entry((stream, unordered)).or_default();
                pieces.extend((0..count).map(|fsn| (stream, unordered, *number, fsn, fsn + 1 == count)));
                *number += 1;
            }
            let mut order: Vec<usize> = (0..pieces.len()).collect();
            order.sort_by_key(|&n| seed[n % seed.len()]);
            let mut t = rig();
            for n in order {
                let (stream, unordered, number, fsn, end) = pieces[n];
                let flags = match (unordered, end) {
                    (false, false) => "",
                    (false, true) => "E",
                    (true, false) => "U",
                    (true, true) => "UE",
                };
                t.feed(stream, number, fsn, flags, b"x");
                if partial {
                    t.r.deliver_partially(&mut t.ready);
                }
            }
            prop_assert_eq!((t.unplaceable, t.r.parked(), t.r.held(0)), (0, 0, 0));
            let mut sizes = BTreeMap::<(u16, bool), Vec<usize>>::new();
            let mut open = BTreeMap::<(u16, bool), usize>::new();
            for m in &t.ready {
                let key = (m.stream.0, m.unordered);
                prop_assert_eq!(m.begin, !open.contains_key(&key));
                *open.entry(key).or_default() += m.len();
                if m.end {
                    sizes.entry(key).or_default().push(open.remove(&key).unwrap());
                }
            }
            prop_assert!(open.is_empty());
            let mut expected = BTreeMap::<(u16, bool), Vec<usize>>::new();
            for (stream, unordered, count) in lengths {
                expected.entry((stream, unordered)).or_default().push(count as usize);
            }
            for (key, list) in expected.iter_mut().chain(sizes.iter_mut()) {
                if key.1 {
                    list.sort_unstable();
                }
            }
            prop_assert_eq!(sizes, expected);
        }
    }
}

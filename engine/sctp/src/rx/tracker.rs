//! Record of received TSNs: all TSNs before `first_missing`, and the received ranges above `first_missing`.
//!
//! Invariants: the ranges are sorted, neither overlap nor touch, do not touch `first_missing`, and number no more than their limit. Start
//! at [`Tracker::insert`].

use std::collections::VecDeque;

use wire::{GapBlock, Tsn};

use crate::memory::list;
use crate::tx::Seq;

/// Position of a new TSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It was the first missing TSN.
    InOrder,
    /// It lies above a gap.
    OutOfOrder,
    /// It exceeds the limit on ranges, or lies further ahead than a gap block can express.
    Full,
}

/// Received TSNs, and duplicates to report.
#[derive(Debug)]
pub(crate) struct Tracker {
    first_missing: Seq,
    /// Sorted ranges above `first_missing`; both ends are included.
    ranges: VecDeque<(Seq, Seq)>,
    duplicates: Vec<Tsn>,
    max_ranges: usize,
    max_duplicates: usize,
}

impl Tracker {
    pub(crate) fn new(max_ranges: usize, max_duplicates: usize) -> Tracker {
        Tracker {
            first_missing: Seq(0),
            ranges: VecDeque::new(),
            duplicates: Vec::new(),
            max_ranges,
            max_duplicates,
        }
    }

    pub(crate) fn first_missing(&self) -> Seq {
        self.first_missing
    }

    pub(crate) fn has_gaps(&self) -> bool {
        !self.ranges.is_empty()
    }

    pub(crate) fn has(&self, seq: Seq) -> bool {
        seq < self.first_missing || self.range_from(seq).is_some_and(|i| self.ranges[i].0 <= seq)
    }

    /// Returns the index of the first range that ends at or after `seq`.
    fn range_from(&self, seq: Seq) -> Option<usize> {
        let i = self.ranges.partition_point(|r| r.1 < seq);
        (i < self.ranges.len()).then_some(i)
    }

    /// Records a TSN that has not been received before, unless the result is [`Arrival::Full`].
    //= rfc9260#3.3.4-2
    pub(crate) fn insert(&mut self, seq: Seq) -> Arrival {
        if seq == self.first_missing {
            self.first_missing = seq.next();
            if self.ranges.front().is_some_and(|r| r.0 == self.first_missing) {
                self.first_missing = self.ranges[0].1.next();
                self.ranges.pop_front();
            }
            return Arrival::InOrder;
        }
        // Gap blocks are 16-bit offsets from the cumulative TSN (RFC 9260 section 3.3.4).
        if seq.0 - self.first_missing.0 >= u64::from(u16::MAX) {
            return Arrival::Full;
        }
        let i = self.ranges.partition_point(|r| r.1 < seq);
        let joins_left = i > 0 && self.ranges[i - 1].1.next() == seq;
        let joins_right = i < self.ranges.len() && self.ranges[i].0 == seq.next();
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[i - 1].1 = self.ranges[i].1;
                self.ranges.remove(i);
            }
            (true, false) => self.ranges[i - 1].1 = seq,
            (false, true) => self.ranges[i].0 = seq,
            (false, false) if self.ranges.len() >= self.max_ranges => return Arrival::Full,
            (false, false) => self.ranges.insert(i, (seq, seq)),
        }
        Arrival::OutOfOrder
    }

    /// Moves `first_missing` to `seq`, because no TSN before it will arrive any more. If the TSNs from `seq` on were already received,
    /// `first_missing` moves past them too. The cost is linear in the number of ranges passed.
    pub(crate) fn forward(&mut self, seq: Seq) {
        if seq <= self.first_missing {
            return;
        }
        self.first_missing = seq;
        while let Some(&(start, end)) = self.ranges.front() {
            if start > self.first_missing {
                break;
            }
            self.first_missing = self.first_missing.max(end.next());
            self.ranges.pop_front();
        }
    }

    /// Forgets all TSNs, because the peer restarts its numbering.
    pub(crate) fn restart(&mut self) {
        self.first_missing = Seq(0);
        self.ranges.clear();
        self.duplicates.clear();
    }

    pub(crate) fn note_duplicate(&mut self, tsn: Tsn) {
        if self.duplicates.len() < self.max_duplicates {
            self.duplicates.push(tsn);
        }
    }

    pub(crate) fn duplicates(&self) -> &[Tsn] {
        &self.duplicates
    }

    pub(crate) fn forget_duplicates(&mut self) {
        self.duplicates.clear();
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "insert keeps ranges within 65,535 of the cumulative TSN"
    )]
    pub(crate) fn gap_blocks(&self) -> impl Iterator<Item = GapBlock> {
        let cumulative = self.first_missing.0.wrapping_sub(1);
        self.ranges.iter().map(move |r| GapBlock {
            start: r.0.0.wrapping_sub(cumulative) as u16,
            end: r.1.0.wrapping_sub(cumulative) as u16,
        })
    }

    /// Returns the bytes of memory in use.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        list::<(Seq, Seq)>(self.ranges.capacity()) + list::<Tsn>(self.duplicates.capacity())
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.ranges.shrink_to_fit();
        self.duplicates.shrink_to_fit();
    }

    /// Checks that the ranges are sorted, and that they neither overlap nor touch.
    pub(crate) fn check_invariants(&self) {
        let mut least = self.first_missing.next();
        for r in &self.ranges {
            assert!(r.0 >= least && r.1 >= r.0, "range {r:?} touches what lies before it");
            least = r.1.next().next();
        }
        assert!(self.ranges.len() <= self.max_ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        //= rfc9260#3.3.4-2 6.2-16
        fn the_tracker_reports_the_same_numbers_as_a_plain_set(seqs in prop::collection::vec(0u64..60, 0..200)) {
            let mut tracker = Tracker::new(100, 4);
            let mut set = BTreeSet::new();
            for seq in seqs {
                prop_assert_eq!(tracker.has(Seq(seq)), set.contains(&seq));
                if set.insert(seq) {
                    prop_assert_ne!(tracker.insert(Seq(seq)), Arrival::Full);
                }
                tracker.check_invariants();
                let first = (0..).find(|s| !set.contains(s)).unwrap();
                prop_assert_eq!(tracker.first_missing(), Seq(first));
                let told: BTreeSet<u64> = tracker
                    .gap_blocks()
                    .flat_map(|b| (u64::from(b.start)..=u64::from(b.end)).map(|o| (first + o).wrapping_sub(1)))
                    .collect();
                prop_assert_eq!(told, set.range(first..).copied().collect());
            }
        }
    }

    #[test]
    //= rfc3758#3.6-2 3.6-3
    fn a_forward_jump_skips_ranges_and_continues_after_a_range_that_it_touches() {
        let mut tracker = Tracker::new(9, 4);
        for n in [2, 3, 6, 9] {
            tracker.insert(Seq(n));
        }
        tracker.forward(Seq(1));
        assert_eq!(tracker.first_missing(), Seq(1));
        tracker.forward(Seq(3));
        assert_eq!(tracker.first_missing(), Seq(4));
        tracker.forward(Seq(2));
        assert_eq!(tracker.first_missing(), Seq(4));
        tracker.forward(Seq(6));
        tracker.check_invariants();
        assert_eq!(tracker.first_missing(), Seq(7));
        tracker.forward(Seq(1 << 31));
        tracker.check_invariants();
        assert_eq!((tracker.first_missing(), tracker.has_gaps()), (Seq(1 << 31), false));
    }

    #[test]
    fn one_range_more_than_the_limit_is_refused() {
        let mut tracker = Tracker::new(2, 4);
        assert_eq!(tracker.insert(Seq(2)), Arrival::OutOfOrder);
        assert_eq!(tracker.insert(Seq(4)), Arrival::OutOfOrder);
        assert_eq!(tracker.insert(Seq(6)), Arrival::Full);
        assert_eq!(tracker.insert(Seq(3)), Arrival::OutOfOrder);
        assert_eq!(tracker.insert(Seq(6)), Arrival::OutOfOrder);
    }

    #[test]
    fn a_tsn_out_of_reach_of_gap_blocks_is_refused() {
        let mut tracker = Tracker::new(9, 4);
        assert_eq!(tracker.insert(Seq(65_535)), Arrival::Full);
        assert_eq!(tracker.insert(Seq(65_534)), Arrival::OutOfOrder);
        assert_eq!(tracker.gap_blocks().next(), Some(GapBlock { start: 65_535, end: 65_535 }));
    }
}

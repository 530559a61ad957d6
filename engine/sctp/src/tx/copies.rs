//! Copies of chunks for additional paths (redundant scheduling). Each chunk counts as in flight on one path, and only other paths carry its
//! copies.
//!
//! The peer keeps the first arrival of a chunk, and a SACK does not report which path that arrival used. So copies are tracked separately
//! from chunks: a copy gives no round trip, confirms no path, and does not reveal losses of other chunks. A copy leaves the flight of its
//! path in one of these cases:
//!
//! - The peer reports a duplicate of the chunk. The copy counts as arrived.
//! - The chunk is acknowledged, and three quarters of the path's round trip have passed since the copy was sent. The copy counts as
//!   arrived.
//! - Neither has happened two round trips after the copy was sent. The copy counts as lost, and as a sign of congestion.
//!
//! This module never sends. [`WAITING_MAX`] limits the waiting copies, and congestion windows limit the copies in flight. Start at
//! [`Copies::wish`].

use std::collections::VecDeque;
use std::time::Duration;

use base::Time;
use smallvec::SmallVec;

use super::Seq;
use crate::memory::heap;
use crate::path::PathIndex;

/// Threshold of copies settled since the last reported duplicate. At this number, a path may be dead. While two paths work, the second
/// arrival of each chunk is a duplicate.
const SILENT_MAX: usize = 8;

/// Limit on the chunks that wait for room to be copied to a path. At the limit, the oldest waiting chunk is removed and not copied.
const WAITING_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Copy {
    seq: Seq,
    length: usize,
    sent_at: Time,
}

#[derive(Debug, Default)]
struct PathCopies {
    waiting: VecDeque<Seq>,
    sent: VecDeque<Copy>,
    flight: usize,
}

/// Effect of a SACK on a path's copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyAcks {
    /// User bytes of the copies that arrived.
    pub(crate) bytes: usize,
    /// Time at which the newest arrived copy was sent.
    pub(crate) newest: Option<Time>,
    /// Number of copies that were lost.
    pub(crate) lost: usize,
    pub(crate) lost_bytes: usize,
    pub(crate) newest_lost: Time,
}

/// Copies on all paths.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    by_path: Vec<PathCopies>,
    /// Number of copies settled since the last duplicate that the peer reported; `None` before the first one.
    silent: Option<usize>,
}

impl Copies {
    /// Returns the bytes of memory in use, without the struct itself.
    pub(crate) fn memory(&self) -> usize {
        if self.by_path.is_empty() {
            return 0;
        }
        let memory = |on_path: &PathCopies| {
            heap(on_path.waiting.capacity() * size_of::<Seq>())
                + heap(on_path.sent.capacity() * size_of::<Copy>())
        };
        heap(self.by_path.capacity() * size_of::<PathCopies>())
            + self.by_path.iter().map(memory).sum::<usize>()
    }

    /// Requests that a chunk is also sent on `path` as soon as the congestion window of `path` has room.
    pub(crate) fn wish(&mut self, seq: Seq, path: PathIndex) {
        if self.by_path.len() <= path.get() {
            self.by_path.resize_with(path.get() + 1, PathCopies::default);
        }
        let waiting = &mut self.by_path[path.get()].waiting;
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(seq);
    }

    /// Returns the next chunk to copy to `path`.
    pub(crate) fn next(&self, path: PathIndex) -> Option<Seq> {
        self.by_path.get(path.get())?.waiting.front().copied()
    }

    /// Removes the next chunk to copy to `path`, because the copy is no longer needed.
    pub(crate) fn skip(&mut self, path: PathIndex) {
        if let Some(on_path) = self.by_path.get_mut(path.get()) {
            on_path.waiting.pop_front();
        }
    }

    /// Records that the next chunk was copied to `path`, with `length` user bytes.
    pub(crate) fn on_sent(&mut self, path: PathIndex, length: usize, now: Time) {
        let Some(on_path) = self.by_path.get_mut(path.get()) else { return };
        if let Some(seq) = on_path.waiting.pop_front() {
            on_path.sent.push_back(Copy { seq, length, sent_at: now });
            on_path.flight += length;
        }
    }

    /// Returns the user bytes of copies in flight on `path`.
    pub(crate) fn flight(&self, path: PathIndex) -> usize {
        self.by_path.get(path.get()).map_or(0, |on_path| on_path.flight)
    }

    /// Handles a SACK for the copies on `path`. `srtt` belongs to that path, and `duplicates` come from the SACK. `is_done` returns whether
    /// a chunk is acknowledged or abandoned.
    pub(crate) fn settle(
        &mut self,
        path: PathIndex,
        srtt: Option<Duration>,
        duplicates: &[Seq],
        is_done: impl Fn(Seq) -> bool,
        now: Time,
    ) -> CopyAcks {
        let mut acks = CopyAcks::default();
        let Some(on_path) = self.by_path.get_mut(path.get()) else { return acks };
        let (mut freed, mut settled) = (0, 0);
        on_path.sent.retain(|copy| {
            let age = now - copy.sent_at;
            let could_have_come = srtt.is_none_or(|srtt| age >= srtt * 3 / 4);
            let arrived = duplicates.contains(&copy.seq) || (could_have_come && is_done(copy.seq));
            let is_late = srtt.is_some_and(|srtt| age > srtt * 2);
            if arrived {
                acks.bytes += copy.length;
                acks.newest = acks.newest.max(Some(copy.sent_at));
            } else if is_late {
                acks.lost += 1;
                acks.lost_bytes += copy.length;
                acks.newest_lost = acks.newest_lost.max(copy.sent_at);
            } else {
                return true;
            }
            settled += 1;
            freed += copy.length;
            false
        });
        on_path.flight -= freed;
        self.silent = match duplicates {
            [] => self.silent.map(|silent| silent + settled),
            _ => Some(0),
        };
        acks
    }

    /// Reports whether one of two paths may be dead: at least `SILENT_MAX` copies were settled, and the peer reported no duplicate. While
    /// the other path delivers all chunks, nothing else reveals the dead path. With three paths, this check does not work, because the two
    /// working paths still produce duplicates. A positive report restarts the count.
    pub(crate) fn take_silence(&mut self) -> bool {
        let is_silent = self.silent.is_some_and(|silent| silent >= SILENT_MAX);
        if is_silent {
            self.silent = Some(0);
        }
        is_silent
    }

    /// Returns the paths to which chunks wait to be copied.
    pub(crate) fn wanted(&self) -> SmallVec<[PathIndex; 4]> {
        let by_path = self.by_path.iter().enumerate();
        by_path.filter(|(_, on_path)| !on_path.waiting.is_empty()).map(|(i, _)| PathIndex::new(i)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;
    const PATH: PathIndex = PathIndex::new(1);
    const SRTT: Option<Duration> = Some(Duration::from_millis(40));

    /// Creates one copy of 100 bytes, sent at time zero.
    fn one() -> Copies {
        let mut copies = Copies::default();
        copies.wish(Seq(3), PATH);
        copies.on_sent(PATH, 100, MS(0));
        copies
    }

    #[test]
    fn a_copy_is_acknowledged_by_a_duplicate_report_and_not_by_a_sack_that_is_too_early() {
        let mut copies = one();
        assert_eq!(copies.settle(PATH, SRTT, &[], |_| true, MS(20)), CopyAcks::default());
        assert_eq!(copies.flight(PATH), 100);
        let acks = copies.settle(PATH, SRTT, &[Seq(3)], |_| true, MS(25));
        assert_eq!((acks.bytes, acks.lost, copies.flight(PATH)), (100, 0, 0));
    }

    /// Copies a chunk. Then handles a SACK 30 ms later that acknowledges the chunk and reports these duplicates.
    fn settle_one(copies: &mut Copies, duplicates: &[Seq]) {
        copies.wish(Seq(4), PATH);
        copies.on_sent(PATH, 100, MS(0));
        copies.settle(PATH, SRTT, duplicates, |_| true, MS(30));
    }

    #[test]
    fn many_chunks_without_a_duplicate_are_a_silence_if_the_peer_reports_duplicates() {
        let mut copies = one();
        (0..2 * SILENT_MAX).for_each(|_| settle_one(&mut copies, &[]));
        assert!(!copies.take_silence(), "this peer may never report any");
        settle_one(&mut copies, &[Seq(9)]);
        (1..SILENT_MAX).for_each(|_| settle_one(&mut copies, &[]));
        assert!(!copies.take_silence());
        settle_one(&mut copies, &[]);
        assert!(copies.take_silence());
        assert!(!copies.take_silence());
    }

    #[test]
    fn a_copy_is_delivered_if_acknowledged_in_time_and_lost_after_two_silent_round_trips() {
        let mut copies = one();
        let acks = copies.settle(PATH, SRTT, &[], |_| true, MS(30));
        assert_eq!((acks.bytes, acks.lost, copies.flight(PATH)), (100, 0, 0));
        let mut copies = one();
        assert_eq!(copies.settle(PATH, SRTT, &[], |_| false, MS(80)), CopyAcks::default());
        let acks = copies.settle(PATH, SRTT, &[], |_| false, MS(81));
        assert_eq!((acks.bytes, acks.lost, copies.flight(PATH)), (0, 1, 0));
    }
}

//! Choice of path for the next packet: for new data, lost chunks and SACKs.
//!
//! With [`Multipath::Off`] new data uses only [`Paths::current`](crate::path::Paths::current). Otherwise
//! every active path carries new data, and the scheduler chooses among those with room. A path with room may
//! still be skipped: a chunk on a slow path makes the receiver hold all later data, and once that fills the
//! smaller of both ends' buffers, the fast paths stall ("buffer blocking"). So a slow path is used only as
//! far as the buffers have room for what the faster paths send meanwhile. Start at
//! [`Transfer::new_data_path`].

use std::time::Duration;

use super::Transfer;
use crate::info::PathState;
use crate::multipath::{Multipath, PathScheduler};
use crate::path::{PathIndex, Rank};

/// Scale of turns: a turn counts bytes times this, divided by the weight of the path.
const TURN_SCALE: u64 = 1 << 16;

/// Maximum number of bytes by which a path of weight one may lag behind the others.
const CATCH_UP: u64 = 64 << 10;

impl Transfer {
    /// Returns whether new data uses all paths at once.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.config.multipath != Multipath::Off
    }

    /// Returns whether `path` carries new data. The current path always does: without an active path, it is
    /// the only one.
    pub(crate) fn carries_new_data(&self, path: PathIndex) -> bool {
        path == self.paths.current()
            || (self.is_concurrent()
                && self.paths.get(path).state() == PathState::Active
                && self.paths.joins_current(path))
    }

    /// Sort key of paths that carry data at once: those that the uses of their addresses prefer, then fast ones.
    fn precedence(&self, path: PathIndex) -> (Rank, Duration) {
        (self.paths.rank(path), self.paths.slowness(path))
    }

    /// Returns the path of the next packet of new data, if there is data and a path on which it may leave
    /// now.
    pub(crate) fn new_data_path(&self) -> Option<PathIndex> {
        match self.config.multipath {
            Multipath::Off => {
                let current = self.paths.current();
                self.next_new_length(current).map(|_| current)
            }
            Multipath::Concurrent { scheduler } => {
                let ready =
                    self.paths.indices().filter(|&i| self.next_new_length(i).is_some() && self.may_begin(i));
                match scheduler {
                    PathScheduler::LowestRtt | PathScheduler::Redundant => {
                        ready.min_by_key(|&i| self.precedence(i))
                    }
                    PathScheduler::Weighted => ready.min_by_key(|&i| self.turn(i)),
                }
            }
        }
    }

    /// Returns whether paths take turns by weight.
    fn is_weighted(&self) -> bool {
        self.config.multipath == Multipath::Concurrent { scheduler: PathScheduler::Weighted }
    }

    /// The turn of `path`; the lowest is next. A path that had no room or was absent catches up by at most
    /// [`CATCH_UP`] bytes times its weight.
    fn turn(&self, path: PathIndex) -> u64 {
        let most = self.paths.iter().map(|(_, p)| p.turn).max().unwrap_or(0);
        self.paths.get(path).turn.max(most.saturating_sub(CATCH_UP * TURN_SCALE))
    }

    /// Notes paths whose turn came before that of `path` but which had no room: their window limits them, and
    /// should grow.
    fn note_missed_turns(&mut self, path: PathIndex, turn: u64) {
        for other in self.paths.indices().filter(|&i| i != path) {
            let flight = self.tx.outstanding.flight(other);
            let is_full = !self.paths.get(other).sending.has_window(flight) || !self.may_begin(other);
            if is_full && self.carries_new_data(other) && self.turn(other) < turn {
                self.paths.get_mut(other).sending.note_full();
            }
        }
    }

    /// Accounts for `length` bytes of new data leaving on `path`.
    pub(crate) fn note_new_data(&mut self, path: PathIndex, length: usize) {
        let turn = if self.is_weighted() { self.turn(path) } else { 0 };
        if self.is_weighted() {
            self.note_missed_turns(path, turn);
        }
        let path = self.paths.get_mut(path);
        path.counters.new_data += length as u64;
        path.turn = turn.saturating_add(length as u64 * TURN_SCALE / u64::from(path.weight()));
    }

    /// Returns whether new data may start to leave on `path`. Slow paths wait for room for a train: each of
    /// their trains is a gap that SACKs must report until it arrives, and a SACK can report only so many
    /// (Linux: 16).
    pub(crate) fn may_begin(&self, path: PathIndex) -> bool {
        let flight = self.tx.outstanding.flight(path);
        !self.is_concurrent()
            || self.is_quickest(path)
            || self.paths.get(path).sending.has_train_window(flight)
    }

    fn is_quickest(&self, path: PathIndex) -> bool {
        let quickest = self.paths.indices().filter(|&i| self.carries_new_data(i));
        quickest.min_by_key(|&i| self.precedence(i)) == Some(path)
    }

    /// Returns whether new data on `path` would arrive so late that it should wait for faster paths, although
    /// they have no room now.
    ///
    /// Until the chunk is acknowledged, the faster paths send what their windows permit in that time. All of
    /// it waits for the chunk, together with what `path` carries already. This is the estimate of the
    /// blocking-estimation scheduler (BLEST), generalized to any number of paths; if the program has no more
    /// to send, it is that of earliest completion first (ECF).
    pub(crate) fn is_detour(&self, path: PathIndex) -> bool {
        if !self.is_concurrent() {
            return false;
        }
        let Some(slow) = self.paths.get(path).srtt() else { return false };
        // The round trip of the slow path may be growing: add a quarter.
        let meanwhile = self.sent_meanwhile(path, slow);
        let meanwhile = meanwhile.saturating_add(meanwhile / 4);
        if meanwhile == 0 {
            return false;
        }
        let room = self.config.send_buffer.min(self.tx.outstanding.bytes() + self.tx.window.room());
        let packet = self.paths.get(path).packet_size();
        let blocks = meanwhile + self.tx.outstanding.flight(path) + packet > room;
        // With the send buffer full there is more to come than is visible here.
        let is_all = !self.tx.buffer.wants_room() && self.send_capacity() >= self.config.send_buffer / 4;
        blocks || (is_all && !self.is_weighted() && self.tx.queue.bytes() < meanwhile)
    }

    /// Bytes that the paths faster than `path` can send in one of its round trips. A path of a later rank is no reason to
    /// spare this one.
    fn sent_meanwhile(&self, path: PathIndex, slow: Duration) -> usize {
        let rank = self.paths.rank(path);
        let quicker = self
            .paths
            .iter()
            .filter(|&(i, p)| i != path && p.rank() <= rank && p.state() == PathState::Active);
        let sent = quicker.filter_map(|(_, p)| {
            let quick = p.srtt().filter(|&quick| quick < slow)?;
            let bytes = p.sending.cwnd() as u128 * slow.as_nanos() / quick.as_nanos().max(1);
            usize::try_from(bytes).ok()
        });
        sent.fold(0, usize::saturating_add)
    }

    /// Returns the path for the earliest lost chunk: the one it was lost on while active, otherwise another.
    /// If several paths carry data, it is the fastest with room, since everything behind the chunk waits for
    /// it. But a path more than twice as slow as the fastest is never used: waiting for room on the fastest is
    /// quicker.
    //= rfc9260#6.4-4 6.4-5
    //= rfc7829#3.2-5
    //= rfc9260#6.4-4 6.4-5
    pub(crate) fn retransmission_path(&self) -> Option<PathIndex> {
        let (_, _, last) = self.tx.next_lost()?;
        if self.is_concurrent() {
            let carrying = || self.paths.indices().filter(|&i| self.carries_new_data(i));
            let least = carrying().map(|i| self.paths.slowness(i)).min()?;
            let paths = carrying().filter(|&i| self.paths.slowness(i) <= least.saturating_mul(2));
            return paths.min_by_key(|&i| (!self.window_allows(i), self.paths.slowness(i)));
        }
        // RFC 9260 section 6.4: if the current path has changed, data lost on the old one MAY use the new
        // one. If it changed because the old one was silent, even without a timeout so far, everything else
        // would be lost again.
        let stays = last == self.paths.current() && self.paths.get(last).state() == PathState::Active;
        Some(if stays { last } else { self.paths.alternate(last) })
    }
}

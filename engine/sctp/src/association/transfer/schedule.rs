//! Choice of path for new data and for lost chunks.
//!
//! With [`Multipath::Off`], new data uses only [`Paths::current`](crate::path::Paths::current). Otherwise every active
//! path carries new data, and the scheduler chooses among the paths with room.
//!
//! A path with room may still be skipped. A chunk on a slow path makes the receiver hold all later data. Once this data
//! fills the send buffer or the receive buffer, whichever is smaller, the fast paths stall ("buffer blocking"). A slow
//! path is therefore used only if the buffers have room for the data that the faster paths send meanwhile. Start at
//! [`Transfer::new_data_path`].

use std::time::Duration;

use super::Transfer;
use crate::info::PathState;
use crate::multipath::{Multipath, PathScheduler};
use crate::path::{PathIndex, Rank};

/// Scale of the paths' turns, which are counters of the weighted scheduler. Each byte that a path sends advances the
/// path's turn by this scale, divided by the path's weight.
const TURN_SCALE: u64 = 1 << 16;

/// Maximum number of bytes by which a path of weight one may lag behind the others.
const CATCH_UP: u64 = 64 << 10;

impl Transfer {
    /// Returns whether new data uses all paths at once.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.config.multipath != Multipath::Off
    }

    /// Returns whether `path` carries new data. The current path always carries new data. If no path is active, the
    /// current path is the only path that carries new data.
    pub(crate) fn carries_new_data(&self, path: PathIndex) -> bool {
        path == self.paths.current()
            || (self.is_concurrent()
                && self.paths.get(path).state() == PathState::Active
                && self.paths.joins_current(path))
    }

    /// Returns the sort key of a path, for paths that carry data at the same time. A better rank counts more than
    /// speed. Ranks follow from the uses of addresses.
    fn precedence(&self, path: PathIndex) -> (Rank, Duration) {
        (self.paths.rank(path), self.paths.slowness(path))
    }

    /// Returns the path of the next packet of new data. Returns `None` without data, or if no path may send now.
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

    /// Reports whether paths take turns by weight.
    fn is_weighted(&self) -> bool {
        self.config.multipath == Multipath::Concurrent { scheduler: PathScheduler::Weighted }
    }

    /// Returns the turn of `path`. The path with the lowest turn is next. After a time without room or without data, a
    /// path catches up with the other paths by at most [`CATCH_UP`] bytes times its weight.
    fn turn(&self, path: PathIndex) -> u64 {
        let most = self.paths.iter().map(|(_, p)| p.turn).max().unwrap_or(0);
        self.paths.get(path).turn.max(most.saturating_sub(CATCH_UP * TURN_SCALE))
    }

    /// Records that some paths were skipped because their windows had no room, although their turns came before the
    /// turn of `path`. The windows of the skipped paths should grow.
    fn note_missed_turns(&mut self, path: PathIndex, turn: u64) {
        for other in self.paths.indices().filter(|&i| i != path) {
            let flight = self.tx.outstanding.flight(other);
            let is_full = !self.paths.get(other).sending.has_window(flight) || !self.may_begin(other);
            if is_full && self.carries_new_data(other) && self.turn(other) < turn {
                self.paths.get_mut(other).sending.note_full();
            }
        }
    }

    /// Accounts for `length` bytes of new data that leave on `path`.
    pub(crate) fn note_new_data(&mut self, path: PathIndex, length: usize) {
        let turn = if self.is_weighted() { self.turn(path) } else { 0 };
        if self.is_weighted() {
            self.note_missed_turns(path, turn);
        }
        let path = self.paths.get_mut(path);
        path.counters.new_data += length as u64;
        path.turn = turn.saturating_add(length as u64 * TURN_SCALE / u64::from(path.weight()));
    }

    /// Reports whether new data may begin to leave on `path`. A slower path waits until its window has room for a
    /// train. SACKs must report each train on a slower path as a gap until the train arrives. A SACK can report only a
    /// few gaps (Linux: 16), so the trains should be few and long.
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

    /// Reports whether new data on `path` would arrive so late that it should wait for faster paths, which have no room
    /// now.
    ///
    /// Until a new chunk on `path` is acknowledged, the faster paths send as much as their windows permit. All this
    /// data waits for the chunk at the receiver, together with the data in flight on `path`. This is the estimate of
    /// the blocking-estimation scheduler (BLEST), generalized to any number of paths. If the program has no more data
    /// to send, the rule of earliest completion first (ECF) applies too.
    pub(crate) fn is_detour(&self, path: PathIndex) -> bool {
        if !self.is_concurrent() {
            return false;
        }
        let Some(slow) = self.paths.get(path).srtt() else { return false };
        // The round trip of the slow path may be growing, so a quarter of the estimate is added.
        let meanwhile = self.sent_meanwhile(path, slow);
        let meanwhile = meanwhile.saturating_add(meanwhile / 4);
        if meanwhile == 0 {
            return false;
        }
        let room = self.config.send_buffer.min(self.tx.outstanding.bytes() + self.tx.window.room());
        let packet = self.paths.get(path).packet_size();
        let blocks = meanwhile + self.tx.outstanding.flight(path) + packet > room;
        // If the send buffer is full, the program has more data than is visible here.
        let is_all = !self.tx.buffer.wants_room() && self.send_capacity() >= self.config.send_buffer / 4;
        blocks || (is_all && !self.is_weighted() && self.tx.queue.bytes() < meanwhile)
    }

    /// Returns the number of bytes that the paths faster than `path` can send in one round trip of `path`. Paths of a
    /// later rank do not count.
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

    /// Returns the path for the earliest lost chunk. If one path carries data at a time, returns the current path if
    /// the chunk was lost on it and the path is active. Otherwise, returns an alternate path. If several paths carry
    /// data, returns the fastest path with room, because all later data waits for the chunk. A path more than twice as
    /// slow as the fastest path is never used, because the wait for room on the fastest path is shorter.
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
        // RFC 9260 section 6.4: after a change of the current path, data lost on the old path MAY use the new one. The
        // old path may have been left because it was silent, even before a timeout. Data retransmitted there would be
        // lost again.
        let stays = last == self.paths.current() && self.paths.get(last).state() == PathState::Active;
        Some(if stays { last } else { self.paths.alternate(last) })
    }
}

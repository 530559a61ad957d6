//! Which path takes the next packet: of new data, of what was lost, and of SACKs.
//!
//! With [`Multipath::Off`] new data goes by [`Paths::current`](crate::path::Paths::current) alone. Else every active
//! path carries new data, and the scheduler picks among those that have room. A path may have room and yet be passed
//! over: a chunk on a slow path holds back, at the receiver, all that was sent after it, and once that fills the smaller
//! of the two ends' buffers the quick paths stand still ("buffer blocking"). So a slow path is used only as far as the
//! buffers have room beside what the quicker paths send meanwhile. Begin at [`Association::new_data_path`].

use std::time::Duration;

use super::Association;
use crate::info::PathState;
use crate::multipath::{Multipath, PathScheduler};
use crate::path::PathIndex;

/// A turn counts bytes times this, divided by the weight of the path.
const TURN_SCALE: u64 = 1 << 16;

/// Bytes by which a path of weight one may be behind the others.
const CATCH_UP: u64 = 64 << 10;

impl Association {
    /// Whether new data goes by all paths at once.
    pub(super) fn is_concurrent(&self) -> bool {
        self.config.multipath != Multipath::Off
    }

    /// Whether `path` is one of those that new data goes by. The path in use always is: when no path is active, it is
    /// the only one.
    pub(super) fn carries_new_data(&self, path: PathIndex) -> bool {
        path == self.paths.current()
            || (self.is_concurrent() && self.paths.get(path).state() == PathState::Active)
    }

    /// The path of the next packet of new data, if there is such data and a path that it may leave by now.
    pub(super) fn new_data_path(&self) -> Option<PathIndex> {
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
                        ready.min_by_key(|&i| self.slowness(i))
                    }
                    PathScheduler::Weighted => ready.min_by_key(|&i| self.turn(i)),
                }
            }
        }
    }

    /// Whether paths take turns by their weights.
    fn is_weighted(&self) -> bool {
        self.config.multipath == Multipath::Concurrent { scheduler: PathScheduler::Weighted }
    }

    /// Where `path` stands: the least is next. One that had no room, or was not there, catches up with no more than so
    /// many bytes for a weight of one.
    fn turn(&self, path: PathIndex) -> u64 {
        let most = self.paths.iter().map(|(_, p)| p.turn).max().unwrap_or(0);
        self.paths.get(path).turn.max(most.saturating_sub(CATCH_UP * TURN_SCALE))
    }

    /// A path whose turn came before that of `path` had no room: its window is what holds it back, and shall grow.
    fn note_missed_turns(&mut self, path: PathIndex, turn: u64) {
        for other in self.paths.indices().filter(|&i| i != path) {
            let flight = self.outstanding.flight(other);
            let is_full = !self.paths.get(other).sending.has_window(flight) || !self.may_begin(other);
            if is_full && self.carries_new_data(other) && self.turn(other) < turn {
                self.paths.get_mut(other).sending.note_full();
            }
        }
    }

    /// So many bytes of new data leave by `path`.
    pub(super) fn note_new_data(&mut self, path: PathIndex, length: usize) {
        let turn = if self.is_weighted() { self.turn(path) } else { 0 };
        if self.is_weighted() {
            self.note_missed_turns(path, turn);
        }
        let path = self.paths.get_mut(path);
        path.counters.new_data += length as u64;
        path.turn = turn.saturating_add(length as u64 * TURN_SCALE / u64::from(path.weight()));
    }

    /// Whether new data may begin to leave by `path`. Slow paths wait for room for a train: each train of theirs is a hole
    /// that SACKs must report until it arrives, and of many holes they can report but some (Linux: 16).
    pub(super) fn may_begin(&self, path: PathIndex) -> bool {
        let flight = self.outstanding.flight(path);
        !self.is_concurrent()
            || self.is_quickest(path)
            || self.paths.get(path).sending.has_train_window(flight)
    }

    fn is_quickest(&self, path: PathIndex) -> bool {
        let quickest = self.paths.indices().filter(|&i| self.carries_new_data(i));
        quickest.min_by_key(|&i| self.slowness(i)) == Some(path)
    }

    /// Orders paths: quick before slow before unmeasured.
    fn slowness(&self, path: PathIndex) -> Duration {
        self.paths.get(path).srtt().unwrap_or(Duration::MAX)
    }

    /// Whether new data sent by `path` would arrive so late that it is better left to quicker paths, though they have no
    /// room now.
    ///
    /// Until the chunk is acknowledged, the quicker paths send what their windows let them in that time. All of it waits
    /// for the chunk, together with what `path` carries already. This is the estimate of the blocking estimation
    /// scheduler (BLEST), made for any number of paths; and where the program has no more to give, that of earliest
    /// completion first (ECF).
    pub(super) fn is_detour(&self, path: PathIndex) -> bool {
        if !self.is_concurrent() {
            return false;
        }
        let Some(slow) = self.paths.get(path).srtt() else { return false };
        // The round trip of the slow path may be growing: a quarter on top.
        let meanwhile = self.sent_meanwhile(path, slow);
        let meanwhile = meanwhile.saturating_add(meanwhile / 4);
        if meanwhile == 0 {
            return false;
        }
        let room = self.config.send_buffer.min(self.outstanding.bytes() + self.peer_rwnd);
        let packet = self.paths.get(path).packet_size();
        let blocks = meanwhile + self.outstanding.flight(path) + packet > room;
        // With the send buffer full there is more to come than is seen here.
        let is_all = !self.writable_wanted && self.send_capacity() >= self.config.send_buffer / 4;
        blocks || (is_all && !self.is_weighted() && self.queue.bytes() < meanwhile)
    }

    /// Bytes that the paths quicker than `path` can send in a round trip of it.
    fn sent_meanwhile(&self, path: PathIndex, slow: Duration) -> usize {
        let quicker = self.paths.iter().filter(|&(i, p)| i != path && p.state() == PathState::Active);
        let sent = quicker.filter_map(|(_, p)| {
            let quick = p.srtt().filter(|&quick| quick < slow)?;
            let bytes = p.sending.cwnd() as u128 * slow.as_nanos() / quick.as_nanos().max(1);
            usize::try_from(bytes).ok()
        });
        sent.fold(0, usize::saturating_add)
    }

    /// The path for the earliest lost chunk: the one it was lost on while that is active, else another. Where several
    /// carry data, the quickest that has room, for everything behind the chunk waits for it: but none that takes longer
    /// than a round trip of the quickest to get room, and another to deliver.
    //= rfc9260#6.4-4 6.4-5
    //= rfc7829#3.2-5
    //= rfc9260#6.4-4 6.4-5
    pub(super) fn retransmission_path(&self) -> Option<PathIndex> {
        let (_, _, last) = self.next_lost()?;
        if self.is_concurrent() {
            let carrying = || self.paths.indices().filter(|&i| self.carries_new_data(i));
            let least = carrying().map(|i| self.slowness(i)).min()?;
            let paths = carrying().filter(|&i| self.slowness(i) <= least.saturating_mul(2));
            return paths.min_by_key(|&i| (!self.window_allows(i), self.slowness(i)));
        }
        // RFC 9260 section 6.4: where the path in use has changed, what was lost on the old one MAY go by the new one. If it
        // changed because the old one was silent, though no timeout has said so yet, all else would be lost again.
        let stays = last == self.paths.current() && self.paths.get(last).state() == PathState::Active;
        Some(if stays { last } else { self.paths.alternate(last) })
    }

    /// DATA came by `path`. The SACK for it will go back by the path that DATA last came by (RFC 9260 section 6.4). Where
    /// data comes by several at once, it takes the quickest of those that brought some since the last SACK: these have
    /// just proved that they work, and the sender's windows wait for the answer. `is_first`: no SACK was due before.
    pub(super) fn note_data_path(&mut self, path: PathIndex, is_first: bool) {
        if is_first || !self.is_concurrent() || self.slowness(path) < self.slowness(self.data_path) {
            self.data_path = path;
        }
    }

    /// SACKs go where the data came from (RFC 9260 section 6.4). If duplicates say that they may not get through there,
    /// the first goes where those came from, whatever has still arrived by the old way, and every other one another way; not all,
    /// for that way may be the dead one. A path that counts as failed and has just been heard again has come back for both ends:
    /// it is judged by the HEARTBEAT that is out, not by its past.
    //= rfc9260#6.4-3 6.7-2
    pub(super) fn sack_path(&self) -> PathIndex {
        let has_duplicates = self.inbound.has_duplicates();
        let is_repeated = has_duplicates && !self.is_concurrent();
        let path = if is_repeated { self.duplicate_path } else { self.data_path };
        let deviates = has_duplicates && self.sack_deviates;
        let from = self.paths.get(path);
        if !deviates && (from.state() == PathState::Active || from.may_have_returned()) {
            path
        } else {
            self.paths.alternate(path)
        }
    }
}

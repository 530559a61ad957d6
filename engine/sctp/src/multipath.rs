//! Distribution of an association's data over its paths.

/// Use of the paths for new data: one at a time, or all at once.
///
/// The sender alone chooses: the peer accepts data on any path, and may itself send otherwise. A peer that does not know
/// this feature sends its SACKs on the path on which data last arrived, which is sufficient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Multipath {
    /// One path at a time carries new data: the primary path while it works (RFC 9260 section 6.4).
    #[default]
    Off,
    /// Every confirmed, active path carries new data (concurrent multipath transfer, CMT). Each path has its own congestion
    /// window, round trip and timers. Losses are detected on each path separately, so a chunk does not count as lost because
    /// another path was faster. Lost data is retransmitted on the fastest path that has room.
    Concurrent {
        /// Rule that chooses the path of the next packet.
        scheduler: PathScheduler,
    },
}

/// Rule that chooses the path of the next packet of new data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathScheduler {
    /// The path with the shortest round trip of all paths whose window has room. A slower path is skipped if its chunk would
    /// arrive too late, that is, in two cases:
    ///
    /// * The faster paths could meanwhile fill our send buffer or the peer's receive window.
    /// * The faster paths could meanwhile send all waiting data.
    #[default]
    LowestRtt,
    /// Each path in proportion to its weight ([`PathOptions::weight`](crate::PathOptions::weight)), while its window has
    /// room. A path without room leaves its turn to the others. A slower path is skipped only if it would fill the buffers.
    Weighted,
    /// Every chunk is sent on all active paths whose windows have room, and the first copy to arrive counts. This suits small
    /// messages that must not be late: a path failure, or a loss on one path, delays nothing. The bandwidth is multiplied by
    /// the number of paths. The chunk itself belongs to the fastest path with room, and the other paths carry copies.
    Redundant,
}

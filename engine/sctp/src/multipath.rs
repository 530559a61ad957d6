//! Distribution of an association's data over its paths.

/// Use of the paths for new data: one at a time, or all at once.
///
/// Each end chooses only for the data that it sends: its peer accepts data on any path, and may use another setting. A peer
/// that does not know this feature sends its SACKs on the path on which data last arrived. Such SACKs are sufficient.
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
    /// * Before the chunk arrives, the faster paths could fill our send buffer or the peer's receive window.
    /// * Before the chunk arrives, the faster paths could send all waiting data.
    #[default]
    LowestRtt,
    /// Each path in proportion to its weight ([`PathOptions::weight`](crate::PathOptions::weight)), while its window has
    /// room. While a path's window has no room, the other paths carry its part. A slower path is skipped only in the first of
    /// the two cases of `LowestRtt`.
    Weighted,
    /// Every chunk is sent on all active paths whose windows have room, and the first copy to arrive counts. This rule suits
    /// small messages that must not be late: a path failure, or a loss on one path, delays no message. The bandwidth that a
    /// message uses is multiplied by the number of paths that carry copies. The original chunk leaves on the fastest path
    /// whose window has room, and the other paths carry copies.
    Redundant,
}

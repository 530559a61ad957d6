//! Distribution of an association's data over its paths.

/// Use of the paths for new data: one at a time, or all at once.
///
/// It is for the sender alone to choose: the peer takes data on any path, and may itself send otherwise. One that is not
/// of this kind acknowledges by the path that data last came by, which is good enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Multipath {
    /// One path at a time carries new data: the primary one while it works (RFC 9260 section 6.4).
    #[default]
    Off,
    /// Every confirmed, active path carries new data (concurrent multipath transfer, CMT). Each has its own congestion
    /// window, round trip and timers, and losses are found on each by itself, so that a chunk is never taken for lost
    /// because another path was quicker. Lost data is sent again by the quickest path that has room.
    Concurrent {
        /// Which path takes the next packet.
        scheduler: PathScheduler,
    },
}

/// Which of several paths takes the next packet of new data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathScheduler {
    /// The one with the least round trip of those whose window has room. A slower one is passed over while a chunk
    /// sent there would arrive so late that the quicker ones would meanwhile fill the smaller of our send buffer and
    /// the peer's window, or would be done with all there is to send.
    #[default]
    LowestRtt,
    /// Each in proportion to its weight ([`PathOptions::weight`](crate::PathOptions::weight)), as long as its window has
    /// room; what has none leaves its turn to the others. A slower path is passed over only where it would fill the buffers.
    Weighted,
    /// Every chunk goes by all active paths, as far as their windows have room, and the first to arrive counts: for small
    /// messages that must not be late. A path that dies, or a packet that is lost on one of them, delays nothing. It takes
    /// as many times the bandwidth as there are paths. Each chunk belongs to the quickest path with room.
    Redundant,
}

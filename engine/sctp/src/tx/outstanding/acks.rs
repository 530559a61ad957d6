//! Effect of a SACK on each path.

use std::time::Duration;

use base::Time;
use smallvec::SmallVec;

use super::Losses;
use crate::tx::Seq;
use crate::tx::transmissions::RateSample;

/// Effect of a SACK on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathAcks {
    /// User bytes newly acknowledged.
    pub(crate) bytes: usize,
    /// Chunks newly acknowledged.
    pub(crate) chunks: usize,
    /// User bytes of the longest newly acknowledged chunk. Only chunks count that were in flight and had no copies on other paths.
    pub(crate) longest: usize,
    /// The last newly acknowledged chunk that was sent only once, and its round-trip time.
    pub(crate) newest: Option<(Seq, Duration)>,
    /// Time at which the newest of the newly acknowledged chunks was sent.
    pub(crate) newest_sent_at: Option<Time>,
    /// True if a chunk of the path was acknowledged cumulatively, so the first outstanding chunk has changed.
    pub(crate) earliest: bool,
    /// True if the earliest sent chunk in flight on the path was acknowledged, even if other paths' chunks hold back the cumulative TSN.
    pub(crate) front_moved: bool,
    /// Chunks newly declared lost.
    pub(crate) lost: Losses,
    /// Number of chunks that had been declared lost too early.
    pub(crate) spurious: usize,
    /// True if the last timeout was spurious, and the chunks that it declared lost are in flight again.
    pub(crate) timeout_was_spurious: bool,
    /// True if a tail-loss probe repaired a loss that loss detection had not found.
    pub(crate) probe_mended: bool,
    /// Delivery rate.
    pub(crate) rate: Option<RateSample>,
    /// True if a round trip has ended: a chunk sent since its start was delivered.
    pub(crate) round_over: bool,
    /// True if the acknowledgement proves that the path works: it covers a chunk that was still in flight on the path. A chunk that was
    /// declared lost may have arrived long before the path failed.
    pub(crate) proves_path: bool,
}

/// Effects of a SACK by path, with the indices of the paths.
pub(crate) type Acks = SmallVec<[PathAcks; 2]>;

//! The effect of a SACK, path by path.

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
    /// User bytes of the longest chunk newly acknowledged that was in flight, on this path only.
    pub(crate) longest: usize,
    /// The newest newly acknowledged chunk that was sent only once, and when.
    pub(crate) newest: Option<(Seq, Duration)>,
    /// Time at which the last sent of the newly acknowledged chunks was sent.
    pub(crate) newest_sent_at: Option<Time>,
    /// True if chunks of the path were acknowledged cumulatively: the earliest outstanding one has changed.
    pub(crate) earliest: bool,
    /// True if the earliest sent chunk in flight on the path was acknowledged, even if others hold back the cumulative
    /// TSN.
    pub(crate) front_moved: bool,
    /// Chunks newly found lost.
    pub(crate) lost: Losses,
    /// Chunks that had been given up too early.
    pub(crate) spurious: usize,
    /// The last timeout was spurious, and what it gave up is in flight again.
    pub(crate) timeout_was_spurious: bool,
    /// A probe for the loss of a tail was what mended it: a loss that was not found otherwise.
    pub(crate) probe_mended: bool,
    /// Delivery rate.
    pub(crate) rate: Option<RateSample>,
    /// A round trip is over.
    pub(crate) round_over: bool,
    /// True if the acknowledgement proves that the path works: the chunk was not given up on it before. Others may have
    /// been received long before the path failed.
    pub(crate) proves_path: bool,
}

/// Effect of a SACK, path by path (indexed like the paths).
pub(crate) type Acks = SmallVec<[PathAcks; 2]>;

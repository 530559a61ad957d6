//! The path of SACKs (RFC 9260 section 6.4).
//!
//! A SACK goes where the data came from. With data on several paths, it takes the fastest of those that
//! delivered some since the last SACK: they have just proved to work, and the sender's windows wait for the
//! answer. Duplicates suggest that SACKs are lost. Start at [`SackRoute::choose`].

use crate::info::PathState;
use crate::path::{PathIndex, Paths, Retired};

/// The paths on which data arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct SackRoute {
    /// The path on which DATA last arrived, to which SACKs go.
    data: PathIndex,
    /// The path on which the last duplicate arrived.
    duplicate: PathIndex,
    /// Set if the next SACK that reports duplicates takes another path.
    deviates: bool,
}

impl SackRoute {
    pub(super) fn new(first: PathIndex) -> Self {
        SackRoute { data: first, duplicate: first, deviates: false }
    }

    /// The path on which data last arrived.
    #[inline]
    pub(super) fn data_path(&self) -> PathIndex {
        self.data
    }

    /// Handles DATA on `path`. `begins` is set if no SACK was due before, or if data uses one path at a time.
    #[inline]
    pub(super) fn on_data(&mut self, path: PathIndex, begins: bool, paths: &Paths) {
        if begins || paths.get(path).slowness() < paths.get(self.data).slowness() {
            self.data = path;
        }
    }

    /// Handles a duplicate on `path`.
    pub(super) fn on_duplicate(&mut self, path: PathIndex) {
        self.duplicate = path;
    }

    /// Returns the path of the next SACK. If there are duplicates to report, the first goes to their source
    /// (unless data uses all paths: `is_concurrent`), and every second one takes another path; not all, since
    /// that one may be dead. A failed path that was just heard again has recovered for both ends: the pending
    /// HEARTBEAT judges it, not its past.
    //= rfc9260#6.4-3 6.7-2
    #[inline]
    pub(super) fn choose(&self, has_duplicates: bool, is_concurrent: bool, paths: &Paths) -> PathIndex {
        let path = if has_duplicates && !is_concurrent { self.duplicate } else { self.data };
        let from = paths.get(path);
        let deviates = has_duplicates && self.deviates;
        if !deviates && (from.state() == PathState::Active || from.may_have_returned()) {
            path
        } else {
            paths.alternate(path)
        }
    }

    /// Records that a SACK has left.
    pub(super) fn on_sent(&mut self, had_duplicates: bool) {
        self.deviates = had_duplicates && !self.deviates;
    }

    /// Replaces retired paths by the current one.
    pub(super) fn leave_paths(&mut self, retired: &Retired) {
        for path in [&mut self.data, &mut self.duplicate] {
            if retired.has(*path) {
                *path = retired.current;
            }
        }
    }
}

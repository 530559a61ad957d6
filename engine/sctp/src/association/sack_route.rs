//! The path of SACKs (RFC 9260 section 6.4).
//!
//! A SACK takes the path on which data last arrived, because that path works. Data may use all paths at once, and may
//! have arrived on several paths since the last SACK. The next SACK then takes the fastest of these several paths, so
//! the sender's windows open sooner. Duplicates suggest that SACKs are lost, so some SACKs then take another path.
//! Start at [`SackRoute::choose`].

use crate::info::PathState;
use crate::path::{PathIndex, Paths, Retired};

/// The paths on which data arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct SackRoute {
    /// The path of SACKs: the path on which DATA last arrived. If data uses all paths, the fastest path on which DATA
    /// has arrived since the last SACK.
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

    /// Returns the path on which data last arrived. If data uses all paths, returns the fastest path on which data has
    /// arrived since the last SACK.
    #[inline]
    pub(super) fn data_path(&self) -> PathIndex {
        self.data
    }

    /// Handles DATA on `path`. `begins` is true for the first DATA since the last SACK, or if data uses one path at a
    /// time.
    #[inline]
    pub(super) fn on_data(&mut self, path: PathIndex, begins: bool, paths: &Paths) {
        if begins || paths.slowness(path) < paths.slowness(self.data) {
            self.data = path;
        }
    }

    /// Handles a duplicate on `path`.
    pub(super) fn on_duplicate(&mut self, path: PathIndex) {
        self.duplicate = path;
    }

    /// Returns the path of the next SACK. A SACK without duplicates takes the path of the data.
    ///
    /// SACKs that report duplicates alternate between two paths. The first of these SACKs takes the path of the
    /// duplicates. If data uses all paths (`is_concurrent`), the first SACK takes the path of the data. The second SACK
    /// takes an alternate path, and so on. Not every SACK takes the alternate path, because the alternate path may have
    /// failed.
    ///
    /// A failed path on which packets arrive again may carry SACKs. A HEARTBEAT on this path is pending, and will show
    /// whether the path works.
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

    /// Replaces retired paths with the current one.
    pub(super) fn leave_paths(&mut self, retired: &Retired) {
        for path in [&mut self.data, &mut self.duplicate] {
            if retired.has(*path) {
                *path = retired.current;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Timing;
    use crate::path::three_active;
    use crate::tx::Seq;

    const PATHS: [PathIndex; 3] = [PathIndex::new(0), PathIndex::new(1), PathIndex::new(2)];

    #[test]
    fn a_sack_goes_where_data_came_from() {
        let paths = three_active();
        let mut route = SackRoute::new(PATHS[0]);
        route.on_data(PATHS[1], true, &paths);
        assert_eq!(route.choose(false, false, &paths), PATHS[1]);
    }

    #[test]
    fn with_data_on_all_paths_the_fastest_that_delivered_some_carries_the_sack() {
        let mut paths = three_active();
        for (index, ms) in [(0, 30), (1, 10), (2, 20)] {
            let rtt = Duration::from_millis(ms);
            paths.get_mut(PATHS[index]).on_round_trip(Seq(0), rtt, Seq(1), &Timing::default());
        }
        let mut route = SackRoute::new(PATHS[0]);
        route.on_data(PATHS[2], true, &paths);
        route.on_data(PATHS[0], false, &paths);
        assert_eq!(route.choose(false, true, &paths), PATHS[2]);
        route.on_data(PATHS[1], false, &paths);
        assert_eq!(route.choose(false, true, &paths), PATHS[1]);
    }

    #[test]
    fn every_second_sack_that_reports_duplicates_takes_another_path() {
        let paths = three_active();
        let mut route = SackRoute::new(PATHS[0]);
        route.on_duplicate(PATHS[1]);
        assert_eq!(route.choose(true, false, &paths), PATHS[1]);
        route.on_sent(true);
        assert_ne!(route.choose(true, false, &paths), PATHS[1]);
        route.on_sent(true);
        assert_eq!(route.choose(true, false, &paths), PATHS[1]);
    }

    #[test]
    fn a_failed_path_carries_no_sack() {
        let mut paths = three_active();
        paths.get_mut(PATHS[0]).on_unreachable(&Timing::default());
        assert_ne!(SackRoute::new(PATHS[0]).choose(false, false, &paths), PATHS[0]);
    }
}

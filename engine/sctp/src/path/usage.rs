//! The use of a path for data, as the operators of both ends want it of their addresses. Start at [`PathUse::rank`].

use std::time::Duration;

use crate::config::{AddressUse, Preference};

/// The uses of a path's two addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathUse {
    /// Of our address.
    pub(crate) local: AddressUse,
    /// Of the peer's address.
    pub(crate) remote: AddressUse,
}

/// Rank of a path; the lowest one carries data. A backup of either end comes after all others, one of our own last: the peer cannot
/// have it carry data instead of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    is_our_backup: bool,
    is_their_backup: bool,
    secondary_ends: u8,
}

impl Rank {
    /// Returns whether a path of this rank may carry data together with one of rank `current`: unlike a backup, it need
    /// not wait until the others have failed.
    pub(crate) fn joins(self, current: Rank) -> bool {
        self.backups() <= current.backups()
    }

    fn backups(self) -> (bool, bool) {
        (self.is_our_backup, self.is_their_backup)
    }
}

impl PathUse {
    pub(crate) fn rank(&self) -> Rank {
        let ends = [self.local.preference, self.remote.preference];
        let secondary = ends.iter().filter(|end| **end == Preference::Secondary).count();
        Rank {
            is_our_backup: ends[0] == Preference::Backup,
            is_their_backup: ends[1] == Preference::Backup,
            secondary_ends: secondary as u8,
        }
    }

    /// The interval between heartbeats of a path that is not in use and would have `usual` otherwise.
    pub(crate) fn heartbeat(&self, usual: Duration) -> Duration {
        let asked = [self.local.heartbeat, self.remote.heartbeat].into_iter().flatten();
        asked.map(|asked| asked.min(AddressUse::HEARTBEAT_MAX)).fold(usual, Duration::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(local: Preference, remote: Preference) -> Rank {
        let with = |preference| AddressUse { preference, heartbeat: None };
        PathUse { local: with(local), remote: with(remote) }.rank()
    }

    #[test]
    fn a_backup_at_either_end_comes_after_all_others() {
        use Preference::{Backup, Primary, Secondary};
        let order = [
            of(Primary, Primary),
            of(Primary, Secondary),
            of(Secondary, Secondary),
            of(Secondary, Backup),
            of(Backup, Primary),
            of(Backup, Secondary),
            of(Backup, Backup),
        ];
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
        assert!(of(Secondary, Secondary).joins(of(Primary, Primary)));
        assert!(!of(Primary, Backup).joins(of(Secondary, Secondary)));
        assert!(of(Secondary, Secondary).joins(of(Backup, Backup)));
    }

    #[test]
    fn heartbeats_are_rarer_only_within_the_limit_and_never_more_frequent() {
        let seconds = Duration::from_secs;
        let with = |local, remote| PathUse {
            local: AddressUse { heartbeat: local, ..AddressUse::default() },
            remote: AddressUse { heartbeat: remote, ..AddressUse::default() },
        };
        assert_eq!(PathUse::default().heartbeat(seconds(1)), seconds(1));
        assert_eq!(with(Some(seconds(30)), Some(seconds(60))).heartbeat(seconds(1)), seconds(60));
        assert_eq!(with(Some(Duration::ZERO), None).heartbeat(seconds(1)), seconds(1));
        assert_eq!(with(None, Some(Duration::MAX)).heartbeat(seconds(1)), AddressUse::HEARTBEAT_MAX);
    }
}

//! Use of a path for data, which follows from the uses of its two addresses. The operator of each end sets the uses of that
//! end's addresses. Start at [`PathUse::rank`].

use std::time::Duration;

use crate::config::{AddressUse, Preference};

/// Uses of a path's two addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathUse {
    local: SmallUse,
    remote: SmallUse,
}

/// Use of an address in compact form, because each path holds two uses.
#[derive(Clone, Copy, Debug, Default)]
struct SmallUse {
    preference: Preference,
    link: u8,
    /// Interval between heartbeats of a spare path in tenths of a second, up to [`AddressUse::HEARTBEAT_MAX`]; 0 if the use sets
    /// no interval.
    heartbeat_tenths: u16,
}

impl SmallUse {
    fn heartbeat(self) -> Duration {
        Duration::from_millis(100 * u64::from(self.heartbeat_tenths))
    }
}

impl From<AddressUse> for SmallUse {
    fn from(usage: AddressUse) -> SmallUse {
        let heartbeat = usage.heartbeat.unwrap_or_default().min(AddressUse::HEARTBEAT_MAX);
        let heartbeat_tenths = u16::try_from(heartbeat.as_millis() / 100).unwrap_or(u16::MAX);
        SmallUse { preference: usage.preference, link: usage.link, heartbeat_tenths }
    }
}

impl From<SmallUse> for AddressUse {
    fn from(usage: SmallUse) -> AddressUse {
        let heartbeat = (usage.heartbeat_tenths > 0).then(|| usage.heartbeat());
        AddressUse { preference: usage.preference, heartbeat, link: usage.link }
    }
}

/// Rank of a path: a path of the lowest rank carries data. A path with a backup address at either end ranks after all other
/// paths. A path with a backup address of ours ranks last, so the peer's uses of addresses cannot make us use this path in place
/// of another path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    /// True if our address is a backup.
    is_our_backup: bool,
    /// True if the peer's address is a backup.
    is_their_backup: bool,
    /// Number of ends whose address is secondary.
    secondary_ends: u8,
}

impl Rank {
    /// Returns whether a path of this rank may carry data together with a path of rank `current`. A path with a backup address
    /// carries data only after the other paths have failed, so it joins only another such path.
    pub(crate) fn joins(self, current: Rank) -> bool {
        self.backups() <= current.backups()
    }

    fn backups(self) -> (bool, bool) {
        (self.is_our_backup, self.is_their_backup)
    }
}

impl PathUse {
    pub(crate) fn new(local: AddressUse, remote: AddressUse) -> PathUse {
        PathUse { local: local.into(), remote: remote.into() }
    }

    /// Returns the use of our address.
    pub(crate) fn local(&self) -> AddressUse {
        self.local.into()
    }

    /// Returns the use of the peer's address.
    pub(crate) fn remote(&self) -> AddressUse {
        self.remote.into()
    }

    /// Returns the link numbers of our address and of the peer's address; 0 for an unknown link.
    pub(crate) fn links(&self) -> (u8, u8) {
        (self.local.link, self.remote.link)
    }

    /// Returns the rank of the path.
    pub(crate) fn rank(&self) -> Rank {
        let ends = [self.local.preference, self.remote.preference];
        let secondary = ends.iter().filter(|end| **end == Preference::Secondary).count();
        Rank {
            is_our_backup: ends[0] == Preference::Backup,
            is_their_backup: ends[1] == Preference::Backup,
            secondary_ends: secondary as u8,
        }
    }

    /// Returns the interval between heartbeats while the path is a spare path. `usual` is the path's interval while it is not a
    /// spare path.
    pub(crate) fn heartbeat(&self, usual: Duration) -> Duration {
        usual.max(self.local.heartbeat()).max(self.remote.heartbeat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(local: Preference, remote: Preference) -> Rank {
        let with = |preference| AddressUse { preference, ..AddressUse::default() };
        PathUse::new(with(local), with(remote)).rank()
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
        let of = |heartbeat| AddressUse { heartbeat, ..AddressUse::default() };
        let with = |local, remote| PathUse::new(of(local), of(remote));
        assert_eq!(PathUse::default().heartbeat(seconds(1)), seconds(1));
        assert_eq!(with(Some(seconds(30)), Some(seconds(60))).heartbeat(seconds(1)), seconds(60));
        assert_eq!(with(Some(Duration::ZERO), None).heartbeat(seconds(1)), seconds(1));
        assert_eq!(with(None, Some(Duration::MAX)).heartbeat(seconds(1)), AddressUse::HEARTBEAT_MAX);
    }
}

//! How much may wait for slow programs on shared associations: the windows of all connections together, and of each host's.
//!
//! A window is a promise: what was granted may come, whatever becomes of memory meanwhile. So windows grow while all together are
//! below a quarter of `memory_mib`, and those of the host below an eighth, half of its share. Beyond that new connections get the least
//! window, and from twice as much on none: what waits here never fills `memory_mib`. Counts are kept while trunks are served.
//! Begin at [`LaneWindows::spare`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::addresses::host_part;

/// The part of `memory_mib` that all windows may be, as a divisor.
const ALL_PART: usize = 4;
/// The part that those of one host may be.
const HOST_PART: usize = 8;

/// Bytes of windows.
#[derive(Debug, Default)]
pub(crate) struct LaneWindows {
    memory: usize,
    used: usize,
    by_host: BTreeMap<IpAddr, usize>,
}

impl LaneWindows {
    /// The windows of trunks with these hosts; `memory` is `memory_mib` in bytes.
    pub(crate) fn new(memory: usize, trunks: impl Iterator<Item = (IpAddr, usize)>) -> LaneWindows {
        let mut windows = LaneWindows { memory, ..LaneWindows::default() };
        trunks.for_each(|(remote, bytes)| windows.count(remote, 0, bytes));
        windows
    }

    /// The windows of a trunk with this host were `before`, and are `after`.
    pub(crate) fn count(&mut self, remote: IpAddr, before: usize, after: usize) {
        let of_host = self.by_host.entry(host_part(remote)).or_default();
        for used in [&mut self.used, of_host] {
            *used = (*used + after).saturating_sub(before);
        }
    }

    /// Bytes by which the windows of this host may grow.
    pub(crate) fn spare(&self, remote: IpAddr) -> usize {
        let spare = |part: usize, used: usize| (self.memory / part).saturating_sub(used);
        spare(ALL_PART, self.used).min(spare(HOST_PART, self.of_host(remote)))
    }

    /// Whether not even the least window is left for another connection of this host: twice as much is granted as may grow.
    pub(crate) fn is_full(&self, remote: IpAddr) -> bool {
        self.used >= self.memory / ALL_PART * 2 || self.of_host(remote) >= self.memory / HOST_PART * 2
    }

    fn of_host(&self, remote: IpAddr) -> usize {
        self.by_host.get(&host_part(remote)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn one_host_gets_half_of_what_all_get() {
        let [a, b, c]: [IpAddr; 3] = ["2001:db8::1", "2001:db8::2", "10.0.0.1"].map(|ip| ip.parse().unwrap());
        let mut windows = LaneWindows::new(512 * MIB, [(a, 40 * MIB)].into_iter());
        assert_eq!((windows.spare(b), windows.spare(c)), (24 * MIB, 64 * MIB), "one network is one host");
        windows.count(b, 0, 24 * MIB);
        assert_eq!((windows.spare(a), windows.spare(c)), (0, 64 * MIB));
        windows.count(c, 0, 60 * MIB);
        let d = "10.0.0.2".parse().unwrap();
        assert_eq!((windows.spare(c), windows.spare(d)), (4 * MIB, 4 * MIB));
        assert!(!windows.is_full(a) && !windows.is_full(d));
        windows.count(b, 24 * MIB, 88 * MIB);
        assert!(windows.is_full(a) && !windows.is_full(d));
        windows.count(c, 60 * MIB, 128 * MIB);
        assert!(windows.is_full(d), "all have half of the memory");
        windows.count(c, 128 * MIB, 60 * MIB);
        windows.count(b, 88 * MIB, 24 * MIB);
        windows.count(a, 40 * MIB, 30 * MIB);
        assert_eq!((windows.spare(a), windows.spare(d)), (10 * MIB, 14 * MIB));
    }
}

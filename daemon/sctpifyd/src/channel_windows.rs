//! Limits on bytes that wait for slow programs on shared associations, in total and per host.
//!
//! A window is a promise: the peer may send the granted bytes even if memory runs short later. All limits are fractions of `memory_mib`.
//! All associations with one host may together use up to 1/4 of `memory_mib`, which is called the host's share here.
//!
//! - Windows grow while the total of all windows is below 1/4 of `memory_mib`, and the total of the same host's windows is below 1/8.
//! - Beyond these limits, the windows of one host may still grow to a total of 1/256 of `memory_mib`. The allowed growth shrinks as the
//!   total of all windows rises. Idle connections of a few hosts therefore do not slow down all other hosts.
//! - If no growth is allowed, a new connection gets the smallest window.
//! - No connection is admitted once the total of all windows reaches 1/2 of `memory_mib`, or the host's windows reach 3/4 of the host's
//!   share. Waiting bytes therefore fill neither the memory nor the host's share.
//!
//! The counts of granted bytes are updated while shared associations are served. Begin at [`ChannelWindows::spare`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::addresses::host_part;

/// Divisor of `memory_mib` that gives the limit on all windows.
const ALL_PART: usize = 4;
/// Divisor of `memory_mib` that gives the total of all windows at which no more connections are admitted.
const FULL_PART: usize = 2;
/// Divisor of `memory_mib` that gives the limit on the windows of one host.
const HOST_PART: usize = 8;
/// Divisor of `memory_mib` that gives the total to which one host's windows grow even if the other limits are reached. With the default of
/// `memory_mib`, this total is 2 MiB. Windows of 2 MiB allow 1 Gbit/s at a round trip of 16 ms.
const LITTLE_PART: usize = 256;
/// Divisor of the bytes that remain until the total of [`FULL_PART`] is reached. Beyond the limits of [`ALL_PART`] and [`HOST_PART`], one
/// host's windows may grow by this part of the remaining bytes.
const LEFT_PART: usize = 16;

/// Bytes granted in windows.
#[derive(Debug)]
pub(crate) struct ChannelWindows {
    memory: usize,
    used: usize,
    by_host: BTreeMap<IpAddr, usize>,
}

impl ChannelWindows {
    /// Creates the counts without windows. `memory` is `memory_mib` in bytes.
    pub(crate) fn new(memory: usize) -> ChannelWindows {
        ChannelWindows { memory, used: 0, by_host: BTreeMap::new() }
    }

    /// Recounts the windows of all shared associations. `shared` gives each association's host and its granted bytes.
    pub(crate) fn recount(&mut self, shared: impl Iterator<Item = (IpAddr, usize)>) {
        (self.used, self.by_host) = (0, BTreeMap::new());
        shared.for_each(|(remote, bytes)| self.count(remote, 0, bytes));
    }

    /// Counts a change of the windows of a shared association with this host, from `before` to `after`.
    pub(crate) fn count(&mut self, remote: IpAddr, before: usize, after: usize) {
        let of_host = self.by_host.entry(host_part(remote)).or_default();
        for used in [&mut self.used, of_host] {
            *used = (*used + after).saturating_sub(before);
        }
    }

    /// Returns the number of bytes by which the windows of this host may grow.
    pub(crate) fn spare(&self, remote: IpAddr) -> usize {
        let of_host = self.of_host(remote);
        let spare = |part: usize, used: usize| (self.memory / part).saturating_sub(used);
        let usual = spare(ALL_PART, self.used).min(spare(HOST_PART, of_host));
        usual.max(spare(LITTLE_PART, of_host).min(spare(FULL_PART, self.used) / LEFT_PART))
    }

    /// Reports whether another connection with this host would not get even the smallest window. The host's share is 1/4 of the memory, and
    /// 3/4 of this share is the host's limit.
    pub(crate) fn is_full(&self, remote: IpAddr) -> bool {
        self.used >= self.memory / FULL_PART || self.of_host(remote) >= self.memory / 16 * 3
    }

    fn of_host(&self, remote: IpAddr) -> usize {
        self.by_host.get(&host_part(remote)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn with(used: &[(IpAddr, usize)]) -> ChannelWindows {
        let mut windows = ChannelWindows::new(512 * MIB);
        windows.recount(used.iter().copied());
        windows
    }

    fn hosts() -> [IpAddr; 4] {
        ["2001:db8::1", "2001:db8::2", "10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap())
    }

    #[test]
    fn the_window_limit_of_one_host_is_half_of_the_limit_of_all_hosts() {
        let [a, b, c, d] = hosts();
        let mut windows = with(&[(a, 40 * MIB)]);
        assert_eq!((windows.spare(b), windows.spare(c)), (24 * MIB, 64 * MIB), "one network is one host");
        windows.count(b, 0, 24 * MIB);
        assert_eq!((windows.spare(a), windows.spare(c)), (0, 64 * MIB));
        windows.count(c, 0, 60 * MIB);
        assert_eq!((windows.spare(c), windows.spare(d)), (4 * MIB, 4 * MIB));
        windows.count(b, 24 * MIB, 20 * MIB);
        windows.count(a, 40 * MIB, 30 * MIB);
        assert_eq!((windows.spare(a), windows.spare(d)), (14 * MIB, 18 * MIB));
    }

    #[test]
    fn a_little_is_left_for_each_host_however_much_others_hold() {
        let [a, _, c, d] = hosts();
        let mut windows = with(&[(a, 64 * MIB), (c, 64 * MIB)]);
        assert_eq!([a, c, d].map(|host| windows.spare(host)), [0, 0, 2 * MIB]);
        windows.count(d, 0, MIB);
        assert_eq!(windows.spare(d), MIB);
    }

    #[test]
    fn windows_that_grow_leave_room_for_connections_however_many_hosts_there_are() {
        let mut windows = with(&[]);
        for n in 0..10_000_u32 {
            let host = std::net::Ipv4Addr::from(0x0a00_0000 + n).into();
            windows.count(host, 0, windows.spare(host));
        }
        assert!(windows.used > 200 * MIB && !windows.is_full("192.0.2.1".parse().unwrap()), "{windows:?}");
    }

    #[test]
    fn connections_are_refused_at_three_quarters_of_a_hosts_share_or_half_the_memory() {
        let [a, _, c, d] = hosts();
        let mut windows = with(&[(a, 95 * MIB)]);
        assert!(!windows.is_full(a));
        windows.count(a, 95 * MIB, 96 * MIB);
        assert!(windows.is_full(a) && !windows.is_full(d));
        windows.count(c, 0, 160 * MIB);
        assert!(windows.is_full(d));
        assert_eq!(windows.spare(d), 0);
    }
}

//! Time limits for the agreement on keys, by host.
//!
//! Messages about keys get lost on congested paths, so a held SYN waits up to [`LIMIT`] for them. A host that has exceeded this limit gets
//! only [`LATE_LIMIT`] for the time [`MEMORY`]. Without the shorter limit, each connection to the host would wait for [`LIMIT`] before it
//! uses plain TCP. A late host has no other disadvantage: the next connection tries again.
//!
//! Invariant: the table has no more than [`HOSTS_MAX`] entries. Begin at [`Patience::limit`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base::Time;

use crate::addresses::host_part;

/// Time limit from the SYN to the keys, if the peer has sent COOKIE ACK. It allows for TCP's usual retransmission timeouts of 1, 2 and 4 s.
/// If messages about keys get lost, plain TCP would also take long, and would not be encrypted.
const LIMIT: Duration = Duration::from_secs(10);
/// Replacement of [`LIMIT`] for a host that has exceeded it within the time [`MEMORY`].
const LATE_LIMIT: Duration = Duration::from_secs(3);
/// Time for which a host counts as late.
const MEMORY: Duration = Duration::from_secs(600);
/// Limit on the remembered hosts.
const HOSTS_MAX: usize = 1024;

/// Hosts that were late with their keys.
#[derive(Default)]
pub(super) struct Patience {
    /// The time until which each host counts as late.
    late: BTreeMap<IpAddr, Time>,
}

impl Patience {
    /// Returns the time from the SYN within which a host must have agreed on keys. Without a host, returns the limit for a host that was
    /// not late.
    pub(super) fn limit(&self, now: Time, host: Option<IpAddr>) -> Duration {
        match host.and_then(|host| self.late.get(&host_part(host))) {
            Some(until) if now < *until => LATE_LIMIT,
            _ => LIMIT,
        }
    }

    /// Notes a host that has exceeded the limit.
    pub(super) fn note_late(&mut self, now: Time, host: IpAddr) {
        let host = host_part(host);
        if self.late.len() >= HOSTS_MAX && !self.late.contains_key(&host) {
            self.late.retain(|_, until| now < *until);
            if self.late.len() >= HOSTS_MAX {
                return;
            }
        }
        self.late.insert(host, now + MEMORY);
    }

    /// Notes a host that has agreed on keys.
    pub(super) fn note_agreed(&mut self, host: IpAddr) {
        self.late.remove(&host_part(host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    #[test]
    fn a_late_host_gets_less_time_until_it_agrees_or_time_has_passed() {
        let (mut patience, begin) = (Patience::default(), Time::ZERO);
        assert_eq!(patience.limit(begin, Some(host(1))), LIMIT);
        patience.note_late(begin, host(1));
        assert_eq!(patience.limit(begin, Some(host(1))), LATE_LIMIT);
        assert_eq!(patience.limit(begin, Some(host(2))), LIMIT);
        assert_eq!(patience.limit(begin + MEMORY, Some(host(1))), LIMIT);
        patience.note_agreed(host(1));
        assert_eq!(patience.limit(begin, Some(host(1))), LIMIT);
    }

    #[test]
    fn a_full_table_takes_no_more_hosts_until_old_ones_have_expired() {
        let (mut patience, begin) = (Patience::default(), Time::ZERO);
        let full = u16::try_from(HOSTS_MAX).unwrap();
        (0..=full).for_each(|number| patience.note_late(begin, host(number)));
        assert_eq!(patience.late.len(), HOSTS_MAX);
        assert_eq!(patience.limit(begin, Some(host(full))), LIMIT);
        patience.note_late(begin + MEMORY, host(full));
        assert_eq!(patience.late.len(), 1);
    }
}

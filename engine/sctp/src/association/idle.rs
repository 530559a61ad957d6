//! Returns memory when an association that carried data has been quiet for a while: queues keep the capacity
//! they grew to, and most associations are idle most of the time.
//!
//! Costs no timer while nothing has been carried since the last check. Start at [`Idle::is_quiet`].

use std::time::Duration;

use base::Time;

/// The time without DATA in either direction after which memory is returned.
const QUIET: Duration = Duration::from_secs(5);

/// The state of the idle check.
#[derive(Debug)]
pub(super) struct Idle {
    at: Time,
    /// DATA chunks carried at the last check, modulo 2^32.
    seen: u32,
    /// Number of times that memory was returned, modulo 2^32.
    times: u32,
}

impl Default for Idle {
    fn default() -> Self {
        Idle { at: Time::NEVER, seen: 0, times: 0 }
    }
}

impl Idle {
    /// Schedules a check if data was carried since the last one; `carried` counts the DATA chunks of both
    /// directions, modulo 2^32.
    #[inline]
    pub(super) fn on_packet(&mut self, carried: u32, now: Time) {
        if self.at == Time::NEVER && carried != self.seen {
            self.schedule(carried, now);
        }
    }

    fn schedule(&mut self, carried: u32, now: Time) {
        (self.at, self.seen) = (now + QUIET, carried);
    }

    /// Time of the next check.
    pub(super) fn next_timeout(&self) -> Time {
        self.at
    }

    /// Returns whether nothing was carried since the last check, and memory should be returned; schedules another check
    /// otherwise.
    pub(super) fn is_quiet(&mut self, carried: u32, now: Time) -> bool {
        if self.at > now {
            return false;
        }
        if carried != self.seen {
            self.schedule(carried, now);
            return false;
        }
        self.at = Time::NEVER;
        self.times = self.times.wrapping_add(1);
        true
    }

    /// Number of times that memory was returned.
    #[inline]
    pub(super) fn times(&self) -> u32 {
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_is_quiet_once_after_its_data() {
        let mut idle = Idle::default();
        let start = Time::ZERO;
        idle.on_packet(0, start);
        assert_eq!(idle.next_timeout(), Time::NEVER, "nothing was carried");
        idle.on_packet(1, start);
        assert!(!idle.is_quiet(2, start + QUIET), "more was carried meanwhile");
        assert!(!idle.is_quiet(2, start + QUIET * 3 / 2));
        assert!(idle.is_quiet(2, start + QUIET * 2));
        idle.on_packet(2, start + QUIET * 3);
        assert_eq!(idle.next_timeout(), Time::NEVER);
    }
}

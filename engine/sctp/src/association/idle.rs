//! Detects that an association has become idle after it carried data, so its queues release unused memory. Queues keep
//! the capacity to which they have grown, and most associations are idle most of the time.
//!
//! No timer runs while no data has been carried since the last check. Start at [`Idle::is_quiet`].

use std::time::Duration;

use base::Time;

/// Interval of the checks. A check that finds no DATA since the previous check releases memory, 5 s to 10 s after the
/// last DATA.
const QUIET: Duration = Duration::from_secs(5);

/// The state of the idle check.
#[derive(Debug)]
pub(super) struct Idle {
    at: Time,
    /// Number of DATA chunks carried until the last check, modulo 2^32.
    seen: u32,
    /// Number of times that memory was released, modulo 2^32.
    times: u32,
}

impl Default for Idle {
    fn default() -> Self {
        Idle { at: Time::NEVER, seen: 0, times: 0 }
    }
}

impl Idle {
    /// Schedules a check if none is scheduled and DATA was carried since the last check. `carried` is the number of
    /// DATA chunks in both directions, modulo 2^32.
    #[inline]
    pub(super) fn on_packet(&mut self, carried: u32, now: Time) {
        if self.at == Time::NEVER && carried != self.seen {
            self.schedule(carried, now);
        }
    }

    fn schedule(&mut self, carried: u32, now: Time) {
        (self.at, self.seen) = (now + QUIET, carried);
    }

    /// Returns the time of the next check.
    pub(super) fn next_timeout(&self) -> Time {
        self.at
    }

    /// Reports whether a check is due and no DATA was carried since the last check. The caller then releases memory. If
    /// DATA was carried, schedules another check.
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

    /// Returns the number of times that memory was released, modulo 2^32.
    #[inline]
    pub(super) fn times(&self) -> u32 {
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_is_reported_quiet_once_after_a_pause_in_its_data() {
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

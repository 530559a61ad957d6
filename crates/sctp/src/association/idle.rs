//! Returns memory when an association that carried data has been quiet for a while: queues keep the capacity
//! they grew to, and most associations are idle most of the time.
//!
//! Costs no timer while nothing has been carried since the last check. Start at
//! [`Association::shrink_if_quiet`].

use std::time::Duration;

use base::Time;

use super::Association;

/// The time without DATA in either direction after which memory is returned.
const QUIET: Duration = Duration::from_secs(5);

/// The state of the idle check.
#[derive(Debug)]
pub(super) struct Idle {
    at: Time,
    /// DATA chunks carried at the last check.
    seen: u64,
    /// Number of times that memory was returned.
    pub(super) times: usize,
}

impl Default for Idle {
    fn default() -> Self {
        Idle { at: Time::NEVER, seen: 0, times: 0 }
    }
}

impl Association {
    /// DATA chunks sent or received.
    fn carried(&self) -> u64 {
        self.counters.data_sent + self.counters.data_retransmitted + self.counters.data_received
    }

    /// Schedules a check after a packet if data was carried since the last one.
    pub(super) fn watch_for_quiet(&mut self, now: Time) {
        if self.idle.at == Time::NEVER && self.carried() != self.idle.seen {
            self.idle = Idle { at: now + QUIET, seen: self.carried(), times: self.idle.times };
        }
    }

    /// The time at which [`shrink_if_quiet`](Self::shrink_if_quiet) is due.
    pub(super) fn idle_timeout(&self) -> Time {
        self.idle.at
    }

    /// Shrinks empty queues if nothing was carried since the last check; otherwise schedules another.
    pub(super) fn shrink_if_quiet(&mut self, now: Time) {
        if self.idle.at > now {
            return;
        }
        if self.carried() != self.idle.seen {
            self.idle = Idle { at: now + QUIET, seen: self.carried(), times: self.idle.times };
            return;
        }
        self.idle.at = Time::NEVER;
        self.idle.times += 1;
        self.queue.shrink();
        self.outstanding.shrink();
        self.pr_messages.shrink();
        self.inbound.shrink();
        self.control.shrink_to_fit();
        self.events.shrink_to_fit();
    }
}

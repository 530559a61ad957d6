//! Gives memory back when an association that carried data has been quiet for a while: queues keep what they grew to,
//! and most associations are idle most of the time.
//!
//! Costs no timer while nothing was carried since the last time. Begin at [`Association::shrink_if_quiet`].

use std::time::Duration;

use base::Time;

use super::Association;

/// How long no DATA must have come or gone.
const QUIET: Duration = Duration::from_secs(5);

/// When an association is looked at next.
#[derive(Debug)]
pub(super) struct Idle {
    at: Time,
    /// DATA chunks carried when it was last looked at.
    seen: u64,
    /// How often memory was given back.
    pub(super) times: usize,
}

impl Default for Idle {
    fn default() -> Self {
        Idle { at: Time::NEVER, seen: 0, times: 0 }
    }
}

impl Association {
    /// DATA chunks that came or went.
    fn carried(&self) -> u64 {
        self.counters.data_sent + self.counters.data_retransmitted + self.counters.data_received
    }

    /// A packet came: if data was carried since the last look there will be another one.
    pub(super) fn watch_for_quiet(&mut self, now: Time) {
        if self.idle.at == Time::NEVER && self.carried() != self.idle.seen {
            self.idle = Idle { at: now + QUIET, seen: self.carried(), times: self.idle.times };
        }
    }

    /// When [`shrink_if_quiet`](Self::shrink_if_quiet) is due.
    pub(super) fn idle_timeout(&self) -> Time {
        self.idle.at
    }

    /// Gives back what empty queues hold if nothing was carried since the last look; else looks again later.
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
        self.limited.shrink();
        self.inbound.shrink();
        self.control.shrink_to_fit();
        self.events.shrink_to_fit();
    }
}

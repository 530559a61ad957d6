//! The four transaction machines of RFC 3261 section 17, with RFC 6026's Accepted states. They handle times and statuses, not
//! messages: the driver keeps the bytes, sends them on request, and observes [`Client::next_timeout`].
//!
//! Invariant: a machine that has not ended has a time-out, unless it waits for its user (INVITE in Proceeding).

mod client;
mod server;

pub use client::{Client, ClientTimeout, ClientVerdict};
pub use server::{Server, ServerTimeout};

use std::time::Duration;

/// Timer values (RFC 3261 section 17.1.1.2 and table 4).
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// Round-trip estimate.
    pub t1: Duration,
    /// Longest time between retransmissions of non-INVITE requests and INVITE responses.
    pub t2: Duration,
    /// Longest time a message stays in the network.
    pub t4: Duration,
    /// Time a proxy waits for a final response after the last provisional one: timer C, more than 3 minutes (section
    /// 16.6, step 11).
    pub c: Duration,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            c: Duration::from_secs(185),
        }
    }
}

impl Timers {
    /// Returns the time until timer E reaches T2: 3.5 s. A non-INVITE request still unanswered by then gets 100 (RFC 4320 section 4.1).
    pub fn until_t2(&self) -> Duration {
        let (mut interval, mut all) = (self.t1, Duration::ZERO);
        // Bounded by 64 × T1, when the client has given up.
        while interval < self.t2 && all < self.long() {
            all += interval;
            interval *= 2;
        }
        all
    }

    /// 64 × T1: timers B, F, H, J, L and M, and timer D over unreliable transports.
    pub fn long(&self) -> Duration {
        64 * self.t1
    }
}

/// The kind of a transaction and its transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// True for INVITE.
    pub is_invite: bool,
    /// True if the transport retransmits lost data.
    pub is_reliable: bool,
}

impl Kind {
    /// Returns `wait` over unreliable transports, zero over others.
    fn unless_reliable(self, wait: Duration) -> Duration {
        if self.is_reliable { Duration::ZERO } else { wait }
    }
}

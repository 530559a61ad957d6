//! The four transaction machines of RFC 3261 section 17, with RFC 6026's Accepted states. They know time and statuses, not
//! messages: whoever drives them keeps the bytes, sends them when told to, and asks for [`Client::next_timeout`].
//!
//! Invariant: a machine that is not over has a time-out, but for those that wait for their user (INVITE in Proceeding).

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
    /// How long a proxy waits for a final response after the last provisional one: timer C, more than 3 minutes (section
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
    /// How long timer E takes to come to T2: 3.5 s. Who has no other answer to a request than INVITE by then says 100 (RFC 4320 section 4.1).
    pub fn until_t2(&self) -> Duration {
        let (mut interval, mut all) = (self.t1, Duration::ZERO);
        // Bounded by 64 × T1, when nobody waits any more.
        while interval < self.t2 && all < self.long() {
            all += interval;
            interval *= 2;
        }
        all
    }

    /// 64 × T1: timers B, F, H, J, L and M, and what timer D is for unreliable transports.
    pub fn long(&self) -> Duration {
        64 * self.t1
    }
}

/// What a transaction is of, and over what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Whether the request is INVITE.
    pub is_invite: bool,
    /// Whether the transport repeats what is lost.
    pub is_reliable: bool,
}

impl Kind {
    /// `wait` over transports that lose messages, nothing over others.
    fn unless_reliable(self, wait: Duration) -> Duration {
        if self.is_reliable { Duration::ZERO } else { wait }
    }
}

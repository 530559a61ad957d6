//! The four transaction state machines of RFC 3261 section 17, with the Accepted states of RFC 6026. The machines handle times and status
//! codes, not messages. The user of a machine keeps the messages, and sends them when the result of a machine's function requests this.
//! The user also calls `on_timeout` at the time from `next_timeout`.
//!
//! Invariant: each machine has a next time-out until it ends, with two exceptions. A server without a final response can wait for its
//! user without a time-out. For a client for INVITE in the state Proceeding, the user runs timer C.

mod client;
mod server;

pub use client::{Client, ClientTimeout, ClientVerdict};
pub use server::{Server, ServerTimeout};

use std::time::Duration;

/// Timer values (RFC 3261 section 17.1.1.2 and table 4).
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// T1: estimate of the round-trip time.
    pub t1: Duration,
    /// T2: longest time between retransmissions of non-INVITE requests and of INVITE responses.
    pub t2: Duration,
    /// T4: longest time for which the network can delay a message.
    pub t4: Duration,
    /// Timer C: time that a proxy waits for a final response after the last provisional response. Timer C must exceed 3 minutes (section
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
    /// Returns the time from the request until timer E reaches T2. With the default values, this time is 3.5 s. A non-INVITE request
    /// without a response gets 100 at this time (RFC 4320 section 4.1).
    pub fn until_t2(&self) -> Duration {
        let (mut interval, mut all) = (self.t1, Duration::ZERO);
        // The client gives up after 64 × T1, so the sum stops there.
        while interval < self.t2 && all < self.long() {
            all += interval;
            interval *= 2;
        }
        all
    }

    /// Returns 64 × T1, which is the value of timers B, F, H, J, L and M, and of timer D over unreliable transports.
    pub fn long(&self) -> Duration {
        64 * self.t1
    }
}

/// The kind of a transaction and of its transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// True for INVITE.
    pub is_invite: bool,
    /// True if the transport retransmits lost data.
    pub is_reliable: bool,
}

impl Kind {
    /// Returns `wait` over unreliable transports, and zero over reliable ones.
    fn unless_reliable(self, wait: Duration) -> Duration {
        if self.is_reliable { Duration::ZERO } else { wait }
    }
}

//! Counts the usage of a rule or a destination. The date, calls today, failures today and last call come from the papers'
//! dynamic rules table. The round trip and the reason of the last failure are also recorded.
//!
//! A day is a UTC day. Invariant: `calls_today` and `failures_today` are counts of the day `day`. A connection on another day
//! resets both counts first.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds in a day.
const DAY_MS: u64 = 86_400_000;

/// Point in time, in milliseconds since 1970. The caller passes the time, because this module reads no clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// Returns the milliseconds from `earlier` to this time. Returns zero if `earlier` is the later time.
    pub const fn since(self, earlier: UnixMs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time that is `ms` milliseconds after this time.
    #[must_use]
    pub const fn plus(self, ms: u64) -> UnixMs {
        UnixMs(self.0.saturating_add(ms))
    }

    /// Returns the number of the UTC day since 1970.
    pub const fn day(self) -> u64 {
        self.0 / DAY_MS
    }
}

/// Reason why an attempt over SCTP failed. Only reasons that are evidence about the destination are listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// No INIT ACK arrived within the time that a connection waits.
    NoAnswer,
    /// ICMP: the destination has no program on the UDP port of SCTP.
    PortUnreachable,
    /// ICMP: the host does not support SCTP.
    ProtocolUnreachable,
    /// ICMP: a filter forbids the packet.
    Prohibited,
    /// The host answers an INIT, but after the time that a connection waits.
    TooSlow,
    /// ABORT in answer to INIT: the host supports SCTP, but not on this port.
    Refused,
    /// The host answered the INIT, but the association failed before it could be used.
    HandshakeFailed,
}

impl Failure {
    /// Reports whether the failure concerns the whole host. Otherwise it concerns only the requested port.
    pub const fn is_of_host(self) -> bool {
        !matches!(self, Failure::Refused | Failure::HandshakeFailed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Failure::NoAnswer => "no answer",
            Failure::PortUnreachable => "UDP port unreachable",
            Failure::ProtocolUnreachable => "SCTP unreachable",
            Failure::Prohibited => "prohibited by a filter",
            Failure::TooSlow => "answers too late",
            Failure::Refused => "refused",
            Failure::HandshakeFailed => "handshake failed",
        })
    }
}

/// Outcome of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The connection is carried over SCTP.
    Sctp {
        /// Time from INIT to INIT ACK, in microseconds; `None` if the time is unknown, for example because this host answered
        /// the INIT.
        rtt_us: Option<u64>,
    },
    /// The connection fell back to TCP. The failure is the evidence that concerns the destination, if any.
    Tcp(Option<Failure>),
    /// The connection was TCP at once, because its destination is cached as not supporting SCTP.
    KeptOnTcp,
}

/// Counts of connections on one day, and facts about the latest connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// The day of the counts, in days since 1970.
    #[serde(rename = "date_days_since_1970")]
    pub day: u64,
    /// Number of connections on that day.
    pub calls_today: u64,
    /// Number of connections on that day that fell back to TCP.
    pub failures_today: u64,
    /// Time of the last connection, in milliseconds since 1970; `None` before the first connection.
    #[serde(rename = "last_call_unix_ms")]
    pub last_call: Option<UnixMs>,
    /// Time from INIT to INIT ACK, in microseconds, of the last connection or probe for which this host measured it.
    pub rtt_us: Option<u64>,
    /// Reason of the last failure.
    pub last_failure: Option<Failure>,
}

impl Usage {
    /// Counts a connection and its outcome.
    pub fn count(&mut self, now: UnixMs, outcome: Outcome) {
        self.turn_to(now);
        self.calls_today = self.calls_today.saturating_add(1);
        self.last_call = Some(now);
        match outcome {
            Outcome::Sctp { rtt_us } => self.rtt_us = rtt_us.or(self.rtt_us),
            Outcome::Tcp(failure) => {
                self.failures_today = self.failures_today.saturating_add(1);
                self.last_failure = failure.or(self.last_failure);
            }
            Outcome::KeptOnTcp => {}
        }
    }

    /// Returns the counts at the time `now`. The counts of the day are zero if another day has begun.
    #[must_use]
    pub fn at(mut self, now: UnixMs) -> Usage {
        self.turn_to(now);
        self
    }

    fn turn_to(&mut self, now: UnixMs) {
        if self.day != now.day() {
            (self.day, self.calls_today, self.failures_today) = (now.day(), 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_anew_each_day_and_the_last_call_stays() {
        let (evening, morning) = (UnixMs(10 * DAY_MS - 1), UnixMs(10 * DAY_MS));
        let mut usage = Usage::default();
        usage.count(evening, Outcome::Sctp { rtt_us: Some(700) });
        usage.count(evening, Outcome::Tcp(Some(Failure::NoAnswer)));
        assert_eq!((usage.day, usage.calls_today, usage.failures_today), (9, 2, 1));
        let next = usage.at(morning);
        assert_eq!((next.day, next.calls_today, next.failures_today), (10, 0, 0));
        assert_eq!(
            (next.last_call, next.rtt_us, next.last_failure),
            (Some(evening), Some(700), Some(Failure::NoAnswer))
        );
    }

    #[test]
    fn a_connection_kept_on_tcp_is_a_call_and_no_failure() {
        let mut usage = Usage::default();
        usage.count(UnixMs(5), Outcome::KeptOnTcp);
        assert_eq!((usage.calls_today, usage.failures_today), (1, 0));
    }
}

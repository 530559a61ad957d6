//! Timers, in order of time.
//!
//! Timers are never cancelled: when one fires, its owner checks whether it still matters.

use std::collections::BTreeMap;

use base::Time;
use sctp::AssociationId;

use crate::connection::ConnectionId;

/// Things to do, each at its time.
pub(crate) struct Timers<T> {
    due: BTreeMap<(Time, u64), T>,
    serial: u64,
}

/// A timer's subject.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    /// No INIT ACK yet?
    Race(ConnectionId),
    /// Still no INIT ACK, so other paths must be tried?
    AttemptDelay(ConnectionId),
    /// No answer from the peer about a channel yet? Holds the number of SACKs received before.
    Channel(ConnectionId, u64),
    /// No COOKIE ACK yet?
    Cookie(ConnectionId),
    /// A released SYN has not arrived?
    Claim(ConnectionId),
    /// The local listener has not accepted?
    Listener(ConnectionId),
    /// Connections to local programs have ended: the kernel may forget them.
    Forget,
    /// Diversions have outlived their connections long enough?
    Diversions,
    /// Can a carrier be opened that could not be before?
    Carriers,
    /// Have peers of incoming associations not proven a key yet?
    Proof,
    /// Must the kernel get names of destinations?
    Naming,
    /// Is a probe due?
    Probes,
    /// No INIT ACK for a probe yet?
    Probe(AssociationId),
    /// Has a shared association's handshake not ended yet?
    SharedOpening(AssociationId),
    /// Has a shared association been idle for long enough?
    SharedIdle(AssociationId),
}

impl<T> Timers<T> {
    pub(crate) fn new() -> Timers<T> {
        Timers { due: BTreeMap::new(), serial: 0 }
    }

    pub(crate) fn set(&mut self, at: Time, what: T) {
        self.serial += 1;
        self.due.insert((at, self.serial), what);
    }

    /// Removes and returns the next timer that is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<T> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    /// Returns the time of the next timer.
    pub(crate) fn next(&self) -> Time {
        self.due.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_of_time_and_not_before() {
        let mut timers = Timers::new();
        timers.set(Time::from_millis(20), "late");
        timers.set(Time::from_millis(10), "early");
        timers.set(Time::from_millis(10), "early too");
        assert_eq!(timers.pop(Time::from_millis(9)), None);
        assert_eq!(timers.pop(Time::from_millis(10)), Some("early"));
        assert_eq!(timers.pop(Time::from_millis(10)), Some("early too"));
        assert_eq!(timers.pop(Time::from_millis(10)), None);
        assert_eq!(timers.next(), Time::from_millis(20));
    }
}

//! Keeps pending timers in the order of their times.
//!
//! Timers are never cancelled. When a timer fires, its owner checks whether the timer still matters.

use std::collections::BTreeMap;

use base::Time;
use sctp::AssociationId;

use crate::connection::ConnectionId;

/// Pending timers, each with its subject.
pub(crate) struct Timers<T> {
    due: BTreeMap<(Time, u64), T>,
    serial: u64,
}

/// Subject of a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    /// End of a connection's wait for INIT ACK.
    Race(ConnectionId),
    /// End of the time in which only the first path is tried.
    AttemptDelay(ConnectionId),
    /// End of the wait for the peer's answer to a channel's request. The number is the count of SACKs that the association had
    /// received when the timer was set.
    Channel(ConnectionId, u64),
    /// End of a connection's wait for COOKIE ACK.
    Cookie(ConnectionId),
    /// End of the wait for the diverted connection of a released SYN to arrive.
    Claim(ConnectionId),
    /// End of the wait for a local listener to accept a connection.
    Listener(ConnectionId),
    /// Removal of the kernel's state of ended connections to local programs.
    Forget,
    /// End of diversions whose connections have ended long enough ago.
    Diversions,
    /// Retry of carriers that could not be opened.
    Carriers,
    /// End of the time in which peers of incoming associations must prove a key.
    Proof,
    /// Time to give the kernel the next batch of destinations' names.
    Naming,
    /// Search for due probes.
    Probes,
    /// End of a probe's wait for INIT ACK.
    Probe(AssociationId),
    /// End of the time for a shared association's handshake.
    SharedOpening(AssociationId),
    /// Check of a shared association's idle time.
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

    /// Returns the time of the next timer; [`Time::NEVER`] if no timer is set.
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

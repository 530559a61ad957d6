//! One timer heap for all transactions. Each transaction with a deadline has an entry at or before this deadline. If an entry fires
//! before the deadline, the transaction gets a new entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::Time;

use crate::proxy::Id;

/// The recipient of a timer. The order of the variants decides between timers of equal time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Sleeper {
    Server(Id),
    Client(Id),
    Ack(Id),
    Sweep,
}

/// All timers.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    heap: BinaryHeap<Reverse<(Time, Sleeper)>>,
}

impl Wakes {
    pub(super) fn push(&mut self, time: Time, sleeper: Sleeper) {
        self.heap.push(Reverse((time, sleeper)));
    }

    /// Returns the time of the first timer.
    pub(super) fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((time, _))| *time)
    }

    /// Removes the first timer if it is due.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Sleeper> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, sleeper))| sleeper)
    }

    /// Frees spare capacity after a burst of traffic.
    pub(super) fn shrink(&mut self) {
        if self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    #[cfg(test)]
    pub(super) fn reserve(&mut self, more: usize) {
        self.heap.reserve(more);
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.heap.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_the_order_of_their_times_and_not_before() {
        let mut wakes = Wakes::default();
        assert_eq!(wakes.next(), Time::NEVER);
        wakes.push(Time::from_millis(20), Sleeper::Server(1));
        wakes.push(Time::from_millis(10), Sleeper::Client(2));
        wakes.push(Time::from_millis(20), Sleeper::Ack(0));
        assert_eq!((wakes.next(), wakes.pop_due(Time::from_millis(9))), (Time::from_millis(10), None));
        let mut fired = || wakes.pop_due(Time::from_millis(20));
        assert_eq!(fired(), Some(Sleeper::Client(2)));
        assert_eq!(fired(), Some(Sleeper::Server(1)));
        assert_eq!(fired(), Some(Sleeper::Ack(0)));
        assert_eq!(fired(), None);
    }
}

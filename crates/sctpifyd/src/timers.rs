//! Timers, in order of time.
//!
//! Timers are never cancelled: when one fires, its owner checks whether it still matters.

use std::collections::BTreeMap;

use base::Time;

/// Things to do, each at its time.
pub(crate) struct Timers<T> {
    due: BTreeMap<(Time, u64), T>,
    serial: u64,
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

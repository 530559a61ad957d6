//! The watch over a path that has recovered from a failure, before data returns to the path.
//!
//! The watch ends after a minimum time, but not before the path has given [`ANSWERS`] answers without a
//! failure. Each further failure doubles the minimum time. The time alone would prove little about a lossy
//! path, and nothing about a path with rare heartbeats. Start at [`Watch::begin`].

use std::time::Duration;

use base::Time;

/// Time between two recoveries after which the later recovery counts as a first recovery again.
const FAILURES_COUNT: Duration = Duration::from_secs(60);

/// Maximum number of doublings of the minimum time.
const DOUBLINGS: u32 = 4;

/// Number of answers required for the end of a watch. A path that loses 10 % of the packets in each direction
/// gives this number of answers in a row in one of five attempts. A path that loses 30 % succeeds in one of
/// three hundred attempts.
const ANSWERS: u8 = 8;

/// Factor on the frequency of heartbeats during the watch.
pub(super) const PACE: u32 = 4;

/// State of the watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// Earliest end of the watch; [`Time::NEVER`] while the path is not watched.
    until: Time,
    /// Answers since the watch began.
    answers: u8,
    /// True if the next recovery starts no watch.
    is_forgiven: bool,
    /// Start of the last watch.
    began: Time,
    /// Number of recent recoveries. Two successive recoveries are at most [`FAILURES_COUNT`] apart.
    times: u32,
}

impl Watch {
    /// Creates the state of a path that has not failed yet.
    pub(super) fn new(now: Time) -> Watch {
        Watch { until: Time::NEVER, answers: 0, is_forgiven: false, began: now, times: 0 }
    }

    /// Starts the watch after a recovery. `first` is the minimum time of the watch after a first failure;
    /// zero means no watch.
    pub(super) fn begin(&mut self, now: Time, first: Duration) {
        if std::mem::take(&mut self.is_forgiven) {
            return self.end();
        }
        if now - self.began > FAILURES_COUNT {
            self.times = 0;
        }
        let long = first * (1 << self.times.min(DOUBLINGS));
        self.times = self.times.saturating_add(1);
        self.began = now;
        self.until = if long.is_zero() { Time::NEVER } else { now + long };
        self.answers = 0;
    }

    /// Ends the watch because the path is trusted, or because the path has failed.
    pub(super) fn end(&mut self) {
        self.until = Time::NEVER;
    }

    /// Ends the watch. If the path `has_failed`, its next recovery starts no watch.
    pub(super) fn forgive(&mut self, has_failed: bool) {
        self.is_forgiven = has_failed;
        self.end();
    }

    /// Counts an answer on the path.
    pub(super) fn on_answer(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    pub(super) fn is_on(&self) -> bool {
        self.until != Time::NEVER
    }

    /// Returns the end of the watch, or [`Time::NEVER`] if the end is not known. For a path that is probed
    /// (`is_asked`), the end is known after [`ANSWERS`] answers.
    pub(super) fn ends_at(&self, is_asked: bool) -> Time {
        let is_proven = !is_asked || self.answers >= ANSWERS;
        if is_proven { self.until } else { Time::NEVER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: fn(u64) -> Time = |s| Time::from_millis(1000 * s);

    #[test]
    fn each_failure_doubles_the_time_for_which_a_path_is_watched_until_it_has_worked_for_a_minute() {
        let mut watch = Watch::new(Time::ZERO);
        let mut watched = |at_s: u64, first| {
            watch.end();
            watch.begin(SECONDS(at_s), first);
            watch.is_on().then(|| (watch.ends_at(false) - SECONDS(at_s)).as_secs())
        };
        let times = [100, 101, 102, 103, 104, 105, 106, 166, 227];
        let five = Duration::from_secs(5);
        assert_eq!(times.map(|at_s| watched(at_s, five).unwrap_or(0)), [5, 10, 20, 40, 80, 80, 80, 80, 5]);
        assert_eq!(watched(300, Duration::ZERO), None);
    }

    #[test]
    fn the_watch_of_a_probed_path_ends_only_after_eight_answers_since_its_recovery() {
        let mut watch = Watch::new(Time::ZERO);
        (0..8).for_each(|_| watch.on_answer());
        watch.begin(SECONDS(1), Duration::from_secs(5));
        (0..7).for_each(|_| watch.on_answer());
        assert_eq!((watch.ends_at(true), watch.ends_at(false)), (Time::NEVER, SECONDS(6)));
        watch.on_answer();
        assert_eq!(watch.ends_at(true), SECONDS(6));
    }
}

//! The watch over a path that has recovered from a failure, before data returns to it. It lasts for a time
//! that doubles with each further failure, and until the path has given a number of answers without a failure
//! in between. Time alone proves little about a lossy path, and nothing if heartbeats are rare. Start at
//! [`Watch::begin`].

use std::time::Duration;

use base::Time;

/// Time after the last recovery from which a failure counts as the first one again.
const FAILURES_COUNT: Duration = Duration::from_secs(60);

/// Maximum number of doublings of the watch.
const DOUBLINGS: u32 = 4;

/// Required answers: a path that loses 10 % each way succeeds once in five times, one that loses 30 % once in
/// three hundred.
const ANSWERS: u8 = 8;

/// Factor on the frequency of heartbeats during the watch.
pub(super) const PACE: u32 = 4;

/// The state of the watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// Its minimum end; [`Time::NEVER`] while the path is not watched.
    until: Time,
    /// Answers since it began.
    answers: u8,
    /// The next recovery begins none.
    is_forgiven: bool,
    /// Start of the last one, and the number of them with less than a minute between recoveries.
    began: Time,
    times: u32,
}

impl Watch {
    /// Creates the state of a path that has not failed yet.
    pub(super) fn new(now: Time) -> Watch {
        Watch { until: Time::NEVER, answers: 0, is_forgiven: false, began: now, times: 0 }
    }

    /// Starts the watch after a recovery; `first` is its duration after a first failure, zero for none.
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

    /// Ends the watch, also because the path has failed.
    pub(super) fn end(&mut self) {
        self.until = Time::NEVER;
    }

    /// Ends the watch, or begins none at the recovery if the path `has_failed`.
    pub(super) fn forgive(&mut self, has_failed: bool) {
        self.is_forgiven = has_failed;
        self.end();
    }

    /// Counts a sign of life on the path.
    pub(super) fn on_answer(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    pub(super) fn is_on(&self) -> bool {
        self.until != Time::NEVER
    }

    /// Its end, as far as known: a path that is probed must also answer.
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
    fn a_path_that_is_asked_must_have_answered_eight_times_since_it_works_again() {
        let mut watch = Watch::new(Time::ZERO);
        (0..8).for_each(|_| watch.on_answer());
        watch.begin(SECONDS(1), Duration::from_secs(5));
        (0..7).for_each(|_| watch.on_answer());
        assert_eq!((watch.ends_at(true), watch.ends_at(false)), (Time::NEVER, SECONDS(6)));
        watch.on_answer();
        assert_eq!(watch.ends_at(true), SECONDS(6));
    }
}

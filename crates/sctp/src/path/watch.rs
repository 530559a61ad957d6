//! A path that works again after a failure is watched before data goes back to it: for a time that doubles with each further failure,
//! and until it has given a number of answers without a failure between them. The time alone says little of a path that loses
//! much, and nothing where heartbeats are rare. Begin at [`Watch::begin`].

use std::time::Duration;

use base::Time;

/// A failure this long after the last recovery is the first one again.
const FAILURES_COUNT: Duration = Duration::from_secs(60);

/// How often the time for which a path is watched doubles.
const DOUBLINGS: u32 = 4;

/// Answers that a path must give: one that loses 10 % each way does so once in five times, one that loses 30 % once in three hundred.
const ANSWERS: u8 = 8;

/// How many times as often a path is asked while it is watched.
pub(super) const PACE: u32 = 4;

/// Whether, and for how long, a path is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// When the time is over, while the path is watched.
    until: Option<Time>,
    /// Given since it began.
    answers: u8,
    /// When the last one began, and how many there were, none a minute after the one before.
    began: Time,
    times: u32,
}

impl Watch {
    /// The path has not failed yet.
    pub(super) fn new(now: Time) -> Watch {
        Watch { until: None, answers: 0, began: now, times: 0 }
    }

    /// The path works again; `first` is how long it is watched after a first failure, nought: not at all.
    pub(super) fn begin(&mut self, now: Time, first: Duration) {
        if now - self.began > FAILURES_COUNT {
            self.times = 0;
        }
        let long = first * (1 << self.times.min(DOUBLINGS));
        self.times = self.times.saturating_add(1);
        self.began = now;
        self.until = (!long.is_zero()).then(|| now + long);
        self.answers = 0;
    }

    /// The path has failed, or the watch is over.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// The peer was heard on the path.
    pub(super) fn on_answer(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// When it is over, as far as is known: one that is asked has to answer, too.
    pub(super) fn ends_at(&self, is_asked: bool) -> Time {
        let is_proven = !is_asked || self.answers >= ANSWERS;
        self.until.filter(|_| is_proven).unwrap_or(Time::NEVER)
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

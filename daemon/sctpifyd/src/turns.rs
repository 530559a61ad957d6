//! Measures the durations of the event loop's turns. They matter because packets and held SYNs wait for the end of a turn.

use std::time::Duration;

use control::TurnTimes;

/// Upper bounds of the buckets, in microseconds.
const BOUNDS_US: [u64; 9] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 100_000];

/// Histogram of all turns since the start.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Number of turns in each bucket. The last bucket counts turns that are longer than all bounds.
    counts: [u64; BOUNDS_US.len() + 1],
    sum: Duration,
}

impl Turns {
    pub(crate) fn note(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum += took;
    }

    pub(crate) fn report(&self) -> TurnTimes {
        let sum_us = u64::try_from(self.sum.as_micros()).unwrap_or(u64::MAX);
        TurnTimes { bounds_us: BOUNDS_US.to_vec(), counts: self.counts.to_vec(), sum_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_counted_in_the_first_bucket_that_has_room_for_it() {
        let mut turns = Turns::default();
        for us in [10, 50, 51, 999, 1_000, 250_000] {
            turns.note(Duration::from_micros(us));
        }
        let report = turns.report();
        assert_eq!(report.counts, [2, 1, 0, 0, 2, 0, 0, 0, 0, 1]);
        assert_eq!((report.bounds_us.len(), report.sum_us), (9, 252_110));
    }
}

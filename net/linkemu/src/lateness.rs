//! Histogram of the delays of packets beyond their due times. Its size is bounded. Begin at [`Lateness::note`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Width and number of the histogram's buckets. The buckets cover delays up to 20 ms. The last bucket also counts all longer
/// delays.
const BUCKET: Duration = Duration::from_micros(10);
const BUCKETS: usize = 2000;
/// Greatest delay beyond the due time with which a packet does not count as late. Under load, the emulator should send packets
/// within this delay.
pub const LATE: Duration = Duration::from_millis(1);

/// Delays of packets beyond their due time.
#[derive(Debug)]
pub(crate) struct Lateness {
    buckets: Vec<u64>,
    packets: u64,
    late: u64,
    max: Duration,
}

/// Report of the delays. A percentile is the upper end of a bucket of 10 microseconds, or the greatest delay if the greatest delay
/// is smaller. A percentile above 20 ms is reported as 20 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LatenessReport {
    /// Packets that were sent.
    pub packets: u64,
    /// Packets that were sent more than [`LATE`] after they were due.
    pub late: u64,
    /// Delay that half of the packets did not exceed, in microseconds.
    pub p50_us: u64,
    /// Delay that 99 of 100 packets did not exceed, in microseconds.
    pub p99_us: u64,
    /// Greatest delay, in microseconds.
    pub max_us: u64,
}

impl Lateness {
    pub(crate) fn new() -> Lateness {
        Lateness { buckets: vec![0; BUCKETS], packets: 0, late: 0, max: Duration::ZERO }
    }

    /// Counts a packet that was sent `late` after it was due.
    pub(crate) fn note(&mut self, late: Duration) {
        let bucket = (late.as_nanos() / BUCKET.as_nanos()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.packets += 1;
        self.late += u64::from(late > LATE);
        self.max = self.max.max(late);
    }

    fn percentile(&self, percent: u64) -> u64 {
        let mut left = (self.packets * percent).div_ceil(100);
        let bucket = self.buckets.iter().position(|count| {
            let is_in = left <= *count;
            left = left.saturating_sub(*count);
            is_in
        });
        let end = BUCKET * (bucket.unwrap_or(BUCKETS - 1) as u32 + 1);
        (end.as_micros() as u64).min(self.max.as_micros() as u64)
    }

    pub(crate) fn report(&self) -> LatenessReport {
        LatenessReport {
            packets: self.packets,
            late: self.late,
            p50_us: self.percentile(50),
            p99_us: self.percentile(99),
            max_us: self.max.as_micros() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_noted() {
        let mut lateness = Lateness::new();
        assert_eq!(lateness.report(), LatenessReport::default());
        (1..=98).for_each(|_| lateness.note(Duration::from_micros(15)));
        lateness.note(Duration::from_micros(999));
        lateness.note(Duration::from_millis(30));
        let expected = LatenessReport { packets: 100, late: 1, p50_us: 20, p99_us: 1000, max_us: 30_000 };
        assert_eq!(lateness.report(), expected);
    }
}

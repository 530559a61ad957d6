//! Rate of consecutive packets: a link, or a token bucket.

use std::time::Duration;

use base::Time;

/// A rate, and a burst that may pass after a pause.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bits per second; 0 is unlimited.
    rate: u64,
    /// Transmission time of the burst.
    credit: Duration,
    /// Time at which the bucket is full again.
    full_at: Time,
}

impl Pace {
    /// Creates a pace of `rate` bits per second; 0 is unlimited. `burst` bytes may pass without delay after a pause. The bucket
    /// is full at first.
    pub fn new(rate: u64, burst: usize) -> Pace {
        Pace { rate, credit: time_of(burst, rate), full_at: Time::ZERO }
    }

    /// Returns the time at which the next packet may leave: now or later.
    pub fn ready_at(&self, now: Time) -> Time {
        self.level_at().max(now)
    }

    /// Returns the time at which the bucket has no debt. If the bucket has tokens, this time lies in the past.
    fn level_at(&self) -> Time {
        Time::ZERO + self.full_at.since(Time::ZERO + self.credit)
    }

    /// Sends a packet of `length` bytes. Returns the time at which its last bit leaves.
    pub fn take(&mut self, now: Time, length: usize) -> Time {
        self.full_at = self.full_at.max(now) + time_of(length, self.rate);
        self.level_at().max(now)
    }
}

/// Returns the transmission time of `bytes` bytes; zero without a rate.
fn time_of(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u128 * 8_000_000_000).checked_div(u128::from(rate)).unwrap_or(0);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn a_link_sends_one_after_another() {
        let mut link = Pace::new(8_000_000, 0);
        assert_eq!(link.ready_at(MS(5)), MS(5));
        assert_eq!(link.take(MS(5), 1000), MS(6));
        assert_eq!(link.ready_at(MS(5)), MS(6));
        assert_eq!(link.take(MS(6), 2000), MS(8));
    }

    #[test]
    fn a_bucket_lets_its_burst_pass_at_once_and_fills_up_no_further() {
        let mut bucket = Pace::new(8_000_000, 2000);
        for _ in 0..3 {
            assert_eq!(bucket.ready_at(MS(0)), MS(0));
            bucket.take(MS(0), 1000);
        }
        assert_eq!(bucket.ready_at(MS(0)), MS(1), "the third was lent");
        assert_eq!(bucket.take(MS(1000), 2000), MS(1000));
        assert_eq!(bucket.ready_at(MS(1000)), MS(1000));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        assert_eq!(Pace::new(0, 0).take(MS(3), 9000), MS(3));
    }
}

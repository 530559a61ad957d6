//! Detection of a path that delivers data much later than another path would.
//!
//! A link that becomes slow loses no packets and is never silent. The queue in front of the link grows, and
//! acknowledgements arrive later and later. A long queue alone is no reason to leave the path. A sender with
//! unlimited data fills the queue of any link, and would fill the next link's queue after a move. Therefore
//! a long delay is a reason to leave the path only in two cases:
//!
//! * Little is in flight, so this sender has not filled the queue.
//! * The path's rate is at most its best rate divided by [`PART`].
//!
//! This module only measures. Start at [`DelayMeter::on_acks`], then read [`DelayMeter::time_to_deliver`]
//! and, for an idle path, [`DelayMeter::time_elsewhere`].

use std::time::Duration;

use base::Time;

/// Duration of one rate measurement.
const COUNT: Duration = Duration::from_millis(250);

/// Divisor of the best rate. A path counts as slow if its rate is at most the quotient.
const PART: u32 = 8;

/// Divisor of the best rate. Each measurement lowers the best rate by the quotient. Eleven seconds of
/// sending thus halve the best rate.
const BEST_FADES: u32 = 64;

/// Maximum number of bytes in flight that count as no cause of a queue: an initial window (RFC 6928).
const FIRST_WINDOW: usize = 14_600;

/// Time for which the rate of a path that has become idle remains valid.
const KNOWN: Duration = Duration::from_secs(60);

/// Meter of the amount and the rate of one path's deliveries, while the path is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayMeter {
    /// Start of the current measurement; `NEVER` if the next acknowledgement starts it.
    since: Time,
    /// Bytes acknowledged since `since`.
    delivered: u32,
    /// Rate of the last complete measurement, in bytes per second; 0 if unknown.
    rate: u32,
    /// Best rate of recent measurements, in bytes per second.
    best: u32,
    /// Time since which delivery has taken too long without interruption; `NEVER` if delivery is in time.
    late_since: Time,
}

impl DelayMeter {
    /// Creates the meter of a path that has carried no data yet.
    pub(crate) fn new() -> DelayMeter {
        DelayMeter { since: Time::NEVER, delivered: 0, rate: 0, best: 0, late_since: Time::NEVER }
    }

    /// Restarts the meter when the path begins to carry data. Keeps the best rate.
    pub(crate) fn begin(&mut self) {
        *self = DelayMeter { best: self.best, ..DelayMeter::new() };
    }

    /// Counts `bytes` acknowledged bytes, with `flight` bytes left in flight.
    pub(crate) fn on_acks(&mut self, bytes: usize, flight: usize, now: Time) {
        // Nothing is in flight, so the program and not the path limits the rate.
        if flight == 0 {
            (self.since, self.delivered, self.rate) = (Time::NEVER, 0, 0);
            return;
        }
        if self.since == Time::NEVER {
            self.since = now;
            return;
        }
        self.delivered = self.delivered.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let long = now - self.since;
        if long >= COUNT {
            let rate = u128::from(self.delivered) * 1_000_000_000 / long.as_nanos().max(1);
            self.rate = u32::try_from(rate).unwrap_or(u32::MAX);
            self.best = (self.best - self.best / BEST_FADES).max(self.rate);
            (self.since, self.delivered) = (now, 0);
        }
    }

    /// Returns the time that `flight` bytes need on this path: the smaller of two estimates. One estimate is
    /// `age`, the time from the sending of the path's last acknowledged packet to its acknowledgement. This
    /// packet may have waited in a queue that is now empty. The other estimate follows from the rate, which
    /// a short pause in deliveries lowers.
    pub(crate) fn time_to_deliver(&self, flight: usize, age: Duration) -> Duration {
        if self.rate == 0 { age } else { age.min(drain(flight, self.rate)) }
    }

    /// Returns the time that `flight` bytes would need on this idle path with the round trip `srtt`. The
    /// result is the longer of two times: the duration in slow start, and the duration at the path's last
    /// rate. A rate older than [`KNOWN`] does not count.
    pub(crate) fn time_elsewhere(&self, flight: usize, srtt: Duration, now: Time) -> Duration {
        let windows = u32::try_from(flight / FIRST_WINDOW + 1).unwrap_or(u32::MAX);
        let slow_start = srtt * (windows.ilog2() + 1);
        let is_known = self.rate > 0 && self.since != Time::NEVER && now - self.since < KNOWN;
        if is_known { slow_start.max(drain(flight, self.rate)) } else { slow_start }
    }

    /// Reports whether the cause of a long delay must be the path, and not a queue that this sender has
    /// filled.
    pub(crate) fn may_be_slow(&self, flight: usize) -> bool {
        flight <= FIRST_WINDOW || (self.rate > 0 && self.rate <= self.best / PART)
    }

    /// Records whether delivery takes too long now. If the previous call recorded this too, returns the time
    /// at which the uninterrupted delay began.
    pub(crate) fn note(&mut self, is_late: bool, now: Time) -> Option<Time> {
        let before = std::mem::replace(&mut self.late_since, Time::NEVER);
        if is_late {
            self.late_since = before.min(now);
        }
        (is_late && before != Time::NEVER).then_some(before)
    }
}

/// Returns the time in which a rate of `rate` bytes per second delivers `flight` bytes. `rate` is greater
/// than 0.
fn drain(flight: usize, rate: u32) -> Duration {
    Duration::from_micros((flight as u64).saturating_mul(1_000_000) / u64::from(rate.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    /// Delivers `bytes` every 10 ms, with `flight` bytes in flight.
    fn run(meter: &mut DelayMeter, from_ms: u64, to_ms: u64, bytes: usize, flight: usize) {
        (from_ms / 10..to_ms / 10).for_each(|n| meter.on_acks(bytes, flight, MS(n * 10)));
    }

    #[test]
    fn a_path_is_slow_if_its_delivery_rate_collapses_and_not_if_its_queue_is_long() {
        let mut meter = DelayMeter::new();
        run(&mut meter, 0, 2_000, 50_000, 500_000);
        assert!(!meter.may_be_slow(500_000));
        assert!((95..105).contains(&meter.time_to_deliver(500_000, Duration::from_secs(9)).as_millis()));
        run(&mut meter, 2_000, 3_000, 5_000, 500_000);
        assert!(meter.may_be_slow(500_000));
        assert!((970..1_050).contains(&meter.time_to_deliver(500_000, Duration::from_secs(9)).as_millis()));
    }

    #[test]
    fn with_little_in_flight_the_last_delay_decides_and_a_pause_of_the_sender_does_not() {
        let mut meter = DelayMeter::new();
        run(&mut meter, 0, 1_000, 50_000, 500_000);
        meter.on_acks(100, 0, MS(1_010));
        run(&mut meter, 9_000, 9_010, 100, 100);
        assert!(meter.may_be_slow(100) && !meter.may_be_slow(100_000));
        assert_eq!(meter.time_to_deliver(100, Duration::from_millis(700)).as_millis(), 700);
    }

    #[test]
    fn lateness_counts_from_the_first_late_sample_until_a_sample_in_time() {
        let mut meter = DelayMeter::new();
        let noted = [(1, true), (2, true), (3, true), (4, false), (5, true)];
        let since = noted.map(|(at, is_late)| meter.note(is_late, MS(at)));
        assert_eq!(since, [None, Some(MS(1)), Some(MS(1)), None, None]);
    }

    #[test]
    fn an_idle_path_is_assumed_to_double_its_rate_each_round_trip_up_to_its_former_rate() {
        let mut meter = DelayMeter::new();
        let seconds = |meter: &DelayMeter, bytes, now| {
            meter.time_elsewhere(bytes, Duration::from_secs(1), MS(now)).as_secs()
        };
        assert_eq!([1, 14_600, 43_800, 1_000_000].map(|bytes| seconds(&meter, bytes, 0)), [1, 2, 3, 7]);
        run(&mut meter, 0, 1_000, 100, 500_000);
        assert_eq!([50_000, 60_990].map(|now| seconds(&meter, 1_000_000, now)), [100, 7]);
    }
}

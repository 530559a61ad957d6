//! Pacing: data leaves evenly over the round trip, and not a whole window at once.
//!
//! The pacer keeps a budget of bytes, which grows at the path's rate. Data may leave while the budget is
//! positive, and a packet may overdraw the budget. An empty budget must grow to a quantum before data leaves
//! again:
//!
//! * At high rates, a quantum is the bytes of one millisecond, so trains (GSO) are long.
//! * At low rates, a quantum is two packets. A full queue would drop several packets of a longer burst. The
//!   sender would reduce its window only once for these packets, so other flows would suffer.
//! * While a path takes over the data of another path, a quantum may be a single packet.
//!
//! Data that waited for a late driver leaves as if the driver had been on time. Start at [`Pacer::refill`].

use std::time::Duration;

use base::Time;

/// Minimum quantum in packets, except while a path takes over the data of another path.
const QUANTUM_PACKETS: usize = 2;

/// Time in which the rate yields a quantum, at high rates.
const QUANTUM: Duration = Duration::from_millis(1);

/// Budget of one path.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// Bytes that may leave now; negative after an overdraft.
    budget: i64,
    /// Quantum in bytes: the budget at which the wait ends.
    quantum: i64,
    /// Rate in bytes per second; 0 means unlimited.
    rate: u64,
    /// Time of the last refill of the budget.
    filled_at: Time,
    /// Time at which the budget reaches a quantum. Set while data waits only for the budget.
    pub(super) release_at: Option<Time>,
}

impl Pacer {
    pub(super) fn new() -> Pacer {
        Pacer { budget: 0, quantum: 0, rate: 0, filled_at: Time::ZERO, release_at: None }
    }

    /// Sets the rate to `rate` bytes per second, for packets of `mtu` bytes.
    pub(super) fn set_rate(&mut self, rate: u64, mtu: usize, now: Time) {
        self.pace(rate, QUANTUM_PACKETS * mtu, now);
    }

    /// Sets the rate in bytes per second, and the minimum quantum `least` in bytes.
    fn pace(&mut self, rate: u64, least: usize, now: Time) {
        if self.rate == 0 {
            self.filled_at = now;
            self.budget = i64::MAX;
        }
        self.refill(now);
        self.rate = rate.max(1);
        let in_quantum = u128::from(rate) * QUANTUM.as_nanos() / 1_000_000_000;
        let quantum = least.max(usize::try_from(in_quantum).unwrap_or(usize::MAX));
        self.quantum = i64::try_from(quantum).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        self.budget = self.budget.min(self.most(now));
    }

    /// Restarts pacing at `rate` bytes per second. If the rate is low, data leaves packet by packet. One
    /// quantum may leave at once.
    pub(super) fn begin(&mut self, rate: u64, now: Time) {
        *self = Pacer::new();
        self.pace(rate, 1, now);
        self.budget = self.quantum;
    }

    /// Adds to the budget the bytes of the time since the last refill. After a pause, the budget is limited
    /// to two quanta.
    pub(super) fn refill(&mut self, now: Time) {
        if self.rate == 0 || now <= self.filled_at {
            return;
        }
        let gained = self.gained(now - self.filled_at);
        if gained > 0 {
            self.budget = self.budget.saturating_add(gained).min(self.most(now));
            self.filled_at = now;
        }
    }

    /// Returns the bytes that the rate yields in `time`.
    fn gained(&self, time: Duration) -> i64 {
        let bytes = u128::from(self.rate) * time.as_nanos() / 1_000_000_000;
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    /// Returns the maximum of the budget: two quanta, plus the bytes that the rate yields in the time by
    /// which the driver is late. Without the latter bytes, a busy host would send only two quanta each time
    /// its driver runs. The window would then never be full, and would not grow.
    fn most(&self, now: Time) -> i64 {
        let late = self.release_at.map_or(Duration::ZERO, |at| now.since(at));
        (2 * self.quantum).saturating_add(self.gained(late))
    }

    /// Returns whether data may leave.
    pub(super) fn allows(&self) -> bool {
        (self.rate == 0 || self.budget > 0) && self.release_at.is_none()
    }

    /// Deducts sent data.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        if self.rate > 0 {
            self.budget = self.budget.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// If no data may leave, starts a wait for a full quantum, so trains stay long.
    pub(super) fn wait(&mut self, now: Time) {
        if self.release_at.is_none() && !self.allows() {
            let missing = u128::try_from(self.quantum.saturating_sub(self.budget)).unwrap_or(0);
            let nanos = (missing * 1_000_000_000).div_ceil(u128::from(self.rate.max(1)));
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX).max(1);
            self.release_at = Some(now + Duration::from_nanos(nanos));
        }
    }

    /// Ends the wait for a full quantum if `release_at` has come.
    pub(super) fn expire(&mut self, now: Time) {
        if self.release_at.is_some_and(|at| at <= now) {
            self.refill(now);
            self.release_at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    /// Sends packets of 1,000 bytes while the pacer allows it; returns their number.
    fn drain(pacer: &mut Pacer) -> usize {
        let mut packets = 0;
        while pacer.allows() && packets < 1000 {
            pacer.on_sent(1000);
            packets += 1;
        }
        packets
    }

    fn paced(rate: u64) -> Pacer {
        let mut pacer = Pacer::new();
        pacer.set_rate(rate, 1000, MS(1));
        pacer
    }

    #[test]
    fn a_pacer_that_begins_again_releases_one_packet_at_a_time() {
        let mut pacer = paced(100_000);
        pacer.refill(MS(1000));
        pacer.begin(100_000, MS(1000));
        assert_eq!(drain(&mut pacer), 1);
        pacer.wait(MS(1000));
        assert_eq!(pacer.release_at, Some(MS(1010)));
        pacer.expire(MS(1010));
        assert_eq!(drain(&mut pacer), 1);
    }

    #[test]
    fn without_a_rate_everything_may_leave() {
        assert_eq!(drain(&mut Pacer::new()), 1000);
    }

    #[test]
    fn at_a_low_rate_two_packets_are_released_at_a_time() {
        let mut pacer = paced(1_000_000);
        assert_eq!(drain(&mut pacer), 4);
        pacer.wait(MS(1));
        assert_eq!(pacer.release_at, Some(MS(3)));
        pacer.expire(MS(2));
        assert_eq!(drain(&mut pacer), 0);
        pacer.expire(MS(3));
        assert_eq!(drain(&mut pacer), 2);
    }

    #[test]
    fn at_a_gigabit_per_second_a_release_has_at_least_64_packets() {
        let mut pacer = paced(125_000_000);
        drain(&mut pacer);
        pacer.wait(MS(1));
        let at = pacer.release_at.unwrap();
        pacer.expire(at);
        assert!(drain(&mut pacer) >= 64);
    }

    #[test]
    fn a_late_driver_releases_all_data_that_was_due_and_a_pause_saves_up_two_quanta() {
        let mut pacer = paced(1_000_000);
        drain(&mut pacer);
        pacer.wait(MS(1));
        assert_eq!(pacer.release_at, Some(MS(3)));
        // SACKs received meanwhile set the rate again before the release.
        pacer.set_rate(1_000_000, 1000, MS(23));
        pacer.expire(MS(23));
        assert_eq!(drain(&mut pacer), 22);
        pacer.refill(MS(5000));
        assert_eq!(drain(&mut pacer), 4);
    }

    #[test]
    fn a_long_pause_saves_up_no_more_than_two_quanta() {
        let mut pacer = paced(1_000_000);
        drain(&mut pacer);
        pacer.refill(MS(5000));
        assert_eq!(drain(&mut pacer), 4);
    }
}

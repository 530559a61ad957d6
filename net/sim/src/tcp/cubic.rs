//! CUBIC as in Linux (RFC 9438), with HyStart's test of the delay. Windows are in segments.

use std::time::Duration;

use base::Time;

/// Window after a loss, as a share of the window before it.
pub(super) const BETA: f64 = 0.7;
/// Steepness of the cubic function, in segments per cubic second.
const C: f64 = 0.4;
/// Growth per round trip, in segments, of a Reno window with this beta.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Least number of acknowledged segments for which the window grows by one segment.
const ACKS_PER_SEGMENT_MIN: f64 = 2.0;
/// Least window to which HyStart applies, in segments.
const HYSTART_WINDOW_MIN: f64 = 16.0;
/// Number of round-trip samples that HyStart uses in each round.
const HYSTART_SAMPLES: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Time,
    k: f64,
    origin: f64,
    reno: f64,
}

/// State of CUBIC, without the window itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    w_max: f64,
    epoch: Option<Epoch>,
    min_rtt: Option<Duration>,
    round_end: u64,
    samples: u32,
    least: Duration,
}

impl Cubic {
    /// Handles a loss. Returns the new threshold.
    pub(super) fn reduce(&mut self, cwnd: f64) -> f64 {
        self.epoch = None;
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        cwnd * BETA
    }

    /// Returns the window after `acked` segments were acknowledged, outside of slow start.
    pub(super) fn grow(&mut self, cwnd: f64, acked: f64, now: Time) -> f64 {
        let mut epoch = self.epoch.unwrap_or_else(|| {
            let (k, origin) =
                if cwnd < self.w_max { (((self.w_max - cwnd) / C).cbrt(), self.w_max) } else { (0.0, cwnd) };
            Epoch { began: now, k, origin, reno: cwnd }
        });
        let t = (now.since(epoch.began) + self.min_rtt.unwrap_or_default()).as_secs_f64();
        let target = epoch.origin + C * (t - epoch.k).powi(3);
        epoch.reno += ALPHA * acked / cwnd;
        self.epoch = Some(epoch);
        let goal = target.max(epoch.reno);
        let acks_per_segment = if goal > cwnd { cwnd / (goal - cwnd) } else { 100.0 * cwnd };
        cwnd + acked / acks_per_segment.max(ACKS_PER_SEGMENT_MIN)
    }

    /// Takes a sample of the round trip. All data before `acked` is acknowledged, and all data before `sent` was sent. Returns
    /// whether the delay shows that slow start has filled the path.
    pub(super) fn on_rtt(&mut self, rtt: Duration, cwnd: f64, acked: u64, sent: u64) -> bool {
        let least = self.min_rtt.map_or(rtt, |least| least.min(rtt));
        self.min_rtt = Some(least);
        if acked > self.round_end {
            (self.round_end, self.samples, self.least) = (sent, 0, Duration::MAX);
        }
        self.samples += 1;
        if self.samples <= HYSTART_SAMPLES {
            self.least = self.least.min(rtt);
            return false;
        }
        let more = (least / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        cwnd >= HYSTART_WINDOW_MIN && self.least >= least + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_back_where_it_was_after_k_seconds() {
        let mut cubic = Cubic::default();
        let mut cwnd = cubic.reduce(1000.0);
        assert_eq!(cwnd, 700.0);
        // K = cbrt(300 / 0.4) = 9.09 s. One window is acknowledged every 100 ms.
        for tenth in 0..91 {
            cwnd = (0..10).fold(cwnd, |w, _| cubic.grow(w, w / 10.0, Time::from_millis(100 * tenth)));
        }
        assert!((980.0..1005.0).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn a_small_window_grows_as_renos_would() {
        let mut cubic = Cubic::default();
        let mut cwnd = cubic.reduce(10.0);
        for round in 0..4 {
            cwnd = (0..7).fold(cwnd, |w, _| cubic.grow(w, w / 7.0, Time::from_millis(70 * round)));
        }
        assert!((8.5..9.3).contains(&cwnd), "0.53 each round trip, not {cwnd}");
    }

    #[test]
    fn a_second_loss_below_w_max_lowers_w_max_by_fast_convergence() {
        let mut cubic = Cubic::default();
        let once = cubic.reduce(100.0);
        cubic.reduce(once);
        assert!((cubic.w_max - 59.5).abs() < 1e-9, "{}", cubic.w_max);
    }

    #[test]
    fn hystart_ends_slow_start_when_eight_samples_of_a_round_are_late_and_not_for_small_windows() {
        let ends = |cwnd| {
            let mut cubic = Cubic::default();
            (0..9).for_each(|_| assert!(!cubic.on_rtt(Duration::from_millis(80), cwnd, 1, 10)));
            (0..9).any(|_| cubic.on_rtt(Duration::from_millis(91), cwnd, 11, 20))
        };
        assert!(ends(20.0) && !ends(10.0));
    }
}

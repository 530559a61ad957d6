//! CUBIC (RFC 9438), with HyStart++ (RFC 9406) in slow start.
//!
//! After a reduction, the window follows a cubic function of time. The window returns to its size before the
//! reduction, plateaus there, and then grows beyond it. While Reno's window would be larger, the window
//! follows Reno's. The formulas use windows in segments of one MTU, as in the RFC. Start at
//! [`Cubic::on_ack`](CongestionControl::on_ack).

use std::time::Duration;

use base::Time;

use super::hystart::{CSS_GROWTH_DIVISOR, HyStart, Pace};
use super::{
    AVOIDANCE_PERCENT, Ack, CongestionControl, Coupling, SLOW_START_PERCENT, after_idle, initial_window,
    least_threshold, whole, window_rate,
};

/// Multiplicative decrease of the window on congestion (section 4.6).
const BETA: f64 = 0.7;
/// Steepness of the cubic function, in segments per cubic second (section 5.1).
const C: f64 = 0.4;
/// Growth of the estimated Reno window in segments per round trip, until the estimate reaches the window
/// before the reduction (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// One period of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Time,
    /// Seconds from `began` until the cubic function is back at `w_max`.
    k: f64,
    /// Estimate of Reno's window, in segments.
    w_est: f64,
    /// Increase of `w_est`, in segments per round trip.
    alpha: f64,
    /// Steepness of the function, in segments per cubic second.
    c: f64,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// Congestion window in bytes.
    cwnd: f64,
    /// Slow-start threshold in bytes.
    ssthresh: usize,
    /// Size to which the cubic function returns, in segments: the window at the last congestion, or a smaller
    /// window after fast convergence.
    w_max: f64,
    /// Window just before the last congestion, in segments.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
}

/// Congestion window of one path.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    mtu: usize,
    window: Window,
    hystart: HyStart,
    coupling: Coupling,
    /// State before the last reduction.
    before: Option<Window>,
}

impl Cubic {
    pub(crate) fn new(mtu: usize) -> Cubic {
        let window = Window {
            cwnd: initial_window(mtu) as f64,
            ssthresh: usize::MAX,
            w_max: 0.0,
            cwnd_prior: 0.0,
            epoch: None,
        };
        Cubic { mtu, window, hystart: HyStart::default(), coupling: Coupling::NONE, before: None }
    }

    fn segments(&self) -> f64 {
        self.window.cwnd / self.mtu as f64
    }

    fn in_slow_start(&self) -> bool {
        self.cwnd() < self.window.ssthresh
    }

    fn slow_start(&mut self, ack: &Ack) {
        match self.hystart.on_ack(ack) {
            Pace::Full => self.window.cwnd += ack.bytes as f64,
            Pace::Conservative => self.window.cwnd += (ack.bytes / CSS_GROWTH_DIVISOR) as f64,
            Pace::Over => self.window.ssthresh = self.cwnd(),
        }
    }

    /// Grows the window outside slow start (sections 4.2 to 4.5).
    fn avoid_congestion(&mut self, ack: &Ack) {
        let cwnd = self.segments();
        let mut epoch = self.window.epoch.unwrap_or_else(|| self.new_epoch(ack.now));
        let acked = ack.bytes as f64 / self.mtu as f64;
        epoch.w_est += self.coupling.growth * epoch.alpha * acked / cwnd;
        if epoch.w_est >= self.window.cwnd_prior {
            epoch.alpha = 1.0;
        }
        let elapsed = (ack.now - epoch.began).as_secs_f64();
        let w_cubic = |t: f64| epoch.c * (t - epoch.k).powi(3) + self.window.w_max;
        let next = if w_cubic(elapsed) < epoch.w_est {
            epoch.w_est.max(cwnd)
        } else {
            let target = w_cubic(elapsed + ack.srtt.as_secs_f64()).clamp(cwnd, 1.5 * cwnd);
            cwnd + (target - cwnd) / cwnd * acked
        };
        self.window.cwnd = next * self.mtu as f64;
        self.window.epoch = Some(epoch);
    }

    fn new_epoch(&mut self, now: Time) -> Epoch {
        let cwnd = self.segments();
        self.window.w_max = self.window.w_max.max(cwnd);
        let c = C * self.coupling.steepness;
        let k = cube_root((self.window.w_max - cwnd) / c);
        let alpha = if cwnd >= self.window.cwnd_prior { 1.0 } else { ALPHA };
        Epoch { began: now, k, w_est: cwnd, alpha, c }
    }

    fn reduce(&mut self) {
        self.before = Some(self.window);
        let cwnd = self.segments();
        // Section 4.7 (fast convergence): if the window had not yet returned to `w_max`, it leaves room for
        // other flows.
        let lower = cwnd < self.window.w_max;
        self.window.w_max = if lower { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.window.cwnd_prior = cwnd;
        self.window.epoch = None;
        self.window.ssthresh = whole(self.window.cwnd * BETA).max(least_threshold(self.mtu));
    }
}

/// Returns the cube root of `x`; 0 if `x` is negative. Newton's method gives the same result on every
/// machine; the cube root of a C library need not.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    for _ in 0..64 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if (next - root).abs() < 1e-9 * root {
            return next;
        }
        root = next;
    }
    root
}

impl CongestionControl for Cubic {
    fn cwnd(&self) -> usize {
        whole(self.window.cwnd)
    }

    fn may_be_passed(&self) -> bool {
        self.in_slow_start()
    }

    fn begin_with(&mut self, window: usize) {
        self.window.cwnd = self.window.cwnd.max(window as f64);
    }

    fn ssthresh(&self) -> usize {
        self.window.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        if ack.bytes == 0 || ack.in_recovery {
            return;
        }
        if !ack.window_was_full {
            // Section 5.8: time in which the application limits the sender does not count as time of the
            // function.
            self.window.epoch = None;
        } else if self.in_slow_start() {
            self.slow_start(ack);
        } else {
            self.avoid_congestion(ack);
        }
    }

    fn on_congestion(&mut self, _now: Time) -> bool {
        self.reduce();
        self.window.cwnd = self.window.ssthresh as f64;
        true
    }

    //= rfc9260#7.2.1-2
    fn on_timeout(&mut self) {
        self.reduce();
        self.window.cwnd = self.mtu as f64;
        self.hystart = HyStart::default();
    }

    fn on_spurious(&mut self) {
        if let Some(before) = self.before.take() {
            self.window = Window { cwnd: before.cwnd.max(self.window.cwnd), epoch: None, ..before };
        }
    }

    fn on_idle(&mut self, rtos: u32, least: usize) {
        self.window.cwnd = after_idle(self.cwnd(), self.mtu, rtos, least) as f64;
        self.window.epoch = None;
        // The round trips before the pause say nothing about the queue after it. If HyStart kept them, its verdict
        // would end the new slow start at once (RFC 9406 section 4.3 permits HyStart after a pause).
        self.hystart = HyStart::default();
    }

    fn on_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.window.cwnd = self.window.cwnd.max(mtu as f64);
    }

    fn set_coupling(&mut self, coupling: Coupling) {
        self.coupling = coupling;
    }

    fn pacing_rate(&self, srtt: Duration) -> u64 {
        let percent = if self.in_slow_start() { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT };
        window_rate(self.cwnd(), srtt, percent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::full;
    use super::*;

    const MTU: usize = 1000;

    fn at(segments: usize) -> Cubic {
        let mut c = Cubic::new(MTU);
        c.window.cwnd = (segments * MTU) as f64;
        c
    }

    /// Acknowledges a whole window every 100 ms, from `from` to `until` in milliseconds. Returns the window
    /// in segments.
    fn run(c: &mut Cubic, from: u64, until: u64) -> usize {
        for millis in (from..until).step_by(100) {
            let window = c.cwnd();
            c.on_ack(&full(Time::from_millis(millis), window));
        }
        c.cwnd() / MTU
    }

    #[test]
    fn cube_roots_are_right() {
        for x in [0.001f64, 0.5, 1.0, 27.0, 1e9] {
            assert!((cube_root(x).powi(3) - x).abs() < 1e-6 * x, "{x}");
        }
        assert_eq!(cube_root(-1.0), 0.0);
    }

    #[test]
    fn the_window_returns_to_w_max_after_k_seconds_and_then_grows_beyond_it() {
        let mut c = at(1000);
        c.on_congestion(Time::ZERO);
        assert_eq!(c.cwnd(), 700 * MTU);
        // K = cbrt(300 / 0.4) = 9.1 s.
        let halfway = run(&mut c, 0, 4500);
        assert!((900..970).contains(&halfway), "{halfway}");
        let back = run(&mut c, 4500, 9100);
        assert!((985..1005).contains(&back), "{back}");
        let beyond = run(&mut c, 9100, 15_000);
        assert!(beyond > 1050, "{beyond}");
    }

    #[test]
    fn with_coupling_half_the_window_follows_half_the_curve_at_half_the_speed() {
        let mut whole = at(1000);
        whole.on_congestion(Time::ZERO);
        let mut half = at(500);
        half.set_coupling(Coupling { growth: 0.25, steepness: 0.0625 });
        half.on_congestion(Time::ZERO);
        for seconds in [2000, 4000, 9000, 12_000] {
            let (whole, half) = (run(&mut whole, 0, seconds), run(&mut half, 0, 2 * seconds));
            assert!(half.abs_diff(whole / 2) <= 4, "{half} beside {whole} after {seconds} ms");
        }
    }

    #[test]
    fn a_small_window_grows_as_reno_does() {
        let mut c = at(20);
        c.on_congestion(Time::ZERO);
        // The window has 14 segments, and grows by 0.53 in each round trip.
        let after = run(&mut c, 0, 1000);
        assert!((18..=20).contains(&after), "{after}");
    }

    #[test]
    fn a_second_loss_below_w_max_lowers_w_max_by_fast_convergence() {
        let mut c = at(1000);
        c.on_congestion(Time::ZERO);
        c.on_congestion(Time::ZERO);
        assert!((c.window.w_max - 595.0).abs() < 1e-6, "{}", c.window.w_max);
    }

    #[test]
    fn a_spurious_reduction_is_taken_back_whole() {
        let mut c = at(1000);
        c.on_timeout();
        assert_eq!((c.cwnd(), c.ssthresh()), (MTU, 700 * MTU));
        c.on_spurious();
        assert_eq!((c.cwnd(), c.ssthresh()), (1000 * MTU, usize::MAX));
    }

    #[test]
    fn an_idle_period_restarts_slow_start_at_full_pace_after_a_hystart_exit() {
        let mut c = at(40);
        let round = |c: &mut Cubic, millis| {
            for sample in 0..8 {
                let rtt = Some(Duration::from_millis(millis));
                c.on_ack(&Ack { rtt, round_over: sample == 0, ..full(Time::ZERO, 1000) });
            }
        };
        round(&mut c, 80);
        (0..7).for_each(|_| round(&mut c, 120));
        assert!(!c.in_slow_start());
        let before = c.ssthresh();
        c.on_idle(20, 10 * MTU);
        assert_eq!((c.cwnd(), c.ssthresh()), (10 * MTU, before));
        round(&mut c, 80);
        assert_eq!((c.cwnd(), c.ssthresh()), (18 * MTU, before));
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut c = at(100);
        c.on_congestion(Time::ZERO);
        for millis in 0..10_000 {
            c.on_ack(&Ack { window_was_full: false, ..full(Time::from_millis(millis), 5000) });
        }
        assert_eq!(c.cwnd(), 70 * MTU);
    }
}

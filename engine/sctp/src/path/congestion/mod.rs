//! Congestion control of one path: limits on the data in flight and on the sending rate.
//!
//! A [`CongestionControl`] knows the window but not the packets. `tx` counts the data in flight and finds
//! losses. [`Sending`](super::Sending) reports congestion to the controller once per round trip. Invariant of
//! each controller: cwnd ≥ one MTU. Start at the trait, and then read [`rfc9260`], [`cubic`] (the default)
//! and [`loss_tolerant`].

pub(crate) mod cubic;
pub(crate) mod hystart;
pub(crate) mod loss_tolerant;
pub(crate) mod rfc9260;

use std::fmt;
use std::time::Duration;

use base::Time;

use crate::config::CongestionAlgorithm;
use crate::tx::RateSample;

/// Acknowledgements and losses that one SACK reports for one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) now: Time,
    /// User bytes newly acknowledged on this path.
    pub(crate) bytes: usize,
    /// User bytes still in flight on this path.
    pub(crate) flight: usize,
    /// User bytes found lost by this SACK.
    pub(crate) lost: usize,
    /// True if the window limited the sender in the last round trip.
    pub(crate) window_was_full: bool,
    /// True during loss recovery, in which the window does not grow.
    pub(crate) in_recovery: bool,
    /// True if the cumulative TSN moved.
    pub(crate) cumulative_advanced: bool,
    /// Round trip of the newest acknowledged chunk that was sent only once.
    pub(crate) rtt: Option<Duration>,
    /// The smoothed round trip.
    pub(crate) srtt: Duration,
    /// True if a round trip has ended with this SACK.
    pub(crate) round_over: bool,
    /// Delivery rate, if measured.
    pub(crate) rate: Option<RateSample>,
}

/// Size of the largest controller in bytes.
pub(crate) const LARGEST: usize = {
    let (cubic, tolerant) = (size_of::<cubic::Cubic>(), size_of::<loss_tolerant::LossTolerant>());
    let plain = size_of::<rfc9260::Rfc9260>();
    let larger = if cubic > tolerant { cubic } else { tolerant };
    if larger > plain { larger } else { plain }
};

/// Factors, above 0 and up to 1, that slow the growth of a window because of the association's other paths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coupling {
    /// Factor on the increase of the window per acknowledged byte.
    pub(crate) growth: f64,
    /// Factor on the steepness of a cubic function of time.
    pub(crate) steepness: f64,
}

impl Coupling {
    /// No coupling: no other path carries data.
    pub(crate) const NONE: Coupling = Coupling { growth: 1.0, steepness: 1.0 };
}

/// Window and pacing rate of one path. All sizes are user bytes.
pub(crate) trait CongestionControl: fmt::Debug + Send {
    /// Returns the number of bytes that may be in flight.
    fn cwnd(&self) -> usize;

    /// Returns whether data in flight may exceed the window by less than one packet (RFC 9260 section 6.1 B).
    /// TCP never exceeds its window in this way. A controller that aims for fairness to TCP therefore returns
    /// false after slow start. In a window of 20 packets, for example, the extra packet would add one
    /// twentieth.
    fn may_be_passed(&self) -> bool {
        true
    }

    /// Raises the initial window to at least `window` bytes, before anything is sent.
    fn begin_with(&mut self, window: usize);

    /// Returns the slow-start threshold in bytes; `usize::MAX` if there is no threshold.
    fn ssthresh(&self) -> usize;

    /// Handles acknowledged data.
    fn on_ack(&mut self, ack: &Ack);

    /// Handles losses that indicate congestion. Called once for the losses of all data that was sent before
    /// the congestion was noticed. Returns whether the window was reduced; if so, the caller spreads the
    /// reduction over a round trip.
    fn on_congestion(&mut self, now: Time) -> bool;

    /// Handles a congestion mark (RFC 3168). [`on_congestion`](Self::on_congestion) follows. Only controllers
    /// that treat losses differently from marks implement this method.
    fn on_mark(&mut self, _now: Time) {}

    /// Handles expiry of T3 (RFC 9260 section 7.2.3).
    fn on_timeout(&mut self);

    /// Undoes the last reaction to congestion or to a timeout, because it proved spurious.
    fn on_spurious(&mut self);

    /// Handles a pause in sending that lasted `rtos` retransmission timeouts (RFC 9260 section 7.2.1).
    /// `least` is the initial window of a new path, in bytes.
    fn on_idle(&mut self, rtos: u32, least: usize);

    /// Handles a change of the path's MTU to `mtu` bytes.
    fn on_mtu(&mut self, mtu: usize);

    /// Sets the coupling after the windows of the association's other paths have changed. A controller
    /// without coupling ignores the call.
    fn set_coupling(&mut self, _coupling: Coupling) {}

    /// Returns the pacing rate in bytes per second.
    fn pacing_rate(&self, srtt: Duration) -> u64;
}

/// Creates a controller for a path whose packets have up to `mtu` bytes.
pub(crate) fn controller(algorithm: CongestionAlgorithm, mtu: usize) -> Box<dyn CongestionControl> {
    match algorithm {
        CongestionAlgorithm::Rfc9260 => Box::new(rfc9260::Rfc9260::new(mtu)),
        CongestionAlgorithm::Cubic => Box::new(cubic::Cubic::new(mtu)),
        CongestionAlgorithm::LossTolerant => Box::new(loss_tolerant::LossTolerant::new(mtu)),
    }
}

/// Returns the initial cwnd in bytes, before data transmission (RFC 9260 section 7.2.1).
//= rfc9260#7.2.1-1
fn initial_window(mtu: usize) -> usize {
    (4 * mtu).min((2 * mtu).max(4404))
}

/// Returns the minimum slow-start threshold in bytes (RFC 9260 section 7.2.3).
fn least_threshold(mtu: usize) -> usize {
    4 * mtu
}

/// Returns `cwnd` after a pause of `rtos` timeouts. Each timeout halves `cwnd`, but neither below four MTUs
/// nor below the initial window `least` (the restart window of RFC 5681 section 4.1).
//= rfc9260#7.2.1-10
fn after_idle(cwnd: usize, mtu: usize, rtos: u32, least: usize) -> usize {
    (cwnd >> rtos.min(32)).max(least_threshold(mtu)).max(least).min(cwnd)
}

/// Rounds a window down to whole bytes. A window is never negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "windows are small and positive")]
fn whole(window: f64) -> usize {
    window as usize
}

/// Returns the rate that sends `percent` of a window per round trip, in bytes per second.
pub(crate) fn window_rate(cwnd: usize, srtt: Duration, percent: u64) -> u64 {
    let rate = cwnd as u128 * u128::from(percent) * 10_000_000 / srtt.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Pacing rate in slow start, in percent of the window per round trip. A rate of two windows per round trip
/// lets slow start double the window (as RFC 9406 section 5 assumes of a paced sender).
const SLOW_START_PERCENT: u64 = 200;

/// Pacing rate after slow start, in percent of the window per round trip. The rate is a little above one
/// window per round trip, so pacing alone never leaves the window unused.
const AVOIDANCE_PERCENT: u64 = 125;

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Returns an acknowledgement of `bytes` bytes, with a round trip of 100 ms and a full window.
    pub(crate) fn full(now: Time, bytes: usize) -> Ack {
        let rtt = Duration::from_millis(100);
        Ack {
            now,
            bytes,
            flight: 0,
            lost: 0,
            window_was_full: true,
            in_recovery: false,
            cumulative_advanced: true,
            rtt: Some(rtt),
            srtt: rtt,
            round_over: false,
            rate: None,
        }
    }

    #[test]
    //= rfc9260#7.2.1-1
    fn the_initial_window_is_that_of_rfc_9260() {
        assert_eq!([1500, 9000, 576].map(initial_window), [4404, 18_000, 2304]);
    }

    #[test]
    //= rfc9260#7.2.1-10
    fn idleness_shrinks_the_window_but_not_below_four_mtu() {
        assert_eq!(after_idle(100_000, 1500, 1, 0), 50_000);
        assert_eq!(after_idle(100_000, 1500, 20, 0), 6000);
        assert_eq!(after_idle(100_000, 1500, 20, 15_000), 15_000);
        assert_eq!(after_idle(4404, 1500, 3, 15_000), 4404);
    }

    #[test]
    fn the_rate_is_one_window_per_round_trip() {
        assert_eq!(window_rate(125_000, Duration::from_millis(100), 100), 1_250_000);
    }
}

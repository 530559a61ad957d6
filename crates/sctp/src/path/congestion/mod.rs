//! Congestion control of one path: how much may be in flight, and how fast it may leave.
//!
//! A [`CongestionControl`] knows the window, not the packets: `tx` counts what is in flight and finds losses, and
//! [`Sending`](super::Sending) tells the controller of congestion once a round trip. Invariant of each controller: cwnd
//! ≥ one MTU. Begin at the trait; then [`rfc9260`], [`cubic`] (the default) and [`loss_tolerant`].

pub(crate) mod cubic;
pub(crate) mod hystart;
pub(crate) mod loss_tolerant;
pub(crate) mod rfc9260;

use std::fmt;
use std::time::Duration;

use base::Time;

use crate::config::CongestionAlgorithm;
use crate::tx::RateSample;

/// What one SACK acknowledged on one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) now: Time,
    /// User bytes newly acknowledged on this path.
    pub(crate) bytes: usize,
    /// User bytes still in flight on this path.
    pub(crate) flight: usize,
    /// User bytes found lost by this SACK.
    pub(crate) lost: usize,
    /// Whether the window was what held the sender back in the last round trip.
    pub(crate) window_was_full: bool,
    /// Whether losses are being mended: the window does not grow.
    pub(crate) in_recovery: bool,
    /// Whether the cumulative TSN moved.
    pub(crate) cumulative_advanced: bool,
    /// The round trip of the newest chunk that was sent once.
    pub(crate) rtt: Option<Duration>,
    /// The smoothed round trip.
    pub(crate) srtt: Duration,
    /// Whether a round trip is over.
    pub(crate) round_over: bool,
    pub(crate) rate: Option<RateSample>,
}

/// Bytes of the largest controller.
pub(crate) const LARGEST: usize = {
    let (cubic, tolerant) = (size_of::<cubic::Cubic>(), size_of::<loss_tolerant::LossTolerant>());
    let plain = size_of::<rfc9260::Rfc9260>();
    let larger = if cubic > tolerant { cubic } else { tolerant };
    if larger > plain { larger } else { plain }
};

/// How much slower a window grows than it would by itself, because of the association's other paths: factors above 0, and
/// at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coupling {
    /// On what is added for what was acknowledged.
    pub(crate) growth: f64,
    /// On the coefficient of a cubic function of time.
    pub(crate) steepness: f64,
}

impl Coupling {
    /// A path by itself.
    pub(crate) const NONE: Coupling = Coupling { growth: 1.0, steepness: 1.0 };
}

/// The window and rate of one path. All sizes are user bytes.
pub(crate) trait CongestionControl: fmt::Debug + Send {
    /// Bytes that may be in flight.
    fn cwnd(&self) -> usize;

    /// Whether what is in flight may pass the window by less than one packet (RFC 9260 section 6.1 B). TCP counts whole packets;
    /// a controller that is to be fair to TCP's does so too once it has found its window, for the packet more is a twentieth of a small
    /// one.
    fn may_be_passed(&self) -> bool {
        true
    }

    /// Before anything was sent: the window is at least so many bytes.
    fn begin_with(&mut self, window: usize);

    /// The slow-start threshold; `usize::MAX` while there is none.
    fn ssthresh(&self) -> usize;

    /// Data was acknowledged.
    fn on_ack(&mut self, ack: &Ack);

    /// Losses show congestion: called once for all that was sent before. Returns whether the window was reduced, so that
    /// the reduction must be spread over the round trip.
    fn on_congestion(&mut self, now: Time) -> bool;

    /// A packet was marked for congestion (RFC 3168). Called before [`on_congestion`](Self::on_congestion), for controllers
    /// that judge losses otherwise.
    fn on_mark(&mut self, _now: Time) {}

    /// T3 expired (RFC 9260 section 7.2.3).
    fn on_timeout(&mut self);

    /// The last congestion or timeout was none: what it did is taken back.
    fn on_spurious(&mut self);

    /// Nothing was sent for `rtos` retransmission timeouts (RFC 9260 section 7.2.1). A window of `least` bytes would be let to a
    /// path that begins.
    fn on_idle(&mut self, rtos: u32, least: usize);

    /// The path's MTU is another now.
    fn on_mtu(&mut self, mtu: usize);

    /// The association's other paths have changed their windows. A controller that does not know what to make of it goes on
    /// by itself.
    fn set_coupling(&mut self, _coupling: Coupling) {}

    /// Bytes per second at which data may leave.
    fn pacing_rate(&self, srtt: Duration) -> u64;
}

/// A controller for a path of this MTU.
pub(crate) fn controller(algorithm: CongestionAlgorithm, mtu: usize) -> Box<dyn CongestionControl> {
    match algorithm {
        CongestionAlgorithm::Rfc9260 => Box::new(rfc9260::Rfc9260::new(mtu)),
        CongestionAlgorithm::Cubic => Box::new(cubic::Cubic::new(mtu)),
        CongestionAlgorithm::LossTolerant => Box::new(loss_tolerant::LossTolerant::new(mtu)),
    }
}

/// The initial cwnd before data transmission (RFC 9260 section 7.2.1).
//= rfc9260#7.2.1-1
fn initial_window(mtu: usize) -> usize {
    (4 * mtu).min((2 * mtu).max(4404))
}

/// The least slow-start threshold (RFC 9260 section 7.2.3).
fn least_threshold(mtu: usize) -> usize {
    4 * mtu
}

/// `cwnd` after `rtos` timeouts without data: halved for each, but not below four MTU, nor below what it would begin with (the
/// restart window of RFC 5681 section 4.1).
//= rfc9260#7.2.1-10
fn after_idle(cwnd: usize, mtu: usize, rtos: u32, least: usize) -> usize {
    (cwnd >> rtos.min(32)).max(least_threshold(mtu)).max(least).min(cwnd)
}

/// Whole bytes of a window, which is never negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "windows are small and positive")]
fn whole(window: f64) -> usize {
    window as usize
}

/// A window that may leave within a round trip, and `percent` of that, as a rate.
pub(crate) fn window_rate(cwnd: usize, srtt: Duration, percent: u64) -> u64 {
    let rate = cwnd as u128 * u128::from(percent) * 10_000_000 / srtt.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Twice the window a round trip lets slow start double it (as RFC 9406 section 5 assumes of a paced sender).
const SLOW_START_PERCENT: u64 = 200;

/// A little above the window, so that pacing alone never keeps the window from being used.
const AVOIDANCE_PERCENT: u64 = 125;

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// `bytes` acknowledged of a full window after 100 ms.
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
    fn a_window_a_round_trip_is_its_rate() {
        assert_eq!(window_rate(125_000, Duration::from_millis(100), 100), 1_250_000);
    }
}

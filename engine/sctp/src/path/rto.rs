//! The retransmission timeout of one path (RFC 9260 section 6.3).
//!
//! This module computes SRTT, RTTVAR and RTO, and starts no timer. Invariant: RTO.Min ≤ rto ≤ RTO.Max. Start
//! at [`Rto::on_sample`].

use std::time::Duration;

use crate::config::Timing;

/// Estimator of the RTO.
#[derive(Clone, Debug)]
pub(crate) struct Rto {
    srtt: Option<Duration>,
    rttvar: Duration,
    rto: Duration,
}

impl Rto {
    pub(crate) fn new(timing: &Timing) -> Rto {
        Rto { srtt: None, rttvar: Duration::ZERO, rto: Rto::unmeasured(timing) }
    }

    /// Returns the RTO before any measurement. An RTO.Initial below RTO.Min applies only to INITs.
    fn unmeasured(timing: &Timing) -> Duration {
        timing.rto_initial.max(timing.rto_min)
    }

    /// Returns the current timeout.
    pub(crate) fn rto(&self) -> Duration {
        self.rto
    }

    /// Returns the smoothed round-trip time, once measured.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Processes a measured round trip (rules C2 and C3, with RTO.Alpha = 1/8 and RTO.Beta = 1/4).
    pub(crate) fn on_sample(&mut self, rtt: Duration, timing: &Timing) {
        let srtt = match self.srtt {
            None => {
                self.rttvar = rtt / 2;
                rtt
            }
            Some(srtt) => {
                self.rttvar = self.rttvar * 3 / 4 + srtt.abs_diff(rtt) / 4;
                srtt * 7 / 8 + rtt / 8
            }
        };
        self.srtt = Some(srtt);
        self.rto = self.measured(srtt, timing);
    }

    /// Returns SRTT plus the larger of two values: four times RTTVAR, and the configured margin. RTO.Min and
    /// RTO.Max bound the result.
    fn measured(&self, srtt: Duration, timing: &Timing) -> Duration {
        // `clamp` would panic if the driver has set RTO.Min above RTO.Max.
        (srtt + (self.rttvar * 4).max(timing.rto_margin)).min(timing.rto_max).max(timing.rto_min)
    }

    /// Returns whether `rtt` exceeds SRTT by more than three times RTTVAR. The RTO exceeds SRTT by four times
    /// RTTVAR if no margin and no bound applies.
    pub(crate) fn is_surprised_by(&self, rtt: Duration) -> bool {
        self.srtt.is_some_and(|srtt| rtt > srtt + self.rttvar * 3)
    }

    /// Doubles the RTO after the timer has expired (rule E2).
    pub(crate) fn on_timeout(&mut self, timing: &Timing) {
        self.rto = (self.rto * 2).min(timing.rto_max);
    }

    /// Returns the measured timeout without back-off.
    pub(crate) fn without_back_off(&self, timing: &Timing) -> Duration {
        match self.srtt {
            Some(srtt) => self.measured(srtt, timing),
            None => Rto::unmeasured(timing),
        }
    }

    /// Applies changed settings of the RTO. SRTT and RTTVAR stay, and the back-off ends.
    pub(crate) fn on_new_timing(&mut self, timing: &Timing) {
        self.rto = self.without_back_off(timing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    //= rfc9260#16-1
    fn the_first_sample_sets_srtt_and_three_times_it_as_rto() {
        let timing = Timing { rto_min: MS(1), ..Timing::default() };
        let mut rto = Rto::new(&timing);
        assert_eq!(rto.rto(), timing.rto_initial);
        rto.on_sample(MS(100), &timing);
        assert_eq!((rto.srtt(), rto.rto()), (Some(MS(100)), MS(300)));
    }

    #[test]
    fn a_delay_beyond_three_quarters_from_srtt_to_rto_is_a_surprise() {
        let timing = Timing { rto_min: MS(1), ..Timing::default() };
        let mut rto = Rto::new(&timing);
        assert!(!rto.is_surprised_by(MS(500)), "nothing is known yet");
        rto.on_sample(MS(100), &timing);
        assert_eq!(rto.rto(), MS(300));
        assert!(!rto.is_surprised_by(MS(250)) && rto.is_surprised_by(MS(251)));
    }

    #[test]
    fn steady_samples_bring_rto_down_to_its_floor_and_not_below() {
        let timing = Timing::default();
        let mut rto = Rto::new(&timing);
        for _ in 0..100 {
            rto.on_sample(MS(10), &timing);
        }
        assert_eq!(rto.rto(), timing.rto_min);
    }

    #[test]
    fn however_steady_the_samples_rto_keeps_its_margin_above_them() {
        let timing = Timing { rto_min: MS(100), rto_margin: MS(100), ..Timing::default() };
        let mut rto = Rto::new(&timing);
        for (rtt, expected) in [(1, 101), (80, 180)] {
            (0..1000).for_each(|_| rto.on_sample(MS(rtt), &timing));
            assert!(rto.rto().abs_diff(MS(expected)) < MS(1), "{:?}", rto.rto());
        }
    }

    #[test]
    //= rfc9260#6.3.3-1
    fn timeouts_double_up_to_the_ceiling_and_a_sample_ends_the_back_off() {
        let timing = Timing::default();
        let mut rto = Rto::new(&timing);
        rto.on_sample(MS(500), &timing);
        rto.on_timeout(&timing);
        assert_eq!(rto.rto(), MS(3000));
        for _ in 0..10 {
            rto.on_timeout(&timing);
        }
        assert_eq!(rto.rto(), timing.rto_max);
        rto.on_sample(MS(500), &timing);
        assert!(rto.rto() < MS(1500));
    }
}

//! Retransmission time-out (RFC 6298). The caller applies Karn's rule, and passes only valid samples.

use std::time::Duration;

use super::config::{RtoFloor, TcpConfig};

/// Longest time-out, as in BSD. Linux uses 120 s.
const RTO_MAX: Duration = Duration::from_secs(64);

/// Time-out estimator of one connection.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    srtt: Option<Duration>,
    variance: Duration,
    rto: Duration,
    min: Duration,
    floor: RtoFloor,
}

impl Rto {
    pub(super) fn new(config: &TcpConfig) -> Rto {
        Rto {
            srtt: None,
            variance: Duration::ZERO,
            rto: config.rto_initial,
            min: config.rto_min,
            floor: config.rto_floor,
        }
    }

    pub(super) fn get(&self) -> Duration {
        self.rto
    }

    pub(super) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Takes a sample of the round trip, which ends the back-off.
    pub(super) fn on_sample(&mut self, rtt: Duration) {
        let srtt = match self.srtt {
            None => {
                self.variance = rtt / 2;
                rtt
            }
            Some(srtt) => {
                self.variance = self.variance * 3 / 4 + srtt.abs_diff(rtt) / 4;
                srtt * 7 / 8 + rtt / 8
            }
        };
        self.srtt = Some(srtt);
        let rto = match self.floor {
            RtoFloor::TimeOut => (srtt + self.variance * 4).max(self.min),
            RtoFloor::Variance => srtt + (self.variance * 4).max(self.min),
        };
        self.rto = rto.min(RTO_MAX);
    }

    /// Doubles the time-out, because the timer has expired.
    pub(super) fn on_timeout(&mut self) {
        self.rto = (self.rto * 2).min(RTO_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_rto_floor_applies_to_the_timeout_on_freebsd_and_to_the_variance_on_linux() {
        let mut bsd = Rto::new(&TcpConfig::freebsd_4_10());
        let mut linux = Rto::new(&TcpConfig::linux_without_sack());
        for _ in 0..50 {
            bsd.on_sample(MS(70));
            linux.on_sample(MS(70));
        }
        assert_eq!((bsd.get().as_millis(), linux.get().as_millis()), (1000, 1070));
    }

    #[test]
    fn each_time_out_doubles_the_wait_up_to_a_limit_and_a_sample_ends_that() {
        let mut rto = Rto::new(&TcpConfig::freebsd_4_10());
        assert_eq!(rto.get(), MS(3000));
        rto.on_sample(MS(100));
        rto.on_timeout();
        rto.on_timeout();
        assert_eq!(rto.get(), MS(4000));
        (0..9).for_each(|_| rto.on_timeout());
        assert_eq!(rto.get(), RTO_MAX);
        rto.on_sample(MS(100));
        assert_eq!(rto.get(), MS(1000));
    }
}

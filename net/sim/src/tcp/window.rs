//! Congestion window of Reno or CUBIC, in segments. Begin at [`Window::on_ack`] and [`Window::reduce`].

use std::time::Duration;

use base::Time;

use super::config::{Growth, TcpConfig};
use super::cubic::Cubic;

/// The least threshold after a loss (RFC 5681 section 3.1).
const THRESHOLD_MIN: f64 = 2.0;

#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) cwnd: f64,
    pub(super) ssthresh: f64,
    /// Segments that the peer's window and the send buffer allow.
    max: f64,
    counts_segments: bool,
    /// State of CUBIC; `None` for Reno.
    cubic: Option<Cubic>,
}

impl Window {
    pub(super) fn new(config: &TcpConfig) -> Window {
        Window {
            cwnd: f64::from(config.initial_window),
            ssthresh: f64::INFINITY,
            max: config.window_max as f64 / config.mss as f64,
            counts_segments: config.counts_segments,
            cubic: (config.growth == Growth::Cubic).then(Cubic::default),
        }
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows the window after `segments` segments were acknowledged. The caller checks that the window was in use.
    pub(super) fn on_ack(&mut self, segments: f64, now: Time) {
        let mut acked = if self.counts_segments { segments } else { 1.0 };
        if self.in_slow_start() {
            let grown = (self.cwnd + acked).min(self.ssthresh.max(self.cwnd));
            acked -= grown - self.cwnd;
            self.cwnd = grown;
        }
        if acked > 0.0 {
            self.cwnd = match &mut self.cubic {
                None => self.cwnd + acked / self.cwnd,
                Some(cubic) => cubic.grow(self.cwnd, acked, now),
            };
        }
    }

    /// Sets the threshold after a loss. As in BSD and Linux, the threshold depends on the data that the windows allowed in
    /// flight, not on the data that was in flight. The caller sets the window.
    pub(super) fn reduce(&mut self) {
        let cwnd = self.cwnd.min(self.max);
        let threshold = match &mut self.cubic {
            None => cwnd / 2.0,
            Some(cubic) => cubic.reduce(cwnd),
        };
        self.ssthresh = threshold.max(THRESHOLD_MIN);
    }

    /// Takes a sample of the round trip, which may end slow start ([`Cubic::on_rtt`]).
    pub(super) fn on_rtt(&mut self, rtt: Duration, acked: u64, sent: u64) {
        let Some(cubic) = &mut self.cubic else { return };
        let is_full = cubic.on_rtt(rtt, self.cwnd, acked, sent);
        if is_full && self.in_slow_start() {
            self.ssthresh = self.cwnd;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_counts_acks_on_freebsd_and_segments_on_linux() {
        let mut bsd = Window::new(&TcpConfig::freebsd_4_10());
        let mut linux = Window::new(&TcpConfig::linux(Growth::Reno));
        bsd.on_ack(2.0, Time::ZERO);
        linux.on_ack(2.0, Time::ZERO);
        assert_eq!((bsd.cwnd, linux.cwnd), (3.0, 12.0));
    }

    #[test]
    fn past_the_threshold_a_window_of_acknowledgements_adds_a_segment() {
        let mut window = Window::new(&TcpConfig::linux(Growth::Reno));
        window.cwnd = 20.0;
        window.reduce();
        assert_eq!(window.ssthresh, 10.0);
        window.cwnd = window.ssthresh;
        (0..10).for_each(|_| window.on_ack(1.0, Time::ZERO));
        assert!((10.9..11.0).contains(&window.cwnd), "{}", window.cwnd);
    }

    #[test]
    fn the_threshold_is_at_least_two_segments() {
        let mut window = Window::new(&TcpConfig::freebsd_4_10());
        window.reduce();
        assert_eq!(window.ssthresh, 2.0);
    }
}

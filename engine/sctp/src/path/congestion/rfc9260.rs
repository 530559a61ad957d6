//! Congestion control of RFC 9260 section 7.2: slow start, then growth by one MTU per round trip.

use std::time::Duration;

use base::Time;

use super::{
    AVOIDANCE_PERCENT, Ack, CongestionControl, Coupling, SLOW_START_PERCENT, after_idle, initial_window,
    least_threshold, whole, window_rate,
};

/// Window and its related values, in bytes. An undone reduction restores the window and the threshold
/// together.
#[derive(Clone, Copy, Debug)]
struct Window {
    cwnd: usize,
    ssthresh: usize,
    partial_bytes_acked: usize,
}

/// Congestion window of one path.
#[derive(Clone, Debug)]
pub(crate) struct Rfc9260 {
    mtu: usize,
    window: Window,
    coupling: Coupling,
    /// State before the last reduction.
    before: Option<Window>,
}

impl Rfc9260 {
    pub(crate) fn new(mtu: usize) -> Rfc9260 {
        //= rfc9260#7.2.1-3
        let window = Window { cwnd: initial_window(mtu), ssthresh: usize::MAX, partial_bytes_acked: 0 };
        Rfc9260 { mtu, window, coupling: Coupling::NONE, before: None }
    }

    //= rfc9260#7.2.2-1 7.2.2-3
    fn avoid_congestion(&mut self, bytes: usize, window_was_full: bool) {
        let w = &mut self.window;
        w.partial_bytes_acked += bytes;
        if w.partial_bytes_acked < w.cwnd {
            return;
        }
        if window_was_full {
            w.partial_bytes_acked -= w.cwnd;
            w.cwnd += whole(self.mtu as f64 * self.coupling.growth).max(1);
        }
        w.partial_bytes_acked = w.partial_bytes_acked.min(w.cwnd);
    }

    fn reduce(&mut self) {
        self.before = Some(self.window);
        //= rfc9260#7.2.3-1
        self.window.ssthresh = (self.window.cwnd / 2).max(least_threshold(self.mtu));
        self.window.partial_bytes_acked = 0;
    }
}

impl CongestionControl for Rfc9260 {
    fn cwnd(&self) -> usize {
        self.window.cwnd
    }

    fn begin_with(&mut self, window: usize) {
        self.window.cwnd = self.window.cwnd.max(window);
    }

    fn ssthresh(&self) -> usize {
        self.window.ssthresh
    }

    /// Grows the window by slow start or congestion avoidance (RFC 9260 sections 7.2.1 and 7.2.2).
    ///
    /// One SACK often covers a whole train of packets. Therefore the growth is in proportion to the
    /// acknowledged bytes (RFC 3465), and has no limit of one MTU per SACK. A peer that splits an
    /// acknowledgement into many SACKs does not make the window grow faster, because only bytes count.
    //= rfc9260#7.2-1
    fn on_ack(&mut self, ack: &Ack) {
        //= rfc9260#7.2.1-5
        if ack.cumulative_advanced && !ack.in_recovery && ack.bytes > 0 {
            if self.window.cwnd > self.window.ssthresh {
                self.avoid_congestion(ack.bytes, ack.window_was_full);
            } else if ack.window_was_full {
                self.window.cwnd += ack.bytes;
            }
        }
        if ack.flight == 0 {
            self.window.partial_bytes_acked = 0;
        }
    }

    fn on_congestion(&mut self, _now: Time) -> bool {
        self.reduce();
        self.window.cwnd = self.window.ssthresh;
        true
    }

    fn on_timeout(&mut self) {
        self.reduce();
        //= rfc9260#7.2.1-2 7.2.3-2
        self.window.cwnd = self.mtu;
    }

    fn on_spurious(&mut self) {
        if let Some(before) = self.before.take() {
            self.window.cwnd = self.window.cwnd.max(before.cwnd);
            self.window.ssthresh = before.ssthresh;
        }
    }

    fn on_idle(&mut self, rtos: u32, least: usize) {
        let cwnd = after_idle(self.window.cwnd, self.mtu, rtos, least);
        //= rfc9260#7.2.1-11
        if cwnd < self.window.cwnd {
            self.window.ssthresh = self.window.cwnd;
        }
        self.window.cwnd = cwnd;
    }

    fn on_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.window.cwnd = self.window.cwnd.max(mtu);
    }

    fn set_coupling(&mut self, coupling: Coupling) {
        self.coupling = coupling;
    }

    fn pacing_rate(&self, srtt: Duration) -> u64 {
        let slow_start = self.window.cwnd <= self.window.ssthresh;
        window_rate(self.window.cwnd, srtt, if slow_start { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::full;
    use super::*;

    const MTU: usize = 1500;

    fn at(cwnd: usize) -> Rfc9260 {
        let mut c = Rfc9260::new(MTU);
        c.window.cwnd = cwnd;
        c
    }

    #[test]
    //= rfc9260#7.2-1
    fn slow_start_doubles_the_window_each_round_trip() {
        let mut c = Rfc9260::new(MTU);
        let before = c.cwnd();
        c.on_ack(&full(Time::ZERO, before));
        assert_eq!(c.cwnd(), 2 * before);
    }

    #[test]
    //= rfc9260#7.2.1-5
    fn a_window_that_was_not_full_does_not_grow() {
        let mut c = Rfc9260::new(MTU);
        let before = c.cwnd();
        c.on_ack(&Ack { window_was_full: false, ..full(Time::ZERO, 1000) });
        assert_eq!(c.cwnd(), before);
    }

    #[test]
    //= rfc9260#7.2.2-1 7.2.2-3
    fn congestion_avoidance_adds_one_mtu_each_round_trip() {
        let mut c = at(60_001);
        c.window.ssthresh = 60_000;
        let ack = |bytes| Ack { flight: 1, ..full(Time::ZERO, bytes) };
        c.on_ack(&ack(30_000));
        assert_eq!(c.cwnd(), 60_001);
        c.on_ack(&ack(30_001));
        assert_eq!(c.cwnd(), 60_001 + MTU);
    }

    #[test]
    fn with_coupling_congestion_avoidance_adds_a_part_of_an_mtu_per_round_trip() {
        let mut c = at(60_001);
        c.window.ssthresh = 60_000;
        c.set_coupling(Coupling { growth: 0.25, steepness: 0.0625 });
        c.on_ack(&Ack { flight: 1, ..full(Time::ZERO, 60_001) });
        assert_eq!(c.cwnd(), 60_001 + MTU / 4);
    }

    #[test]
    //= rfc9260#7.2.3-1 7.2.1-3
    fn congestion_halves_the_window_and_a_spurious_one_is_taken_back() {
        let mut c = at(60_000);
        assert!(c.on_congestion(Time::ZERO));
        assert_eq!((c.cwnd(), c.ssthresh()), (30_000, 30_000));
        c.on_spurious();
        assert_eq!((c.cwnd(), c.ssthresh()), (60_000, usize::MAX));
        c.on_spurious();
        assert_eq!(c.cwnd(), 60_000);
    }

    #[test]
    //= rfc9260#7.2.1-2 7.2.3-2
    fn a_timeout_leaves_one_mtu() {
        let mut c = at(60_000);
        c.on_timeout();
        assert_eq!((c.cwnd(), c.ssthresh()), (MTU, 30_000));
    }

    //= rfc9260#7.2.1-11
    #[test]
    fn after_a_pause_slow_start_leads_back_to_the_old_window_and_not_beyond() {
        let mut c = at(60_000);
        c.on_idle(2, 0);
        assert_eq!((c.cwnd(), c.ssthresh()), (15_000, 60_000));
        let mut c = at(4404);
        c.on_idle(2, 0);
        assert_eq!((c.cwnd(), c.ssthresh()), (4404, usize::MAX));
    }
}

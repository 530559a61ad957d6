//! Congestion control of one path, after RFC 9260 section 7.
//!
//! Knows the window, not the packets: `tx` counts what is in flight. Invariant: cwnd ≥ one MTU. Begin at
//! [`CongestionControl::on_ack`].

use crate::tx::Seq;

/// What one SACK acknowledged on one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// User bytes newly acknowledged on this path.
    pub(crate) bytes: usize,
    /// User bytes that were in flight on this path before the SACK.
    pub(crate) flight_before: usize,
    /// Whether the cumulative TSN moved.
    pub(crate) cumulative_advanced: bool,
    /// Whether nothing is in flight on this path any more.
    pub(crate) all_acknowledged: bool,
}

/// Congestion window of one path.
#[derive(Clone, Debug)]
pub(crate) struct CongestionControl {
    mtu: usize,
    cwnd: usize,
    ssthresh: usize,
    partial_bytes_acked: usize,
    /// While the cumulative TSN is below it, further losses do not reduce the window again.
    recovery_exit: Option<Seq>,
}

impl CongestionControl {
    pub(crate) fn new(mtu: usize) -> CongestionControl {
        // RFC 9260 section 7.2.1: the initial cwnd before data transmission.
        let cwnd = (4 * mtu).min((2 * mtu).max(4404));
        CongestionControl { mtu, cwnd, ssthresh: usize::MAX, partial_bytes_acked: 0, recovery_exit: None }
    }

    pub(crate) fn cwnd(&self) -> usize {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> usize {
        self.ssthresh
    }

    /// Growth by slow start or congestion avoidance (RFC 9260 sections 7.2.1 and 7.2.2).
    ///
    /// One SACK here often answers a whole train of packets, so growth counts bytes (RFC 3465) and is not held to
    /// one MTU a SACK; counting bytes is itself the defence against split acknowledgements.
    pub(crate) fn on_ack(&mut self, acked: Acked) {
        let window_was_full = acked.flight_before + self.mtu > self.cwnd;
        if acked.cumulative_advanced && self.recovery_exit.is_none() && acked.bytes > 0 {
            if self.cwnd <= self.ssthresh {
                if window_was_full {
                    self.cwnd += acked.bytes;
                }
            } else {
                self.avoid_congestion(acked.bytes, window_was_full);
            }
        }
        if acked.all_acknowledged {
            self.partial_bytes_acked = 0;
        }
    }

    fn avoid_congestion(&mut self, bytes: usize, window_was_full: bool) {
        self.partial_bytes_acked += bytes;
        if self.partial_bytes_acked < self.cwnd {
            return;
        }
        if window_was_full {
            self.partial_bytes_acked -= self.cwnd;
            self.cwnd += self.mtu;
        }
        self.partial_bytes_acked = self.partial_bytes_acked.min(self.cwnd);
    }

    /// The cumulative TSN is now just below `cumulative`: fast recovery may be over.
    pub(crate) fn on_cumulative(&mut self, cumulative: Seq) {
        if self.recovery_exit.is_some_and(|exit| cumulative >= exit) {
            self.recovery_exit = None;
        }
    }

    /// Chunks were found missing (RFC 9260 section 7.2.3); `exit` lies just above the highest TSN sent. Returns whether
    /// this begins a new fast recovery.
    pub(crate) fn on_loss(&mut self, exit: Seq) -> bool {
        if self.recovery_exit.is_some() {
            return false;
        }
        self.ssthresh = (self.cwnd / 2).max(4 * self.mtu);
        self.cwnd = self.ssthresh;
        self.partial_bytes_acked = 0;
        self.recovery_exit = Some(exit);
        true
    }

    /// T3 expired (RFC 9260 section 7.2.3).
    pub(crate) fn on_timeout(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(4 * self.mtu);
        self.cwnd = self.mtu;
        self.partial_bytes_acked = 0;
        self.recovery_exit = None;
    }

    /// Nothing was sent for `rtos` retransmission timeouts (RFC 9260 section 7.2.1).
    pub(crate) fn on_idle(&mut self, rtos: u32) {
        for _ in 0..rtos.min(32) {
            self.cwnd = (self.cwnd / 2).max(4 * self.mtu).min(self.cwnd);
        }
    }

    /// The path's MTU became smaller.
    pub(crate) fn on_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.cwnd = self.cwnd.max(mtu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1500;

    fn full(c: &CongestionControl, bytes: usize) -> Acked {
        Acked { bytes, flight_before: c.cwnd(), cumulative_advanced: true, all_acknowledged: false }
    }

    #[test]
    fn the_initial_window_is_that_of_rfc_9260() {
        assert_eq!(CongestionControl::new(1500).cwnd(), 4404);
        assert_eq!(CongestionControl::new(9000).cwnd(), 18_000);
        assert_eq!(CongestionControl::new(576).cwnd(), 2304);
    }

    #[test]
    fn slow_start_doubles_the_window_each_round_trip() {
        let mut c = CongestionControl::new(MTU);
        let before = c.cwnd();
        c.on_ack(full(&c, before));
        assert_eq!(c.cwnd(), 2 * before);
    }

    #[test]
    fn a_window_that_was_not_full_does_not_grow() {
        let mut c = CongestionControl::new(MTU);
        let before = c.cwnd();
        c.on_ack(Acked {
            bytes: 1000,
            flight_before: 1000,
            cumulative_advanced: true,
            all_acknowledged: true,
        });
        assert_eq!(c.cwnd(), before);
    }

    #[test]
    fn congestion_avoidance_adds_one_mtu_each_round_trip() {
        let mut c = CongestionControl::new(MTU);
        c.cwnd = 60_000;
        c.on_loss(Seq(9));
        c.on_cumulative(Seq(9));
        let before = c.cwnd();
        c.cwnd += 1; // just above ssthresh
        c.on_ack(full(&c, before / 2));
        c.on_ack(full(&c, before / 2 + 1));
        assert_eq!(c.cwnd(), before + 1 + MTU);
    }

    #[test]
    fn one_recovery_halves_once() {
        let mut c = CongestionControl::new(MTU);
        c.cwnd = 60_000;
        assert!(c.on_loss(Seq(100)));
        assert!(!c.on_loss(Seq(120)));
        assert_eq!(c.cwnd(), 30_000);
        c.on_cumulative(Seq(99));
        assert!(!c.on_loss(Seq(130)));
        c.on_cumulative(Seq(100));
        assert!(c.on_loss(Seq(130)));
        assert_eq!(c.cwnd(), 15_000);
    }

    #[test]
    fn a_timeout_leaves_one_mtu() {
        let mut c = CongestionControl::new(MTU);
        c.cwnd = 60_000;
        c.on_timeout();
        assert_eq!((c.cwnd(), c.ssthresh()), (MTU, 30_000));
    }

    #[test]
    fn idleness_shrinks_the_window_but_not_below_four_mtu() {
        let mut c = CongestionControl::new(MTU);
        c.cwnd = 100_000;
        c.on_idle(1);
        assert_eq!(c.cwnd(), 50_000);
        c.on_idle(20);
        assert_eq!(c.cwnd(), 4 * MTU);
        let mut small = CongestionControl::new(MTU);
        small.on_idle(3);
        assert_eq!(small.cwnd(), 4404);
    }
}

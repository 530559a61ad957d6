//! Sender without SACK: NewReno's fast retransmit and recovery (RFC 6582), and retransmission from the first hole after a
//! time-out.
//!
//! In recovery, each partial acknowledgement shows one more hole, so a round trip repairs one loss. After a time-out, all data
//! behind the hole is sent again. Without timestamps, one round trip is measured at a time, and never from data that was sent
//! twice (Karn's rule). Begin at [`NewReno::on_ack`] and [`NewReno::poll`].

use base::Time;

use super::config::TcpConfig;
use super::rto::Rto;
use super::segment::{Piece, Segment};
use super::sender::TcpCounters;
use super::window::Window;

/// Duplicate acknowledgements that show a loss (RFC 5681 section 3.2).
const DUPLICATES: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct NewReno {
    mss: usize,
    window_max: u64,
    limited_transmit: bool,
    timestamps: bool,
    window: Window,
    pub(super) rto: Rto,
    pub(super) counters: TcpCounters,
    written: u64,
    una: u64,
    next: u64,
    /// End of all data that was ever sent.
    sent: u64,
    duplicates: u32,
    is_recovering: bool,
    /// End of the data sent when a loss was last noticed. Duplicate acknowledgements below this end show no new loss.
    recover: u64,
    /// True if the first hole must be sent now, regardless of the window.
    mends: bool,
    /// Current measurement of a round trip: the end of the measured data in the stream, and the time at which this data was sent.
    measured: Option<(u64, Time)>,
    retransmit_at: Option<Time>,
}

impl NewReno {
    pub(super) fn new(config: &TcpConfig, limited_transmit: bool) -> NewReno {
        NewReno {
            mss: config.mss,
            window_max: config.window_max,
            limited_transmit,
            timestamps: config.timestamps,
            window: Window::new(config),
            rto: Rto::new(config),
            counters: TcpCounters::default(),
            written: 0,
            una: 0,
            next: 0,
            sent: 0,
            duplicates: 0,
            is_recovering: false,
            recover: 0,
            mends: false,
            measured: None,
            retransmit_at: None,
        }
    }

    /// Notes that the application has handed over `written` bytes in total.
    pub(super) fn write(&mut self, written: u64) {
        self.written = self.written.max(written);
    }

    pub(super) fn on_ack(&mut self, now: Time, ack: u64, segment: &Segment) {
        if ack > self.una && ack <= self.sent {
            self.measure(now, ack, segment.echo);
            self.on_new_ack(now, ack);
        } else if ack == self.una && self.sent > self.una && segment.piece.len == 0 {
            self.on_duplicate(now);
        }
    }

    fn measure(&mut self, now: Time, ack: u64, echo: Option<Time>) {
        let timed = self.measured.take_if(|(end, _)| ack >= *end).map(|(_, began)| began);
        let began = if self.timestamps { echo } else { timed };
        if let Some(began) = began {
            self.rto.on_sample(now.since(began));
            self.window.on_rtt(now.since(began), ack, self.sent);
        }
    }

    fn on_new_ack(&mut self, now: Time, ack: u64) {
        let segments = (ack - self.una) as f64 / self.mss as f64;
        self.una = ack;
        self.next = self.next.max(ack);
        if self.is_recovering && ack < self.recover {
            // A partial acknowledgement shows the next hole. The window shrinks by the data that left the path, and grows by one
            // segment.
            self.mends = true;
            self.window.cwnd = (self.window.cwnd - segments + 1.0).max(1.0);
        } else if self.is_recovering {
            self.is_recovering = false;
            self.duplicates = 0;
            let flight = (self.sent - ack) as f64 / self.mss as f64;
            self.window.cwnd = self.window.ssthresh.min(flight + 1.0);
        } else {
            self.duplicates = 0;
            self.window.on_ack(segments, now);
        }
        self.retransmit_at = (ack < self.sent).then(|| now + self.rto.get());
    }

    fn on_duplicate(&mut self, now: Time) {
        self.duplicates += 1;
        if self.is_recovering {
            self.window.cwnd += 1.0;
        } else if self.duplicates == DUPLICATES && self.una >= self.recover {
            self.window.reduce();
            self.window.cwnd = self.window.ssthresh + f64::from(DUPLICATES);
            self.is_recovering = true;
            self.recover = self.sent;
            self.mends = true;
            self.measured = None;
            self.counters.recoveries += 1;
            self.retransmit_at = Some(now + self.rto.get());
        }
    }

    /// Returns the bytes that may be in flight.
    fn allowed(&self) -> u64 {
        let extra = if self.limited_transmit && !self.is_recovering { self.duplicates.min(2) } else { 0 };
        let bytes = (self.window.cwnd.floor() + f64::from(extra)) * self.mss as f64;
        (bytes as u64).min(self.window_max)
    }

    /// Returns the next segment to leave.
    pub(super) fn poll(&mut self, now: Time) -> Option<Piece> {
        if std::mem::take(&mut self.mends) {
            let piece = self.piece_at(self.una, self.sent);
            return Some(self.send(now, piece));
        }
        let piece = self.piece_at(self.next, self.written);
        if piece.len == 0 || piece.end() - self.una > self.allowed().max(piece.len as u64) {
            return None;
        }
        self.next = piece.end();
        Some(self.send(now, piece))
    }

    fn piece_at(&self, seq: u64, limit: u64) -> Piece {
        let len = usize::try_from(limit.saturating_sub(seq)).unwrap_or(usize::MAX);
        Piece { seq, len: len.min(self.mss) }
    }

    fn send(&mut self, now: Time, piece: Piece) -> Piece {
        if piece.end() <= self.sent {
            self.counters.retransmitted += 1;
        } else if self.measured.is_none() && piece.seq >= self.sent {
            self.measured = Some((piece.end(), now));
        }
        self.sent = self.sent.max(piece.end());
        self.next = self.next.max(piece.end().min(self.sent));
        self.retransmit_at.get_or_insert(now + self.rto.get());
        piece
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.retransmit_at.unwrap_or(Time::NEVER)
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        if self.next_timeout() > now {
            return;
        }
        self.counters.timeouts += 1;
        self.window.reduce();
        self.window.cwnd = 1.0;
        self.rto.on_timeout();
        self.measured = None;
        self.is_recovering = false;
        self.duplicates = 0;
        self.mends = false;
        self.recover = self.sent;
        self.next = self.una;
        self.retransmit_at = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;
    const MSS: u64 = 1460;

    /// Returns a sender with 100 segments to send, and with a window of `window` segments.
    fn sender(window: u32, limited_transmit: bool) -> NewReno {
        let config = TcpConfig {
            mss: MSS as usize,
            initial_window: window,
            timestamps: false,
            ..TcpConfig::freebsd_4_10()
        };
        let mut s = NewReno::new(&config, limited_transmit);
        s.rto.on_sample(Duration::from_millis(100));
        s.write(100 * MSS);
        s
    }

    /// Returns the numbers of the segments that leave now.
    fn leave(s: &mut NewReno, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| s.poll(MS(now))).map(|piece| piece.seq / MSS).collect()
    }

    fn ack(s: &mut NewReno, now: u64, segment: u64) {
        s.on_ack(MS(now), segment * MSS, &Segment::for_tests(&[]));
    }

    #[test]
    fn slow_start_lets_two_segments_go_for_each_one_acknowledged() {
        let mut s = sender(2, false);
        assert_eq!(leave(&mut s, 0), [0, 1]);
        ack(&mut s, 100, 1);
        assert_eq!(leave(&mut s, 100), [2, 3]);
        ack(&mut s, 100, 2);
        assert_eq!(leave(&mut s, 100), [4, 5]);
    }

    #[test]
    fn the_third_duplicate_mends_the_hole_and_halves_the_window() {
        let mut s = sender(8, false);
        assert_eq!(leave(&mut s, 0).len(), 8);
        (0..2).for_each(|_| ack(&mut s, 100, 0));
        assert_eq!(leave(&mut s, 100), []);
        ack(&mut s, 100, 0);
        assert_eq!(leave(&mut s, 100), [0]);
        assert_eq!((s.window.ssthresh, s.counters.recoveries), (4.0, 1));
        // Seven segments have arrived beyond the hole, so the window is 4 + 7 segments. Eight segments were already sent, so
        // three new segments may leave.
        (0..4).for_each(|_| ack(&mut s, 100, 0));
        assert_eq!(leave(&mut s, 100), [8, 9, 10]);
        ack(&mut s, 200, 8);
        assert_eq!(s.window.cwnd, 4.0);
    }

    #[test]
    fn a_partial_acknowledgement_mends_the_next_hole_at_once_and_reduces_nothing_again() {
        let mut s = sender(8, false);
        leave(&mut s, 0);
        (0..3).for_each(|_| ack(&mut s, 100, 0));
        assert_eq!(leave(&mut s, 100), [0]);
        ack(&mut s, 200, 3);
        assert_eq!(leave(&mut s, 200)[0], 3);
        ack(&mut s, 300, 5);
        assert_eq!(leave(&mut s, 300)[0], 5);
        assert_eq!((s.window.ssthresh, s.counters.recoveries, s.is_recovering), (4.0, 1, true));
        let all = s.recover / MSS;
        ack(&mut s, 400, all);
        assert!(!s.is_recovering);
    }

    #[test]
    fn a_time_out_goes_back_to_one_segment_and_sends_all_behind_it_again() {
        let mut s = sender(4, false);
        leave(&mut s, 0);
        assert_eq!(s.next_timeout(), MS(1000));
        s.on_timeout(MS(1000));
        assert_eq!(leave(&mut s, 1000), [0]);
        assert_eq!(s.next_timeout(), MS(3000), "twice as long");
        ack(&mut s, 1100, 1);
        assert_eq!(leave(&mut s, 1100), [1, 2]);
        assert_eq!((s.counters.timeouts, s.counters.retransmitted), (1, 3));
    }

    #[test]
    fn a_retransmitted_segment_is_not_measured_and_the_back_off_stays() {
        let mut s = sender(1, false);
        leave(&mut s, 0);
        s.on_timeout(MS(1000));
        leave(&mut s, 1000);
        ack(&mut s, 3000, 1);
        assert_eq!(s.rto.get(), Duration::from_secs(2));
        leave(&mut s, 3000);
        ack(&mut s, 3100, 2);
        assert_eq!(s.rto.get(), Duration::from_secs(1));
    }

    #[test]
    fn limited_transmit_sends_one_new_segment_for_each_of_the_first_two_duplicates() {
        let mut s = sender(3, true);
        leave(&mut s, 0);
        ack(&mut s, 100, 0);
        assert_eq!(leave(&mut s, 100), [3]);
        ack(&mut s, 100, 0);
        assert_eq!(leave(&mut s, 100), [4]);
        ack(&mut s, 100, 0);
        assert_eq!(leave(&mut s, 100), [0]);
    }

    #[test]
    fn duplicate_acks_after_a_timeout_start_no_fast_recovery() {
        let mut s = sender(6, false);
        leave(&mut s, 0);
        s.on_timeout(MS(1000));
        leave(&mut s, 1000);
        (0..5).for_each(|_| ack(&mut s, 1100, 0));
        assert_eq!(leave(&mut s, 1100), []);
        assert_eq!(s.counters.recoveries, 0);
    }
}

//! Receiving half: the data that has arrived, and the times of acknowledgements. Begin at [`Receiver::on_piece`].

use std::time::Duration;

use base::Time;

use super::config::{Recovery, TcpConfig};
use super::segment::{Piece, Range, SACK_BLOCKS_MAX};

/// Number of segments in order after which an acknowledgement no longer waits (RFC 5681 section 4.2).
const SEGMENTS_PER_ACK: u32 = 2;

#[derive(Clone, Debug)]
pub(super) struct Receiver {
    /// Next byte in order.
    next: u64,
    /// Separate ranges received beyond `next`, the newest first. The holes in the sender's window limit their number.
    beyond: Vec<Range>,
    sends_sacks: bool,
    delay: Duration,
    quick: u32,
    /// Segments that are not acknowledged yet.
    waiting: u32,
    is_due: bool,
    pub(super) ack_at: Option<Time>,
    has_duplicate: bool,
    /// Last acknowledged sequence number.
    reported: u64,
    /// Time to echo: the send time of the last segment that began at or before `reported`.
    recent: Option<Time>,
}

/// Contents of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Report {
    pub(super) ack: u64,
    pub(super) sacks: [Option<Range>; SACK_BLOCKS_MAX],
    pub(super) is_of_duplicate: bool,
    pub(super) echo: Option<Time>,
}

impl Receiver {
    pub(super) fn new(config: &TcpConfig) -> Receiver {
        Receiver {
            next: 0,
            beyond: Vec::new(),
            sends_sacks: config.recovery == Recovery::Rack,
            delay: config.ack_delay,
            quick: config.quick_acks,
            waiting: 0,
            is_due: false,
            ack_at: None,
            has_duplicate: false,
            reported: 0,
            recent: None,
        }
    }

    /// Returns the number of bytes received in order.
    pub(super) fn received(&self) -> u64 {
        self.next
    }

    pub(super) fn on_piece(&mut self, now: Time, sent_at: Time, piece: Piece) {
        let (begin, end) = (piece.seq, piece.end());
        if begin <= self.reported {
            self.recent = Some(sent_at);
        }
        let has_holes = !self.beyond.is_empty();
        if end <= self.next || self.beyond.iter().any(|b| b.0 <= begin && end <= b.1) {
            self.has_duplicate = true;
            self.is_due = true;
        } else if begin > self.next {
            self.keep((begin, end));
            self.is_due = true;
        } else {
            self.advance(end);
            self.is_due |= has_holes;
            self.wait(now);
        }
    }

    /// Stores a range beyond a hole, merged with the ranges that it touches.
    fn keep(&mut self, (mut begin, mut end): Range) {
        self.beyond.retain(|b| {
            let is_apart = b.1 < begin || end < b.0;
            if !is_apart {
                (begin, end) = (begin.min(b.0), end.max(b.1));
            }
            is_apart
        });
        self.beyond.insert(0, (begin, end));
    }

    fn advance(&mut self, end: u64) {
        self.next = end;
        while let Some(at) = self.beyond.iter().position(|b| b.0 <= self.next) {
            self.next = self.next.max(self.beyond.remove(at).1);
        }
    }

    /// Notes a segment in order, whose acknowledgement may wait for the next segment.
    fn wait(&mut self, now: Time) {
        self.waiting += 1;
        if self.quick > 0 {
            self.quick -= 1;
            self.is_due = true;
        }
        self.is_due |= self.waiting >= SEGMENTS_PER_ACK;
        self.ack_at.get_or_insert(now + self.delay);
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        self.is_due |= self.ack_at.is_some_and(|at| at <= now);
    }

    /// Requests an acknowledgement, whatever data has arrived.
    pub(super) fn ask(&mut self) {
        self.is_due = true;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns the current acknowledgement, for a separate segment or for one with data.
    pub(super) fn report(&mut self) -> Report {
        (self.is_due, self.waiting, self.ack_at) = (false, 0, None);
        let mut sacks = [None; SACK_BLOCKS_MAX];
        if self.sends_sacks {
            sacks.iter_mut().zip(&self.beyond).for_each(|(place, block)| *place = Some(*block));
        }
        let is_of_duplicate = std::mem::take(&mut self.has_duplicate) && self.sends_sacks;
        self.reported = self.next;
        Report { ack: self.next, sacks, is_of_duplicate, echo: self.recent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(n: u64) -> Piece {
        Piece { seq: n * 1000, len: 1000 }
    }

    fn receiver() -> Receiver {
        Receiver::new(&TcpConfig { quick_acks: 0, ..TcpConfig::linux(super::super::config::Growth::Reno) })
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_lone_one_after_the_delay() {
        let mut r = receiver();
        r.on_piece(Time::ZERO, Time::ZERO, piece(0));
        assert!(!r.is_due() && r.ack_at == Some(Time::from_millis(40)));
        r.on_piece(Time::ZERO, Time::ZERO, piece(1));
        assert!(r.is_due());
        assert_eq!(r.report().ack, 2000);
        r.on_piece(Time::ZERO, Time::ZERO, piece(2));
        r.on_timeout(Time::from_millis(39));
        assert!(!r.is_due());
        r.on_timeout(Time::from_millis(40));
        assert!(r.is_due());
    }

    #[test]
    fn out_of_order_data_is_acknowledged_at_once_with_the_newest_range_first() {
        let mut r = receiver();
        r.on_piece(Time::ZERO, Time::ZERO, piece(2));
        assert!(r.is_due());
        assert_eq!((r.report().ack, r.beyond.len()), (0, 1));
        r.on_piece(Time::ZERO, Time::ZERO, piece(4));
        r.on_piece(Time::ZERO, Time::ZERO, piece(5));
        assert_eq!(r.report().sacks, [Some((4000, 6000)), Some((2000, 3000)), None]);
        r.on_piece(Time::ZERO, Time::ZERO, piece(3));
        assert_eq!(r.report().sacks, [Some((2000, 6000)), None, None]);
    }

    #[test]
    fn a_filled_hole_is_acknowledged_at_once_with_all_behind_it() {
        let mut r = receiver();
        r.on_piece(Time::ZERO, Time::ZERO, piece(1));
        r.on_piece(Time::ZERO, Time::ZERO, piece(2));
        r.report();
        r.on_piece(Time::ZERO, Time::ZERO, piece(0));
        assert!(r.is_due());
        assert_eq!((r.report().ack, r.beyond.is_empty()), (3000, true));
    }

    #[test]
    fn the_timestamp_echo_is_of_the_first_unacknowledged_segment_or_of_the_hole_filler() {
        let mut r = receiver();
        let at = Time::from_millis;
        r.on_piece(at(50), at(10), piece(0));
        r.on_piece(at(51), at(11), piece(1));
        assert_eq!(r.report().echo, Some(at(10)));
        r.on_piece(at(53), at(13), piece(3));
        assert_eq!(r.report().echo, Some(at(10)));
        r.on_piece(at(99), at(60), piece(2));
        assert_eq!(r.report().echo, Some(at(60)));
    }

    #[test]
    fn a_duplicate_is_reported_once() {
        let mut r = receiver();
        r.on_piece(Time::ZERO, Time::ZERO, piece(0));
        r.on_piece(Time::ZERO, Time::ZERO, piece(0));
        assert!(r.is_due());
        assert!(r.report().is_of_duplicate && !r.report().is_of_duplicate);
    }
}

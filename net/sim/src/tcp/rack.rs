//! Sender with SACK, as in Linux. It finds losses by time (RFC 8985), repairs them at the rate of PRR (RFC 6937), and probes for
//! losses at the tail. Windows and flights count segments, regardless of their length.
//!
//! Begin at [`Rack::on_ack`] and [`Rack::poll`].

use std::collections::VecDeque;
use std::time::Duration;

use base::Time;

use super::config::TcpConfig;
use super::rto::Rto;
use super::segment::{Piece, Range, SACK_BLOCKS_MAX, Segment};
use super::sender::TcpCounters;
use super::window::Window;

/// Number of segments delivered beyond a hole after which the hole has no reordering window, unless reordering was seen (RFC 8985
/// section 6.2 step 4).
const DUPLICATES: usize = 3;
/// Linux's addition to a probe's wait of two round trips, because of the timer's resolution.
const PROBE_MORE: Duration = Duration::from_millis(2);
/// Linux's addition to a probe's wait if only one segment is unacknowledged, because the peer may delay the acknowledgement.
const PROBE_MORE_ALONE: Duration = Duration::from_millis(200);

/// A sent segment that is not acknowledged yet.
#[derive(Clone, Copy, Debug)]
struct Sent {
    piece: Piece,
    at: Time,
    is_again: bool,
    is_sacked: bool,
    /// True if the segment must be sent again. It is then not in flight.
    is_lost: bool,
}

impl Sent {
    fn is_in_flight(&self) -> bool {
        !self.is_sacked && !self.is_lost
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Open,
    /// Recovery from losses, until all data sent before the recovery is acknowledged.
    Recovery {
        until: u64,
        prior: f64,
        delivered: f64,
        sent: f64,
    },
    /// State after a time-out, until all data sent before the time-out is acknowledged.
    Loss {
        until: u64,
    },
}

/// A tail-loss probe in flight.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// End of the data sent when the probe left.
    until: u64,
    /// True if the probe carried no new data.
    is_again: bool,
}

/// Data delivered by an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    segments: usize,
    /// Round trip of the first delivered segment that was never retransmitted.
    rtt: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct Rack {
    mss: usize,
    window_max: u64,
    window: Window,
    pub(super) rto: Rto,
    pub(super) counters: TcpCounters,
    written: u64,
    una: u64,
    next: u64,
    segments: VecDeque<Sent>,
    state: State,
    /// Delivered segment that was sent last: the time at which it was sent, and its end in the stream.
    newest: Option<(Time, u64)>,
    /// Round trip of the segment in `newest`.
    rtt: Duration,
    min_rtt: Option<Duration>,
    highest: u64,
    has_reordered: bool,
    /// True if the window has held data back.
    is_limited: bool,
    timeouts_in_row: u32,
    probe: Option<Probe>,
    probe_is_due: bool,
    retransmit_at: Option<Time>,
    probe_at: Option<Time>,
    reorder_at: Option<Time>,
}

impl Rack {
    pub(super) fn new(config: &TcpConfig) -> Rack {
        Rack {
            mss: config.mss,
            window_max: config.window_max,
            window: Window::new(config),
            rto: Rto::new(config),
            counters: TcpCounters::default(),
            written: 0,
            una: 0,
            next: 0,
            segments: VecDeque::new(),
            state: State::Open,
            newest: None,
            rtt: Duration::ZERO,
            min_rtt: None,
            highest: 0,
            has_reordered: false,
            is_limited: false,
            timeouts_in_row: 0,
            probe: None,
            probe_is_due: false,
            retransmit_at: None,
            probe_at: None,
            reorder_at: None,
        }
    }

    /// Notes that the application has handed over `written` bytes in total.
    pub(super) fn write(&mut self, written: u64) {
        self.written = self.written.max(written);
    }

    fn in_flight(&self) -> usize {
        self.segments.iter().filter(|sent| sent.is_in_flight()).count()
    }

    pub(super) fn on_ack(&mut self, now: Time, ack: u64, segment: &Segment) {
        let flight_before = self.in_flight();
        let advanced = ack > self.una;
        let delivered = self.take(now, ack, segment.sacks);
        let echoed = segment.echo.filter(|_| advanced).map(|at| now.since(at));
        if let Some(rtt) = delivered.rtt.or(echoed) {
            self.rto.on_sample(rtt);
            self.window.on_rtt(rtt, ack, self.next);
        }
        if advanced {
            self.timeouts_in_row = 0;
            self.retransmit_at = (!self.segments.is_empty()).then(|| now + self.rto.get());
        }
        self.leave_state();
        let newly_lost = self.find_losses(now);
        self.end_probe(segment.is_of_duplicate);
        self.change_window(now, delivered.segments, advanced, newly_lost, flight_before);
        if delivered.segments > 0 {
            self.schedule_probe(now);
        }
    }

    /// Marks the segments that an acknowledgement covers as delivered.
    fn take(&mut self, now: Time, ack: u64, sacks: [Option<Range>; SACK_BLOCKS_MAX]) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(sent) = self.segments.pop_front_if(|sent| sent.piece.end() <= ack) {
            if !sent.is_sacked {
                self.deliver(now, sent, &mut delivered);
            }
        }
        self.una = self.una.max(ack);
        for index in 0..self.segments.len() {
            let sent = self.segments[index];
            let covers = |range: &Range| range.0 <= sent.piece.seq && sent.piece.end() <= range.1;
            if !sent.is_sacked && sacks.iter().flatten().any(covers) {
                self.deliver(now, sent, &mut delivered);
                self.segments[index] = Sent { is_sacked: true, is_lost: false, ..sent };
            }
        }
        delivered
    }

    fn deliver(&mut self, now: Time, sent: Sent, delivered: &mut Delivered) {
        delivered.segments += 1;
        let (rtt, end) = (now.since(sent.at), sent.piece.end());
        if !sent.is_again {
            delivered.rtt.get_or_insert(rtt);
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
            self.has_reordered |= end < self.highest;
        } else if self.min_rtt.is_some_and(|least| rtt < least) {
            return;
        }
        self.highest = self.highest.max(end);
        if self.newest.is_none_or(|newest| newest < (sent.at, end)) {
            self.newest = Some((sent.at, end));
            self.rtt = rtt;
        }
    }

    /// Returns to the open state if all data sent before the loss is acknowledged.
    fn leave_state(&mut self) {
        match self.state {
            State::Recovery { until, .. } if self.una >= until => {
                self.window.cwnd = self.window.ssthresh;
                self.state = State::Open;
            }
            State::Loss { until } if self.una >= until => self.state = State::Open,
            _ => {}
        }
    }

    /// Marks overtaken segments as lost when a round trip and the reordering window have passed since they were sent. Returns
    /// true if it marked any.
    fn find_losses(&mut self, now: Time) -> bool {
        self.reorder_at = None;
        let Some(newest) = self.newest else { return false };
        let deadline = self.rtt + self.reordering_window();
        let mut found = false;
        for sent in self.segments.iter_mut().filter(|sent| sent.is_in_flight()) {
            if (sent.at, sent.piece.end()) >= newest {
                continue;
            }
            let at = sent.at + deadline;
            if at <= now {
                sent.is_lost = true;
                found = true;
            } else {
                self.reorder_at = Some(self.reorder_at.map_or(at, |other| other.min(at)));
            }
        }
        found
    }

    fn reordering_window(&self) -> Duration {
        let sacked = self.segments.iter().filter(|sent| sent.is_sacked).count();
        if !self.has_reordered && (self.state != State::Open || sacked >= DUPLICATES) {
            return Duration::ZERO;
        }
        let least = self.min_rtt.unwrap_or_default();
        (least / 4).min(self.rto.srtt().unwrap_or(least))
    }

    /// Ends the probe if it is acknowledged. If the probe was a retransmission and repaired a loss, this loss counts like any
    /// other (RFC 8985 section 7.4).
    fn end_probe(&mut self, is_of_duplicate: bool) {
        let Some(probe) = self.probe else { return };
        if is_of_duplicate || self.una > probe.until {
            self.probe = None;
        } else if self.una == probe.until {
            self.probe = None;
            if probe.is_again && self.state == State::Open {
                self.window.reduce();
                self.window.cwnd = self.window.ssthresh;
            }
        }
    }

    fn change_window(
        &mut self,
        now: Time,
        delivered: usize,
        advanced: bool,
        newly_lost: bool,
        flight: usize,
    ) {
        if newly_lost && self.state == State::Open {
            self.begin_recovery();
        }
        if matches!(self.state, State::Recovery { .. }) {
            return self.reduce_in_proportion(delivered, advanced && !newly_lost);
        }
        let is_used =
            self.is_limited || self.window.in_slow_start() && 2.0 * flight as f64 > self.window.cwnd;
        if advanced && is_used {
            self.window.on_ack(delivered as f64, now);
        }
    }

    fn begin_recovery(&mut self) {
        let prior = self.window.cwnd;
        self.window.reduce();
        self.state = State::Recovery { until: self.next, prior, delivered: 0.0, sent: 0.0 };
        self.probe = None;
        self.probe_at = None;
        self.counters.recoveries += 1;
    }

    /// Lets data leave in proportion to the data delivered (RFC 6937 section 3, with the bound of slow start).
    fn reduce_in_proportion(&mut self, newly: usize, is_progress: bool) {
        let flight = self.in_flight() as f64;
        let ssthresh = self.window.ssthresh.floor();
        let State::Recovery { prior, delivered, sent, .. } = &mut self.state else { return };
        *delivered += newly as f64;
        let room = ssthresh - flight;
        let quota = if room < 0.0 {
            (ssthresh * *delivered / *prior).ceil() - *sent
        } else {
            let more = if is_progress { 1.0 } else { 0.0 };
            ((*delivered - *sent).max(newly as f64) + more).min(room)
        };
        let least = if *sent == 0.0 { 1.0 } else { 0.0 };
        self.window.cwnd = flight + quota.max(least);
    }

    /// Returns the next segment to leave.
    pub(super) fn poll(&mut self, now: Time) -> Option<Piece> {
        if std::mem::take(&mut self.probe_is_due) {
            return self.send_probe(now);
        }
        let has_room = (self.in_flight() as f64) < self.window.cwnd.floor();
        let lost = self.segments.iter().position(|sent| sent.is_lost);
        let has_new = self.written > self.next;
        if !has_room {
            self.is_limited |= lost.is_some() || has_new;
            return None;
        }
        match lost {
            Some(index) => Some(self.send_again(now, index)),
            None if has_new => self.send_new(now),
            None => {
                self.is_limited = false;
                None
            }
        }
    }

    fn send_new(&mut self, now: Time) -> Option<Piece> {
        let left = usize::try_from(self.written - self.next).unwrap_or(usize::MAX);
        let piece = Piece { seq: self.next, len: left.min(self.mss) };
        if piece.end() - self.una > self.window_max {
            return None;
        }
        self.next = piece.end();
        self.segments.push_back(Sent { piece, at: now, is_again: false, is_sacked: false, is_lost: false });
        self.note_sent();
        self.retransmit_at.get_or_insert(now + self.rto.get());
        self.schedule_probe(now);
        Some(piece)
    }

    fn send_again(&mut self, now: Time, index: usize) -> Piece {
        let sent = &mut self.segments[index];
        *sent = Sent { at: now, is_again: true, is_lost: false, ..*sent };
        let piece = sent.piece;
        self.counters.retransmitted += 1;
        self.note_sent();
        if index == 0 {
            self.retransmit_at = Some(now + self.rto.get());
        }
        piece
    }

    fn note_sent(&mut self) {
        if let State::Recovery { sent, .. } = &mut self.state {
            *sent += 1.0;
        }
    }

    /// Sends a probe: new data if there is some, else the last segment in flight again.
    fn send_probe(&mut self, now: Time) -> Option<Piece> {
        let new = if self.written > self.next { self.send_new(now) } else { None };
        let piece = match new {
            Some(piece) => piece,
            None => {
                let last = self.segments.iter().rposition(Sent::is_in_flight)?;
                self.send_again(now, last)
            }
        };
        self.counters.probes += 1;
        self.probe = Some(Probe { until: self.next, is_again: new.is_none() });
        self.probe_at = None;
        self.retransmit_at = Some(now + self.rto.get());
        Some(piece)
    }

    fn schedule_probe(&mut self, now: Time) {
        let is_wanted = self.state == State::Open && self.probe.is_none() && !self.segments.is_empty();
        let Some(srtt) = self.rto.srtt().filter(|_| is_wanted) else {
            self.probe_at = None;
            return;
        };
        let more = if self.segments.len() == 1 { PROBE_MORE_ALONE } else { PROBE_MORE };
        let at = now + srtt * 2 + more;
        // Linux has one timer for the probe and for the time-out. A probe that is not due before the time-out is not sent.
        self.probe_at = self.retransmit_at.is_none_or(|timeout| at < timeout).then_some(at);
    }

    pub(super) fn next_timeout(&self) -> Time {
        [self.retransmit_at, self.probe_at, self.reorder_at]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Time::NEVER)
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.reorder_at) {
            let newly_lost = self.find_losses(now);
            if newly_lost && self.state == State::Open {
                self.begin_recovery();
                self.reduce_in_proportion(1, false);
            }
        }
        if is_due(self.probe_at) {
            self.probe_at = None;
            self.probe_is_due = true;
        }
        if is_due(self.retransmit_at) {
            self.on_retransmission_timeout(now);
        }
    }

    fn on_retransmission_timeout(&mut self, now: Time) {
        self.counters.timeouts += 1;
        let is_news = match self.state {
            State::Open => true,
            State::Recovery { .. } => false,
            State::Loss { .. } => self.timeouts_in_row == 0,
        };
        if is_news {
            self.window.reduce();
        }
        self.timeouts_in_row += 1;
        for (index, sent) in self.segments.iter_mut().enumerate() {
            // Data sent within the last round trip may still arrive.
            let is_recent = index > 0 && sent.at + self.rtt > now;
            sent.is_lost |= !sent.is_sacked && !is_recent;
        }
        self.window.cwnd = self.in_flight() as f64 + 1.0;
        self.state = State::Loss { until: self.next };
        self.rto.on_timeout();
        self.retransmit_at = Some(now + self.rto.get());
        (self.probe, self.probe_at, self.probe_is_due, self.reorder_at) = (None, None, false, None);
    }
}

#[cfg(test)]
mod tests;

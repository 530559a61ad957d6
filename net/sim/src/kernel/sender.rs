//! Sender of the model: its unsent chunks, its chunks in flight, its chunks to send again, its windows, and T3.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::Time;

use super::config::KernelConfig;
use super::receiver::Sack;

/// Number of reports after which a missing chunk counts as lost.
const REPORTS: u8 = 3;

/// State of a sent chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    length: usize,
    sent: Time,
    is_gap_acknowledged: bool,
    /// Number of SACKs that reported later chunks while this one was missing.
    reports: u8,
    /// True if reports have declared the chunk lost. Reports declare each chunk lost only once.
    was_reported_lost: bool,
    /// True if the chunk measures the round trip.
    is_timed: bool,
}

/// A sender's buffer and windows at one moment, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Time of the sample.
    pub at: Time,
    /// Bytes that the cumulative TSN does not acknowledge. They occupy the send buffer.
    pub held: usize,
    /// Bytes that were never sent.
    pub unsent: usize,
    /// Bytes in flight. A chunk to send again counts neither here nor as unsent.
    pub flight: usize,
    /// Congestion window.
    pub cwnd: usize,
    /// The receiver's window beyond the data in flight.
    pub peer_rwnd: usize,
}

/// TSN and user bytes of a chunk that leaves.
pub(super) type Sent = (u64, usize);

/// Sending end.
#[derive(Debug)]
pub(super) struct Sender {
    config: KernelConfig,
    unsent: VecDeque<(u64, usize)>,
    in_flight: BTreeMap<u64, Chunk>,
    to_repeat: BTreeMap<u64, Chunk>,
    next_tsn: u64,
    cumulative: u64,
    held: usize,
    flight: usize,
    cwnd: usize,
    ssthresh: usize,
    partial: usize,
    peer_rwnd: usize,
    /// During recovery from losses found by reports: the last TSN that was sent before the recovery.
    recovery: Option<u64>,
    /// True if one chunk may be sent again regardless of the congestion window, because reports have declared it lost.
    repeats_at_once: bool,
    t3: Time,
    rto: Duration,
    /// Smoothed round trip, and its variation.
    measured: Option<(Duration, Duration)>,
    is_timing: bool,
    pub(super) timeouts: u64,
}

impl Sender {
    pub(super) fn new(config: &KernelConfig) -> Sender {
        Sender {
            config: config.clone(),
            unsent: VecDeque::new(),
            in_flight: BTreeMap::new(),
            to_repeat: BTreeMap::new(),
            next_tsn: 1,
            cumulative: 0,
            held: 0,
            flight: 0,
            cwnd: config.first_window,
            ssthresh: config.receive_window,
            partial: 0,
            peer_rwnd: config.receive_window,
            recovery: None,
            repeats_at_once: false,
            t3: Time::NEVER,
            rto: config.rto_initial,
            measured: None,
            is_timing: false,
            timeouts: 0,
        }
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.t3
    }

    pub(super) fn buffer(&self, at: Time) -> Buffer {
        let unsent = self.unsent.iter().map(|it| it.1).sum();
        let (held, flight, cwnd, peer_rwnd) = (self.held, self.flight, self.cwnd, self.peer_rwnd);
        Buffer { at, held, unsent, flight, cwnd, peer_rwnd }
    }

    /// Lets the program write while there is room. Returns the chunks that may leave.
    pub(super) fn poll(&mut self, now: Time) -> Vec<Sent> {
        while self.held <= self.config.low {
            let mut left = self.config.write;
            self.held += left;
            while left > 0 {
                let length = left.min(self.config.payload);
                self.unsent.push_back((self.next_tsn, length));
                self.next_tsn += 1;
                left -= length;
            }
        }
        let burst = self.flight + self.config.burst * self.config.mtu;
        let window = if self.config.burst == 0 { self.cwnd } else { self.cwnd.min(burst) };
        let mut sent = Vec::new();
        self.repeat(now, window, false, &mut sent);
        while let Some(&(tsn, length)) = self.unsent.front().filter(|_| self.to_repeat.is_empty()) {
            if self.flight >= window || self.is_closed_for(length) {
                break;
            }
            self.unsent.pop_front();
            let is_timed = !std::mem::replace(&mut self.is_timing, true);
            let chunk = Chunk {
                length,
                sent: now,
                is_gap_acknowledged: false,
                reports: 0,
                was_reported_lost: false,
                is_timed,
            };
            self.put_in_flight(now, tsn, chunk, &mut sent);
        }
        sent
    }

    fn is_closed_for(&self, length: usize) -> bool {
        length > self.peer_rwnd && self.flight > 0
    }

    /// Sends lost chunks again: one packet after an expiry of T3 or a loss found by reports, else as much as the window allows.
    fn repeat(&mut self, now: Time, window: usize, expired: bool, sent: &mut Vec<Sent>) {
        let at_once = std::mem::take(&mut self.repeats_at_once);
        while let Some((&tsn, &chunk)) = self.to_repeat.first_key_value() {
            let fits = (at_once && chunk.was_reported_lost) || self.flight < window;
            if !fits || self.is_closed_for(chunk.length) {
                return;
            }
            self.to_repeat.remove(&tsn);
            if at_once && tsn == self.cumulative + 1 {
                self.t3 = now + self.rto;
            }
            self.put_in_flight(now, tsn, Chunk { sent: now, ..chunk }, sent);
            if at_once || expired {
                return;
            }
        }
    }

    fn put_in_flight(&mut self, now: Time, tsn: u64, chunk: Chunk, sent: &mut Vec<Sent>) {
        self.flight += chunk.length;
        self.peer_rwnd = self.peer_rwnd.saturating_sub(chunk.length);
        self.in_flight.insert(tsn, chunk);
        if self.t3 == Time::NEVER {
            self.t3 = now + self.rto;
        }
        sent.push((tsn, chunk.length));
    }

    /// Handles an expiry of T3. Chunks that were sent at least one RTO ago count as lost, and the first lost chunk is sent
    /// again.
    pub(super) fn on_timeout(&mut self, now: Time) -> Vec<Sent> {
        self.timeouts += 1;
        self.ssthresh = self.halved();
        self.cwnd = self.config.mtu;
        self.partial = 0;
        self.recovery = None;
        let rto = self.rto;
        self.give_up(|chunk| !chunk.is_gap_acknowledged && now.since(chunk.sent) >= rto);
        let mut sent = Vec::new();
        self.t3 = Time::NEVER;
        self.repeat(now, self.cwnd, true, &mut sent);
        if self.t3 == Time::NEVER && self.flight > 0 {
            self.t3 = now + self.rto;
        }
        self.rto = (self.rto * 2).min(self.config.rto_max);
        sent
    }

    /// Returns half of the congestion window, but no less than four packets, in bytes.
    fn halved(&self) -> usize {
        (self.cwnd / 2).max(4 * self.config.mtu)
    }

    /// Moves lost chunks from the flight to the chunks to send again. Their round trip is not measured.
    fn give_up(&mut self, is_lost: impl Fn(&Chunk) -> bool) {
        let lost: Vec<u64> = self.in_flight.iter().filter(|it| is_lost(it.1)).map(|it| *it.0).collect();
        for tsn in lost {
            let Some(mut chunk) = self.in_flight.remove(&tsn) else { continue };
            self.flight -= chunk.length;
            self.peer_rwnd += chunk.length;
            chunk.reports = 0;
            if std::mem::take(&mut chunk.is_timed) {
                self.is_timing = false;
            }
            self.to_repeat.insert(tsn, chunk);
        }
    }

    pub(super) fn on_sack(&mut self, now: Time, sack: &Sack) {
        let has_moved = sack.cumulative > self.cumulative;
        let earliest = self.in_flight.first_key_value().map(|it| *it.0);
        let (acknowledged, newest) = self.take_acknowledged(now, sack);
        if acknowledged > 0 && has_moved && self.flight >= self.cwnd {
            self.grow(acknowledged);
        }
        self.flight -= acknowledged;
        if self.flight == 0 {
            self.partial = 0;
            self.t3 = Time::NEVER;
        } else if earliest.is_some_and(|tsn| tsn <= sack.cumulative) {
            self.t3 = now + self.rto;
        }
        self.cumulative = self.cumulative.max(sack.cumulative);
        if self.recovery.is_some_and(|last| self.cumulative >= last) {
            self.recovery = None;
        }
        if let Some(last) = sack.gaps.last() {
            let below = if self.recovery.is_some() && has_moved { *last } else { newest };
            self.on_reports(below);
        }
        self.peer_rwnd = sack.window.saturating_sub(self.flight);
    }

    /// Removes the chunks up to the cumulative TSN of a SACK, and marks those in its gap blocks. Returns the newly acknowledged
    /// bytes in flight, and the highest TSN among them.
    fn take_acknowledged(&mut self, now: Time, sack: &Sack) -> (usize, u64) {
        let (mut acknowledged, mut newest) = (0, 0);
        while let Some(entry) = self.in_flight.first_entry().filter(|it| *it.key() <= sack.cumulative) {
            let (tsn, chunk) = entry.remove_entry();
            self.held -= chunk.length;
            if !chunk.is_gap_acknowledged {
                (acknowledged, newest) = (acknowledged + chunk.length, tsn);
                self.measure(now, &chunk);
            }
        }
        while let Some(entry) = self.to_repeat.first_entry().filter(|it| *it.key() <= sack.cumulative) {
            self.held -= entry.remove().length;
        }
        for &tsn in &sack.gaps {
            if let Some(chunk) = self.to_repeat.remove(&tsn) {
                self.in_flight.insert(tsn, Chunk { is_gap_acknowledged: true, ..chunk });
            } else if let Some(chunk) = self.in_flight.get_mut(&tsn).filter(|it| !it.is_gap_acknowledged) {
                chunk.is_gap_acknowledged = true;
                (acknowledged, newest) = (acknowledged + chunk.length, newest.max(tsn));
                let chunk = *chunk;
                self.measure(now, &chunk);
            }
        }
        (acknowledged, newest)
    }

    fn grow(&mut self, acknowledged: usize) {
        if self.cwnd <= self.ssthresh {
            if self.recovery.is_none() {
                self.cwnd += acknowledged.min(self.config.mtu);
            }
            return;
        }
        self.partial += acknowledged;
        if self.partial >= self.cwnd {
            self.partial -= self.cwnd;
            self.cwnd += self.config.mtu;
        }
    }

    /// Counts a report for each missing chunk before `below`. Chunks with enough reports are lost.
    fn on_reports(&mut self, below: u64) {
        let mut is_lost = false;
        for chunk in self.in_flight.range_mut(..below).map(|it| it.1) {
            if chunk.is_gap_acknowledged || chunk.was_reported_lost {
                continue;
            }
            chunk.reports += 1;
            if chunk.reports >= REPORTS {
                chunk.was_reported_lost = true;
                is_lost = true;
            }
        }
        if !is_lost {
            return;
        }
        if self.recovery.is_none() {
            self.recovery = self.in_flight.last_key_value().map(|it| *it.0);
            self.ssthresh = self.halved();
            self.cwnd = self.ssthresh;
            self.partial = 0;
        }
        self.give_up(|chunk| chunk.was_reported_lost && chunk.reports >= REPORTS);
        self.repeats_at_once = true;
    }

    /// Measures the round trip of a chunk that was sent once (RFC 4960 section 6.3.1).
    fn measure(&mut self, now: Time, chunk: &Chunk) {
        if !chunk.is_timed {
            return;
        }
        self.is_timing = false;
        let trip = now.since(chunk.sent);
        let (smoothed, variation) = match self.measured {
            None => (trip, trip / 2),
            Some((smoothed, variation)) => {
                let off = smoothed.abs_diff(trip);
                ((smoothed * 7 + trip) / 8, (variation * 3 + off) / 4)
            }
        };
        self.measured = Some((smoothed, variation));
        self.rto = (smoothed + variation * 4).clamp(self.config.rto_min, self.config.rto_max);
    }
}

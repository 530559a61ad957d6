//! Receiver of the model: the received chunks, and the times of SACKs.

use std::collections::BTreeSet;
use std::time::Duration;

use base::Time;

use super::config::KernelConfig;

/// Contents of a SACK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sack {
    /// Cumulative TSN: all chunks up to this one have arrived.
    pub(super) cumulative: u64,
    /// TSNs of later chunks that have arrived.
    pub(super) gaps: BTreeSet<u64>,
    /// Window in bytes.
    pub(super) window: usize,
}

/// Receiving end. Its program reads immediately.
#[derive(Debug)]
pub(super) struct Receiver {
    cumulative: u64,
    later: BTreeSet<u64>,
    /// Bytes received while a TSN has been missing; 0 while no TSN is missing. The receiver subtracts this number from
    /// its window.
    kept: usize,
    window: usize,
    /// Packets that are not acknowledged yet.
    unsaid: u32,
    /// Time at which a delayed SACK must leave.
    due: Time,
    every: u32,
    delay: Duration,
    /// User bytes received, without duplicates.
    pub(super) received: u64,
    /// Time of the last new data.
    last: Time,
    /// Longest time without new data.
    pub(super) longest_pause: Duration,
}

impl Receiver {
    pub(super) fn new(config: &KernelConfig, now: Time) -> Receiver {
        Receiver {
            cumulative: 0,
            later: BTreeSet::new(),
            kept: 0,
            window: config.receive_window,
            unsaid: 0,
            due: Time::NEVER,
            every: config.sack_every,
            delay: config.sack_delay,
            received: 0,
            last: now,
            longest_pause: Duration::ZERO,
        }
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.due
    }

    /// Handles the arrival of a chunk. Returns a SACK if one must leave immediately.
    pub(super) fn on_data(&mut self, now: Time, tsn: u64, length: usize) -> Option<Sack> {
        let is_new = tsn > self.cumulative && self.later.insert(tsn);
        if is_new {
            self.received += length as u64;
            self.kept += length;
            self.on_progress(now);
            while self.later.remove(&(self.cumulative + 1)) {
                self.cumulative += 1;
            }
            if self.later.is_empty() {
                self.kept = 0;
            }
        }
        self.unsaid += 1;
        if !is_new || !self.later.is_empty() || self.unsaid >= self.every {
            return Some(self.sack());
        }
        self.due = self.due.min(now + self.delay);
        None
    }

    /// Returns the current SACK.
    pub(super) fn sack(&mut self) -> Sack {
        self.unsaid = 0;
        self.due = Time::NEVER;
        let window = self.window.saturating_sub(self.kept);
        Sack { cumulative: self.cumulative, gaps: self.later.clone(), window }
    }

    /// Ends the current pause, because new data arrived or because the run ends.
    pub(super) fn on_progress(&mut self, now: Time) {
        self.longest_pause = self.longest_pause.max(now.since(self.last));
        self.last = now;
    }
}

//! The receiver: what it has, and when it says so.

use std::collections::BTreeSet;
use std::time::Duration;

use base::Time;

use super::config::KernelConfig;

/// Contents of a SACK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sack {
    /// All up to this has come.
    pub(super) cumulative: u64,
    /// And of later ones these.
    pub(super) gaps: BTreeSet<u64>,
    /// Bytes that there is room for.
    pub(super) window: usize,
}

/// The receiving end; its program reads at once.
#[derive(Debug)]
pub(super) struct Receiver {
    cumulative: u64,
    later: BTreeSet<u64>,
    /// Bytes of the later ones.
    kept: usize,
    window: usize,
    /// Packets not acknowledged yet, and when they are at the latest.
    unsaid: u32,
    due: Time,
    every: u32,
    delay: Duration,
    /// User bytes, without duplicates.
    pub(super) received: u64,
    /// Time at which the last of them came, and the longest time without any.
    last: Time,
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

    /// A chunk comes; what is to be said at once.
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

    /// A pause is over, by new bytes or because nobody looks any longer.
    pub(super) fn on_progress(&mut self, now: Time) {
        self.longest_pause = self.longest_pause.max(now.since(self.last));
        self.last = now;
    }
}

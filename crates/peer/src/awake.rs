//! Whether to wait for a packet awake: a processor that sleeps takes longer to wake up than many a peer takes to answer.
//!
//! Waiting awake pays where the peer runs meanwhile, and harms where it wants this very processor; nobody tells which. So it
//! is tried, and after each failure left alone for sixteen times as many waits as after the one before: fewer than a hundredth
//! of the waits may fail, or the 99th percentile shows it. Begin with [`Awake::is_worth_it`].

use std::time::Duration;

/// How long to wait awake: about what it takes to put a virtual processor to sleep and to wake it up.
pub(crate) const AWAKE: Duration = Duration::from_micros(50);
/// Waits asleep after the first failure.
const PAUSE_MIN: u32 = 16;
/// Waits asleep between two tries at most: where both ends sleep a try of one fails often, so it must not be rare.
const PAUSE_MAX: u32 = 1 << 10;
/// By how much each failure makes the pause longer, and each success shorter.
const FACTOR: u32 = 16;

/// The experience so far.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    /// Waits asleep before the next try.
    left: u32,
    /// How many there were before this one; zero after a success.
    pause: u32,
}

impl Awake {
    /// Whether to try it now; asked once for each wait.
    pub(crate) fn is_worth_it(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due
    }

    /// A try ended with a packet, or without.
    pub(crate) fn note(&mut self, came: bool) {
        self.pause = match came {
            true => self.pause / FACTOR,
            false => (self.pause * FACTOR).clamp(PAUSE_MIN, PAUSE_MAX),
        };
        self.left = if came { 0 } else { self.pause };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many waits were awake, if a packet comes in those that `comes` says.
    fn tries(waits: u32, comes: impl Fn(u32) -> bool) -> u32 {
        let mut awake = Awake::default();
        let mut tries = 0;
        for wait in 0..waits {
            if awake.is_worth_it() {
                tries += 1;
                awake.note(comes(wait));
            }
        }
        tries
    }

    #[test]
    fn what_succeeds_is_done_each_time() {
        assert_eq!(tries(1_000, |_| true), 1_000);
    }

    #[test]
    fn what_fails_is_done_in_less_than_a_hundredth_of_the_waits() {
        assert!((2..5).contains(&tries(1_000, |_| false)));
        assert!(tries(1_000_000, |_| false) < 2_000);
    }

    #[test]
    fn what_succeeds_again_is_done_again() {
        assert!(tries(20_000, |wait| wait >= 1_000) > 10_000);
    }
}

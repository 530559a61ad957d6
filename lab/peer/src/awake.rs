//! Decides when to busy-poll for a packet: a sleeping processor takes longer to wake up than many a peer takes
//! to answer.
//!
//! Busy polling pays if the peer runs meanwhile, and harms if it needs this very processor; nothing reports
//! which. So polling is tried, and after each failure suspended for sixteen times as many waits as before:
//! fewer than one wait in a hundred may fail, or the 99th percentile shows it. Begin with
//! [`Awake::is_worth_it`].

use std::time::Duration;

/// Duration of busy polling: about the time to put a virtual processor to sleep and wake it up.
pub(crate) const AWAKE: Duration = Duration::from_micros(50);
/// Sleeping waits after the first failure.
const PAUSE_MIN: u32 = 16;
/// Maximum number of sleeping waits between two tries: if both ends sleep, a single end's try often fails, so
/// tries must not be rare.
const PAUSE_MAX: u32 = 1 << 10;
/// Factor by which each failure lengthens the pause, and each success shortens it.
const FACTOR: u32 = 16;

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    /// Sleeping waits left before the next try.
    left: u32,
    /// Length of the current pause; zero after a success.
    pause: u32,
}

impl Awake {
    /// Reports whether to try it now; called once for each wait.
    pub(crate) fn is_worth_it(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due
    }

    /// Notes the end of a try, with or without a packet.
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

    /// Returns the number of busy-polling waits out of `waits`, if a packet comes in those that `comes`
    /// selects.
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
    fn successful_polling_goes_on_at_each_wait() {
        assert_eq!(tries(1_000, |_| true), 1_000);
    }

    #[test]
    fn failing_polling_takes_less_than_a_hundredth_of_the_waits() {
        assert!((2..5).contains(&tries(1_000, |_| false)));
        assert!(tries(1_000_000, |_| false) < 2_000);
    }

    #[test]
    fn polling_that_succeeds_again_is_resumed() {
        assert!(tries(20_000, |wait| wait >= 1_000) > 10_000);
    }
}

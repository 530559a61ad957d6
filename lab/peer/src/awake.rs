//! Decides when to busy-poll for a packet. Waking a sleeping processor often takes longer than the peer needs
//! to answer.
//!
//! Busy polling saves time if the peer runs on another processor. It costs time if the peer needs this
//! processor. The kernel does not report which case applies, so [`Awake`] makes some waits busy-poll. Such a
//! wait is called a try. A try fails if no packet arrives. After a failed try, the next 16 waits sleep. Each
//! further failed try multiplies the number of sleeping waits by 16, up to 1024. If more than one wait in a
//! hundred were a failed try, failed tries would raise the 99th percentile of round trips. Begin with
//! [`Awake::is_worth_it`].

use std::time::Duration;

/// Duration of a try: about the time that a virtual processor takes to fall asleep and wake up.
pub(crate) const AWAKE: Duration = Duration::from_micros(50);
/// Number of sleeping waits after the first failed try.
const PAUSE_MIN: u32 = 16;
/// Maximum number of sleeping waits between two tries. If both ends sleep, each end answers too late for the
/// other end's tries, so most tries fail. More sleeping waits would prolong this state.
const PAUSE_MAX: u32 = 1 << 10;
/// Factor by which a failed try lengthens the pause between tries, and by which a successful try shortens it.
const FACTOR: u32 = 16;

/// Schedule of the tries, adapted to their results.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    /// Number of sleeping waits left before the next try.
    left: u32,
    /// Length of the latest pause, in waits. Each successful try divides it by [`FACTOR`].
    pause: u32,
}

impl Awake {
    /// Reports whether this wait must busy-poll. The caller calls this function once per wait.
    pub(crate) fn is_worth_it(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due
    }

    /// Records the result of a try. `came` is true if a packet arrived.
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

    /// Returns the number of tries in `waits` waits. `comes` selects the waits in which a packet arrives.
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

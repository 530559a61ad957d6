//! Whether the loop rests before it waits for events, so that one turn serves what would have woken it many times.
//!
//! To be woken for a packet costs more than the packet does. So, as network cards do it with interrupts (`ethtool -C`,
//! rx-usecs), the loop looks away for a moment between turns: only while much is moved, only where that moment is little of
//! the round trip of every connection that moves bytes, and never for so long that a burst follows that queues would not hold.
//! Pure; the driver tells what moved, and sleeps. Begin with [`Coalescing::note`].

use std::time::Duration;

use base::Time;

/// How long bytes are counted before the next judgement.
const WINDOW: Duration = Duration::from_millis(10);
/// What counts as much, in bytes of a window (32 Mbit/s): below it wake-ups are too few to matter.
const MUCH: u64 = 40_000;
/// Bytes that may gather in a pause, and then leave at once: 22 packets. TCP sends up to 64 KiB at once; with 70 packets a queue
/// of 200 lost a third of its throughput.
const BURST: u64 = 32 * 1024;
/// A pause is at most this part of the shortest round trip, so that the two hosts' together add an eighth.
const OF_ROUND_TRIP: u32 = 16;
/// Shorter pauses save too little.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Longer ones would save little more, and new connections wait, too.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// What was moved lately, and the pause that follows from it.
#[derive(Debug)]
pub(crate) struct Coalescing {
    began: Time,
    bytes: u64,
    /// The longest pause that everyone who moved bytes can bear.
    bearable: Duration,
    /// The pause, and until when it holds.
    pause: Duration,
    until: Time,
}

impl Coalescing {
    pub(crate) fn new() -> Coalescing {
        let (began, until) = (Time::ZERO, Time::ZERO);
        Coalescing { began, bytes: 0, bearable: PAUSE_MAX, pause: Duration::ZERO, until }
    }

    /// A connection moved bytes whose association's shortest round trip is this; None if it was not measured yet.
    pub(crate) fn note(&mut self, now: Time, bytes: u64, round_trip: Option<Duration>) {
        let bearable = worth_while(round_trip.unwrap_or_default() / OF_ROUND_TRIP);
        self.bytes += bytes;
        self.bearable = self.bearable.min(bearable);
        // Who cannot bear it does not wait for the next judgement.
        self.pause = self.pause.min(bearable);
        let elapsed = now - self.began;
        if elapsed >= WINDOW {
            self.pause = self.pause_at(elapsed);
            self.until = now + 2 * WINDOW;
            (self.began, self.bytes, self.bearable) = (now, 0, PAUSE_MAX);
        }
    }

    /// The pause for what was moved in so much time.
    fn pause_at(&self, elapsed: Duration) -> Duration {
        let in_window = u128::from(self.bytes) * WINDOW.as_nanos() / elapsed.as_nanos();
        if in_window < u128::from(MUCH) {
            return Duration::ZERO;
        }
        let until_burst = WINDOW.as_nanos() * u128::from(BURST) / in_window;
        worth_while(self.bearable.min(Duration::from_nanos(until_burst as u64)))
    }

    /// How long to rest now; zero if not at all.
    pub(crate) fn pause(&self, now: Time) -> Duration {
        if now < self.until { self.pause } else { Duration::ZERO }
    }
}

/// The pause, if it is long enough to save anything; at most the longest.
fn worth_while(pause: Duration) -> Duration {
    if pause < PAUSE_MIN { Duration::ZERO } else { pause.min(PAUSE_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Bytes a millisecond that are much, and so few that no burst ends a pause of a millisecond.
    const MUCH_PER_MS: u64 = 20_000;

    /// Moves so many bytes each millisecond, from `from` on for `for_ms`; tells the pause then.
    fn moved(
        coalescing: &mut Coalescing,
        from: u64,
        for_ms: u64,
        bytes: u64,
        round_trip: Duration,
    ) -> Duration {
        for at in from..from + for_ms {
            coalescing.note(Time::ZERO + ms(at), bytes, Some(round_trip));
        }
        coalescing.pause(Time::ZERO + ms(from + for_ms))
    }

    #[test]
    fn much_over_a_long_way_is_worth_a_pause_of_a_sixteenth_or_a_millisecond() {
        for (round_trip, pause) in [(ms(4), ms(1) / 4), (ms(8), ms(1) / 2), (ms(16), ms(1)), (ms(300), ms(1))]
        {
            assert_eq!(
                moved(&mut Coalescing::new(), 1, 30, MUCH_PER_MS, round_trip),
                pause,
                "{round_trip:?}"
            );
        }
    }

    #[test]
    fn what_gathers_in_a_pause_is_no_great_burst() {
        for per_ms in [40_000, 100_000] {
            let pause = moved(&mut Coalescing::new(), 1, 30, per_ms, ms(50));
            let gathered = per_ms as f64 * pause.as_secs_f64() * 1e3;
            assert!((0.99..=1.0).contains(&(gathered / BURST as f64)), "{per_ms}: {gathered}");
        }
        // A burst is there at once.
        assert_eq!(moved(&mut Coalescing::new(), 1, 30, 500_000, ms(50)), Duration::ZERO);
    }

    #[test]
    fn little_or_a_near_peer_is_not_worth_it() {
        assert_eq!(moved(&mut Coalescing::new(), 1, 30, 3_500, ms(20)), Duration::ZERO);
        assert_eq!(moved(&mut Coalescing::new(), 1, 30, MUCH_PER_MS, ms(3)), Duration::ZERO);
        let mut unmeasured = Coalescing::new();
        (1..30).for_each(|at| unmeasured.note(Time::ZERO + ms(at), MUCH_PER_MS, None));
        assert_eq!(unmeasured.pause(Time::ZERO + ms(30)), Duration::ZERO);
    }

    #[test]
    fn a_near_peer_ends_it_at_once_and_for_as_long_as_it_is_heard() {
        let mut coalescing = Coalescing::new();
        assert_eq!(moved(&mut coalescing, 1, 30, MUCH_PER_MS, ms(20)), ms(1));
        coalescing.note(Time::ZERO + ms(31), 10, Some(ms(1)));
        assert_eq!(coalescing.pause(Time::ZERO + ms(31)), Duration::ZERO);
        for at in 32..100 {
            coalescing.note(Time::ZERO + ms(at), MUCH_PER_MS, Some(ms(20)));
            if at % 5 == 0 {
                coalescing.note(Time::ZERO + ms(at), 10, Some(ms(1)));
            }
            assert_eq!(coalescing.pause(Time::ZERO + ms(at)), Duration::ZERO, "{at}");
        }
        assert_eq!(moved(&mut coalescing, 100, 30, MUCH_PER_MS, ms(20)), ms(1));
    }

    #[test]
    fn it_ends_when_nothing_moves_any_more_and_a_long_silence_is_not_much() {
        let mut coalescing = Coalescing::new();
        assert_eq!(moved(&mut coalescing, 1, 30, MUCH_PER_MS, ms(20)), ms(1));
        assert_eq!(coalescing.pause(Time::ZERO + ms(60)), Duration::ZERO);
        coalescing.note(Time::ZERO + ms(1_000), 100_000, Some(ms(20)));
        assert_eq!(coalescing.pause(Time::ZERO + ms(1_000)), Duration::ZERO);
    }
}

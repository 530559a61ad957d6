//! Receive window: it follows the reader's pace, as Linux tunes TCP's.
//!
//! It begins small, and grows to some times what the reader takes in a round trip, so that it never holds a sender back
//! that the reader keeps up with; a reader who does not keep up gets no more. Never above what the settings allow, not at
//! all when memory runs short, and when it has run out the window closes as the reader reads, without taking back room
//! that was promised. Invariant: `limit ≤ max`. Begin at [`Window::on_read`].

use std::time::Duration;

use base::Time;

use crate::config::{AssociationConfig, LEAST_WINDOW};
use crate::memory::{FLOOR, Pressure};

/// The window is this many times what is read in a round trip: slow start doubles what is sent in each, and a round trip
/// passes before the sender hears of more room, and another while a loss is mended and nothing can be read.
const READ_FACTOR: usize = 4;

#[derive(Debug)]
pub(super) struct Window {
    limit: usize,
    max: usize,
    /// Bytes read since `round` began.
    read: usize,
    round: Time,
}

impl Window {
    pub(super) fn new(config: &AssociationConfig) -> Window {
        Window {
            limit: config.first_window(),
            max: config.receive_buffer.max(LEAST_WINDOW as usize),
            read: 0,
            round: Time::ZERO,
        }
    }

    /// Bytes that may be held.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that may ever be held.
    #[inline]
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// The reader took `bytes`, and what is left needs a window of `least`; `rtt` is the round trip to the sender, once known.
    pub(super) fn on_read(
        &mut self,
        bytes: usize,
        least: usize,
        now: Time,
        rtt: Option<Duration>,
        pressure: Pressure,
    ) {
        if pressure >= Pressure::Full {
            // Room that reading frees is not offered again: the right edge stands still. Messages that are held keep theirs, or the
            // chunks that they wait for would find none.
            self.limit = self.limit.saturating_sub(bytes).max(FLOOR.max(least).min(self.limit));
        }
        self.read += bytes;
        let Some(rtt) = rtt.filter(|rtt| now - self.round >= *rtt) else { return };
        if pressure == Pressure::Calm {
            self.limit = self.limit.max(READ_FACTOR * self.read).min(self.max);
        }
        // Reads after a pause belong to a round of their own.
        self.read = if now - self.round > 2 * rtt { bytes } else { 0 };
        self.round = now;
    }

    /// Nothing can be read, for a message is longer than the window, or a gap has to be filled first; returns whether there
    /// is more room now.
    pub(super) fn stretch(&mut self, pressure: Pressure) -> bool {
        let before = self.limit;
        if pressure == Pressure::Calm {
            self.limit = (2 * self.limit).min(self.max);
        }
        self.limit > before
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.limit <= self.max, "a window of {} above {}", self.limit, self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Option<Duration> = Some(Duration::from_millis(100));

    fn window() -> Window {
        Window::new(&AssociationConfig { receive_buffer: 1 << 20, ..AssociationConfig::default() })
    }

    /// Reads `bytes` in ten parts each round trip, for `rounds`.
    fn read(window: &mut Window, bytes: usize, rounds: u32, pressure: Pressure) {
        let begin = window.round + Duration::from_secs(1);
        for n in 1..=10 * rounds {
            window.on_read(bytes / 10, 0, begin + n * Duration::from_millis(10), RTT, pressure);
        }
    }

    #[test]
    fn it_grows_to_four_times_what_is_read_in_a_round_trip_and_no_further() {
        let mut window = window();
        assert_eq!(window.limit(), 64 << 10);
        read(&mut window, 50_000, 10, Pressure::Calm);
        assert!((200_000..=220_000).contains(&window.limit()), "{}", window.limit());
        read(&mut window, 5_000_000, 2, Pressure::Calm);
        assert_eq!(window.limit(), 1 << 20);
        window.check_invariants();
    }

    #[test]
    fn a_slow_reader_gets_no_more() {
        let mut window = window();
        read(&mut window, 10_000, 100, Pressure::Calm);
        assert_eq!(window.limit(), 64 << 10);
    }

    #[test]
    fn without_a_measured_round_trip_and_under_pressure_it_stays() {
        let mut window = window();
        for n in 0..100 {
            window.on_read(100_000, 0, Time::from_millis(n), None, Pressure::Calm);
        }
        read(&mut window, 500_000, 10, Pressure::Tight);
        assert!(!window.stretch(Pressure::Tight));
        assert_eq!(window.limit(), 64 << 10);
    }

    #[test]
    fn when_memory_has_run_out_it_gives_back_what_is_read_down_to_a_floor() {
        let mut window = window();
        window.on_read(1000, 0, Time::ZERO, None, Pressure::Full);
        assert_eq!(window.limit(), (64 << 10) - 1000);
        read(&mut window, 1 << 20, 1, Pressure::Full);
        assert_eq!(window.limit(), FLOOR);
    }

    #[test]
    fn a_message_longer_than_the_window_stretches_it_up_to_the_maximum() {
        let mut window = window();
        assert_eq!((0..10).filter(|_| window.stretch(Pressure::Calm)).count(), 4);
        assert_eq!(window.limit(), 1 << 20);
    }
}

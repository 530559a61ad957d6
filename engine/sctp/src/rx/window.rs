//! Receive window. Its size follows the rate at which the program reads, as in the receive-window tuning of TCP in Linux.
//!
//! The window begins small and grows to a multiple of the bytes read per round trip. Therefore the window does not limit a sender while the
//! program reads as fast as data arrives. If the program reads slowly, the window does not grow. Limits:
//!
//! - The window never exceeds the configured receive buffer.
//! - The window does not grow while memory is short.
//! - When memory is full, the window shrinks by the bytes that the program reads. Room that was already advertised to the peer is not
//!   withdrawn.
//!
//! Invariant: `limit ≤ max`. Start at [`Window::on_read`].

use std::time::Duration;

use base::Time;

use crate::config::{AssociationConfig, LEAST_WINDOW};
use crate::memory::{FLOOR, Pressure};

/// Ratio of the window to the bytes read per round trip. The ratio covers three effects. Slow start doubles the sent data in each round
/// trip. The sender learns of new room one round trip later. During the repair of a loss, nothing can be read for another round trip.
const READ_FACTOR: usize = 4;

#[derive(Debug)]
pub(super) struct Window {
    limit: usize,
    max: usize,
    /// Bytes read since `round`.
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

    /// Returns the maximum number of received bytes that wait for the reader.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the maximum of [`limit`](Self::limit).
    #[inline]
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Handles a read of `bytes` bytes. The data that is still unread needs a window of `least` bytes. `rtt` is the round trip to the
    /// sender, once known.
    pub(super) fn on_read(
        &mut self,
        bytes: usize,
        least: usize,
        now: Time,
        rtt: Option<Duration>,
        pressure: Pressure,
    ) {
        if pressure >= Pressure::Full {
            // The room freed by this read is not offered again, so the right edge of the window does not move. Unread messages keep their
            // room, because their missing chunks need it.
            self.limit = self.limit.saturating_sub(bytes).max(FLOOR.max(least).min(self.limit));
        }
        self.read += bytes;
        let Some(rtt) = rtt.filter(|rtt| now - self.round >= *rtt) else { return };
        if pressure == Pressure::Calm {
            self.limit = self.limit.max(READ_FACTOR * self.read).min(self.max);
        }
        // Reads after a pause belong to a new round.
        self.read = if now - self.round > 2 * rtt { bytes } else { 0 };
        self.round = now;
    }

    /// Doubles the window up to its maximum, unless memory is short. The caller uses this function when nothing can be read: a message is
    /// longer than the window, or a gap must be filled first. Returns whether the window has grown.
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

    /// Reads `bytes` per round trip in ten parts, for `rounds` round trips.
    fn read(window: &mut Window, bytes: usize, rounds: u32, pressure: Pressure) {
        let begin = window.round + Duration::from_secs(1);
        for n in 1..=10 * rounds {
            window.on_read(bytes / 10, 0, begin + n * Duration::from_millis(10), RTT, pressure);
        }
    }

    #[test]
    fn the_receive_window_grows_to_four_times_the_bytes_read_in_a_round_trip() {
        let mut window = window();
        assert_eq!(window.limit(), 64 << 10);
        read(&mut window, 50_000, 10, Pressure::Calm);
        assert!((200_000..=220_000).contains(&window.limit()), "{}", window.limit());
        read(&mut window, 5_000_000, 2, Pressure::Calm);
        assert_eq!(window.limit(), 1 << 20);
        window.check_invariants();
    }

    #[test]
    fn a_slow_readers_window_does_not_grow() {
        let mut window = window();
        read(&mut window, 10_000, 100, Pressure::Calm);
        assert_eq!(window.limit(), 64 << 10);
    }

    #[test]
    fn without_a_measured_round_trip_or_under_memory_pressure_the_window_stays() {
        let mut window = window();
        for n in 0..100 {
            window.on_read(100_000, 0, Time::from_millis(n), None, Pressure::Calm);
        }
        read(&mut window, 500_000, 10, Pressure::Tight);
        assert!(!window.stretch(Pressure::Tight));
        assert_eq!(window.limit(), 64 << 10);
    }

    #[test]
    fn when_memory_has_run_out_the_window_shrinks_by_the_bytes_read_down_to_a_floor() {
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

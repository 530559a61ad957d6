//! Size of the send buffer, and the driver's requests to be notified when the buffer has room. RFC 9260 leaves the size to the
//! implementation.
//!
//! The buffer is twice the sum of the congestion windows. So data is always ready when a SACK makes room in a window, and little more data
//! waits in the buffer. The configured maximum limits the buffer. The buffer does not grow while memory is short, and shrinks when memory
//! is full. Start at [`SendBuffer::tune`].

use crate::memory::{FLOOR, Pressure};

/// Ratio of the send buffer to the congestion windows.
const WINDOW_FACTOR: usize = 2;

/// Number of bytes that a send buffer holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Bytes queued or in flight. Chunks that gap blocks have acknowledged are not included. They need no retransmission, so they must not
    /// block new messages.
    pub(crate) unacknowledged: usize,
    /// Bytes queued or held until the peer's cumulative acknowledgement.
    pub(crate) held: usize,
}

/// Limit on the bytes queued or in flight, with the requests of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBuffer {
    limit: usize,
    /// Minimum of the limit while memory is not short.
    least: usize,
    max: usize,
    pressure: Pressure,
    /// Set if the driver waits for room.
    wants_room: bool,
    /// Set if the driver waits until all data is acknowledged.
    wants_dry: bool,
}

impl SendBuffer {
    /// Creates a buffer that begins with a limit of `least` bytes and grows to `max` bytes.
    pub(crate) fn new(least: usize, max: usize) -> Self {
        let limit = least.min(max);
        SendBuffer { limit, least, max, pressure: Pressure::Calm, wants_room: false, wants_dry: false }
    }

    /// Returns the current limit on the bytes queued or in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the memory pressure; returns whether it has changed.
    #[inline]
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) -> bool {
        let is_new = self.pressure != pressure;
        self.pressure = pressure;
        is_new
    }

    /// Fits the limit to the congestion windows, whose sum is `windows` bytes.
    pub(crate) fn tune(&mut self, windows: usize) {
        let wanted = windows.saturating_mul(WINDOW_FACTOR).max(self.least).min(self.max);
        self.limit = match self.pressure {
            Pressure::Calm => wanted,
            Pressure::Tight => wanted.min(self.limit),
            Pressure::Full | Pressure::Over => FLOOR.min(self.max),
        };
    }

    /// Returns the number of bytes that may be added.
    pub(crate) fn capacity(&self, load: Load) -> usize {
        self.limit.saturating_sub(load.unacknowledged).min(self.room(load))
    }

    /// Returns the number of bytes left up to the configured maximum.
    fn room(&self, load: Load) -> usize {
        self.max.saturating_sub(load.held)
    }

    /// Returns whether a message of `length` bytes may be added. A message longer than the tuned buffer would never fit. So such a message
    /// is accepted when the buffer is less than half full or, if memory is full, when the buffer is empty.
    pub(crate) fn takes(&self, length: usize, load: Load) -> bool {
        let is_low = 2 * load.unacknowledged < self.limit;
        let is_low = if self.pressure < Pressure::Full { is_low } else { load.unacknowledged == 0 };
        length <= self.capacity(load) || (is_low && length <= self.room(load))
    }

    /// Records that the driver waits for room.
    pub(crate) fn want_room(&mut self) {
        self.wants_room = true;
    }

    /// Reports whether the driver waits for room.
    pub(crate) fn wants_room(&self) -> bool {
        self.wants_room
    }

    /// Returns true once when a waiting driver may add at least half of the limit.
    pub(crate) fn take_room(&mut self, load: Load) -> bool {
        let is_there = self.wants_room && self.capacity(load) >= self.limit / 2;
        self.wants_room &= !is_there;
        is_there
    }

    /// Records that the driver waits until all data is acknowledged.
    pub(crate) fn want_dry(&mut self) {
        self.wants_dry = true;
    }

    /// Returns true once if the driver waits until all data is acknowledged.
    pub(crate) fn take_dry(&mut self) -> bool {
        std::mem::take(&mut self.wants_dry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(bytes: usize) -> Load {
        Load { unacknowledged: bytes, held: bytes }
    }

    #[test]
    fn the_send_buffer_is_twice_the_windows_between_its_minimum_and_maximum() {
        let mut buffer = SendBuffer::new(1000, 10_000);
        assert_eq!(buffer.limit(), 1000);
        buffer.tune(2000);
        assert_eq!(buffer.limit(), 4000);
        buffer.tune(100);
        assert_eq!(buffer.limit(), 1000);
        buffer.tune(usize::MAX);
        assert_eq!(buffer.limit(), 10_000);
    }

    #[test]
    fn a_long_message_is_taken_by_a_buffer_that_is_half_empty() {
        let buffer = SendBuffer::new(1000, 10_000);
        assert!(buffer.takes(5000, load(499)));
        assert!(!buffer.takes(5000, load(500)));
        assert!(buffer.takes(500, load(500)));
        assert!(!buffer.takes(10_000, load(499)), "it would exceed the maximum");
    }

    #[test]
    fn under_memory_pressure_a_long_message_is_accepted_only_by_an_empty_buffer() {
        let mut buffer = SendBuffer::new(FLOOR, 4 * FLOOR);
        assert!(buffer.set_pressure(Pressure::Full) && !buffer.set_pressure(Pressure::Full));
        buffer.tune(10 * FLOOR);
        assert_eq!(buffer.limit(), FLOOR);
        assert!(buffer.takes(2 * FLOOR, load(0)) && !buffer.takes(2 * FLOOR, load(1)));
    }

    #[test]
    fn a_waiting_driver_hears_once_that_half_is_free() {
        let mut buffer = SendBuffer::new(1000, 1000);
        assert!(!buffer.take_room(load(0)), "nobody waits");
        buffer.want_room();
        assert!(!buffer.take_room(load(501)));
        assert!(buffer.take_room(load(500)) && !buffer.take_room(load(0)));
    }
}

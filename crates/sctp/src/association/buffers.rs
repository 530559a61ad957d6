//! How much an association holds, and may hold, for sending (RFC 9260 leaves that to the implementation).
//!
//! The send buffer is twice what the congestion windows let fly, so that a message is always at hand when a SACK makes
//! room, and little waits in vain; within the configured maximum, and less when memory is short. Begin at
//! [`Association::tune_send_buffer`].

use super::{Association, Opening};
use crate::memory::{FLOOR, Pressure};
use crate::path::Path;

/// The send buffer is this many times the congestion windows.
const WINDOW_FACTOR: usize = 2;

impl Opening {
    /// Bytes held before the peer is known.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Opening>()
    }
}

impl Association {
    /// Bytes held: user data, and what it takes to keep it.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Association>()
            + self.paths.len() * size_of::<Path>()
            + self.queue.memory()
            + self.outstanding.memory()
            + self.inbound.held()
    }

    /// The endpoint says how short memory is, before each piece of work.
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        self.pressure = pressure;
        self.inbound.pressure = pressure;
    }

    /// The congestion windows, or the pressure, have changed.
    pub(super) fn tune_send_buffer(&mut self) {
        let windows: usize =
            self.paths.iter().filter(|(_, p)| p.is_confirmed()).map(|(_, p)| p.sending.cwnd()).sum();
        let max = self.config.send_buffer;
        let wanted = windows.saturating_mul(WINDOW_FACTOR).max(self.config.buffer_start).min(max);
        self.send_limit = match self.pressure {
            Pressure::Calm => wanted,
            Pressure::Tight => wanted.min(self.send_limit),
            Pressure::Full | Pressure::Over => FLOOR.min(max),
        };
    }

    /// Bytes that `send` would take now.
    pub(crate) fn send_capacity(&self) -> usize {
        self.send_limit.saturating_sub(self.unacknowledged()).min(self.send_room())
    }

    /// Whether a message of `length` bytes is taken. One longer than the tuned buffer need only find it half empty: it
    /// must go some time.
    pub(super) fn takes(&self, length: usize) -> bool {
        let is_low = 2 * self.unacknowledged() < self.send_limit;
        let is_low = if self.pressure < Pressure::Full { is_low } else { self.unacknowledged() == 0 };
        length <= self.send_capacity() || (is_low && length <= self.send_room())
    }

    /// Whether enough room has come up to call a writer who waits for it.
    pub(super) fn has_room_to_write(&self) -> bool {
        self.send_capacity() >= self.send_limit / 4
    }

    /// Bytes up to the configured maximum.
    fn send_room(&self) -> usize {
        self.config.send_buffer.saturating_sub(self.queue.bytes() + self.outstanding.bytes())
    }

    /// Bytes that wait or are in flight. What the peer has got already, behind a gap, is not there to be sent: it keeps
    /// nothing new from being taken.
    fn unacknowledged(&self) -> usize {
        self.queue.bytes() + self.outstanding.total_flight()
    }
}

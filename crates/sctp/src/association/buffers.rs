//! How much an association holds, and may hold, for sending (RFC 9260 leaves that to the implementation).
//!
//! The send buffer is twice what the congestion windows let fly, so that a message is always at hand when a SACK makes
//! room, and little waits in vain; within the configured maximum, and less when memory is short. Begin at
//! [`Association::tune_send_buffer`].

use std::net::IpAddr;

use base::Route;
use bytes::Bytes;

use super::{Association, Control, Opening, State};
use crate::config::AssociationConfig;
use crate::event::Event;
use crate::memory::{FLOOR, Pressure, heap, list, tree};
use crate::path::PathIndex;

/// The send buffer is this many times the congestion windows.
const WINDOW_FACTOR: usize = 2;

impl Opening {
    /// Bytes held before the peer is known.
    pub(crate) fn memory(&self) -> usize {
        heap(size_of::<Opening>())
            + heap(self.local_addresses.capacity() * size_of::<IpAddr>())
            + heap(self.init_routes.capacity() * size_of::<Route>())
            + heap(self.first_message.as_ref().map_or(0, |first| first.message.len()))
            + config_memory(&self.config)
    }
}

/// Bytes that a configuration takes beside itself.
fn config_memory(config: &AssociationConfig) -> usize {
    tree(config.auth.keys.len(), size_of::<(u16, Bytes)>())
}

impl Control {
    /// Bytes that it takes beside itself.
    fn memory(&self) -> usize {
        match self {
            Control::HeartbeatAck(bytes) | Control::Error(bytes) | Control::ReconfigAnswer(bytes) => {
                heap(bytes.len())
            }
            Control::CookieEcho
            | Control::CookieAck
            | Control::Heartbeat { .. }
            | Control::Voucher { .. }
            | Control::SizeProbe { .. }
            | Control::Asconf
            | Control::Reconfig
            | Control::Shutdown
            | Control::ShutdownAck => 0,
        }
    }
}

impl Association {
    /// Bytes held: user data, and what it takes to keep it, as the allocator gives them.
    pub(crate) fn memory(&self) -> usize {
        heap(size_of::<Association>())
            + self.paths.memory()
            + self.queue.memory()
            + self.outstanding.memory()
            + self.inbound.memory()
            + self.lists_memory()
            + self.extensions_memory()
    }

    /// Bytes of user data that wait, both ways, with a little for each piece received.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.queue.bytes() + self.outstanding.bytes() + self.inbound.held()
    }

    /// A measure of what is held that is soon known: the bytes buffered, and of what it takes to keep them those that change
    /// otherwise. When it has grown a little, the memory has grown by [`COST_MOST`](crate::memory::COST_MOST) times that and
    /// [`COST_BASE`](crate::memory::COST_BASE) at most. It changes by much when memory was given back.
    #[inline]
    pub(crate) fn measure(&self) -> usize {
        const GIVEN_BACK: usize = 1 << 20;
        self.queue.measure()
            + self.outstanding.measure()
            + self.inbound.measure()
            + self.idle.times % 2 * GIVEN_BACK
    }

    /// Bytes of what waits beside user data, and of the state's own.
    fn lists_memory(&self) -> usize {
        let control =
            if self.control.is_empty() { 0 } else { self.control.iter().map(|c| c.1.memory()).sum() };
        let addresses = if self.peer_addresses.spilled() { self.peer_addresses.capacity() } else { 0 };
        let opening = match &self.state {
            State::CookieEchoed { cookie, opening, .. } => heap(cookie.len()) + opening.memory(),
            State::CookieWaitOver
            | State::Accepting
            | State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived
            | State::ShutdownAckSent { .. }
            | State::Closed => 0,
        };
        list::<(PathIndex, Control)>(self.control.capacity())
            + control
            + list::<Event>(self.events.capacity())
            + list::<IpAddr>(addresses)
            + self.copies.memory()
            + self.limited.memory()
            + self.forward.memory()
            + self.hearsay.memory()
            + opening
    }

    fn extensions_memory(&self) -> usize {
        self.auth.as_ref().map_or(0, |a| a.memory() + config_memory(&self.config))
            + self.asconf.as_ref().map_or(0, |a| a.memory())
            + self.reconfig.as_ref().map_or(0, |r| r.memory())
    }

    /// The endpoint says how short memory is, before each piece of work.
    #[inline]
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        if self.pressure != pressure {
            self.pressure = pressure;
            self.inbound.set_pressure(pressure);
        }
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
        self.send_capacity() >= self.send_limit / 2
    }

    /// Bytes up to the configured maximum.
    fn send_room(&self) -> usize {
        self.config.send_buffer.saturating_sub(self.queue.bytes() + self.outstanding.bytes())
    }

    /// Bytes that wait or are in flight. What the peer has got already, behind a gap, is not there to be sent: it keeps
    /// nothing new from being taken.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.queue.bytes() + self.outstanding.total_flight()
    }
}

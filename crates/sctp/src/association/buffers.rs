//! The send buffer's size and the memory of an association (RFC 9260 leaves both to the implementation).
//!
//! The send buffer is twice the sum of the congestion windows: a message is always at hand when a SACK makes
//! room, and little queues needlessly. It stays below the configured maximum and shrinks when memory is
//! short. Start at [`Association::tune_send_buffer`].

use std::net::IpAddr;

use base::Route;
use bytes::Bytes;

use super::{Association, Control, Opening, State};
use crate::config::AssociationConfig;
use crate::event::Event;
use crate::memory::{FLOOR, Pressure, heap, list, tree};
use crate::path::PathIndex;

/// Ratio of the send buffer to the congestion windows.
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

/// Heap bytes of a configuration.
fn config_memory(config: &AssociationConfig) -> usize {
    tree(config.auth.keys.len(), size_of::<(u16, Bytes)>())
}

impl Control {
    /// Heap bytes of this chunk.
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
    /// Bytes held: user data and its bookkeeping, in sizes the allocator hands out.
    pub(crate) fn memory(&self) -> usize {
        heap(size_of::<Association>())
            + self.paths.memory()
            + self.queue.memory()
            + self.outstanding.memory()
            + self.inbound.memory()
            + self.lists_memory()
            + self.extensions_memory()
    }

    /// Bytes of user data buffered in both directions, plus a small overhead per received piece.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.queue.bytes() + self.outstanding.bytes() + self.inbound.held()
    }

    /// A cheap measure of memory: the buffered bytes and those bookkeeping bytes that change independently.
    /// If it has grown a little, memory has grown by at most [`COST_MOST`](crate::memory::COST_MOST) times
    /// that plus [`COST_BASE`](crate::memory::COST_BASE). It jumps when memory has been given back.
    #[inline]
    pub(crate) fn measure(&self) -> usize {
        const GIVEN_BACK: usize = 1 << 20;
        self.queue.measure()
            + self.outstanding.measure()
            + self.inbound.measure()
            + self.idle.times % 2 * GIVEN_BACK
    }

    /// Heap bytes of everything queued except user data, and of the state.
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
            + self.pr_messages.memory()
            + self.forward.memory()
            + self.hearsay.memory()
            + opening
    }

    fn extensions_memory(&self) -> usize {
        self.auth.as_ref().map_or(0, |a| a.memory() + config_memory(&self.config))
            + self.asconf.as_ref().map_or(0, |a| a.memory())
            + self.reconfig.as_ref().map_or(0, |r| r.memory())
    }

    /// Sets the memory pressure, before each piece of work.
    #[inline]
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        if self.pressure != pressure {
            self.pressure = pressure;
            self.inbound.set_pressure(pressure);
        }
    }

    /// Resizes the send buffer after a change of the congestion windows or the pressure.
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

    /// Bytes that `send` would accept now.
    pub(crate) fn send_capacity(&self) -> usize {
        self.send_limit.saturating_sub(self.unacknowledged()).min(self.send_room())
    }

    /// Returns whether `send` accepts a message of `length` bytes. A message longer than the tuned buffer is
    /// accepted when the buffer is half empty; otherwise it could never be sent.
    pub(super) fn takes(&self, length: usize) -> bool {
        let is_low = 2 * self.unacknowledged() < self.send_limit;
        let is_low = if self.pressure < Pressure::Full { is_low } else { self.unacknowledged() == 0 };
        length <= self.send_capacity() || (is_low && length <= self.send_room())
    }

    /// Returns whether enough room is free to notify a waiting writer.
    pub(super) fn has_room_to_write(&self) -> bool {
        self.send_capacity() >= self.send_limit / 2
    }

    /// Bytes left up to the configured maximum.
    fn send_room(&self) -> usize {
        self.config.send_buffer.saturating_sub(self.queue.bytes() + self.outstanding.bytes())
    }

    /// Bytes queued or in flight. Chunks that the peer holds behind a gap need no sending, so they do not
    /// block new messages.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.queue.bytes() + self.outstanding.total_flight()
    }
}

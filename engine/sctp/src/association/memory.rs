//! Memory of an association, as the allocator gives it ([`crate::memory`]).
//!
//! Start at [`Association::memory`].

use std::net::IpAddr;

use base::Route;
use bytes::Bytes;

use super::{Association, Opening, State};
use crate::config::AssociationConfig;
use crate::memory::{Pressure, heap, tree};

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

impl Association {
    /// Bytes held: user data and its bookkeeping, in sizes the allocator hands out.
    pub(crate) fn memory(&self) -> usize {
        heap(size_of::<Association>())
            + self.transfer.paths.memory()
            + self.transfer.tx.memory()
            + self.inbound.memory()
            + self.lists_memory()
            + self.extensions_memory()
    }

    /// Bytes of user data buffered in both directions, plus a small overhead per received piece.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.transfer.tx.held() + self.inbound.held()
    }

    /// A cheap measure of memory: the buffered bytes and those bookkeeping bytes that change independently.
    /// If it has grown a little, memory has grown by at most [`COST_MOST`](crate::memory::COST_MOST) times
    /// that plus [`COST_BASE`](crate::memory::COST_BASE). It jumps when memory has been given back.
    #[inline]
    pub(crate) fn measure(&self) -> usize {
        const GIVEN_BACK: usize = 1 << 20;
        self.transfer.tx.queue.measure()
            + self.transfer.tx.outstanding.measure()
            + self.inbound.measure()
            + if self.idle.times().is_multiple_of(2) { 0 } else { GIVEN_BACK }
    }

    /// Heap bytes of everything queued except user data, and of the state.
    fn lists_memory(&self) -> usize {
        let opening = match &self.transfer.state {
            State::CookieEchoed { cookie, opening, .. } => heap(cookie.len()) + opening.memory(),
            State::CookieWaitOver
            | State::Accepting
            | State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived { .. }
            | State::ShutdownAckSent { .. }
            | State::Closed => 0,
        };
        self.transfer.out.memory() + self.peer_addresses.memory() + self.transfer.hearsay.memory() + opening
    }

    fn extensions_memory(&self) -> usize {
        let has_keys = self.transfer.integrity.auth().is_some() || self.is_protected();
        let keys = if has_keys {
            self.transfer.integrity.memory() + config_memory(&self.transfer.config)
        } else {
            0
        };
        keys + self.asconf.as_ref().map_or(0, |a| a.memory())
            + self.reconfig.as_ref().map_or(0, |r| r.memory())
    }

    /// Sets the memory pressure, before each piece of work.
    #[inline]
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        if self.transfer.tx.buffer.set_pressure(pressure) {
            self.inbound.set_pressure(pressure);
        }
    }
}

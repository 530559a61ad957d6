//! Memory use of an association, in the block sizes of the allocator ([`crate::memory`]).
//!
//! Start at [`Association::memory`].

use std::net::IpAddr;

use base::Route;
use bytes::Bytes;

use super::{Association, Opening, State};
use crate::config::AssociationConfig;
use crate::memory::{Pressure, heap, tree};

impl Opening {
    /// Returns the bytes that an association in COOKIE-WAIT holds.
    pub(crate) fn memory(&self) -> usize {
        heap(size_of::<Opening>())
            + heap(self.local_addresses.capacity() * size_of::<IpAddr>())
            + heap(self.init_routes.capacity() * size_of::<Route>())
            + heap(self.first_message.as_ref().map_or(0, |first| first.message.len()))
            + heap(self.key_message.as_ref().map_or(0, Bytes::len))
            + config_memory(&self.config)
    }
}

/// Returns the heap bytes of a configuration.
fn config_memory(config: &AssociationConfig) -> usize {
    tree(config.auth.keys.len(), size_of::<(u16, Bytes)>())
}

impl Association {
    /// Returns the bytes held for user data and bookkeeping, in the block sizes of the allocator.
    pub(crate) fn memory(&self) -> usize {
        heap(size_of::<Association>())
            + self.transfer.paths.memory()
            + self.transfer.tx.memory()
            + self.inbound.memory()
            + self.lists_memory()
            + self.extensions_memory()
    }

    /// Returns the bytes of user data buffered in both directions, plus a small overhead for each received piece.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.transfer.tx.held() + self.inbound.held()
    }

    /// Returns a measure of memory that is cheap to compute: the buffered bytes, and the bytes of bookkeeping that
    /// change independently of the buffered bytes. If the measure has grown by a small number, memory has grown by at
    /// most [`COST_MOST`](crate::memory::COST_MOST) times that number plus [`COST_BASE`](crate::memory::COST_BASE). The
    /// measure also changes by 1 MiB with each release of memory, so the endpoint notices the release and counts the
    /// memory again.
    #[inline]
    pub(crate) fn measure(&self) -> usize {
        const GIVEN_BACK: usize = 1 << 20;
        self.transfer.tx.queue.measure()
            + self.transfer.tx.outstanding.measure()
            + self.inbound.measure()
            + if self.idle.times().is_multiple_of(2) { 0 } else { GIVEN_BACK }
    }

    /// Returns the heap bytes of all queued items except user data, and of the state.
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

    /// Sets the memory pressure. The endpoint calls this before each task of the association.
    #[inline]
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        if self.transfer.tx.buffer.set_pressure(pressure) {
            self.inbound.set_pressure(pressure);
        }
    }
}

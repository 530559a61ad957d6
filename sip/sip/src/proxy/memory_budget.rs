//! The memory budget for kept messages.
//!
//! Each transaction has a [`Charge`] for the bytes that it keeps: a request without an answer, copies, keys, and the last response for
//! retransmission. If a new request does not fit into the budget, the request gets 503. A long request ([`LONG`]) is accepted only if no
//! more than half of the budget is then in use. A response that does not fit is forwarded, but not kept.
//!
//! Copies of a request are charged even beyond the budget. The kept bytes can therefore exceed [`super::ProxyLimits::kept_bytes`] by the
//! copies of requests that were accepted before the budget was full. Begin with [`MemoryBudget::charge`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::header::Header;
use crate::message::Message;

/// Bytes per transaction in addition to its messages: its table entries and its timers.
pub(super) const TRANSACTION: usize = 1024;

/// Size in bytes above which a request is long.
pub(super) const LONG: usize = 16 * 1024;

/// The memory budget, with the number of bytes in use.
#[derive(Debug, Default)]
pub(super) struct MemoryBudget {
    used: Arc<AtomicUsize>,
}

impl MemoryBudget {
    /// Charges `bytes` until the returned charge is dropped. The budget's limit is not checked.
    pub(super) fn charge(&self, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { bytes, used: self.used.clone() }
    }

    /// Reports whether `more` bytes fit into a budget of `max` bytes.
    pub(super) fn has_room(&self, max: usize, more: usize) -> bool {
        self.used().saturating_add(more) <= max
    }

    /// Returns the number of bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Bytes that stay charged until this value is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: usize,
    used: Arc<AtomicUsize>,
}

impl Charge {
    /// Returns the number of charged bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the number of charged bytes.
    pub(super) fn set(&mut self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the memory in bytes that a message takes: its length, and an entry for each of its fields.
pub(super) fn weight(message: &Message) -> usize {
    message.length() + message.headers.len() * size_of::<Header>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_charged_until_the_charge_is_dropped() {
        let budget = MemoryBudget::default();
        let mut charge = budget.charge(10);
        assert!(budget.has_room(20, 10) && !budget.has_room(20, 11));
        charge.set(4);
        assert_eq!(budget.used(), 4);
        let other = budget.charge(3);
        drop(charge);
        assert_eq!(budget.used(), 3);
        drop(other);
        assert!(budget.has_room(0, 0) && !budget.has_room(0, usize::MAX));
    }
}

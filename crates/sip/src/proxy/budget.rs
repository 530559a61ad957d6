//! How many bytes are kept of messages, all together.
//!
//! Each transaction has a [`Charge`] for what it keeps: its request while that waits for an answer, copies, keys, the last response for
//! repetitions. New requests get 503 when the budget is spent, long ones when half of it is, and a response that does not fit is passed on without being kept. So
//! what strangers send takes no more than [`super::ProxyLimits::kept_bytes`], and the copies of one forked request, however long their messages
//! are. Begin with [`Budget::charge`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::header::Header;
use crate::message::Message;

/// Bytes that a transaction takes beside its messages: its entry in each table, and its timers.
pub(super) const TRANSACTION: usize = 1024;

/// A request that takes more is a long one.
pub(super) const LONG: usize = 16 * 1024;

/// The bytes that are kept.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: Arc<AtomicUsize>,
}

impl Budget {
    /// Takes so many bytes, be there room or not, until the charge is dropped.
    pub(super) fn charge(&self, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { bytes, used: self.used.clone() }
    }

    /// How many bytes are kept.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Bytes that are kept as long as this is.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: usize,
    used: Arc<AtomicUsize>,
}

impl Charge {
    /// For how many bytes it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// It is for so many bytes from now on.
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

/// Bytes that a message takes: its own, and a place for each of its fields.
pub(super) fn weight(message: &Message) -> usize {
    message.length() + message.headers.len() * size_of::<Header>()
}

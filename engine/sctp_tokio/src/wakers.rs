//! Sets of tasks that wait for the same event.

use std::collections::BTreeMap;
use std::task::Waker;

/// One wait of a task. The number identifies the wait at its cancellation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait<'a> {
    number: u64,
    waker: &'a Waker,
}

impl<'a> Wait<'a> {
    /// Number of the wait of [`poll_read`](tokio::io::AsyncRead::poll_read). A stream has only one such wait.
    pub(crate) const READ: u64 = 0;
    /// Number of the wait of [`poll_write`](tokio::io::AsyncWrite::poll_write). A stream has only one such
    /// wait.
    pub(crate) const WRITE: u64 = 1;
    /// Number of the first wait of any other kind.
    pub(crate) const FIRST: u64 = 2;

    pub(crate) fn new(number: u64, waker: &'a Waker) -> Wait<'a> {
        Wait { number, waker }
    }
}

/// Wakers of waiting tasks, by the number of the wait.
#[derive(Debug, Default)]
pub(crate) struct Wakers(BTreeMap<u64, Waker>);

impl Wakers {
    pub(crate) fn add(&mut self, wait: Wait<'_>) {
        self.0.entry(wait.number).or_insert_with(|| wait.waker.clone()).clone_from(wait.waker);
    }

    pub(crate) fn forget(&mut self, number: u64) {
        self.0.remove(&number);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes all tasks. A woken task that must continue to wait adds itself again.
    pub(crate) fn wake(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(Waker::wake);
    }
}

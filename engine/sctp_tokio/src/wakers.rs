//! Tasks that wait for the same thing.

use std::collections::BTreeMap;
use std::task::Waker;

/// One wait of a task. A wait that is cancelled is forgotten by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait<'a> {
    number: u64,
    waker: &'a Waker,
}

impl<'a> Wait<'a> {
    /// The wait of a stream's [`poll_read`](tokio::io::AsyncRead::poll_read). A stream has one.
    pub(crate) const READ: u64 = 0;
    /// The wait of a stream's [`poll_write`](tokio::io::AsyncWrite::poll_write). A stream has one.
    pub(crate) const WRITE: u64 = 1;
    /// Number of the first other wait.
    pub(crate) const FIRST: u64 = 2;

    pub(crate) fn new(number: u64, waker: &'a Waker) -> Wait<'a> {
        Wait { number, waker }
    }
}

/// Tasks to wake, by the number of their wait.
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

    /// Wakes all. They add themselves again if they still have to wait.
    pub(crate) fn wake(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(Waker::wake);
    }
}

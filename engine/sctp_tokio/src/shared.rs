//! The lock on the stack's state, and the tasks that wait for changes of this state.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use sctp::AssociationId;
use tokio::sync::Notify;
use tokio::task::coop::poll_proceed;

use crate::state::State;
use crate::wakers::Wait;

/// The state, and the notification that wakes the driver.
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) work: Notify,
    /// Number of the next wait ([`Wait`]).
    waits: AtomicU64,
}

/// Part of the state on which a task waits.
#[derive(Clone, Copy)]
pub(crate) enum WaitsOn {
    Association(AssociationId),
    Port(u16),
    Stack,
}

/// Guard that removes a cancelled wait.
struct Guard<'a> {
    shared: &'a Shared,
    on: WaitsOn,
    number: u64,
    has_waited: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.has_waited {
            self.shared.lock().forget_wait(self.on, self.number);
        }
    }
}

impl Shared {
    pub(crate) fn new(state: State) -> Arc<Shared> {
        let waits = AtomicU64::new(Wait::FIRST);
        Arc::new(Shared { state: Mutex::new(state), work: Notify::new(), waits })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is no error: the engine remains usable after a panic in a closure of the program.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` until it returns a result, and waits between the calls.
    pub(crate) async fn wait<R>(&self, on: WaitsOn, mut f: impl FnMut(&mut State, Wait<'_>) -> Poll<R>) -> R {
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        let mut guard = Guard { shared: self, on, number, has_waited: false };
        poll_fn(|context| {
            let result = self.poll(context, number, &mut f);
            guard.has_waited |= result.is_pending();
            result
        })
        .await
    }

    /// Calls `f`, which may have to wait. If `f` returns a result, wakes the driver, which sends the resulting packets. Returns `Pending`
    /// from time to time even if `f` would not wait, so other tasks can run (tokio's cooperative scheduling).
    pub(crate) fn poll<R>(
        &self,
        context: &mut Context<'_>,
        number: u64,
        f: impl FnOnce(&mut State, Wait<'_>) -> Poll<R>,
    ) -> Poll<R> {
        let turn = ready!(poll_proceed(context));
        let result = f(&mut self.lock(), Wait::new(number, context.waker()));
        if result.is_ready() {
            turn.made_progress();
            self.work.notify_one();
        }
        result
    }

    /// Calls `f` with the state, and wakes the driver, which sends the resulting packets.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let result = f(&mut self.lock());
        self.work.notify_one();
        result
    }
}

//! The task that moves packets, handles timers and wakes the sockets' tasks.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll as TaskPoll;
use std::time::Duration;

use mio::{Events, Poll};
use netio::Carriers;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::Error;
use crate::shared::Shared;

/// Task that serves a stack while the program or an association uses it.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    /// Poll that watches the sockets. The runtime watches the descriptor of this poll.
    poll: AsyncFd<Poll>,
    events: Events,
}

impl Driver {
    /// Makes the driver. The caller must be inside a tokio runtime.
    pub(crate) fn new(shared: &Arc<Shared>) -> io::Result<Driver> {
        let poll = Poll::new()?;
        shared.lock().register(poll.registry())?;
        // The function that replaces this deprecated function is unsafe, because a type may close its descriptor too early. A poll keeps
        // its descriptor open until it is dropped.
        #[allow(deprecated, reason = "a poll owns its descriptor")]
        let poll = AsyncFd::with_interest(poll, Interest::READABLE)?;
        Ok(Driver { shared: Arc::clone(shared), poll, events: Events::with_capacity(Carriers::TOKENS) })
    }

    pub(crate) async fn run(mut self) {
        if let Err(error) = self.drive().await {
            self.shared.lock().end(Error::system("receiving packets")(error));
        }
    }

    async fn drive(&mut self) -> io::Result<()> {
        loop {
            let Some(wait) = self.turn()? else { return Ok(()) };
            if wait.is_zero() {
                tokio::task::yield_now().await;
            } else {
                self.wait(wait).await?;
            }
        }
    }

    /// Performs all work that is ready. Returns the longest time to wait afterwards, or `None` if the stack is no longer in use.
    fn turn(&mut self) -> io::Result<Option<Duration>> {
        match self.poll.get_mut().poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut state = self.shared.lock();
        for event in &self.events {
            state.note_ready(event.token().0);
        }
        state.turn()?;
        Ok((!state.is_over()).then(|| state.until_next_turn()))
    }

    /// Waits until a socket has packets, a task has used the engine, or `limit` has passed.
    async fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let mut work = pin!(self.shared.work.notified());
        let mut timer = pin!(tokio::time::sleep(limit));
        let poll = &mut self.poll;
        poll_fn(|context| {
            if work.as_mut().poll(context).is_ready() || timer.as_mut().poll(context).is_ready() {
                return TaskPoll::Ready(Ok(()));
            }
            // Clearing the readiness loses no packet: the next turn reads all packets that have arrived, and later packets make the poll
            // ready again.
            poll.poll_read_ready_mut(context).map(|ready| ready.map(|mut guard| guard.clear_ready()))
        })
        .await
    }
}

impl Drop for Driver {
    /// Ends all sockets of the stack. The runtime may end, and drop the driver, while sockets still exist.
    fn drop(&mut self) {
        self.shared.lock().end(Error::StackEnded);
    }
}

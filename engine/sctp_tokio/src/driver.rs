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

/// Drives a stack until nobody uses it any more.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    /// The poll of the sockets, which the runtime's own poll watches.
    poll: AsyncFd<Poll>,
    events: Events,
}

impl Driver {
    /// Makes the driver, in a runtime.
    pub(crate) fn new(shared: &Arc<Shared>) -> io::Result<Driver> {
        let poll = Poll::new()?;
        shared.lock().register(poll.registry())?;
        // The successor of this function is unsafe, since a type may close its descriptor earlier. A poll does not.
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

    /// Does what can be done now. Returns the longest time to wait after it; `None`: nobody uses the stack.
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

    /// Waits until a socket has packets, somebody has used the engine, or the time is over.
    async fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let mut work = pin!(self.shared.work.notified());
        let mut timer = pin!(tokio::time::sleep(limit));
        let poll = &mut self.poll;
        poll_fn(|context| {
            if work.as_mut().poll(context).is_ready() || timer.as_mut().poll(context).is_ready() {
                return TaskPoll::Ready(Ok(()));
            }
            // The next turn takes all packets that are there; later ones set it again.
            poll.poll_read_ready_mut(context).map(|ready| ready.map(|mut guard| guard.clear_ready()))
        })
        .await
    }
}

impl Drop for Driver {
    /// The runtime may end before the sockets.
    fn drop(&mut self) {
        self.shared.lock().end(Error::StackEnded);
    }
}

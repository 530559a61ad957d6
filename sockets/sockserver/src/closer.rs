//! Closing descriptors without waiting.
//!
//! The last close of a file may wait (`SO_LINGER`, FUSE), and so may that of a socket in whose queue a program has left such a file. Each
//! user has a thread for it: a file that waits keeps back those of its own user only.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::fd::OwnedFd;

/// Time after which a thread without work ends.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// Limit on the threads. Further users share one.
const THREADS_MAX: usize = 64;
/// The user of the shared thread: no process has it (`(uid_t)-1`).
pub(crate) const NOBODY_KNOWN: u32 = u32::MAX;

/// Closes descriptors in other threads.
#[derive(Default)]
pub(crate) struct Closer {
    by_user: HashMap<u32, Sender<Vec<OwnedFd>>>,
}

impl Closer {
    /// Closes descriptors that have to do with a user.
    pub(crate) fn close(&mut self, user: u32, descriptors: Vec<OwnedFd>) {
        if descriptors.is_empty() {
            return;
        }
        let mut left = descriptors;
        let known = self.by_user.get(&user).map(|thread| thread.send(std::mem::take(&mut left)));
        match known {
            Some(Ok(())) => return,
            // Its thread has ended.
            Some(Err(unsent)) => left = unsent.0,
            None => {}
        }
        let user = if self.by_user.len() < THREADS_MAX { user } else { NOBODY_KNOWN };
        if let Some(Err(unsent)) =
            self.by_user.get(&user).map(|thread| thread.send(std::mem::take(&mut left)))
        {
            left = unsent.0;
        }
        if left.is_empty() {
            return;
        }
        self.by_user.retain(|_, thread| thread.send(Vec::new()).is_ok());
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("closer".to_owned());
        match thread.spawn(move || close_all(left, &receiver)) {
            Ok(_) => drop(self.by_user.insert(user, sender)),
            // The descriptors were closed here with the thread that was not made.
            Err(error) => tracing::warn!(%error, "no thread to close descriptors"),
        }
    }
}

fn close_all(first: Vec<OwnedFd>, receiver: &Receiver<Vec<OwnedFd>>) {
    drop(first);
    loop {
        match receiver.recv_timeout(IDLE_LIMIT) {
            Ok(descriptors) => drop(descriptors),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}

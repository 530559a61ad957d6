//! Closing descriptors without waiting.
//!
//! The last close of a file may wait (`SO_LINGER`, FUSE), and so may that of a socket in whose queue a program has left such a file. Each
//! user has a thread for it: a file that waits keeps back those of its own user only. Of a user with too many files that wait nothing more
//! is received.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::fd::OwnedFd;

/// Time after which a thread without work ends.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// Limit on the threads. Further users share one.
const THREADS_MAX: usize = 64;
/// Descriptors of one user that may wait to be closed.
const WAITING_MAX: usize = 1024;
/// The user of the shared thread: no process has it (`(uid_t)-1`).
pub(crate) const NOBODY_KNOWN: u32 = u32::MAX;

/// Closes descriptors in other threads.
#[derive(Default)]
pub(crate) struct Closer {
    by_user: HashMap<u32, Thread>,
}

/// The thread of one user.
struct Thread {
    descriptors: Sender<Vec<OwnedFd>>,
    /// Descriptors that are not closed yet.
    waiting: Arc<AtomicUsize>,
}

impl Thread {
    /// Starts a thread. Without one, descriptors are closed by whoever gives them.
    fn start() -> Thread {
        let (sender, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = waiting.clone();
        let thread = std::thread::Builder::new().name("closer".to_owned());
        if let Err(error) = thread.spawn(move || close_all(&receiver, &counted)) {
            tracing::warn!(%error, "no thread to close descriptors");
        }
        Thread { descriptors: sender, waiting }
    }

    /// Gives the thread descriptors; returns them if it has ended.
    fn give(&self, descriptors: Vec<OwnedFd>) -> Result<(), Vec<OwnedFd>> {
        self.waiting.fetch_add(descriptors.len(), Ordering::Relaxed);
        self.descriptors.send(descriptors).map_err(|unsent| unsent.0)
    }
}

impl Closer {
    /// Closes descriptors that have to do with a user.
    pub(crate) fn close(&mut self, user: u32, descriptors: Vec<OwnedFd>) {
        if descriptors.is_empty() {
            return;
        }
        let user = self.place_of(user);
        let thread = self.by_user.entry(user).or_insert_with(Thread::start);
        if let Err(descriptors) = thread.give(descriptors) {
            // It has ended for want of work.
            *thread = Thread::start();
            drop(thread.give(descriptors));
        }
    }

    /// Reports whether so many descriptors of a user wait that it must not pass further ones.
    pub(crate) fn is_overloaded(&self, user: u32) -> bool {
        let thread = self.by_user.get(&self.place_of(user));
        thread.is_some_and(|thread| thread.waiting.load(Ordering::Relaxed) > WAITING_MAX)
    }

    fn place_of(&self, user: u32) -> u32 {
        if self.by_user.contains_key(&user) || self.by_user.len() < THREADS_MAX { user } else { NOBODY_KNOWN }
    }
}

fn close_all(receiver: &Receiver<Vec<OwnedFd>>, waiting: &AtomicUsize) {
    while let Ok(descriptors) = receiver.recv_timeout(IDLE_LIMIT) {
        for descriptor in descriptors {
            drop(descriptor);
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, pipe};

    #[test]
    fn descriptors_of_all_users_are_closed() {
        let mut closer = Closer::default();
        for user in 0..2 * THREADS_MAX as u32 {
            let (mut reader, writer) = pipe().unwrap();
            closer.close(user, vec![writer.into()]);
            // This waits for ever if it is not closed.
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        }
        assert!(closer.by_user.len() <= THREADS_MAX + 1);
        assert!(!closer.is_overloaded(0));
    }

    #[test]
    fn a_user_with_many_descriptors_that_wait_is_overloaded_alone() {
        let mut closer = Closer::default();
        // A thread that takes nothing.
        let (descriptors, _receiver) = channel();
        closer.by_user.insert(7, Thread { descriptors, waiting: Arc::new(AtomicUsize::new(WAITING_MAX)) });
        assert!(!closer.is_overloaded(7));
        closer.close(7, vec![pipe().unwrap().0.into()]);
        assert!(closer.is_overloaded(7) && !closer.is_overloaded(8));
    }
}

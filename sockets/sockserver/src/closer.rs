//! Closes descriptors without blocking the server.
//!
//! The last close of a file may block (`SO_LINGER`, FUSE). The close of a socket may also block, if the socket's queue contains
//! such a file in a message (`SCM_RIGHTS`). Each user has a separate thread for closing, so a close that blocks delays only files
//! of the same user. If too many files of a user wait to be closed, the server receives nothing more from this user. The close of a
//! socket without files in its queue never blocks, so the server closes such a socket at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, shutdown};

use crate::pair;

/// Time after which a thread without work ends.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// Limit on the number of users with a separate thread. All further users share one additional thread.
const THREADS_MAX: usize = 64;
/// If the table of counters has more users than this number, users without waiting descriptors are removed.
const USERS_MAX: usize = 1024;
/// Limit on the number of one user's descriptors that wait to be closed.
const WAITING_MAX: usize = 1024;
/// User ID of the shared thread, and of unknown users. No process has this ID (`(uid_t)-1`).
pub(crate) const NOBODY_KNOWN: u32 = u32::MAX;

/// Descriptors to close, with the counter of waiting descriptors of their user.
type Batch = (Arc<AtomicUsize>, Vec<OwnedFd>);

/// Closes descriptors in separate threads.
#[derive(Default)]
pub(crate) struct Closer {
    threads: HashMap<u32, Sender<Batch>>,
    /// Number of descriptors of each user that wait to be closed.
    waiting: HashMap<u32, Arc<AtomicUsize>>,
}

impl Closer {
    /// Closes an `AF_UNIX` socket whose other end belongs to a program of this user.
    pub(crate) fn close_socket(&mut self, user: u32, socket: OwnedFd) {
        // After this shutdown, the program cannot send further messages into the queue.
        let _ = shutdown(&socket, Shutdown::Both);
        if pair::has_descriptors(&socket) {
            self.close(user, vec![socket]);
        }
    }

    /// Closes descriptors on behalf of a user, in the user's thread.
    pub(crate) fn close(&mut self, user: u32, descriptors: Vec<OwnedFd>) {
        if descriptors.is_empty() {
            return;
        }
        if self.waiting.len() > USERS_MAX {
            self.waiting.retain(|_, count| count.load(Ordering::Relaxed) > 0);
        }
        let count = self.waiting.entry(user).or_default().clone();
        count.fetch_add(descriptors.len(), Ordering::Relaxed);
        let place = self.place_of(user);
        let thread = self.threads.entry(place).or_insert_with(start);
        if let Err(unsent) = thread.send((count, descriptors)) {
            // The thread has ended because it had no work.
            *thread = start();
            drop(thread.send(unsent.0));
        }
    }

    /// Reports whether too many descriptors of a user wait to be closed. The server must then receive nothing from this user.
    pub(crate) fn is_overloaded(&self, user: u32) -> bool {
        self.waiting.get(&user).is_some_and(|count| count.load(Ordering::Relaxed) > WAITING_MAX)
    }

    /// Returns the key of the thread for a user: the user, or [`NOBODY_KNOWN`] for the shared thread.
    fn place_of(&mut self, user: u32) -> u32 {
        if !self.threads.contains_key(&user) && self.threads.len() >= THREADS_MAX {
            self.threads.retain(|_, thread| thread.send(Batch::default()).is_ok());
        }
        if self.threads.contains_key(&user) || self.threads.len() < THREADS_MAX { user } else { NOBODY_KNOWN }
    }
}

/// Starts a thread that closes descriptors. If no thread can be started, the calling thread closes the descriptors, and may block.
fn start() -> Sender<Batch> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("closer".to_owned());
    if let Err(error) = thread.spawn(move || close_all(&receiver)) {
        tracing::warn!(%error, "no thread to close descriptors");
    }
    sender
}

fn close_all(receiver: &Receiver<Batch>) {
    while let Ok((count, descriptors)) = receiver.recv_timeout(IDLE_LIMIT) {
        for descriptor in descriptors {
            drop(descriptor);
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::{Read, pipe};

    #[test]
    fn descriptors_of_all_users_are_closed() {
        let mut closer = Closer::default();
        for user in 0..2 * THREADS_MAX as u32 {
            let (mut reader, writer) = pipe().unwrap();
            closer.close(user, vec![writer.into()]);
            // This read never returns if the writer is not closed.
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        }
        assert!(closer.threads.len() <= THREADS_MAX + 1);
        assert!(!closer.is_overloaded(0));
    }

    #[test]
    fn only_a_socket_with_descriptors_in_its_queue_is_closed_by_the_thread() {
        let mut closer = Closer::default();
        // The channel replaces a thread, and closes nothing.
        let (thread, receiver) = channel();
        closer.threads.insert(7, thread);
        for has_file in [false, true] {
            let (ours, program) = pair::make(1, false).unwrap();
            let (reader, _writer) = pipe().unwrap();
            let file = has_file.then(|| reader.as_fd());
            for _ in 0..2 {
                pair::send_parts(program.as_fd(), &[std::io::IoSlice::new(b"request")], None).unwrap();
                pair::send_parts(program.as_fd(), &[std::io::IoSlice::new(b"request")], file).unwrap();
            }
            closer.close_socket(7, ours);
            assert_eq!(receiver.try_recv().is_ok(), has_file);
            let late = pair::send_parts(program.as_fd(), &[std::io::IoSlice::new(b"late")], None);
            assert!(late.is_err());
        }
    }

    #[test]
    fn a_user_with_many_descriptors_that_wait_is_overloaded_alone() {
        let mut closer = Closer::default();
        // The channel replaces a thread, and closes nothing.
        let (thread, _receiver) = channel();
        closer.threads.insert(7, thread);
        closer.waiting.insert(7, Arc::new(AtomicUsize::new(WAITING_MAX)));
        assert!(!closer.is_overloaded(7));
        closer.close(7, vec![pipe().unwrap().0.into()]);
        assert!(closer.is_overloaded(7) && !closer.is_overloaded(8));
    }
}

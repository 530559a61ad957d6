//! The server's ends of the socket pairs.

use std::collections::{BTreeSet, HashMap, VecDeque};

use base::Time;
use bytes::Bytes;
use mio::Interest;
use mio::event::{Event, Source};
use mio::unix::SourceFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::sockopt::socket_cookie;
use sockets::{Delivery, SocketKey};
use sockproto::{DataHeader, Peer};

use crate::{OTHERS, pair};

/// The server's end of one pair.
pub(crate) struct End {
    pub(crate) socket: OwnedFd,
    /// The kernel's cookie of the program's end (`SO_COOKIE`). From this cookie, the server recognises a copy of the program's end.
    cookie: u64,
    /// User ID of the program.
    pub(crate) uid: u32,
    /// True if messages have a [`Peer`] after the header.
    pub(crate) is_one_to_many: bool,
    /// A message from the program for which the engine has no room.
    pub(crate) held: Option<(DataHeader, Peer, Bytes)>,
    /// A message to the program for which the program's end has no room.
    pub(crate) pending: Option<Delivery>,
    /// The listener in whose queue this socket waits. `None` for a socket that no listener has created, and after the program has
    /// accepted the socket.
    pub(crate) listener: Option<SocketKey>,
    /// True while [`Server::drain`](crate::Server::drain) reads. A message for which the engine has no room then waits with its
    /// association. The message waits in `held` only if the association can keep no further messages.
    pub(crate) is_draining: bool,
    /// True if user data was sent to the program's end.
    pub(crate) has_data: bool,
    /// True if the program has closed its end with unread messages.
    pub(crate) is_reset: bool,
    /// True if the program has closed its end.
    pub(crate) is_hung_up: bool,
    /// True if the program has shut its end down for writing, or the association has ended.
    pub(crate) is_at_end: bool,
}

/// The server's ends of all pairs.
#[derive(Default)]
pub(crate) struct Ends {
    all: HashMap<SocketKey, End>,
    by_cookie: HashMap<u64, SocketKey>,
    /// Sockets whose program may have sent messages, or closed its end.
    pub(crate) readable: BTreeSet<SocketKey>,
    /// Associations of one-to-many sockets whose peer has shut down, with the time of the shutdown. The server shuts such an association
    /// down when no more messages of the program can be read, or after a limit (`ENDING_LIMIT` in `pump`).
    pub(crate) ending: VecDeque<(Time, SocketKey, i32)>,
    /// Sockets from which the server does not read, because too many descriptors of the sockets' user wait to be closed.
    pub(crate) paused: BTreeSet<SocketKey>,
    /// Sockets that may have messages for their program.
    pub(crate) writable: BTreeSet<SocketKey>,
}

impl Ends {
    /// Creates the pair of a socket, and returns the program's end.
    pub(crate) fn open(
        &mut self,
        key: SocketKey,
        registry: &mio::Registry,
        (uid, is_one_to_many): (u32, bool),
        listener: Option<SocketKey>,
    ) -> std::io::Result<OwnedFd> {
        let (program, socket) = pair::make(rand::random(), is_one_to_many)?;
        let cookie = socket_cookie(&program)?;
        let token = mio::Token(OTHERS + 2 * key.0 + 1);
        let interest = Interest::READABLE | Interest::WRITABLE;
        SourceFd(&socket.as_raw_fd()).register(registry, token, interest)?;
        let end = End {
            socket,
            cookie,
            uid,
            is_one_to_many,
            held: None,
            pending: None,
            listener,
            is_draining: false,
            has_data: false,
            is_reset: false,
            is_hung_up: false,
            is_at_end: false,
        };
        self.all.insert(key, end);
        self.by_cookie.insert(cookie, key);
        Ok(program)
    }

    /// Returns the socket of which `program` is the program's end.
    pub(crate) fn of_program(&self, program: BorrowedFd<'_>) -> Option<SocketKey> {
        self.by_cookie.get(&socket_cookie(program).ok()?).copied()
    }

    pub(crate) fn get_mut(&mut self, key: SocketKey) -> Option<&mut End> {
        self.all.get_mut(&key)
    }

    pub(crate) fn socket(&self, key: SocketKey) -> Option<BorrowedFd<'_>> {
        self.all.get(&key).map(|end| end.socket.as_fd())
    }

    /// Removes the server's end of a socket, and returns it. The caller must close the returned end.
    pub(crate) fn remove(&mut self, key: SocketKey, registry: &mio::Registry) -> Option<End> {
        let end = self.all.remove(&key)?;
        // The kernel reuses the descriptor's number, so the registration must not remain. An error means that there is no registration.
        let _ = SourceFd(&end.socket.as_raw_fd()).deregister(registry);
        self.by_cookie.remove(&end.cookie);
        self.readable.remove(&key);
        self.paused.remove(&key);
        self.writable.remove(&key);
        Some(end)
    }

    /// Records an event of epoll for an end.
    pub(crate) fn note(&mut self, key: SocketKey, event: &Event) {
        let Some(end) = self.all.get_mut(&key) else { return };
        end.is_hung_up |= event.is_write_closed() || event.is_error();
        if event.is_readable() || end.is_hung_up {
            self.readable.insert(key);
        }
        if event.is_writable() {
            self.writable.insert(key);
        }
    }

    /// Checks which of these sockets the programs of a user have closed. The function polls the sockets, because epoll may report a
    /// close only later.
    pub(crate) fn note_closed(&mut self, sockets: &[SocketKey], uid: u32) {
        let nobody_waits = Timespec { tv_sec: 0, tv_nsec: 0 };
        for key in sockets {
            let Some(end) = self.all.get_mut(key).filter(|end| end.uid == uid) else { continue };
            let mut watched = [PollFd::new(&end.socket, PollFlags::empty())];
            let has_events = poll(&mut watched, Some(&nobody_waits)).is_ok_and(|count| count > 0);
            if has_events && watched[0].revents().contains(PollFlags::HUP) {
                end.is_hung_up = true;
                self.readable.insert(*key);
            }
        }
    }

    /// Reports whether the server may be able to move messages without waiting for an event.
    pub(crate) fn has_work(&self) -> bool {
        !self.readable.is_empty() || !self.writable.is_empty()
    }

    /// Returns the number of a listener's sockets that the listener's program has not accepted.
    pub(crate) fn waiting_of(&self, listener: SocketKey) -> usize {
        self.all.values().filter(|end| end.listener == Some(listener)).count()
    }
}

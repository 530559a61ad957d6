//! The sockets that were given to programs, and the facts that are known of them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::c_int;
use rustix::event::epoll::EventFlags;
use rustix::fs::{FileType, fstat};
use sockclient::behalf;
use sockclient::table::{self, Facts};
use sockproto::SockAddr;

use crate::call::{Call, Then, Verdict, Wait};
use crate::memory::Outcome;

/// Number of sockets at which the supervisor first looks for closed sockets.
const LOOK_AT: usize = 65_536;

/// Event of a socket that has a message.
pub(crate) const READABLE: EventFlags = EventFlags::IN;
/// Event of a socket that has room for a message.
pub(crate) const WRITABLE: EventFlags = EventFlags::OUT;

/// Sockets that were given to programs, by inode.
#[derive(Debug)]
pub(crate) struct Sockets {
    known: HashMap<u64, Facts>,
    /// Inodes of sockets, with the peers to which each socket has sent.
    peers: HashSet<(u64, Vec<u8>)>,
    /// Number of sockets at which the supervisor next looks for closed sockets.
    look_at: usize,
    /// Number given to the latest socket ([`Facts::numbered`]); it wraps around.
    next: u16,
}

impl Default for Sockets {
    fn default() -> Self {
        Sockets { known: HashMap::new(), peers: HashSet::new(), look_at: LOOK_AT, next: 0 }
    }
}

impl Sockets {
    pub(crate) fn has(&self, inode: u64) -> bool {
        self.known.contains_key(&inode)
    }

    /// Records a socket that is given to a program.
    pub(crate) fn note(&mut self, socket: impl AsFd, facts: Facts) -> Outcome<()> {
        let inode = inode_of(socket).ok_or(libc::ENOBUFS)?;
        if self.known.len() >= self.look_at {
            self.forget_closed();
        }
        self.next = self.next.wrapping_add(1);
        self.known.insert(inode, facts.numbered(self.next));
        Ok(())
    }

    /// Forgets closed sockets. The supervisor is not notified of a close, so it reads the open sockets from the kernel's list.
    fn forget_closed(&mut self) {
        // The name of a socket need not be valid text.
        let text = fs::read("/proc/self/net/unix").unwrap_or_default();
        let open: HashSet<u64> = String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| line.split_whitespace().nth(6)?.parse().ok())
            .collect();
        if !open.is_empty() {
            self.known.retain(|inode, _| open.contains(inode));
            self.peers.retain(|(inode, _)| open.contains(inode));
        }
        self.look_at = LOOK_AT.max(2 * self.known.len());
    }
}

/// Returns the inode of an open socket. Returns `None` for any other file, because its inode may have the number of a socket's inode.
pub(crate) fn inode_of(file: impl AsFd) -> Option<u64> {
    let status =
        fstat(file).ok().filter(|status| FileType::from_raw_mode(status.st_mode) == FileType::Socket)?;
    Some(status.st_ino)
}

/// A copy of a descriptor, and the inode of its socket.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) fd: OwnedFd,
    pub(crate) inode: u64,
}

/// A socket in a call: the supervisor's copy of its descriptor. When this value is dropped, the socket's facts return to [`Sockets`].
pub(crate) struct Socket<'a> {
    fd: OwnedFd,
    inode: u64,
    sockets: &'a mut Sockets,
}

impl<'a> Socket<'a> {
    /// Takes over a copy of a program's descriptor. Returns `None` if it is not a socket that the supervisor has provided.
    pub(crate) fn adopt(copy: Copied, sockets: &'a mut Sockets) -> Option<Socket<'a>> {
        let Copied { fd, inode } = copy;
        table::put(fd.as_raw_fd(), sockets.known.get(&inode)?);
        Some(Socket { fd, inode, sockets })
    }

    pub(crate) fn number(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Returns another copy of the descriptor.
    pub(crate) fn copy(&self) -> Outcome<Copied> {
        let fd = self.fd.try_clone().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        Ok(Copied { fd, inode: self.inode })
    }

    /// Records a socket that was created from this socket.
    pub(crate) fn note(&mut self, socket: &OwnedFd, facts: Facts) -> Outcome<()> {
        self.sockets.note(socket, facts)
    }

    /// Lets a call wait, if it would fail with `EAGAIN` or `EINPROGRESS`, and the program wants to wait. Otherwise answers the call.
    pub(crate) fn park(self, call: &Call, error: c_int, call_waits: bool, wait: ParkedAs) -> Verdict {
        let is_waiting = matches!(error, libc::EAGAIN | libc::EINPROGRESS);
        let done = match wait.then {
            Then::Again { done } if done > 0 => Ok(i64::try_from(done).unwrap_or(i64::MAX)),
            _ => Err(error),
        };
        if !is_waiting || !call_waits || behalf::is_nonblocking(self.number()) {
            return Verdict::Answer(done);
        }
        let limit = behalf::time_limit(self.number(), wait.events.contains(WRITABLE));
        let ParkedAs { events, then, interrupted } = wait;
        // The facts return to [`Sockets`], and the copy stays in the waiting call.
        let parked = self.copy().map(|Copied { fd, inode }| {
            let limit = limit.map(|limit| (limit, done));
            Verdict::Park(Box::new(Wait { call: call.clone(), fd, inode, events, limit, then, interrupted }))
        });
        parked.into()
    }

    /// Ends a call that has sent a message to a peer. On a blocking one-to-many socket, the first call that sends to this peer waits until
    /// the association is established.
    pub(crate) fn await_peer(self, call: &Call, peer: &[u8], length: i64) -> Verdict {
        let fd = self.number();
        // Programs may pass the length of a larger structure.
        let Ok(peer) = SockAddr::read(peer) else { return Verdict::Answer(Ok(length)) };
        let peer = peer.as_bytes();
        if self.sockets.peers.len() >= LOOK_AT {
            // The next call that sends to a known peer then asks the server once more.
            self.sockets.peers.clear();
        }
        let is_new = table::is_one_to_many(fd)
            && !behalf::is_nonblocking(fd)
            && self.sockets.peers.insert((self.inode, peer.to_vec()));
        let Some(connection) = is_new.then(|| behalf::await_peer(fd, peer).ok()).flatten() else {
            return Verdict::Answer(Ok(length));
        };
        let limit = behalf::time_limit(fd, true).map(|limit| (limit, Ok(length)));
        Verdict::Park(Box::new(Wait {
            call: call.clone(),
            fd: connection,
            inode: 0,
            events: READABLE,
            limit,
            then: Then::Sent(length),
            interrupted: None,
        }))
    }
}

/// The way in which a call waits; see [`Wait`].
pub(crate) struct ParkedAs {
    pub(crate) events: EventFlags,
    pub(crate) then: Then,
    pub(crate) interrupted: Option<c_int>,
}

impl ParkedAs {
    /// Returns a wait for a message, or for room for a message. After the wait, the call is tried again. `done` of its messages are
    /// complete.
    pub(crate) fn again(events: EventFlags, done: u64) -> ParkedAs {
        ParkedAs { events, then: Then::Again { done }, interrupted: None }
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        self.sockets.known.insert(self.inode, table::take(self.fd.as_raw_fd()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_sockets_are_forgotten_and_open_ones_are_not() {
        let mut sockets = Sockets { look_at: 4, ..Sockets::default() };
        let (kept, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        sockets.note(&kept, Facts::default()).unwrap();
        for _ in 0..20 {
            let (closed, _) = std::os::unix::net::UnixStream::pair().unwrap();
            sockets.note(&closed, Facts::default()).unwrap();
            sockets.look_at = 4;
        }
        assert!(sockets.has(inode_of(&kept).unwrap()));
        assert!(sockets.known.len() <= 5, "{}", sockets.known.len());
    }
}

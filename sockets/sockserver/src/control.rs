//! Requests of programs, each over a separate connection. Also contains a client that sends requests.

use std::io::IoSlice;

use base::Time;
use mio::Interest;
use mio::event::Source;
use mio::unix::SourceFd;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, socket_with,
};
use sockets::{Caller, SocketKey};
use sockproto::{Answer, CONTROL_MAX, DATA_HEADER, DataHeader, Operation, PEER_LENGTH, Request};

use crate::closer::NOBODY_KNOWN;
use crate::{
    ATTEMPTS_MAX, ATTEMPTS_OF_USER_MAX, Carriage, LEASES_MAX, LEASES_OF_USER_MAX, OTHERS, REQUESTS_MAX,
    REQUESTS_OF_USER_MAX, Server, list, pair,
};

/// The capability `CAP_NET_BIND_SERVICE` as a bit of `CapEff` in proc(5).
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;
/// Limit on the connections accepted in one turn. The limit keeps the turn short, because each connection needs several system
/// calls.
const CONNECTIONS_PER_TURN: usize = 16;

/// A connection from a program.
pub(crate) struct Connection {
    socket: OwnedFd,
    caller: Caller,
    stage: Stage,
    /// Number of the connection, counted in the order in which connections were accepted.
    order: u64,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The server waits for the request.
    Request,
    /// The connection keeps the server running until the connection is closed.
    Lease,
    /// The program waits for the end of an attempt to begin an association. The fields are the socket and the association's
    /// identifier.
    Attempt(SocketKey, i32),
}

/// The parts of an answer.
#[derive(Default)]
pub(crate) struct Reply {
    error: i32,
    value: i32,
    payload: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl From<sockets::Errno> for Reply {
    fn from(error: sockets::Errno) -> Reply {
        Reply { error, ..Reply::default() }
    }
}

fn with_payload(payload: impl Into<Vec<u8>>) -> Reply {
    Reply { payload: payload.into(), ..Reply::default() }
}

impl Server {
    /// Accepts connections. Refuses other users than root and the server's user, unless the server runs as root.
    pub(crate) fn take_connections(&mut self, now: Time) {
        for _ in 0..CONNECTIONS_PER_TURN {
            let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // The server may lack descriptors for a while. The flag makes a later turn try again, because epoll reports the
                    // waiting connections only once.
                    self.has_connections = true;
                    return;
                }
            };
            let Some(caller) = caller_of(&socket) else {
                self.closer.close_socket(NOBODY_KNOWN, socket);
                continue;
            };
            if self.uid != 0 && caller.uid != self.uid && caller.uid != 0 {
                self.closer.close_socket(caller.uid, socket);
                continue;
            }
            self.make_room(caller.uid);
            self.accepted += 1;
            let connection = Connection { socket, caller, stage: Stage::Request, order: self.accepted };
            let number = self.connections.insert(connection);
            if self.register(number).is_err() {
                self.drop_connection(number);
                continue;
            }
            self.serve_connection(now, number);
        }
        // Further connections are accepted in the next turn, after other work. The flags are needed because epoll reports the
        // waiting connections only once.
        (self.has_connections, self.is_accepting) = (true, true);
    }

    /// If too many connections wait for a request, drops the oldest of these connections. Programs send the request immediately
    /// after connecting, so an old connection without a request is of no use.
    fn make_room(&mut self, uid: u32) {
        let (all, of_user) = self.count(uid, |stage| stage == Stage::Request);
        let is_counted = |connection: &Connection| match of_user >= REQUESTS_OF_USER_MAX {
            true => connection.caller.uid == uid,
            false => all >= REQUESTS_MAX,
        };
        let waiting = self.connections.iter().filter(|(_, it)| it.stage == Stage::Request && is_counted(it));
        let oldest = waiting.min_by_key(|(_, connection)| connection.order).map(|(number, _)| number);
        if let Some(number) = oldest {
            self.drop_connection(number);
        }
    }

    /// Counts the connections whose stage satisfies `is_counted`. Returns the number for all users, and the number for this user.
    fn count(&self, uid: u32, is_counted: impl Fn(Stage) -> bool) -> (usize, usize) {
        let counted = || self.connections.iter().filter(|(_, it)| is_counted(it.stage));
        (counted().count(), counted().filter(|(_, it)| it.caller.uid == uid).count())
    }

    /// Reports whether a user may have one more lease.
    fn may_lease(&self, uid: u32) -> bool {
        let (all, of_user) = self.count(uid, |stage| stage == Stage::Lease);
        all < LEASES_MAX && of_user < LEASES_OF_USER_MAX
    }

    /// Reports whether one more caller of a user may wait for the end of an attempt.
    fn may_wait(&self, uid: u32) -> bool {
        let (all, of_user) = self.count(uid, |stage| matches!(stage, Stage::Attempt(..)));
        all < ATTEMPTS_MAX && of_user < ATTEMPTS_OF_USER_MAX
    }

    fn register(&self, number: usize) -> std::io::Result<()> {
        let socket = &self.connections[number].socket;
        let token = mio::Token(OTHERS + 2 * number);
        SourceFd(&socket.as_raw_fd()).register(self.poll.registry(), token, Interest::READABLE)
    }

    /// Answers the request of a connection, if the request has arrived.
    pub(crate) fn serve_connection(&mut self, now: Time, number: usize) {
        let Some(connection) = self.connections.get(number) else { return };
        if self.closer.is_overloaded(connection.caller.uid) {
            return self.drop_connection(number);
        }
        let received = match pair::receive(&connection.socket, &mut self.room[..CONTROL_MAX]) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => return self.drop_connection(number),
            Ok(received) => received,
        };
        // Each connection carries one request.
        let is_due = connection.stage == Stage::Request && !received.is_cut;
        let caller = connection.caller;
        let bytes = self.room[..received.length].to_vec();
        let descriptors = received.descriptors;
        let Some(request) = Request::read(&bytes).filter(|_| is_due) else {
            self.closer.close(caller.uid, descriptors);
            return self.drop_connection(number);
        };
        let reply = if request.operation == Operation::Lease {
            if !self.may_lease(caller.uid) {
                self.closer.close(caller.uid, descriptors);
                return self.drop_connection(number);
            }
            self.leases += 1;
            self.connections[number].stage = Stage::Lease;
            with_payload(serde_json::to_vec(&self.carriage).unwrap_or_default())
        } else {
            let program = descriptors.first().map(AsFd::as_fd);
            self.answer(now, &request, caller, program).unwrap_or_else(Reply::from)
        };
        let is_attempt = reply.error == libc::EINPROGRESS && request.first != 0;
        let program = descriptors.first().filter(|_| is_attempt);
        let key = program.and_then(|program| self.ends.of_program(program.as_fd()));
        // The server closes its received copies of programs' ends at once. Otherwise a program's close would not be the last
        // close of its end, and the server would not notice the close. Closing the copies never blocks.
        let (own, foreign) =
            descriptors.into_iter().partition(|it| self.ends.of_program(it.as_fd()).is_some());
        drop::<Vec<_>>(own);
        self.closer.close(caller.uid, foreign);
        if let Some(key) = key.filter(|_| self.may_wait(caller.uid)) {
            self.connections[number].stage = Stage::Attempt(key, reply.value);
            return self.serve(now);
        }
        // Programs expect that packets between sockets of one host have arrived when a call returns, as with the kernel's SCTP.
        self.settle(now);
        if let Some(connection) = self.connections.get(number) {
            send_reply(connection, &reply);
        }
        let is_lease = self.connections[number].stage == Stage::Lease;
        if !is_lease {
            self.drop_connection(number);
        }
        // Sends the packets that the request has caused.
        self.serve(now);
        if is_lease {
            // The program may have closed the lease already. The server checks this now, because no further event reports it.
            self.serve_connection(now, number);
        }
    }

    /// Answers `ECONNABORTED` to all callers that wait for attempts of a closed socket.
    pub(crate) fn end_attempts(&mut self, socket: SocketKey) {
        let of_socket = |stage: Stage| match stage {
            Stage::Attempt(key, association) => (key == socket).then_some(association),
            _ => None,
        };
        let attempts: Vec<i32> =
            self.connections.iter().filter_map(|(_, connection)| of_socket(connection.stage)).collect();
        for association in attempts {
            self.end_attempt(socket, association, libc::ECONNABORTED);
        }
    }

    /// Prepares the answers for all callers that wait for the end of an attempt to begin an association. `error` is the attempt's
    /// error, or 0.
    pub(crate) fn end_attempt(&mut self, socket: SocketKey, association: i32, error: i32) {
        let waits =
            |(_, connection): &(usize, &Connection)| connection.stage == Stage::Attempt(socket, association);
        let waiting: Vec<usize> = self.connections.iter().filter(waits).map(|(number, _)| number).collect();
        for number in waiting {
            let reply = Reply { error, value: association, ..Reply::default() };
            let connection = self.take_connection(number);
            self.due.extend(connection.map(|connection| (connection, reply)));
        }
    }

    /// Sends the answers about ended attempts, after packets between sockets of this host have been exchanged.
    pub(crate) fn reply_to_due(&mut self, now: Time) {
        if self.due.is_empty() {
            return;
        }
        self.settle(now);
        for (connection, reply) in std::mem::take(&mut self.due) {
            send_reply(&connection, &reply);
            self.closer.close_socket(connection.caller.uid, connection.socket);
        }
    }

    /// If a caller waits until a one-to-one socket is connected, returns the association's identifier and the socket's error. Clears the
    /// socket's error.
    pub(crate) fn awaited_connect(&mut self, socket: SocketKey) -> Option<(i32, i32)> {
        let association = self.connections.iter().find_map(|(_, connection)| match connection.stage {
            Stage::Attempt(key, association) if key == socket => Some(association),
            _ => None,
        })?;
        let option = (libc::SOL_SOCKET, libc::SO_ERROR);
        let value = self.sockets.option(&self.engine, socket, option, &[0; 4]).unwrap_or_default();
        Some((association, value.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes))))
    }

    fn drop_connection(&mut self, number: usize) {
        if let Some(connection) = self.take_connection(number) {
            self.closer.close_socket(connection.caller.uid, connection.socket);
        }
    }

    fn take_connection(&mut self, number: usize) -> Option<Connection> {
        let connection = self.connections.try_remove(number)?;
        self.leases -= usize::from(connection.stage == Stage::Lease);
        // The registration must not remain, because the kernel reuses the descriptor's number. An error means that the descriptor
        // was not registered.
        let _ = SourceFd(&connection.socket.as_raw_fd()).deregister(self.poll.registry());
        Some(connection)
    }

    fn answer(
        &mut self,
        now: Time,
        request: &Request<'_>,
        caller: Caller,
        program: Option<BorrowedFd<'_>>,
    ) -> Result<Reply, sockets::Errno> {
        match request.operation {
            Operation::Socket => return self.open_socket(now, request, caller),
            Operation::List => {
                let skip = usize::try_from(request.first).unwrap_or(0);
                let (text, next) = list::page(&self.sockets.rows(&self.engine), skip);
                let value = next.and_then(|next| i32::try_from(next).ok()).unwrap_or(0);
                return Ok(Reply { value, ..with_payload(text) });
            }
            _ => {}
        }
        let program = program.ok_or(libc::EINVAL)?;
        let key = self.ends.of_program(program).ok_or(libc::EBADF)?;
        // The server first takes the messages that the program has sent before the request, and handles their effects.
        self.read_all(now, key);
        self.settle(now);
        // These messages may have caused the server to close the socket. The key may now belong to another socket, so it is looked
        // up again.
        let key = self.ends.of_program(program).ok_or(libc::EBADF)?;
        if request.operation == Operation::PeelOff {
            return self.peel_off(now, program, key, request.first);
        }
        let mut reply = self.ask(now, request, caller, key);
        if matches!(reply, Err(libc::EADDRNOTAVAIL)) {
            // The address may have been added to the host since the server last read the host's addresses.
            self.read_addresses(now);
            reply = self.ask(now, request, caller, key);
        }
        if matches!(reply, Err(libc::EADDRINUSE)) {
            // The program may have just closed the socket that uses the address. The server handles this close, and then tries
            // again.
            self.ends.note_closed(&self.sockets.holders_of_port(key, request.payload), caller.uid);
            self.pump(now);
            let key = self.ends.of_program(program).ok_or(libc::EBADF)?;
            reply = self.ask(now, request, caller, key);
        }
        if self.sockets.take_unfilled(key) || is_about_the_buffer(request) && self.sockets.is_filled(key) {
            pair::fill(program);
        }
        reply
    }

    /// Opens a socket, and returns the program's end in the reply.
    fn open_socket(
        &mut self,
        now: Time,
        request: &Request<'_>,
        caller: Caller,
    ) -> Result<Reply, sockets::Errno> {
        let key = self.sockets.open(request.first, request.second, caller)?;
        match self.ends.open(key, self.poll.registry(), (caller.uid, self.sockets.is_one_to_many(key)), None)
        {
            Ok(program) => {
                if self.sockets.take_unfilled(key) {
                    pair::fill(program.as_fd());
                }
                Ok(Reply { descriptor: Some(program), ..Reply::default() })
            }
            Err(error) => {
                self.sockets.close(now, &mut self.engine, key, false);
                Err(error.raw_os_error().unwrap_or(libc::ENOBUFS))
            }
        }
    }

    /// Moves an association of a one-to-many socket to a new socket. Also moves the association's messages that the program has not
    /// read.
    fn peel_off(
        &mut self,
        now: Time,
        program: BorrowedFd<'_>,
        key: SocketKey,
        id: i32,
    ) -> Result<Reply, sockets::Errno> {
        self.sockets.may_peel_off(key, id)?;
        // The server first takes all messages that the program has sent. If the engine has no room for a message, the message waits
        // with its association.
        self.drain(now, key);
        let key = self.ends.of_program(program).ok_or(libc::EBADF)?;
        if self.ends.get_mut(key).is_some_and(|end| end.held.is_some()) {
            // The association cannot keep all messages that wait. The remaining messages would be lost, so the request fails.
            return Err(libc::EAGAIN);
        }
        let peeled = self.sockets.peel_off(key, id)?;
        let uid = self.ends.get_mut(key).map_or(NOBODY_KNOWN, |end| end.uid);
        let new = match self.ends.open(peeled, self.poll.registry(), (uid, false), None) {
            Ok(new) => new,
            Err(error) => {
                self.sockets.close(now, &mut self.engine, peeled, true);
                return Err(error.raw_os_error().unwrap_or(libc::ENOBUFS));
            }
        };
        let mut unread = Vec::new();
        while let Ok(received) = pair::receive(program, &mut self.room) {
            self.closer.close(uid, received.descriptors);
            if received.length == 0 {
                break;
            }
            unread.push(self.room[..received.length].to_vec());
        }
        for message in unread {
            let of_peeled = DataHeader::read(&message).filter(|header| header.association == id);
            let moved = match of_peeled
                .and_then(|header| Some((header, message.get(DATA_HEADER + PEER_LENGTH..)?)))
            {
                Some((header, bytes)) => {
                    self.ends.socket(peeled).map(|to| pair::send(to, &header, bytes, None))
                }
                None => self.ends.socket(key).map(|to| pair::send_parts(to, &[IoSlice::new(&message)], None)),
            };
            if !matches!(moved, Some(Ok(()))) {
                tracing::warn!(?moved, "a message was lost while its association was peeled off");
            }
        }
        let pending = self
            .ends
            .get_mut(key)
            .and_then(|end| end.pending.take_if(|delivery| delivery.header.association == id));
        if let Some(end) = self.ends.get_mut(peeled) {
            // The new end counts as having received data. Therefore the association ends by ABORT if the program closes the new
            // socket with unread messages.
            (end.pending, end.has_data) = (pending, true);
        }
        Ok(Reply { descriptor: Some(new), ..Reply::default() })
    }

    /// Answers a request about a socket.
    fn ask(
        &mut self,
        now: Time,
        request: &Request<'_>,
        caller: Caller,
        key: SocketKey,
    ) -> Result<Reply, sockets::Errno> {
        let (sockets, engine) = (&mut self.sockets, &mut self.engine);
        let (option, payload) = ((request.first, request.second), request.payload);
        match request.operation {
            Operation::Bind => sockets.bind(key, payload, caller)?,
            Operation::BindAdd => sockets.bind_add(key, payload, caller)?,
            Operation::BindRemove => sockets.bind_remove(key, payload)?,
            Operation::Listen => sockets.listen(key, request.first)?,
            Operation::SetOption if is_about_the_buffer(request) => {}
            Operation::SetOption => sockets.set_option(now, engine, key, option, payload)?,
            Operation::GetOption => return sockets.option(engine, key, option, payload).map(with_payload),
            Operation::LocalName => {
                return sockets.local_name(key).map(|name| with_payload(name.as_bytes()));
            }
            Operation::PeerName => return sockets.peer_name(key).map(|name| with_payload(name.as_bytes())),
            Operation::Connect => {
                let value = sockets.connect(now, engine, key, payload, &mut self.network)?;
                return Ok(Reply { error: libc::EINPROGRESS, value, ..Reply::default() });
            }
            Operation::AwaitPeer => {
                let awaited = sockets.awaited(engine, key, payload)?;
                let error = if awaited.is_some() { libc::EINPROGRESS } else { 0 };
                return Ok(Reply { error, value: awaited.unwrap_or(0), ..Reply::default() });
            }
            Operation::Socket | Operation::List | Operation::Lease | Operation::PeelOff => {
                return Err(libc::EINVAL);
            }
        }
        Ok(Reply::default())
    }
}

/// Sends the reply to the request of a connection.
fn send_reply(connection: &Connection, reply: &Reply) {
    let answer = Answer { error: reply.error, value: reply.value, payload: &reply.payload };
    let header = answer.header();
    let parts = [IoSlice::new(&header), IoSlice::new(&reply.payload)];
    let descriptor = reply.descriptor.as_ref().map(AsFd::as_fd);
    // An error means that the program does not wait for the answer.
    let _ = pair::send_parts(connection.socket.as_fd(), &parts, descriptor);
}

/// Reports whether a request is the notice that the program has resized its send buffer. After a change of its size, the buffer may
/// have to be filled again.
fn is_about_the_buffer(request: &Request<'_>) -> bool {
    request.operation == Operation::SetOption
        && (request.first, request.second) == (libc::SOL_SOCKET, libc::SO_SNDBUF)
}

/// Returns the user at the other end of a connection, and the user's right to bind privileged ports.
fn caller_of(socket: &OwnedFd) -> Option<Caller> {
    let credentials = nix::sys::socket::getsockopt(socket, PeerCredentials).ok()?;
    let uid = credentials.uid();
    Some(Caller { uid, may_bind_low: may_bind_low(credentials.pid(), uid).unwrap_or(false) })
}

/// Reports whether a process of a user may bind privileged ports. Returns `None` if the process has ended, or if the server cannot
/// read its files in proc(5).
fn may_bind_low(pid: i32, uid: u32) -> Option<bool> {
    // For a process outside this PID namespace, the kernel reports the ID 0, and the open fails. The open directory refers to the
    // same process even if another process gets the ID later.
    let process = std::fs::File::open(format!("/proc/{pid}")).ok()?;
    // The kernel protects a process that has gained capabilities from its executable file. The process's files in proc(5) then
    // belong to root, except the directory itself (PR_SET_DUMPABLE). Such a process gets no rights here.
    let is_users =
        || Some(rustix::fs::statat(&process, "status", rustix::fs::AtFlags::empty()).ok()?.st_uid == uid);
    let was_users = is_users()?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let status = rustix::fs::openat(&process, "status", flags, rustix::fs::Mode::empty()).ok()?;
    let status = std::io::read_to_string(std::fs::File::from(status)).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let effective = field("CapEff:").and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    // After the connect, the process may have executed another program that has other rights, such as su.
    let is_of_user = field("Uid:")?.split_whitespace().all(|id| id.parse() == Ok(uid));
    let is_of_user = is_of_user && was_users && is_users()?;
    // Capabilities in another user namespace have no effect in this network namespace.
    let own = std::fs::read_link("/proc/self/ns/user").ok()?;
    let theirs = rustix::fs::readlinkat(&process, "ns/user", Vec::new()).ok()?;
    let is_same = own.as_os_str().as_encoded_bytes() == theirs.as_bytes();
    Some(is_same && is_of_user && effective.is_some_and(|bits| bits & CAP_NET_BIND_SERVICE != 0))
}

/// Reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server listens on the name.
    #[error("no socket server has the name @{0} in this network namespace")]
    NoServer(String),
    /// The server does not answer within 5 s, has closed the connection, or runs as another user.
    #[error("the socket server does not answer: it belongs to another user, or has ended")]
    NoAnswer,
    /// The kernel's error.
    #[error("the socket server: {0}")]
    Kernel(#[from] Errno),
}

/// A connection to a server, for programs that need a lease or the list of sockets.
pub struct Client {
    socket: OwnedFd,
}

impl Client {
    /// Connects to the server with this name.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn connect(name: &str) -> Result<Client, AskError> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        connect(&socket, &address).map_err(|error| match error {
            Errno::CONNREFUSED | Errno::NOENT => AskError::NoServer(name.to_owned()),
            other => other.into(),
        })?;
        // The server's user is checked, because any user can take an unused name.
        let credentials = nix::sys::socket::getsockopt(&socket, PeerCredentials);
        let uid = credentials.map_err(|error| Errno::from_raw_os_error(error as i32))?.uid();
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(AskError::NoAnswer);
        }
        Ok(Client { socket })
    }

    /// Keeps the server running until the returned client is dropped. Also returns the server's carriers.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn lease(self) -> Result<(Client, Carriage), AskError> {
        let (_, payload) = self.ask(Operation::Lease, 0)?;
        let carriage = serde_json::from_slice(&payload).map_err(|_| AskError::NoAnswer)?;
        Ok((self, carriage))
    }

    /// Returns all sockets and associations of the server with this name.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn list(name: &str) -> Result<Vec<list::Row>, AskError> {
        let mut rows = Vec::new();
        let mut skip = 0;
        loop {
            let (next, payload) = Client::connect(name)?.ask(Operation::List, skip)?;
            let text = String::from_utf8_lossy(&payload);
            rows.extend(text.lines().filter_map(|line| serde_json::from_str::<list::Row>(line).ok()));
            if next <= skip {
                return Ok(rows);
            }
            skip = next;
        }
    }

    fn ask(&self, operation: Operation, first: i32) -> Result<(i32, Vec<u8>), AskError> {
        let request = Request { operation, first, second: 0, payload: &[] };
        pair::send_parts(self.socket.as_fd(), &[IoSlice::new(&request.header())], None)?;
        let mut room = vec![0; 16 + list::PAGE_MAX];
        let mut waiting = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        if rustix::event::poll(&mut waiting, Some(&limit))? == 0 {
            return Err(AskError::NoAnswer);
        }
        let received = pair::receive(&self.socket, &mut room)?;
        let answer = Answer::read(&room[..received.length]).ok_or(AskError::NoAnswer)?;
        Ok((answer.value, answer.payload.to_vec()))
    }
}

//! The system calls, done for a program.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use libc::c_int;
use rustix::event::epoll::EventFlags;
use sockclient::behalf::{self, CONTROL_MAX, Message, Taken};
use sockclient::table::{self, Facts};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{Operation, PART_MAX, SOCKADDR_MAX, SockAddr};

use crate::filter;
use crate::listener::Notice;
use crate::memory::{Memory, Outcome, Span, long, total};
use crate::programs::{Programs, is_other_user};

/// Sockets whose facts are remembered.
const REMEMBERED: usize = 65_536;
/// Longest name of a socket (`struct sockaddr_storage`).
const NAME_MAX: usize = 128;
/// Longest value of an option, in bytes.
const OPTION_MAX: usize = 16 << 10;
/// Length of `struct msghdr`, and of `struct mmsghdr`.
const MESSAGE_HEADER: usize = 56;
const MESSAGE_STRIDE: u64 = 64;
/// Most messages of one call.
const MESSAGES_MAX: u64 = 1024;
/// Ports from here on are for everybody, if no setting says otherwise.
const FIRST_PORT: u16 = 1024;

/// The fate of a call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It ends with a result, or with errno.
    Answer(Outcome),
    /// The kernel does it.
    Pass,
    /// It ends with a new descriptor of this number.
    Give { fd: OwnedFd, number: u32, is_cloexec: bool },
    /// It waits.
    Park(Wait),
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    /// The socket, of which the kernel, too, would hold a reference.
    pub(crate) fd: OwnedFd,
    pub(crate) events: EventFlags,
    /// The time limit of the socket, and the error after it.
    pub(crate) limit: Option<(Duration, c_int)>,
    pub(crate) then: Then,
    /// Errno of the call if a signal ends it; `None`: it begins again if the signal's action wants that (`SA_RESTART`).
    pub(crate) interrupted: Option<c_int>,
}

/// The step that follows the events.
#[derive(Debug)]
pub(crate) enum Then {
    /// The call is tried again.
    Again,
    /// The association with this identifier is up or has failed.
    Connected(c_int, Tell),
    /// A thread tells the association's identifier, or the error.
    Attempt(Receiver<Outcome<c_int>>, Tell),
}

/// How a program hears of the identifier of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tell {
    /// Not: connect(2).
    Nothing,
    /// As the result (`SCTP_SOCKOPT_CONNECTX`).
    Result,
    /// In the option's value (`SCTP_SOCKOPT_CONNECTX3`).
    Value,
}

impl Tell {
    /// Tells the identifier, and returns the call's result.
    fn tell(self, call: &Call, id: c_int) -> Outcome {
        match self {
            Tell::Nothing => Ok(0),
            Tell::Result => Ok(id.into()),
            Tell::Value => {
                call.memory.write(call.argument(3), &id.to_ne_bytes())?;
                call.memory.write(call.argument(4), &4_u32.to_ne_bytes())?;
                Ok(0)
            }
        }
    }
}

/// The state of the supervisor's calls.
#[derive(Default)]
pub(crate) struct Calls {
    programs: Programs,
    facts: HashMap<u64, Facts>,
    has_warned: bool,
}

/// A socket of ours in a call: the supervisor's copy of its descriptor, whose facts go back when it is dropped.
struct Socket<'a> {
    fd: OwnedFd,
    cookie: u64,
    facts: &'a mut HashMap<u64, Facts>,
}

impl Socket<'_> {
    fn number(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Waits, unless the program does not want that.
    fn park(self, error: c_int, call_waits: bool, wait: (EventFlags, Then, Option<c_int>)) -> Verdict {
        let (events, then, interrupted) = wait;
        let is_waiting = matches!(error, libc::EAGAIN | libc::EINPROGRESS);
        if !is_waiting || !call_waits || behalf::is_nonblocking(self.number()) {
            return Verdict::Answer(Err(error));
        }
        let limit = behalf::time_limit(self.number(), events.contains(EventFlags::OUT));
        let limit = limit.map(|limit| (limit, error));
        // The facts go back, and the copy stays.
        match self.fd.try_clone() {
            Ok(fd) => Verdict::Park(Wait { fd, events, limit, then, interrupted }),
            Err(_) => Verdict::Answer(Err(libc::ENOBUFS)),
        }
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        if self.facts.len() >= REMEMBERED {
            self.facts.clear();
        }
        self.facts.insert(self.cookie, table::take(self.fd.as_raw_fd()));
    }
}

/// A call with its program's memory.
#[derive(Clone, Copy)]
struct Call {
    notice: Notice,
    memory: Memory,
}

impl Call {
    fn argument(&self, number: usize) -> u64 {
        self.notice.arguments[number]
    }

    /// Returns an argument of type `int`.
    #[allow(clippy::cast_possible_truncation, reason = "the kernel takes the lower half")]
    fn int(&self, number: usize) -> c_int {
        self.argument(number) as c_int
    }

    /// Returns an argument of type `unsigned int`.
    fn unsigned(&self, number: usize) -> u32 {
        self.int(number).cast_unsigned()
    }

    /// Returns an argument that is the length of something.
    fn length(&self, number: usize) -> usize {
        usize::try_from(self.argument(number)).unwrap_or(usize::MAX)
    }

    /// Returns a buffer and its length.
    fn span(&self, at: usize, length: usize) -> Span {
        Span { at: self.argument(at), length: self.length(length) }
    }
}

impl Calls {
    /// Does a call, or decides that it waits.
    pub(crate) fn handle(&mut self, notice: Notice, is_waiting: impl Fn() -> bool) -> Verdict {
        let call = Call { notice, memory: Memory::of(notice.thread) };
        if notice.call == libc::SYS_socket {
            return self.open(&call, is_waiting).unwrap_or_else(|error| Verdict::Answer(Err(error)));
        }
        let fd = match notice.call {
            libc::SYS_splice if call.unsigned(0) < filter::FIRST_DESCRIPTOR => call.unsigned(2),
            _ => call.unsigned(0),
        };
        let copy = match self.programs.copy(notice.thread, fd) {
            Ok(copy) => copy,
            Err(libc::EPERM) => {
                self.warn_of_rights();
                return Verdict::Answer(Err(libc::EPERM));
            }
            // The kernel gives the error.
            Err(_) => return Verdict::Pass,
        };
        let Some(cookie) = behalf::adopt(copy.as_raw_fd()) else { return Verdict::Pass };
        if !is_waiting() {
            return Verdict::Pass;
        }
        if let Some(facts) = self.facts.get(&cookie) {
            table::put(copy.as_raw_fd(), facts);
        }
        let socket = Socket { fd: copy, cookie, facts: &mut self.facts };
        dispatch(&call, socket, &mut self.programs)
    }

    /// `socket(2)`.
    fn open(&mut self, call: &Call, is_waiting: impl Fn() -> bool) -> Outcome<Verdict> {
        // The kernel's answer on a host without SCTP, where the supervisor could not do the next calls.
        if self.programs.copy(call.notice.thread, 0).err() == Some(libc::EPERM) {
            self.warn_of_rights();
            return Err(libc::EPROTONOSUPPORT);
        }
        let number = self.programs.free_number(call.notice.thread, 0)?;
        if !is_waiting() {
            return Ok(Verdict::Pass);
        }
        let kind = call.int(1);
        let fd = behalf::open(call.int(0), kind)?;
        Ok(Verdict::Give { fd, number, is_cloexec: kind & libc::SOCK_CLOEXEC != 0 })
    }

    fn warn_of_rights(&mut self) {
        if !std::mem::replace(&mut self.has_warned, true) {
            eprintln!(
                "sctpify: a program has given up the right to be looked at (PR_SET_DUMPABLE, or another user), and gets no SCTP sockets: run \
                 sctpify as root"
            );
        }
    }

    /// Goes on with a call that has waited.
    pub(crate) fn resume(&mut self, notice: Notice, wait: Wait) -> Verdict {
        let call = Call { notice, memory: Memory::of(notice.thread) };
        let connected = match wait.then {
            Then::Again => None,
            Then::Connected(id, tell) => Some((id, tell)),
            Then::Attempt(outcome, tell) => {
                let id = outcome.recv().unwrap_or(Err(libc::ENETDOWN));
                return Verdict::Answer(id.and_then(|id| tell.tell(&call, id)));
            }
        };
        let number = wait.fd.as_raw_fd();
        let Some(cookie) = behalf::adopt(number) else { return Verdict::Answer(Err(libc::EBADF)) };
        if let Some(facts) = self.facts.get(&cookie) {
            table::put(number, facts);
        }
        let socket = Socket { fd: wait.fd, cookie, facts: &mut self.facts };
        match connected {
            None => dispatch(&call, socket, &mut self.programs),
            Some((id, tell)) => {
                Verdict::Answer(behalf::finish_connect(number).and_then(|()| tell.tell(&call, id)))
            }
        }
    }
}

fn dispatch(call: &Call, socket: Socket<'_>, programs: &mut Programs) -> Verdict {
    let fd = socket.number();
    let outcome = match call.notice.call {
        libc::SYS_read => return receive(call, socket, vec![call.span(1, 2)], Ancillary::none(), 0),
        libc::SYS_readv => {
            return match call.memory.buffers(call.argument(1), call.argument(2), libc::EINVAL) {
                Ok(buffers) => receive(call, socket, buffers, Ancillary::none(), 0),
                Err(error) => Verdict::Answer(Err(error)),
            };
        }
        libc::SYS_recvfrom => {
            let ancillary =
                Ancillary { name: call.argument(4), name_length: call.argument(5), ..Ancillary::none() };
            return receive(call, socket, vec![call.span(1, 2)], ancillary, call.int(3));
        }
        libc::SYS_recvmsg => return receive_message(call, socket),
        libc::SYS_recvmmsg => return receive_messages(call, socket),
        libc::SYS_write => return send(call, socket, programs, 0, |_| plain(call.span(1, 2))),
        libc::SYS_writev => {
            return send(call, socket, programs, 0, |memory| {
                let buffers = memory.buffers(call.argument(1), call.argument(2), libc::EINVAL)?;
                Ok(Outgoing { buffers, ..Outgoing::default() })
            });
        }
        libc::SYS_sendto => {
            return send(call, socket, programs, call.int(3), |memory| {
                let name = name(memory, call.argument(4), call.length(5))?;
                Ok(Outgoing { name, ..plain(call.span(1, 2))? })
            });
        }
        libc::SYS_sendmsg => {
            return send(call, socket, programs, call.int(2), |memory| outgoing(memory, call.argument(1)));
        }
        libc::SYS_sendmmsg => return send_messages(call, socket, programs),
        libc::SYS_accept => return accept(call, socket, programs, 0),
        libc::SYS_accept4 => return accept(call, socket, programs, call.int(3)),
        libc::SYS_connect => return connect(call, socket),
        libc::SYS_setsockopt => return set_option(call, socket),
        libc::SYS_getsockopt => return option_of(call, socket, programs),
        libc::SYS_dup | libc::SYS_fcntl => return duplicate(call, socket, programs),
        libc::SYS_bind => address(call, 1, 2).and_then(|address| {
            may_bind(call, &address)?;
            behalf::bind(fd, &address)
        }),
        libc::SYS_listen => behalf::listen(fd, call.int(1)),
        libc::SYS_shutdown => behalf::shutdown(fd, call.int(1)),
        libc::SYS_getsockname => tell_name(call, behalf::name(fd, Operation::LocalName)),
        libc::SYS_getpeername => tell_name(call, behalf::name(fd, Operation::PeerName)),
        libc::SYS_ioctl => behalf::unread(fd).and_then(|length| {
            call.memory.write(call.argument(2), &length.to_ne_bytes())?;
            Ok(0)
        }),
        // Bytes that go around the headers.
        libc::SYS_sendfile | libc::SYS_splice => Err(libc::EINVAL),
        // dup2(2) and dup3(2).
        _ => return replace(call, socket),
    };
    Verdict::Answer(outcome.map(i64::from))
}

/// Reads an address that a program passes.
fn address(call: &Call, at: usize, length: usize) -> Outcome<Vec<u8>> {
    let length = usize::try_from(call.int(length)).map_err(|_| libc::EINVAL)?;
    name(call.memory, call.argument(at), length)
        .and_then(|name| if name.is_empty() { Err(libc::EINVAL) } else { Ok(name) })
}

/// Reads a socket's name, which may be missing.
fn name(memory: Memory, at: u64, length: usize) -> Outcome<Vec<u8>> {
    match (at, length) {
        (0, _) | (_, 0) => Ok(Vec::new()),
        (_, length) if length > NAME_MAX => Err(libc::EINVAL),
        _ => memory.read(at, length),
    }
}

/// Refuses a privileged port to a program that is not of the supervisor's user: the server knows the supervisor only.
fn may_bind(call: &Call, addresses: &[u8]) -> Outcome<()> {
    let is_low = sockproto::read_addresses(addresses)
        .flatten()
        .any(|address| (1..FIRST_PORT).contains(&address.port()));
    if is_low && is_other_user(call.notice.thread) { Err(libc::EACCES) } else { Ok(()) }
}

/// Writes the name of a socket as getsockname(2) does.
fn tell_name(call: &Call, name: Outcome<([u8; SOCKADDR_MAX], usize)>) -> Outcome<c_int> {
    let (name, length) = name?;
    write_name(call.memory, call.argument(1), call.argument(2), &name[..length])?;
    Ok(0)
}

/// Writes a name, as much of it as there is room for, and its length. Without room for it nothing is written.
fn write_name(memory: Memory, at: u64, length: u64, name: &[u8]) -> Outcome<()> {
    if at == 0 || length == 0 {
        return Ok(());
    }
    let room = usize::try_from(memory.read_u32(length)?.cast_signed()).map_err(|_| libc::EINVAL)?;
    memory.write(at, &name[..name.len().min(room)])?;
    let whole = u32::try_from(name.len()).unwrap_or(0);
    memory.write(length, &whole.to_ne_bytes())
}

/// Where a received message's name and control data go.
#[derive(Clone, Copy)]
struct Ancillary {
    name: u64,
    /// Address of the name's length; 0: there is none.
    name_length: u64,
    control: u64,
    control_length: usize,
}

impl Ancillary {
    fn none() -> Ancillary {
        Ancillary { name: 0, name_length: 0, control: 0, control_length: 0 }
    }
}

/// Takes one message into a program's buffers.
fn take(call: &Call, fd: c_int, buffers: &[Span], ancillary: Ancillary, flags: c_int) -> Outcome<Taken> {
    // A message of a pair is no longer; a buffer may be.
    let mut room = vec![0; total(buffers).min(PART_MAX)];
    let mut control = vec![0; ancillary.control_length.min(CONTROL_MAX)];
    let mut name = [0; SOCKADDR_MAX];
    let message = Message { bytes: &mut room, control: &mut control, name: &mut name };
    let taken = behalf::receive(fd, message, flags)?;
    call.memory.scatter(buffers, &room[..taken.length])?;
    call.memory.write(ancillary.control, &control[..taken.control_length])?;
    write_name(call.memory, ancillary.name, ancillary.name_length, &name[..taken.name_length])?;
    Ok(taken)
}

/// Ends a call that receives, or waits for a message.
fn received(socket: Socket<'_>, outcome: Outcome<i64>, flags: c_int) -> Verdict {
    match outcome {
        Ok(length) => Verdict::Answer(Ok(length)),
        Err(error) => {
            let call_waits = flags & libc::MSG_DONTWAIT == 0;
            socket.park(error, call_waits, (EventFlags::IN, Then::Again, None))
        }
    }
}

fn receive(
    call: &Call,
    socket: Socket<'_>,
    buffers: Vec<Span>,
    ancillary: Ancillary,
    flags: c_int,
) -> Verdict {
    let outcome = take(call, socket.number(), &buffers, ancillary, flags).map(|taken| count(taken.length));
    received(socket, outcome, flags)
}

fn receive_message(call: &Call, socket: Socket<'_>) -> Verdict {
    let flags = call.int(2);
    let outcome = take_message(call, socket.number(), call.argument(1), flags);
    received(socket, outcome, flags)
}

/// Receives into a `struct msghdr`.
fn take_message(call: &Call, fd: c_int, at: u64, flags: c_int) -> Outcome<i64> {
    let header = call.memory.read_array::<MESSAGE_HEADER>(at)?;
    let buffers = call.memory.buffers(long(&header, 16), long(&header, 24), libc::EMSGSIZE)?;
    let (name, control) = (long(&header, 0), long(&header, 32));
    let ancillary = Ancillary {
        name,
        name_length: if name == 0 { 0 } else { at + 8 },
        control,
        control_length: if control == 0 { 0 } else { usize::try_from(long(&header, 40)).unwrap_or(0) },
    };
    let taken = take(call, fd, &buffers, ancillary, flags)?;
    let mut tail = [0; 16];
    tail[..8].copy_from_slice(&(taken.control_length as u64).to_ne_bytes());
    tail[8..12].copy_from_slice(&taken.flags.to_ne_bytes());
    call.memory.write(at + 40, &tail[..12])?;
    Ok(count(taken.length))
}

fn receive_messages(call: &Call, socket: Socket<'_>) -> Verdict {
    let flags = call.int(3);
    let outcome = several(call, |at, is_first| {
        let waits = is_first || flags & libc::MSG_WAITFORONE == 0;
        let flags = if waits { flags } else { flags | libc::MSG_DONTWAIT };
        take_message(call, socket.number(), at, flags & !libc::MSG_WAITFORONE)
    });
    received(socket, outcome, flags)
}

/// Does each message of a list of `struct mmsghdr`, and returns how many were done. An error ends the list.
fn several(call: &Call, mut one: impl FnMut(u64, bool) -> Outcome<i64>) -> Outcome<i64> {
    let mut done = 0;
    for number in 0..u64::from(call.unsigned(2)).min(MESSAGES_MAX) {
        let at = call.argument(1) + number * MESSAGE_STRIDE;
        let length = match one(at, number == 0) {
            Ok(length) => length,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        let length = u32::try_from(length).unwrap_or(0);
        call.memory.write(at + MESSAGE_HEADER as u64, &length.to_ne_bytes())?;
        done += 1;
    }
    Ok(done)
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// A message that a program sends.
#[derive(Default)]
struct Outgoing {
    buffers: Vec<Span>,
    control: Vec<u8>,
    name: Vec<u8>,
}

/// A message without ancillary data.
fn plain(buffer: Span) -> Outcome<Outgoing> {
    Ok(Outgoing { buffers: vec![buffer], ..Outgoing::default() })
}

/// Reads a `struct msghdr` of a message to send.
fn outgoing(memory: Memory, at: u64) -> Outcome<Outgoing> {
    let header = memory.read_array::<MESSAGE_HEADER>(at)?;
    let control_length = usize::try_from(long(&header, 40)).unwrap_or(usize::MAX);
    let control = match long(&header, 32) {
        0 => Vec::new(),
        _ if control_length > CONTROL_MAX => return Err(libc::ENOBUFS),
        at => memory.read(at, control_length)?,
    };
    let name_length = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    Ok(Outgoing {
        buffers: memory.buffers(long(&header, 16), long(&header, 24), libc::EMSGSIZE)?,
        control,
        name: name(memory, long(&header, 0), usize::try_from(name_length).unwrap_or(usize::MAX))?,
    })
}

/// Sends one message.
fn give(call: &Call, fd: c_int, outgoing: &Outgoing, flags: c_int) -> Outcome<i64> {
    if total(&outgoing.buffers) > sockproto::MESSAGE_MAX {
        return Err(libc::EMSGSIZE);
    }
    let bytes = call.memory.gather(&outgoing.buffers)?;
    behalf::send(fd, &bytes, &outgoing.control, &outgoing.name, flags).map(count)
}

fn send(
    call: &Call,
    socket: Socket<'_>,
    programs: &mut Programs,
    flags: c_int,
    read: impl Fn(Memory) -> Outcome<Outgoing>,
) -> Verdict {
    let outcome = read(call.memory).and_then(|outgoing| give(call, socket.number(), &outgoing, flags));
    sent(call, socket, programs, outcome, flags)
}

/// Ends a call that sends, or waits for room.
fn sent(
    call: &Call,
    socket: Socket<'_>,
    programs: &mut Programs,
    outcome: Outcome<i64>,
    flags: c_int,
) -> Verdict {
    match outcome {
        Ok(length) => Verdict::Answer(Ok(length)),
        Err(error) => {
            if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
                programs.break_pipe(call.notice.thread);
            }
            let call_waits = flags & libc::MSG_DONTWAIT == 0;
            socket.park(error, call_waits, (EventFlags::OUT, Then::Again, None))
        }
    }
}

fn send_messages(call: &Call, socket: Socket<'_>, programs: &mut Programs) -> Verdict {
    let flags = call.int(3);
    let outcome = several(call, |at, _| {
        let outgoing = outgoing(call.memory, at)?;
        give(call, socket.number(), &outgoing, flags)
    });
    sent(call, socket, programs, outcome, flags)
}

fn accept(call: &Call, socket: Socket<'_>, programs: &mut Programs, flags: c_int) -> Verdict {
    // An association that is taken out of the queue must find a descriptor.
    let number = match programs.free_number(call.notice.thread, 0) {
        Ok(number) => number,
        Err(error) => return Verdict::Answer(Err(error)),
    };
    let (fd, facts, name) = match behalf::accept(socket.number(), flags & libc::SOCK_NONBLOCK) {
        Ok(accepted) => accepted,
        Err(error) => return socket.park(error, true, (EventFlags::IN, Then::Again, None)),
    };
    let name = name.as_ref().map_or(&[][..], SockAddr::as_bytes);
    if let Err(error) = write_name(call.memory, call.argument(1), call.argument(2), name) {
        return Verdict::Answer(Err(error));
    }
    if let Some(cookie) = behalf::cookie(fd.as_raw_fd()) {
        socket.facts.insert(cookie, facts);
    }
    Verdict::Give { fd, number, is_cloexec: flags & libc::SOCK_CLOEXEC != 0 }
}

fn connect(call: &Call, socket: Socket<'_>) -> Verdict {
    match address(call, 1, 2) {
        Ok(address) => connect_to(call, socket, &address, Tell::Nothing),
        Err(error) => Verdict::Answer(Err(error)),
    }
}

/// Connects to a packed list of addresses.
fn connect_to(call: &Call, socket: Socket<'_>, addresses: &[u8], tell: Tell) -> Verdict {
    let fd = socket.number();
    if table::is_one_to_many(fd) && !behalf::is_nonblocking(fd) {
        return attempt(&socket, addresses.to_vec(), tell);
    }
    let mut id = 0;
    match behalf::connect(fd, addresses, &mut id) {
        Ok(id) => Verdict::Answer(tell.tell(call, id)),
        Err(libc::EINPROGRESS) if id != 0 => {
            // libsctp wants the identifier before the association is up.
            if tell == Tell::Value
                && let Err(error) = tell.tell(call, id)
            {
                return Verdict::Answer(Err(error));
            }
            let wait = (EventFlags::OUT, Then::Connected(id, tell), Some(libc::EINTR));
            socket.park(libc::EINPROGRESS, true, wait)
        }
        Err(error) => Verdict::Answer(Err(error)),
    }
}

/// Waits in a thread of its own until the server says how an attempt of a one-to-many socket has ended.
fn attempt(socket: &Socket<'_>, addresses: Vec<u8>, tell: Tell) -> Verdict {
    let limit = behalf::time_limit(socket.number(), true).map(|limit| (limit, libc::EINPROGRESS));
    let (send, outcome) = channel();
    let prepared = socket.fd.try_clone().and_then(|copy| Ok((copy, std::io::pipe()?)));
    let Ok((copy, (reader, writer))) = prepared else { return Verdict::Answer(Err(libc::ENOBUFS)) };
    let attempt = move || {
        // The supervisor may not wait any more.
        let _ = send.send(behalf::connect_and_wait(copy.as_raw_fd(), &addresses));
        drop(writer);
    };
    match std::thread::Builder::new().name("connect".into()).spawn(attempt) {
        Ok(_) => Verdict::Park(Wait {
            fd: reader.into(),
            events: EventFlags::IN,
            limit,
            then: Then::Attempt(outcome, tell),
            interrupted: Some(libc::EINTR),
        }),
        Err(_) => Verdict::Answer(Err(libc::EAGAIN)),
    }
}

fn set_option(call: &Call, socket: Socket<'_>) -> Verdict {
    let (level, name) = (call.int(1), call.int(2));
    let value = match option_value(call.memory, call.argument(3), call.int(4)) {
        Ok(value) => value,
        Err(error) => return Verdict::Answer(Err(error)),
    };
    let fd = socket.number();
    match (level, name) {
        (SOL_SCTP, option::CONNECTX) => return connect_to(call, socket, &value, Tell::Result),
        (SOL_SCTP, option::CONNECTX_OLD) => return connect_to(call, socket, &value, Tell::Nothing),
        (SOL_SCTP, option::BINDX_ADD) => {
            if let Err(error) = may_bind(call, &value) {
                return Verdict::Answer(Err(error));
            }
        }
        (libc::SOL_SOCKET, _) if !behalf::is_of_server(level, name) && name != libc::SO_SNDBUF => {
            return Verdict::Pass;
        }
        _ => {}
    }
    Verdict::Answer(behalf::set_option(fd, level, name, &value).map(i64::from))
}

/// Reads the value of an option.
fn option_value(memory: Memory, at: u64, length: c_int) -> Outcome<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= OPTION_MAX).ok_or(libc::EINVAL)?;
    memory.read(at, length)
}

/// `getsockopt(2)`, by which libsctp also connects and peels off.
fn option_of(call: &Call, socket: Socket<'_>, programs: &mut Programs) -> Verdict {
    let (level, name) = (call.int(1), call.int(2));
    if level == libc::SOL_SOCKET && !behalf::is_of_server(level, name) {
        return Verdict::Pass;
    }
    let (at, length_at) = (call.argument(3), call.argument(4));
    let read = call.memory.read_u32(length_at).and_then(|length| {
        let room = usize::try_from(length.cast_signed()).map_err(|_| libc::EINVAL)?;
        call.memory.read(at, room.min(OPTION_MAX))
    });
    let mut value = match read {
        Ok(value) => value,
        Err(error) => return Verdict::Answer(Err(error)),
    };
    match (level, name) {
        (SOL_SCTP, option::CONNECTX3) => return connect_list(call, socket, &value),
        (SOL_SCTP, option::PEELOFF | option::PEELOFF_FLAGS) => {
            return peel_off(call, socket, programs, &value)
                .unwrap_or_else(|error| Verdict::Answer(Err(error)));
        }
        _ => {}
    }
    let told = behalf::option(socket.number(), level, name, &mut value).and_then(|length| {
        call.memory.write(at, &value[..length])?;
        let length = u32::try_from(length).unwrap_or(0);
        call.memory.write(length_at, &length.to_ne_bytes())
    });
    Verdict::Answer(told.map(|()| 0))
}

/// `sctp_connectx` of libsctp: `struct sctp_getaddrs_old` has a list's length and address, and takes the identifier.
fn connect_list(call: &Call, socket: Socket<'_>, list: &[u8]) -> Verdict {
    if list.len() < 16 {
        return Verdict::Answer(Err(libc::EINVAL));
    }
    let length = c_int::from_ne_bytes([list[4], list[5], list[6], list[7]]);
    let addresses = match option_value(call.memory, long(list, 8), length) {
        Ok(addresses) => addresses,
        Err(error) => return Verdict::Answer(Err(error)),
    };
    connect_to(call, socket, &addresses, Tell::Value)
}

/// `sctp_peeloff`: the structure takes the new socket's descriptor, and the call returns it.
fn peel_off(call: &Call, socket: Socket<'_>, programs: &mut Programs, value: &[u8]) -> Outcome<Verdict> {
    let number = programs.free_number(call.notice.thread, 0)?;
    let int = |at: usize| {
        value.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).map(|bytes| c_int::from_ne_bytes(*bytes))
    };
    let id = int(0).ok_or(libc::EINVAL)?;
    int(4).ok_or(libc::EINVAL)?;
    let flags = if call.int(2) == option::PEELOFF_FLAGS { int(8).ok_or(libc::EINVAL)? } else { 0 };
    let (fd, facts) = behalf::peel_off(socket.number(), id, flags & libc::SOCK_NONBLOCK)?;
    if let Some(cookie) = behalf::cookie(fd.as_raw_fd()) {
        socket.facts.insert(cookie, facts);
    }
    call.memory.write(call.argument(3) + 4, &number.to_ne_bytes())?;
    Ok(Verdict::Give { fd, number, is_cloexec: flags & libc::SOCK_CLOEXEC != 0 })
}

/// `dup(2)`, and `fcntl(2)` with `F_DUPFD`: the copy has a high number as well.
fn duplicate(call: &Call, socket: Socket<'_>, programs: &mut Programs) -> Verdict {
    let is_fcntl = call.notice.call == libc::SYS_fcntl;
    let least = if is_fcntl { call.unsigned(2) } else { 0 };
    let copied = programs.free_number(call.notice.thread, least).and_then(|number| {
        let fd = socket.fd.try_clone().map_err(|_| libc::EMFILE)?;
        Ok(Verdict::Give { fd, number, is_cloexec: is_fcntl && call.int(1) == libc::F_DUPFD_CLOEXEC })
    });
    copied.unwrap_or_else(|error| Verdict::Answer(Err(error)))
}

/// `dup2(2)` and `dup3(2)`: onto a high number only. The supervisor would not hear of calls on a lower one.
fn replace(call: &Call, socket: Socket<'_>) -> Verdict {
    let number = call.unsigned(1);
    let is_same = number == call.unsigned(0);
    match socket.fd.try_clone() {
        _ if is_same || number < filter::FIRST_DESCRIPTOR => {
            let outcome = if is_same && call.notice.call != libc::SYS_dup3 {
                Ok(i64::from(number))
            } else {
                Err(libc::EINVAL)
            };
            Verdict::Answer(outcome)
        }
        Ok(fd) => {
            let is_cloexec = call.notice.call == libc::SYS_dup3 && call.int(2) & libc::O_CLOEXEC != 0;
            Verdict::Give { fd, number, is_cloexec }
        }
        Err(_) => Verdict::Answer(Err(libc::EMFILE)),
    }
}

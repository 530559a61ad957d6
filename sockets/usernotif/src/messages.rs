//! The system calls that receive and send messages.

use libc::c_int;
use sockclient::behalf::{self, CONTROL_MAX, Message, Taken};
use sockproto::{PART_MAX, SOCKADDR_MAX};

use crate::call::{Call, Verdict};
use crate::memory::{Memory, Outcome, Span, long, total};
use crate::programs::break_pipe;
use crate::setup::{name, write_name};
use crate::sockets::{ParkedAs, READABLE, Socket, WRITABLE};

/// Length of `struct msghdr`, in bytes.
const MESSAGE_HEADER: usize = 56;
/// Length of `struct mmsghdr`, in bytes.
const MESSAGE_STRIDE: u64 = 64;
/// Limit on the messages of one call.
const MESSAGES_MAX: u64 = 1024;

/// Executes a call that receives. `done` of its messages have already been received.
pub(crate) fn receive(call: &Call, socket: Socket<'_>, mut done: u64) -> Verdict {
    let fd = socket.number();
    let flags = match call.notice.call {
        libc::SYS_recvfrom | libc::SYS_recvmmsg => call.int(3),
        libc::SYS_recvmsg => call.int(2),
        _ => 0,
    };
    let outcome = match call.notice.call {
        libc::SYS_recvmsg => take_message(call, fd, call.argument(1), flags),
        libc::SYS_recvmmsg => several(call, &mut done, |at, number| {
            // With MSG_WAITFORONE, the call waits for its first message only.
            let waits = number == 0 || flags & libc::MSG_WAITFORONE == 0;
            let own = flags & !libc::MSG_WAITFORONE;
            take_message(call, fd, at, if waits { own } else { own | libc::MSG_DONTWAIT })
        }),
        libc::SYS_recvfrom => {
            let ancillary =
                Ancillary { name: call.argument(4), name_length: call.argument(5), ..Ancillary::default() };
            take(call, fd, &[call.span(1, 2)], ancillary, flags).map(|taken| count(taken.length))
        }
        _ => take_bytes(call, fd),
    };
    let waits = flags & libc::MSG_DONTWAIT == 0 && (done == 0 || flags & libc::MSG_WAITFORONE == 0);
    match outcome {
        Ok(length) => Verdict::Answer(Ok(length)),
        Err(error) => socket.park(call, error, waits, ParkedAs::again(READABLE, done)),
    }
}

/// Executes `read(2)`, `readv(2)` and `preadv2(2)`.
fn take_bytes(call: &Call, fd: c_int) -> Outcome {
    let buffers = buffers(call)?;
    if total(&buffers) == 0 {
        return Ok(0);
    }
    take(call, fd, &buffers, Ancillary::default(), 0).map(|taken| count(taken.length))
}

/// Returns the buffers of `read(2)`, `write(2)` and their variants, which pass no name and no control data.
fn buffers(call: &Call) -> Outcome<Vec<Span>> {
    let is_positioned = matches!(call.notice.call, libc::SYS_preadv2 | libc::SYS_pwritev2);
    if is_positioned && call.argument(3).cast_signed() != -1 {
        return Err(libc::ESPIPE);
    }
    match call.notice.call {
        libc::SYS_read | libc::SYS_write => Ok(vec![call.span(1, 2)]),
        _ => call.memory.buffers(call.argument(1), call.argument(2), libc::EINVAL),
    }
}

/// Places in the program's memory for a received message's name (the sender's address) and control data.
#[derive(Clone, Copy, Default)]
struct Ancillary {
    name: u64,
    /// Address of the name's length.
    name_length: u64,
    control: u64,
    control_length: usize,
}

/// Receives one message into a program's buffers.
fn take(call: &Call, fd: c_int, buffers: &[Span], ancillary: Ancillary, flags: c_int) -> Outcome<Taken> {
    // The server returns up to `PART_MAX` bytes, even if the program's buffers are longer.
    let mut room = vec![0; total(buffers).min(PART_MAX)];
    let mut control = vec![0; ancillary.control_length.min(CONTROL_MAX)];
    let mut address = [0; SOCKADDR_MAX];
    let wanted = if ancillary.name == 0 { 0 } else { SOCKADDR_MAX };
    let message = Message { bytes: &mut room, control: &mut control, name: &mut address[..wanted] };
    let taken = behalf::receive(fd, message, flags)?;
    call.memory.scatter(buffers, &room[..taken.length])?;
    call.memory.write(ancillary.control, &control[..taken.control_length])?;
    if wanted > 0 {
        let address = &address[..taken.name_length];
        write_name(&call.memory, ancillary.name, ancillary.name_length, address)?;
    }
    Ok(taken)
}

/// Receives one message into a `struct msghdr`.
fn take_message(call: &Call, fd: c_int, at: u64, flags: c_int) -> Outcome {
    let header = call.memory.read_array::<MESSAGE_HEADER>(at)?;
    let buffers = call.memory.buffers(long(&header, 16), long(&header, 24), libc::EMSGSIZE)?;
    let control = long(&header, 32);
    let ancillary = Ancillary {
        name: long(&header, 0),
        name_length: at + 8,
        control,
        control_length: if control == 0 { 0 } else { usize::try_from(long(&header, 40)).unwrap_or(0) },
    };
    let taken = take(call, fd, &buffers, ancillary, flags)?;
    let mut tail = [0; 12];
    tail[..8].copy_from_slice(&(taken.control_length as u64).to_ne_bytes());
    tail[8..].copy_from_slice(&taken.flags.to_ne_bytes());
    call.memory.write(at + 40, &tail)?;
    Ok(count(taken.length))
}

/// Calls `one` for each `struct mmsghdr` of a call's list, from number `done` on. Returns the number of messages that are done. An error
/// ends the list. The error is returned only if no message is done, or if the next message has to wait (`EAGAIN`).
fn several(call: &Call, done: &mut u64, mut one: impl FnMut(u64, u64) -> Outcome) -> Outcome {
    while *done < u64::from(call.unsigned(2)).min(MESSAGES_MAX) {
        let at = call.argument(1).checked_add(*done * MESSAGE_STRIDE).ok_or(libc::EFAULT)?;
        let length = match one(at, *done) {
            Ok(length) => u32::try_from(length).unwrap_or(0),
            Err(error) if *done == 0 || error == libc::EAGAIN => return Err(error),
            Err(_) => break,
        };
        call.memory.write(at + MESSAGE_HEADER as u64, &length.to_ne_bytes())?;
        *done += 1;
    }
    Ok(i64::try_from(*done).unwrap_or(i64::MAX))
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

/// Executes a call that sends. `done` of its messages have already been sent.
pub(crate) fn send(call: &Call, socket: Socket<'_>, mut done: u64) -> Verdict {
    let fd = socket.number();
    let flags = match call.notice.call {
        libc::SYS_sendto | libc::SYS_sendmmsg => call.int(3),
        libc::SYS_sendmsg => call.int(2),
        _ => 0,
    };
    let mut peer = Vec::new();
    let mut one = |outgoing: Outgoing| {
        let sent = give(call, fd, &outgoing, flags);
        peer = outgoing.name;
        sent
    };
    let outcome = match call.notice.call {
        libc::SYS_sendmmsg => {
            several(call, &mut done, |at, _| give(call, fd, &outgoing(&call.memory, at)?, flags))
        }
        libc::SYS_sendmsg => outgoing(&call.memory, call.argument(1)).and_then(one),
        libc::SYS_sendto => usize::try_from(call.int(5))
            .map_err(|_| libc::EINVAL)
            .and_then(|length| name(&call.memory, call.argument(4), length))
            .and_then(|name| one(Outgoing { buffers: vec![call.span(1, 2)], name, control: Vec::new() })),
        _ => buffers(call).and_then(|buffers| one(Outgoing { buffers, ..Outgoing::default() })),
    };
    let waits = flags & libc::MSG_DONTWAIT == 0;
    match outcome {
        Ok(length) if waits => socket.await_peer(call, &peer, length),
        Ok(length) => Verdict::Answer(Ok(length)),
        Err(error) => {
            if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
                break_pipe(call.notice.thread);
            }
            socket.park(call, error, waits, ParkedAs::again(WRITABLE, done))
        }
    }
}

/// Reads a `struct msghdr` of a message to send.
fn outgoing(memory: &Memory, at: u64) -> Outcome<Outgoing> {
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
fn give(call: &Call, fd: c_int, outgoing: &Outgoing, flags: c_int) -> Outcome {
    if total(&outgoing.buffers) > sockproto::MESSAGE_MAX {
        return Err(libc::EMSGSIZE);
    }
    let bytes = call.memory.gather(&outgoing.buffers)?;
    behalf::send(fd, &bytes, &outgoing.control, &outgoing.name, flags).map(count)
}

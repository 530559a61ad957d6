//! Sending: the header before the program's bytes, in one system call.

use core::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{DATA_HEADER, DataHeader, Kind, MESSAGE_MAX, Operation, flag};

use crate::ask::ask;
use crate::parts::{Parts, part, parts_of};
use crate::recv::must_be_connected;
use crate::setup::{is_nonblocking, wait_until_writable};
use crate::table::{self, bit};
use crate::{Outcome, give, give_int, outcome, real};

/// Sends one message.
fn transmit(fd: c_int, parts: &[iovec], header: &DataHeader, flags: c_int) -> Outcome {
    let length = parts.iter().fold(0_usize, |length, part| length.saturating_add(part.iov_len));
    match length {
        // SCTP has no empty messages.
        0 => return Err(libc::EINVAL),
        1..=MESSAGE_MAX => {}
        _ => return Err(libc::EMSGSIZE),
    }
    if table::has(fd, bit::LISTENING) {
        return Err(libc::EPIPE);
    }
    has_stream(fd, header)?;
    let header = header.to_bytes();
    let mut all = Parts::new(part(&header), parts)?;
    let message = all.message();
    // AF_UNIX refuses MSG_OOB, and has no use for the others.
    let kept = flags & libc::MSG_DONTWAIT;
    loop {
        let is_known = table::has(fd, bit::CONNECTED);
        let now = if is_known { kept } else { kept | libc::MSG_DONTWAIT };
        // SAFETY: the kernel checks the program's buffers.
        let sent = outcome(unsafe { real::sendmsg(fd, &raw const message, now | libc::MSG_NOSIGNAL) });
        match sent {
            Ok(sent) => return Ok(sent - DATA_HEADER as isize),
            // A socket without an association has a full buffer as well.
            Err(libc::EAGAIN) if !is_known => match must_be_connected(fd) {
                Err(libc::ENOTCONN) => return Err(libc::EPIPE),
                Err(error) => return Err(error),
                Ok(_) if kept != 0 || is_nonblocking(fd) => return Err(libc::EAGAIN),
                Ok(true) => {}
                Ok(false) => wait_until_writable(fd)?,
            },
            // The peer's or the server's end.
            Err(libc::ECONNREFUSED | libc::ENOTCONN | libc::ECONNRESET) => return Err(libc::EPIPE),
            other => return other,
        }
    }
}

/// Checks that the stream exists: the server hears of a message too late to refuse it.
fn has_stream(fd: c_int, header: &DataHeader) -> Outcome<()> {
    if header.flags & flag::WITH_INFO == 0 || header.stream == 0 {
        return Ok(());
    }
    if table::streams(fd).is_some_and(|streams| header.stream < streams) {
        return Ok(());
    }
    let mut status = [0; 176];
    match ask(Operation::GetOption, (SOL_SCTP, option::STATUS), &[0; 176], Some(fd), &mut status) {
        Ok(_) => {
            let streams = u16::from_ne_bytes([status[18], status[19]]);
            table::set_streams(fd, streams);
            if header.stream < streams { Ok(()) } else { Err(libc::EINVAL) }
        }
        // Without an association sending fails by itself.
        Err(_) => Ok(()),
    }
}

/// Returns a result as the program sees it; `EPIPE` comes with a signal, unless it is not wanted.
fn give_sent(sent: Outcome, flags: c_int) -> ssize_t {
    if sent == Err(libc::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: raise(3) has no preconditions.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    give(sent)
}

fn send_bytes(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
    let part = iovec { iov_base: buffer.cast_mut(), iov_len: length };
    give_sent(transmit(fd, &[part], &DataHeader::new(Kind::Data), flags), flags)
}

/// `write(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::write(fd, buffer, length) };
    }
    send_bytes(fd, buffer, length, 0)
}

/// `writev(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::writev(fd, parts, count) };
    }
    // SAFETY: the caller's.
    let parts = unsafe { parts_of(parts, usize::try_from(count).unwrap_or(usize::MAX)) };
    give_sent(parts.and_then(|parts| transmit(fd, parts, &DataHeader::new(Kind::Data), 0)), 0)
}

/// `send(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn send(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::send(fd, buffer, length, flags) };
    }
    send_bytes(fd, buffer, length, flags)
}

/// `sendto(2)`. A one-to-one socket has one peer: its address adds nothing.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::sendto(fd, buffer, length, flags, address, size) };
    }
    send_bytes(fd, buffer, length, flags)
}

/// `sendmsg(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::sendmsg(fd, message, flags) };
    }
    if message.is_null() {
        return give(Err(libc::EFAULT));
    }
    // SAFETY: the caller's.
    give_sent(unsafe { send_message(fd, &*message, flags) }, flags)
}

/// # Safety
/// The message's pointers are valid.
unsafe fn send_message(fd: c_int, message: &msghdr, flags: c_int) -> Outcome {
    // SAFETY: the caller's.
    let (parts, header) =
        unsafe { (parts_of(message.msg_iov, message.msg_iovlen)?, crate::cmsg::read(message)?) };
    transmit(fd, parts, &header, flags)
}

/// `sendmmsg(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let mut sent = 0;
    for number in 0..count as usize {
        // SAFETY: the caller's.
        let result = unsafe {
            let message = &mut *messages.add(number);
            send_message(fd, &message.msg_hdr, flags).inspect(|length| {
                message.msg_len = c_uint::try_from(*length).unwrap_or(c_uint::MAX);
            })
        };
        match result {
            Ok(_) => sent += 1,
            Err(error) if sent == 0 => return give_int(Err(error)),
            Err(_) => break,
        }
    }
    sent
}

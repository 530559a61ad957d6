//! Functions that send messages.

use core::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use sockclient::address::is_plausible;
use sockclient::send::{send_bytes, send_message, send_messages, send_parts, send_to};
use sockclient::{Outcome, real, table};

use crate::{give, give_int};

/// Converts an outcome to the C function's result. The error `EPIPE` also raises SIGPIPE, unless `flags` has `MSG_NOSIGNAL`.
fn give_sent(sent: Outcome, flags: c_int) -> ssize_t {
    if sent == Err(libc::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: raise(3) has no preconditions.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    give(sent)
}

/// `write(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::write(fd, buffer, length) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_sent(unsafe { send_bytes(fd, buffer, length, 0) }, 0)
}

/// `writev(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::writev(fd, parts, count) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_sent(unsafe { send_parts(fd, parts, count) }, 0)
}

/// `send(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn send(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::send(fd, buffer, length, flags) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_sent(unsafe { send_bytes(fd, buffer, length, flags) }, flags)
}

/// `sendto(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
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
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::sendto(fd, buffer, length, flags, address, size) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_sent(unsafe { send_to(fd, buffer, length, flags, address, size) }, flags)
}

/// `sendmsg(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::sendmsg(fd, message, flags) };
    }
    if !is_plausible(message) {
        return give(Err(libc::EFAULT));
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_sent(unsafe { send_message(fd, &*message, flags) }, flags)
}

/// `sendmmsg(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { send_messages(fd, messages, count, flags) })
}

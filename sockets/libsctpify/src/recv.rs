//! Functions that receive messages.

use core::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use sockclient::recv::{
    forget_received, receive_bytes, receive_from, receive_message, receive_messages, receive_parts,
};
use sockclient::{address, real, table};

use crate::{give, give_int};

/// `read(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::read(fd, buffer, length) };
    }
    if length == 0 {
        // Unlike recv(2), read(2) of zero bytes does not wait for a message.
        return 0;
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give(unsafe { receive_bytes(fd, buffer, length, 0) })
}

/// `read(2)` of programs that were compiled with `_FORTIFY_SOURCE`. `room` is the size of the buffer in bytes.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    if length > room || !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::__read_chk(fd, buffer, length, room) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give(unsafe { receive_bytes(fd, buffer, length, 0) })
}

/// `readv(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::readv(fd, parts, count) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give(unsafe { receive_parts(fd, parts, count) })
}

/// `recv(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::recv(fd, buffer, length, flags) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give(unsafe { receive_bytes(fd, buffer, length, flags) })
}

/// `recv(2)` of programs that were compiled with `_FORTIFY_SOURCE`. `room` is the size of the buffer in bytes.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if length > room || !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::__recv_chk(fd, buffer, length, room, flags) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give(unsafe { receive_bytes(fd, buffer, length, flags) })
}

/// `recvfrom(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::recvfrom(fd, buffer, length, flags, address, size) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give(unsafe { receive_from(fd, buffer, length, flags, address, size) })
}

/// `recvfrom(2)` of programs that were compiled with `_FORTIFY_SOURCE`. `room` is the size of the buffer in bytes.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    if length > room || !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::__recvfrom_chk(fd, buffer, length, room, flags, address, size) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { recvfrom(fd, buffer, length, flags, address, size) }
}

/// `recvmsg(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        let result = unsafe { real::recvmsg(fd, message, flags) };
        if result >= 0 {
            // SAFETY: the call has succeeded, so the pointer is valid.
            unsafe { forget_received(&*message) };
        }
        return result;
    }
    if !address::is_plausible(message) {
        return give(Err(libc::EFAULT));
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give(unsafe { receive_message(fd, &mut *message, flags) })
}

/// `recvmmsg(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { receive_messages(fd, messages, count, flags) })
}

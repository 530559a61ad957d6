//! Calls that would go around the headers of messages.

use core::ffi::{c_int, c_uint, c_void};

use libc::{loff_t, off_t, size_t, ssize_t};
use sockclient::recv::unread;
use sockclient::{real, table};

use crate::{give, give_int};

/// `ioctl(2)`: `FIONREAD` tells the length of the first message.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    if request != libc::FIONREAD || !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::ioctl(fd, request, argument) };
    }
    give_int(unread(fd).map(|length| {
        // SAFETY: the caller's.
        unsafe { argument.cast::<c_int>().write_unaligned(length) };
        0
    }))
}

/// `sendfile(2)` cannot write headers: programs fall back to reading and writing.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    if table::is_ours(to) {
        return give(Err(libc::EINVAL));
    }
    // SAFETY: the caller's.
    unsafe { real::sendfile(to, from, offset, count) }
}

/// `sendfile64(2)`, as [`sendfile`].
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut loff_t,
    count: size_t,
) -> ssize_t {
    if table::is_ours(to) {
        return give(Err(libc::EINVAL));
    }
    // SAFETY: the caller's.
    unsafe { real::sendfile64(to, from, offset, count) }
}

/// `splice(2)`, as [`sendfile`].
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if table::is_ours(from) || table::is_ours(to) {
        return give(Err(libc::EINVAL));
    }
    // SAFETY: the caller's.
    unsafe { real::splice(from, from_offset, to, to_offset, length, flags) }
}

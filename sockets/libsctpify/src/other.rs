//! Calls that would bypass the header before each message of an sctpify socket: ioctl(2), sendfile(2) and splice(2).

use core::ffi::{c_int, c_uint, c_void};

use libc::{loff_t, off_t, size_t, ssize_t};
use sockclient::recv::unread;
use sockclient::{real, table};

use crate::{give, give_int};

/// `ioctl(2)`. On an sctpify socket, `FIONREAD` returns the number of unread bytes of the first waiting message.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    if request != libc::FIONREAD || !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::ioctl(fd, request, argument) };
    }
    give_int(unread(fd).map(|length| {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        unsafe { argument.cast::<c_int>().write_unaligned(length) };
        0
    }))
}

/// `sendfile(2)` to an sctpify socket fails with `EINVAL`, because the kernel would write no headers before the data. After this
/// error, programs use read(2) and write(2).
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
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
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { real::sendfile(to, from, offset, count) }
}

/// `sendfile64(2)` fails like [`sendfile`].
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
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
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { real::sendfile64(to, from, offset, count) }
}

/// `splice(2)` fails like [`sendfile`], whether the socket is its source or its destination.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
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
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { real::splice(from, from_offset, to, to_offset, length, flags) }
}

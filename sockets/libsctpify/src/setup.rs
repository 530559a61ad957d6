//! Functions that create, name, connect and close sockets, copy descriptors, and get or set options.

use core::ffi::{c_int, c_uint, c_void};

use libc::{FILE, sockaddr, socklen_t};
use sockclient::{errno, real, set_errno, setup, table};
use sockproto::Operation;

use crate::give_int;

/// Flag with which close_range(2) closes no descriptors, but sets close-on-exec on them.
const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// `socket(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if !setup::is_served(domain, kind, protocol) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::socket(domain, kind, protocol) };
    }
    give_int(setup::open(domain, kind))
}

/// `bind(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::bind(fd, address, length) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { setup::bind(fd, address, length) })
}

/// `listen(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::listen(fd, backlog) };
    }
    give_int(setup::listen(fd, backlog))
}

/// `connect(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::connect(fd, address, length) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { setup::connect(fd, address, length) })
}

/// `accept(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { accept4(fd, address, length, 0) }
}

/// `accept4(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::accept4(fd, address, length, flags) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { setup::accept(fd, address, length, flags) })
}

/// `getsockname(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::getsockname(fd, address, length) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { setup::name(fd, Operation::LocalName, address, length) })
}

/// `getpeername(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::getpeername(fd, address, length) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { setup::name(fd, Operation::PeerName, address, length) })
}

/// `setsockopt(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::setsockopt(fd, level, name, value, length) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { setup::setsockopt(fd, level, name, value, length) })
}

/// `getsockopt(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::getsockopt(fd, level, name, value, length) };
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    give_int(unsafe { setup::getsockopt(fd, level, name, value, length) })
}

/// `shutdown(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller fulfils the requirements of the C library's function.
        return unsafe { real::shutdown(fd, how) };
    }
    give_int(setup::shutdown(fd, how))
}

/// `close(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    table::forget(fd);
    // SAFETY: the caller fulfils the requirements of the C library's function.
    let result = unsafe { real::close(fd) };
    // Before the kernel closed the descriptor, another thread may have entered it in the table again.
    table::forget(fd);
    result
}

/// `fork(2)`. Parent and child share the sockets, so they lock each other out while they read one.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fork() -> libc::pid_t {
    table::share();
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { real::fork() }
}

/// `fclose(3)`. The C library closes the stream's descriptor without a call of [`close`]. This function therefore removes the
/// descriptor from the table first.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() {
        let error = errno();
        // SAFETY: the caller fulfils the requirements of the C library's function.
        table::forget(unsafe { libc::fileno(stream) });
        set_errno(error);
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { real::fclose(stream) }
}

/// `close_range(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        table::forget_range(first as usize, last as usize);
    }
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { real::close_range(first, last, flags) }
}

/// `closefrom(3)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    table::forget_range(usize::try_from(first).unwrap_or(0), usize::MAX);
    // SAFETY: the caller fulfils the requirements of the C library's function.
    unsafe { real::closefrom(first) }
}

/// `dup(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller fulfils the requirements of the C library's function.
    copied(unsafe { real::dup(fd) })
}

/// `dup2(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the caller fulfils the requirements of the C library's function.
    let result = unsafe { real::dup2(fd, to) };
    if fd == to { result } else { copied(result) }
}

/// `dup3(2)`.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller fulfils the requirements of the C library's function.
    copied(unsafe { real::dup3(fd, to, flags) })
}

/// Handles the result of a call that copies a descriptor. Removes the table's entry for the number of the copy, and returns
/// `result` unchanged.
fn copied(result: c_int) -> c_int {
    // The next call on the descriptor reads the socket's name from the kernel and writes a new entry. This function writes no
    // entry, because a child of vfork(2) shares the parent's table, and in the parent the number can refer to another file.
    if result >= 0 {
        table::forget(result);
    }
    result
}

/// `fcntl(2)`. If the command copies a descriptor, removes the table's entry for the number of the copy.
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: libc::c_long) -> c_int {
    // SAFETY: the caller fulfils the requirements of the C library's function.
    let result = unsafe { real::fcntl(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { copied(result) } else { result }
}

/// `fcntl64(2)` behaves like [`fcntl`].
///
/// # Safety
/// The caller must fulfil the requirements of the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: libc::c_long) -> c_int {
    // SAFETY: the caller fulfils the requirements of the C library's function.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { copied(result) } else { result }
}

//! Making, naming, connecting and closing sockets, and their options.

use core::ffi::{c_int, c_uint, c_void};

use libc::{FILE, sockaddr, socklen_t};
use sockclient::{errno, real, set_errno, setup, table};
use sockproto::Operation;

use crate::give_int;

/// The flag of close_range(2) by which nothing is closed yet.
const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// `socket(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if !setup::is_served(domain, kind, protocol) {
        // SAFETY: the caller's.
        return unsafe { real::socket(domain, kind, protocol) };
    }
    give_int(setup::open(domain, kind))
}

/// `bind(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::bind(fd, address, length) };
    }
    // SAFETY: the caller's.
    give_int(unsafe { setup::bind(fd, address, length) })
}

/// `listen(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::listen(fd, backlog) };
    }
    give_int(setup::listen(fd, backlog))
}

/// `connect(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::connect(fd, address, length) };
    }
    // SAFETY: the caller's.
    give_int(unsafe { setup::connect(fd, address, length) })
}

/// `accept(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { accept4(fd, address, length, 0) }
}

/// `accept4(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::accept4(fd, address, length, flags) };
    }
    // SAFETY: the caller's.
    give_int(unsafe { setup::accept(fd, address, length, flags) })
}

/// `getsockname(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::getsockname(fd, address, length) };
    }
    // SAFETY: the caller's.
    give_int(unsafe { setup::name(fd, Operation::LocalName, address, length) })
}

/// `getpeername(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::getpeername(fd, address, length) };
    }
    // SAFETY: the caller's.
    give_int(unsafe { setup::name(fd, Operation::PeerName, address, length) })
}

/// `setsockopt(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::setsockopt(fd, level, name, value, length) };
    }
    // SAFETY: the caller's.
    give_int(unsafe { setup::setsockopt(fd, level, name, value, length) })
}

/// `getsockopt(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::getsockopt(fd, level, name, value, length) };
    }
    // SAFETY: the caller's.
    give_int(unsafe { setup::getsockopt(fd, level, name, value, length) })
}

/// `shutdown(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: the caller's.
        return unsafe { real::shutdown(fd, how) };
    }
    give_int(setup::shutdown(fd, how))
}

/// `close(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    table::forget(fd);
    // SAFETY: the caller's.
    let result = unsafe { real::close(fd) };
    // Another thread may have used the descriptor meanwhile.
    table::forget(fd);
    result
}

/// `fclose(3)`, which closes without [`close`].
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() {
        let error = errno();
        // SAFETY: the caller's.
        table::forget(unsafe { libc::fileno(stream) });
        set_errno(error);
    }
    // SAFETY: the caller's.
    unsafe { real::fclose(stream) }
}

/// `close_range(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        table::forget_range(first as usize, last as usize);
    }
    // SAFETY: the caller's.
    unsafe { real::close_range(first, last, flags) }
}

/// `closefrom(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    table::forget_range(usize::try_from(first).unwrap_or(0), usize::MAX);
    // SAFETY: the caller's.
    unsafe { real::closefrom(first) }
}

/// `dup(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    copied(unsafe { real::dup(fd) })
}

/// `dup2(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { real::dup2(fd, to) };
    if fd == to { result } else { copied(result) }
}

/// `dup3(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    copied(unsafe { real::dup3(fd, to, flags) })
}

/// Notes a copy that was made.
fn copied(result: c_int) -> c_int {
    // The kernel is asked when it is used: a child of vfork(2) writes into its parent's table, where the number is another file.
    if result >= 0 {
        table::forget(result);
    }
    result
}

/// `fcntl(2)`: copies are noted.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: libc::c_long) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { real::fcntl(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { copied(result) } else { result }
}

/// `fcntl64(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: libc::c_long) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { copied(result) } else { result }
}

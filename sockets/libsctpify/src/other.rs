//! Calls that would go around the headers of messages.

use core::ffi::{c_int, c_uint, c_void};

use libc::{loff_t, off_t, size_t, ssize_t};
use sockproto::{DATA_HEADER, DataHeader, Kind, PEER_LENGTH};

use crate::parts::{Parts, part_mut};
use crate::recv::{peek, peek_offset, set_peek_offset};
use crate::{Outcome, give, give_int, real, table};

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

/// Returns the length of the first message, or of its rest; 0: there is none.
#[inline(never)]
fn unread(fd: c_int) -> Outcome<c_int> {
    if table::has(fd, table::bit::LISTENING) {
        return Err(libc::ENOTCONN);
    }
    let mut prefix = [0; DATA_HEADER + PEER_LENGTH];
    let prefix = &mut prefix[..table::prefix(fd)];
    let _lock = table::lock(fd);
    // Of a message that was read in part the rest counts. Its place is kept while the header is looked at.
    let read_before = peek_offset(fd).filter(|at| *at > 0);
    if read_before.is_some() {
        set_peek_offset(fd, -1);
    }
    let first = Parts::new(part_mut(prefix), &[]).and_then(|mut parts| peek(fd, &mut parts.message()));
    if let Some(at) = read_before {
        set_peek_offset(fd, c_int::try_from(at).unwrap_or(0));
    }
    let length = first.unwrap_or(0);
    let is_message =
        DataHeader::read(prefix).is_some_and(|header| matches!(header.kind, Kind::Data | Kind::Notification));
    let length = length.saturating_sub(read_before.unwrap_or(prefix.len()));
    Ok(if is_message { c_int::try_from(length).unwrap_or(c_int::MAX) } else { 0 })
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

//! Conversion of addresses from and to the program's buffers.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use sockproto::{Operation, SOCKADDR_MAX, SockAddr};

use crate::ask::ask;
use crate::{Outcome, table};

/// Reports whether a pointer can be valid. The kernel answers `EFAULT` for an invalid pointer. This library must check the pointer
/// itself, because access to an invalid address would crash the program.
pub fn is_plausible<T>(pointer: *const T) -> bool {
    /// Lowest address of a valid pointer: Linux maps nothing below it (`vm.mmap_min_addr`).
    const LOWEST: usize = 4096;
    pointer.is_aligned() && pointer.addr() >= LOWEST && isize::try_from(pointer.addr()).is_ok()
}

/// Returns the bytes of the address that the program passes. Drops bytes after the address, because programs often pass the length of
/// a larger structure.
///
/// # Errors
/// `EFAULT` for an invalid pointer; `EINVAL` for bytes that are not an address.
///
/// # Safety
/// `address` points to `length` bytes, or is null.
pub(crate) unsafe fn given<'a>(address: *const sockaddr, length: socklen_t) -> Outcome<&'a [u8]> {
    if !is_plausible(address.cast::<u8>()) {
        return Err(libc::EFAULT);
    }
    let length = usize::try_from(length).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller fulfils this function's requirements.
    let bytes = unsafe { core::slice::from_raw_parts(address.cast::<u8>(), length) };
    let address = SockAddr::read(bytes).map_err(|_| libc::EINVAL)?;
    Ok(&bytes[..address.as_bytes().len()])
}

/// Copies as much of an address as fits into the program's buffer, and sets `length` to the address's whole length in bytes.
///
/// # Safety
/// Each pointer is null or valid. If both are valid, `room` points to `*length` bytes.
pub(crate) unsafe fn copy(bytes: &[u8], room: *mut sockaddr, length: *mut socklen_t) {
    if room.is_null() || length.is_null() {
        return;
    }
    // SAFETY: the caller fulfils this function's requirements.
    unsafe {
        let has_room = usize::try_from(*length).unwrap_or(0);
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast::<u8>(), bytes.len().min(has_room));
        *length = socklen_t::try_from(bytes.len()).unwrap_or(0);
    }
}

/// Copies the peer's address of a connected socket into the program's buffer. Sets `length` to 0 if the address is unknown.
///
/// # Safety
/// The requirements of [`copy`] apply.
pub(crate) unsafe fn copy_peer(fd: c_int, room: *mut sockaddr, length: *mut socklen_t) {
    if room.is_null() || length.is_null() {
        return;
    }
    // SAFETY: the caller fulfils this function's requirements.
    match peer(fd) {
        Some((bytes, known)) => unsafe { copy(&bytes[..known], room, length) },
        None => unsafe { *length = 0 },
    }
}

/// Returns the peer's address of a connected socket: the bytes of the address, and the length of the address in bytes. Asks the
/// server only if the table has no address.
pub(crate) fn peer(fd: c_int) -> Option<([u8; 32], usize)> {
    table::peer(fd).or_else(|| {
        let mut bytes = [0; 32];
        let reply = ask(Operation::PeerName, (0, 0), &[], Some(fd), &mut bytes[..SOCKADDR_MAX]).ok()?;
        let length = reply.length.min(SOCKADDR_MAX);
        table::set_peer(fd, &bytes[..length]);
        Some((bytes, length))
    })
}

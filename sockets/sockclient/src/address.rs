//! Addresses as programs pass them and want them.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use sockproto::{Operation, SOCKADDR_MAX, SockAddr};

use crate::ask::ask;
use crate::{Outcome, table};

/// Reports whether a pointer can be one: the kernel answers `EFAULT` for others, and here they would end the program.
pub fn is_plausible<T>(pointer: *const T) -> bool {
    /// Nothing is mapped below (`vm.mmap_min_addr`).
    const LOWEST: usize = 4096;
    pointer.is_aligned() && pointer.addr() >= LOWEST && isize::try_from(pointer.addr()).is_ok()
}

/// Returns the address that the program passes, without what may follow it: programs pass the length of larger structures.
///
/// # Safety
/// `address` points to `length` bytes, or is null.
pub(crate) unsafe fn given<'a>(address: *const sockaddr, length: socklen_t) -> Outcome<&'a [u8]> {
    if !is_plausible(address.cast::<u8>()) {
        return Err(libc::EFAULT);
    }
    let length = usize::try_from(length).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller's.
    let bytes = unsafe { core::slice::from_raw_parts(address.cast::<u8>(), length) };
    let address = SockAddr::read(bytes).map_err(|_| libc::EINVAL)?;
    Ok(&bytes[..address.as_bytes().len()])
}

/// Copies an address into the program's buffer, as much as it has room for, and tells its whole length.
///
/// # Safety
/// `room` is null, or points to as many bytes as `length` says.
pub(crate) unsafe fn copy(bytes: &[u8], room: *mut sockaddr, length: *mut socklen_t) {
    if room.is_null() || length.is_null() {
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        let has_room = usize::try_from(*length).unwrap_or(0);
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast::<u8>(), bytes.len().min(has_room));
        *length = socklen_t::try_from(bytes.len()).unwrap_or(0);
    }
}

/// Copies the peer's address of a connected socket; asks for it once.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn copy_peer(fd: c_int, room: *mut sockaddr, length: *mut socklen_t) {
    if room.is_null() || length.is_null() {
        return;
    }
    // SAFETY: the caller's.
    match peer(fd) {
        Some((bytes, known)) => unsafe { copy(&bytes[..known], room, length) },
        None => unsafe { *length = 0 },
    }
}

/// Returns the peer's address of a connected socket: bytes and length. Asks for it once.
pub(crate) fn peer(fd: c_int) -> Option<([u8; 32], usize)> {
    table::peer(fd).or_else(|| {
        let mut bytes = [0; 32];
        let reply = ask(Operation::PeerName, (0, 0), &[], Some(fd), &mut bytes[..SOCKADDR_MAX]).ok()?;
        let length = reply.length.min(SOCKADDR_MAX);
        table::set_peer(fd, &bytes[..length]);
        Some((bytes, length))
    })
}

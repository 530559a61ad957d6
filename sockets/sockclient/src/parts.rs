//! List of buffers for one message: first the buffer of sctpify's header, then the program's buffers.

use core::mem::MaybeUninit;

use libc::{iovec, msghdr};

use crate::Outcome;

/// Limit on the program's buffers in one call: the kernel's limit (`UIO_MAXIOV`) minus one for the header.
const PARTS_MAX: usize = 1023;

/// Descriptions of the header and of the program's buffers. Only the first `count` entries are initialised, because most calls have few
/// buffers.
pub(crate) struct Parts {
    room: [MaybeUninit<iovec>; PARTS_MAX + 1],
    count: usize,
}

impl Parts {
    /// Makes a list of the header and the program's buffers.
    ///
    /// # Errors
    /// `EMSGSIZE` for more than [`PARTS_MAX`] buffers.
    pub(crate) fn new(header: iovec, parts: &[iovec]) -> Outcome<Parts> {
        let mut room = [const { MaybeUninit::uninit() }; PARTS_MAX + 1];
        let places = room.get_mut(1..=parts.len()).ok_or(libc::EMSGSIZE)?;
        for (place, part) in places.iter_mut().zip(parts) {
            place.write(*part);
        }
        room[0].write(header);
        Ok(Parts { room, count: parts.len() + 1 })
    }

    /// Returns a message header for these buffers. The header points into this list, and must not outlive it.
    pub(crate) fn message(&mut self) -> msghdr {
        // SAFETY: zeroes are a valid message header.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = self.room.as_mut_ptr().cast();
        message.msg_iovlen = self.count as _;
        message
    }
}

/// Returns the description of bytes that the kernel will read.
pub(crate) fn part(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Returns the description of a buffer that the kernel will fill.
pub(crate) fn part_mut(room: &mut [u8]) -> iovec {
    iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }
}

/// Returns the program's list of buffers.
///
/// # Errors
/// `EINVAL` for more than [`PARTS_MAX`] buffers; `EFAULT` for an invalid pointer.
///
/// # Safety
/// `parts` points to `count` descriptions of buffers, or is null.
pub(crate) unsafe fn parts_of<'a>(parts: *const iovec, count: usize) -> Outcome<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        _ if count > PARTS_MAX => Err(libc::EINVAL),
        _ if !crate::address::is_plausible(parts) => Err(libc::EFAULT),
        // SAFETY: the caller fulfils this function's requirements.
        _ => Ok(unsafe { core::slice::from_raw_parts(parts, count) }),
    }
}

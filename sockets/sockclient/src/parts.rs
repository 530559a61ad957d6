//! Buffers of a message, with its header before them.

use core::mem::MaybeUninit;

use libc::{iovec, msghdr};

use crate::Outcome;

/// Most buffers of one call (`UIO_MAXIOV`), less one for the header.
const PARTS_MAX: usize = 1023;

/// Room for a header's description and the program's. Only what is used is written: a call has few buffers.
pub(crate) struct Parts {
    room: [MaybeUninit<iovec>; PARTS_MAX + 1],
    count: usize,
}

impl Parts {
    /// Puts a header before the program's buffers.
    ///
    /// # Errors
    /// `EMSGSIZE` for too many.
    pub(crate) fn new(header: iovec, parts: &[iovec]) -> Outcome<Parts> {
        let mut room = [const { MaybeUninit::uninit() }; PARTS_MAX + 1];
        let places = room.get_mut(1..=parts.len()).ok_or(libc::EMSGSIZE)?;
        for (place, part) in places.iter_mut().zip(parts) {
            place.write(*part);
        }
        room[0].write(header);
        Ok(Parts { room, count: parts.len() + 1 })
    }

    /// Describes the message to the kernel, for as long as this lives.
    pub(crate) fn message(&mut self) -> msghdr {
        // SAFETY: zeroes are a valid message header.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = self.room.as_mut_ptr().cast();
        message.msg_iovlen = self.count as _;
        message
    }
}

/// Describes bytes to the kernel.
pub(crate) fn part(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Describes room for bytes to the kernel.
pub(crate) fn part_mut(room: &mut [u8]) -> iovec {
    iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }
}

/// Returns the program's list of buffers.
///
/// # Errors
/// `EINVAL` for too many; `EFAULT`.
///
/// # Safety
/// `parts` points to `count` descriptions of buffers, or is null.
pub(crate) unsafe fn parts_of<'a>(parts: *const iovec, count: usize) -> Outcome<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        _ if count > PARTS_MAX => Err(libc::EINVAL),
        _ if !crate::address::is_plausible(parts) => Err(libc::EFAULT),
        // SAFETY: the caller's.
        _ => Ok(unsafe { core::slice::from_raw_parts(parts, count) }),
    }
}

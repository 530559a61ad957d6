//! SCTP's ancillary data (RFC 6458 section 5.3).

use core::ffi::c_int;

use libc::{cmsghdr, msghdr};
use sockproto::abi::{SOL_SCTP, cmsg, sinfo};
use sockproto::{DataHeader, Kind, flag};

use crate::Outcome;
use crate::send::Given;

/// Reads the ancillary data that a program passes with a message to send.
///
/// # Errors
/// `EINVAL` for an item of SCTP that is unknown or has the wrong length, and for flags that this style of socket does not accept.
///
/// # Safety
/// The message is one that the program passes to sendmsg(2).
pub(crate) unsafe fn read(message: &msghdr, is_one_to_many: bool) -> Outcome<Given> {
    let mut given = Given::nothing();
    // SAFETY: the caller fulfils this function's requirements.
    let mut item: *mut cmsghdr = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !item.is_null() {
        // SAFETY: the macros return items within the control data.
        unsafe {
            if (*item).cmsg_level == SOL_SCTP {
                let data = libc::CMSG_DATA(item);
                let before = data.addr() - item.addr();
                let length = ((*item).cmsg_len as usize).checked_sub(before).ok_or(libc::EINVAL)?;
                take(&mut given, (*item).cmsg_type, core::slice::from_raw_parts(data, length))?;
            }
            item = libc::CMSG_NXTHDR(message, item);
        }
    }
    let known = if is_one_to_many { sinfo::OF_MANY } else { sinfo::OF_ONE };
    if given.header.sinfo_flags & !known != 0 { Err(libc::EINVAL) } else { Ok(given) }
}

fn take(given: &mut Given, kind: c_int, data: &[u8]) -> Outcome<()> {
    let header = &mut given.header;
    let short = |at: usize| u16::from_ne_bytes([data[at], data[at + 1]]);
    let long = |at: usize| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    match (kind, data.len()) {
        (cmsg::SNDRCV, cmsg::SNDRCV_SIZE) => {
            (header.stream, header.sinfo_flags) = (short(0), short(4));
            (header.ppid, header.context, header.tsn_or_lifetime) = (long(8), long(12), long(16));
            header.association = long(28).cast_signed();
            header.flags |= flag::WITH_INFO;
        }
        (cmsg::SNDINFO, cmsg::SNDINFO_SIZE) => {
            (header.stream, header.sinfo_flags) = (short(0), header.sinfo_flags & sinfo::PR_PRIO | short(2));
            (header.ppid, header.context) = (long(4), long(8));
            header.association = long(12).cast_signed();
            header.flags |= flag::WITH_INFO;
        }
        (cmsg::PRINFO, cmsg::PRINFO_SIZE) => {
            header.sinfo_flags = header.sinfo_flags & !sinfo::PR_PRIO | short(0) & sinfo::PR_PRIO;
            header.tsn_or_lifetime = long(4);
            header.flags |= flag::WITH_INFO;
        }
        (cmsg::INIT, 8) => given.peer.init = [short(0), short(2), short(4), short(6)],
        // These items are ignored. Authentication keys are not supported. Further addresses of a peer cannot be given with the
        // message that begins an association. An established association already has the peer's addresses.
        (cmsg::AUTHINFO, 2) | (cmsg::DSTADDRV4, 4) | (cmsg::DSTADDRV6, 16) => {}
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// Writes an item after the first `used` bytes of the control data. Returns the number of bytes that the item takes, with padding.
/// Truncates an item that does not fit, as the kernel does. If the function returned an error instead, libsctp would not work, because
/// its buffers are too small for two items.
///
/// # Safety
/// The message is one that the program passes to recvmsg(2), and `used` does not exceed its `msg_controllen`.
unsafe fn put_item(message: &mut msghdr, used: usize, kind: c_int, data: &[u8]) -> usize {
    let length = u32::try_from(data.len()).unwrap_or(0);
    // SAFETY: the calls only compute lengths.
    let (space, whole, header_length) = unsafe {
        (libc::CMSG_SPACE(length) as usize, libc::CMSG_LEN(length) as usize, libc::CMSG_LEN(0) as usize)
    };
    let left = if message.msg_control.is_null() { 0 } else { message.msg_controllen as usize - used };
    let kept = whole.min(left);
    if kept < whole {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
    if kept < header_length {
        return 0;
    }
    // SAFETY: the part of the item that is kept lies within the program's control data.
    unsafe {
        let item: *mut cmsghdr = message.msg_control.byte_add(used).cast();
        // In musl, the header has padding that only zeroed() can set.
        let mut header: cmsghdr = core::mem::zeroed();
        (header.cmsg_level, header.cmsg_type, header.cmsg_len) = (SOL_SCTP, kind, kept as _);
        item.write_unaligned(header);
        core::ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(item), kept - header_length);
    }
    space.min(left)
}

/// Writes the items that the program has requested, and sets the length of the control data. Sets `MSG_CTRUNC` if the control data has
/// too little room for the items.
///
/// # Safety
/// The message is one that the program passes to recvmsg(2).
pub(crate) unsafe fn write(message: &mut msghdr, header: &DataHeader, next: Option<&(DataHeader, usize)>) {
    let mut used = 0;
    let mut put = |kind: c_int, data: &[u8]| {
        // SAFETY: the caller guarantees a valid message, and `used` is the length of the items that were written before.
        used += unsafe { put_item(message, used, kind, data) };
    };
    if let Some((next, length)) = next {
        let mut data = [0; cmsg::NXTINFO_SIZE];
        let complete = if next.flags & flag::MORE == 0 { sinfo::COMPLETE } else { 0 };
        let notification = if next.kind == Kind::Notification { sinfo::NOTIFICATION } else { 0 };
        fill(
            &mut data,
            &[(0, next.stream), (2, next.sinfo_flags | complete | notification)],
            &[
                (4, next.ppid),
                (8, u32::try_from(*length).unwrap_or(u32::MAX)),
                (12, next.association.cast_unsigned()),
            ],
        );
        put(cmsg::NXTINFO, &data);
    }
    if header.flags & flag::WITH_RCVINFO != 0 {
        let mut data = [0; cmsg::RCVINFO_SIZE];
        fill(
            &mut data,
            &[(0, header.stream), (2, header.ssn), (4, header.sinfo_flags)],
            &[
                (8, header.ppid),
                (12, header.tsn_or_lifetime),
                (16, header.cumulative_tsn),
                (20, header.context),
                (24, header.association.cast_unsigned()),
            ],
        );
        put(cmsg::RCVINFO, &data);
    }
    if header.flags & flag::WITH_SNDRCV != 0 {
        let mut data = [0; cmsg::SNDRCV_SIZE];
        fill(
            &mut data,
            &[(0, header.stream), (2, header.ssn), (4, header.sinfo_flags)],
            &[
                (8, header.ppid),
                (12, header.context),
                (20, header.tsn_or_lifetime),
                (24, header.cumulative_tsn),
                (28, header.association.cast_unsigned()),
            ],
        );
        put(cmsg::SNDRCV, &data);
    }
    message.msg_controllen = used as _;
}

fn fill(data: &mut [u8], shorts: &[(usize, u16)], longs: &[(usize, u32)]) {
    for (at, value) in shorts {
        data[*at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
    for (at, value) in longs {
        data[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
}

//! SCTP's ancillary data (RFC 6458 section 5.3).

use core::ffi::c_int;

use libc::{cmsghdr, msghdr};
use sockproto::abi::{SOL_SCTP, cmsg, sinfo};
use sockproto::{DataHeader, Kind, flag};

use crate::Outcome;

/// Reads what a program says of a message to send.
///
/// # Errors
/// `EINVAL` for an item that is unknown or has another length, and for flags that are unknown or no one-to-one socket takes.
///
/// # Safety
/// The message is one that the program passes to sendmsg(2).
pub(crate) unsafe fn read(message: &msghdr) -> Outcome<DataHeader> {
    let mut header = DataHeader::new(Kind::Data);
    // SAFETY: the caller's.
    let mut item: *mut cmsghdr = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !item.is_null() {
        // SAFETY: the macros return items within the control data.
        unsafe {
            if (*item).cmsg_level == SOL_SCTP {
                let data = libc::CMSG_DATA(item);
                let before = data.addr() - item.addr();
                let length = ((*item).cmsg_len as usize).checked_sub(before).ok_or(libc::EINVAL)?;
                take(&mut header, (*item).cmsg_type, core::slice::from_raw_parts(data, length))?;
            }
            item = libc::CMSG_NXTHDR(message, item);
        }
    }
    let refused = sinfo::EOF | sinfo::ABORT | !sinfo::KNOWN;
    if header.sinfo_flags & refused != 0 { Err(libc::EINVAL) } else { Ok(header) }
}

fn take(header: &mut DataHeader, kind: c_int, data: &[u8]) -> Outcome<()> {
    let short = |at: usize| u16::from_ne_bytes([data[at], data[at + 1]]);
    let long = |at: usize| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    match (kind, data.len()) {
        (cmsg::SNDRCV, cmsg::SNDRCV_SIZE) => {
            (header.stream, header.sinfo_flags) = (short(0), short(4));
            (header.ppid, header.context, header.tsn_or_lifetime) = (long(8), long(12), long(16));
            header.flags |= flag::WITH_INFO;
        }
        (cmsg::SNDINFO, cmsg::SNDINFO_SIZE) => {
            (header.stream, header.sinfo_flags) = (short(0), header.sinfo_flags & sinfo::PR_PRIO | short(2));
            (header.ppid, header.context) = (long(4), long(8));
            header.flags |= flag::WITH_INFO;
        }
        (cmsg::PRINFO, cmsg::PRINFO_SIZE) => {
            header.sinfo_flags = header.sinfo_flags & !sinfo::PR_PRIO | short(0) & sinfo::PR_PRIO;
            header.tsn_or_lifetime = long(4);
            header.flags |= flag::WITH_INFO;
        }
        // An association that is up has its streams, and its addresses.
        (cmsg::INIT, 8) | (cmsg::AUTHINFO, 2) | (cmsg::DSTADDRV4, 4) | (cmsg::DSTADDRV6, 16) => {}
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// Writes the items that the program asked for; sets `MSG_CTRUNC` if there is no room.
///
/// # Safety
/// The message is one that the program passes to recvmsg(2).
pub(crate) unsafe fn write(message: &mut msghdr, header: &DataHeader) {
    let room = message.msg_controllen;
    let mut used = 0;
    let mut put = |kind: c_int, data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap_or(0);
        // SAFETY: computes lengths.
        let (space, whole) = unsafe { (libc::CMSG_SPACE(length) as usize, libc::CMSG_LEN(length)) };
        if message.msg_control.is_null() || used + space > room {
            message.msg_flags |= libc::MSG_CTRUNC;
            return;
        }
        // SAFETY: the item lies within the program's control data.
        unsafe {
            let item: *mut cmsghdr = message.msg_control.byte_add(used).cast();
            item.write_unaligned(cmsghdr { cmsg_level: SOL_SCTP, cmsg_type: kind, cmsg_len: whole as _ });
            core::ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(item), data.len());
        }
        used += space;
    };
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

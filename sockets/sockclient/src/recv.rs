//! Functions that receive messages.
//!
//! A message is examined before it is removed from the kernel's queue. If the program's buffer is too small, the whole message
//! stays in the kernel, where poll(2) and forked children see it. `SO_PEEK_OFF` then records the position up to which the program
//! has read the message.

use core::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t};
use sockproto::abi::MSG_NOTIFICATION;
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{DATA_HEADER, DataHeader, Kind, PEER_LENGTH, Peer, SOCKADDR_MAX, SockAddr, flag};

use crate::ask::ask;
use crate::parts::{Parts, part_mut, parts_of};
use crate::setup::{has_nonblocking_flag, without_waiting};
use crate::table::{self, bit};
use crate::{Outcome, address, outcome, real};

/// A received message, or a part of one.
struct Received {
    header: DataHeader,
    /// The peer's address; `None` on a one-to-one socket.
    peer: Option<SockAddr>,
    length: usize,
    /// The bits `MSG_EOR` and `MSG_NOTIFICATION`. At the end of the association, neither bit is set.
    flags: c_int,
}

/// Returns the number of bytes that were already read from the first message, including the message's header. Returns `None` if
/// `SO_PEEK_OFF` is not set.
pub(crate) fn peek_offset(fd: c_int) -> Option<usize> {
    let mut offset: c_int = -1;
    let mut length = 4;
    // SAFETY: the buffer has this length.
    let result = unsafe {
        real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw mut offset).cast(), &raw mut length)
    };
    usize::try_from(offset).ok().filter(|_| result == 0)
}

pub(crate) fn set_peek_offset(fd: c_int, offset: c_int) {
    // SAFETY: the buffer has this length.
    unsafe { real::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw const offset).cast(), 4) };
}

/// Receives one message, or as much of it as fits into the buffers.
fn receive(fd: c_int, parts: &[iovec], flags: c_int) -> Outcome<Received> {
    let errno = crate::errno();
    let received = receive_or_wait(fd, parts, flags);
    if received.is_ok() {
        // A successful call must not change errno.
        crate::set_errno(errno);
    }
    received
}

fn receive_or_wait(fd: c_int, parts: &[iovec], flags: c_int) -> Outcome<Received> {
    let mut is_known_to_wait = false;
    loop {
        let taken = {
            let _lock = table::lock(fd);
            take(fd, parts, flags & libc::MSG_PEEK != 0)
        };
        match taken {
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => {
                let waits =
                    flags & libc::MSG_DONTWAIT == 0 && (is_known_to_wait || !has_nonblocking_flag(fd));
                let is_one_to_many = table::is_one_to_many(fd);
                if !is_one_to_many && !table::has(fd, bit::CONNECTED) {
                    must_be_connected(fd)?;
                }
                if waits && is_one_to_many && !table::has(fd, bit::CONNECTED) {
                    must_expect_messages(fd)?;
                }
                if !waits || table::has(fd, bit::ON_BEHALF) {
                    return Err(libc::EAGAIN);
                }
                is_known_to_wait = true;
                wait_for_message(fd)?;
            }
            other => return other,
        }
    }
}

/// Waits in the kernel until a message arrives. The kernel observes the program's time limit (`SO_RCVTIMEO`), and resumes the call
/// after a signal whose handler has `SA_RESTART`. The message stays in the queue.
///
/// # Errors
/// `EAGAIN` after the time limit; `EINTR` after a signal, if the kernel does not resume the call.
pub(crate) fn wait_for_message(fd: c_int) -> Outcome {
    // SAFETY: the buffer has no bytes, so none are written.
    outcome(unsafe { real::recv(fd, core::ptr::null_mut(), 0, libc::MSG_PEEK | without_waiting(fd)) })
}

/// Checks that the socket has an association. Returns true if the association is up, and false while it is being set up.
///
/// # Errors
/// `ENOTCONN` without an association, and the errors of [`ask`].
pub(crate) fn must_be_connected(fd: c_int) -> Outcome<bool> {
    let mut room = [0; SOCKADDR_MAX];
    let reply = ask(sockproto::Operation::PeerName, (0, 0), &[], Some(fd), &mut room)?;
    if !reply.is_in_progress {
        table::set(fd, bit::CONNECTED);
    }
    Ok(!reply.is_in_progress)
}

/// Checks that a one-to-many socket has an association or listens. Otherwise a wait for messages would never end.
///
/// # Errors
/// `ENOTCONN` for a socket that can receive no messages.
fn must_expect_messages(fd: c_int) -> Outcome<()> {
    let mut value = [0; 4];
    for (level, name) in [(SOL_SCTP, option::ASSOC_NUMBER), (libc::SOL_SOCKET, libc::SO_ACCEPTCONN)] {
        ask(sockproto::Operation::GetOption, (level, name), &[0; 4], Some(fd), &mut value)?;
        if value != [0; 4] {
            table::set(fd, bit::CONNECTED);
            return Ok(());
        }
    }
    Err(libc::ENOTCONN)
}

/// Receives one message, or a part of it, without waiting.
#[inline(never)]
fn take(fd: c_int, parts: &[iovec], is_peek: bool) -> Outcome<Received> {
    let may_be_partial = table::has(fd, bit::PARTIAL) || table::are_shared();
    let read_before = may_be_partial.then(|| peek_offset(fd)).flatten().filter(|at| *at > 0);
    if read_before.is_some() {
        set_peek_offset(fd, -1);
    }
    let mut prefix = [0; DATA_HEADER + PEER_LENGTH];
    let prefix = &mut prefix[..table::prefix(fd)];
    // If the message was read in part, only its header is examined here.
    let after_header = if read_before.is_some() { &[] } else { parts };
    let mut all = Parts::new(part_mut(prefix), after_header)?;
    let length = peek(fd, &mut all.message())?;
    if length == 0 {
        return after_the_server(fd);
    }
    let header = DataHeader::read(&prefix[..length.min(DATA_HEADER)]).ok_or(libc::EIO)?;
    let peer = prefix.get(DATA_HEADER..).and_then(|peer| Peer::read(peer.first_chunk()?).address);
    let failed = header.context.cast_signed();
    match header.kind {
        Kind::Ended => return Ok(Received { header, peer: None, length: 0, flags: 0 }),
        Kind::Failed if failed == libc::ENOTCONN => return Err(failed),
        Kind::Failed => {
            drop_first(fd);
            return Err(failed);
        }
        Kind::Accepted => return Err(libc::ENOTCONN),
        Kind::Filling => return Err(libc::EIO),
        Kind::Data | Kind::Notification => {}
    }
    if header.kind == Kind::Notification && peer.is_some() {
        // The notification may report the end of the association, so the cached association is no longer certain.
        table::forget_association(fd, header.association);
    }
    let room = parts.iter().fold(0_usize, |room, part| room.saturating_add(part.iov_len));
    let rest = match read_before {
        None => length.saturating_sub(prefix.len()),
        Some(at) => {
            set_peek_offset(fd, c_int::try_from(at).unwrap_or(0));
            // SAFETY: zeroes are a valid message header.
            let mut message: msghdr = unsafe { core::mem::zeroed() };
            message.msg_iov = parts.as_ptr().cast_mut();
            message.msg_iovlen = parts.len() as _;
            peek(fd, &mut message)?
        }
    };
    let kind = if header.kind == Kind::Notification { MSG_NOTIFICATION } else { 0 };
    let is_whole = rest <= room;
    if is_peek {
        let at = read_before.map_or(-1, |at| c_int::try_from(at).unwrap_or(0));
        if read_before.is_some() {
            set_peek_offset(fd, at);
        }
    } else if is_whole {
        drop_first(fd);
        if read_before.is_some() {
            set_peek_offset(fd, -1);
            table::clear(fd, bit::PARTIAL);
        }
    } else {
        let read = read_before.unwrap_or(prefix.len()) + room;
        set_peek_offset(fd, c_int::try_from(read).unwrap_or(c_int::MAX));
        table::set(fd, bit::PARTIAL);
    }
    let is_end = is_whole && header.flags & flag::MORE == 0;
    let flags = kind | if is_end { libc::MSG_EOR } else { 0 };
    Ok(Received { header, peer, length: rest.min(room), flags })
}

/// Reads the beginning of the first message into the buffers, and leaves the message in the queue. Returns the message's length in bytes
/// from the position of `SO_PEEK_OFF` on. Does not wait.
pub(crate) fn peek(fd: c_int, message: &mut msghdr) -> Outcome<usize> {
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: the kernel checks the program's buffers.
    let length = outcome(unsafe { real::recvmsg(fd, message, flags) })?;
    Ok(usize::try_from(length).unwrap_or(0))
}

/// Removes the first message from the queue.
fn drop_first(fd: c_int) {
    // SAFETY: the buffer has no bytes, so none are written.
    unsafe { real::recv(fd, core::ptr::null_mut(), 0, libc::MSG_DONTWAIT | libc::MSG_TRUNC) };
}

/// Returns the result for the program when the server's end of the pair is closed. If the server still knows the socket, the result
/// is the end of the association.
///
/// # Errors
/// If the server has ended, `ECONNRESET` for the first call and `ENOTCONN` for later calls. An error is needed, because some
/// programs repeat a receive that reports the end of the association.
fn after_the_server(fd: c_int) -> Outcome<Received> {
    // After the program's shutdown(2), the server may have forgotten the socket, and answers EBADF. Without shutdown(2), EBADF
    // means that a new server runs under the same name and does not know the socket.
    let server = must_be_connected(fd);
    if server.is_ok() || server == Err(libc::EBADF) && table::has(fd, bit::READ_OVER) {
        return Ok(Received { header: DataHeader::new(Kind::Ended), peer: None, length: 0, flags: 0 });
    }
    if table::has(fd, bit::DEAD) {
        return Err(libc::ENOTCONN);
    }
    table::set(fd, bit::DEAD);
    Err(libc::ECONNRESET)
}

/// Receives into one buffer of `length` bytes, with flags of recv(2). Returns the number of bytes received.
///
/// # Errors
/// The errors of recv(2).
///
/// # Safety
/// The `length` bytes at `buffer` may be overwritten. The kernel checks the pointer.
pub unsafe fn receive_bytes(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> Outcome {
    let part = iovec { iov_base: buffer, iov_len: length };
    let received = receive(fd, &[part], flags)?;
    isize::try_from(received.length).map_err(|_| libc::EMSGSIZE)
}

/// Receives into `count` buffers, as readv(2) does. Returns the number of bytes received.
///
/// # Errors
/// The errors of readv(2).
///
/// # Safety
/// `parts` points to `count` descriptions of buffers, or is null. The buffers may be overwritten.
pub unsafe fn receive_parts(fd: c_int, parts: *const iovec, count: c_int) -> Outcome {
    // SAFETY: the caller fulfils this function's requirements.
    let parts = unsafe { parts_of(parts, usize::try_from(count).unwrap_or(usize::MAX)) };
    parts.and_then(|parts| receive(fd, parts, 0)).map(|received| received.length as isize)
}

/// Receives into one buffer of `length` bytes, and copies the peer's address to `address`, as recvfrom(2) does. Returns the number
/// of bytes received.
///
/// # Errors
/// The errors of recvfrom(2).
///
/// # Safety
/// The `length` bytes at `buffer` may be overwritten. The kernel checks this pointer. `address` is null, or points to `*size` bytes.
pub unsafe fn receive_from(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> Outcome {
    let part = iovec { iov_base: buffer, iov_len: length };
    receive(fd, &[part], flags).map(|received| {
        // SAFETY: the caller fulfils this function's requirements.
        unsafe { copy_peer(fd, &received, address, size) };
        received.length as isize
    })
}

/// Copies the address of the message's peer into the program's buffer.
///
/// # Safety
/// The requirements of [`address::copy`] apply.
unsafe fn copy_peer(fd: c_int, received: &Received, room: *mut sockaddr, length: *mut socklen_t) {
    // SAFETY: the caller fulfils this function's requirements.
    match &received.peer {
        Some(peer) => unsafe { address::copy(peer.as_bytes(), room, length) },
        None => unsafe { address::copy_peer(fd, room, length) },
    }
}

/// Handles a message that arrived on a socket that is not an sctpify socket. Removes the message's descriptors from the table,
/// because the table may have stale entries for their numbers.
///
/// # Safety
/// recvmsg(2) has filled in the message.
pub unsafe fn forget_received(message: &msghdr) {
    if message.msg_controllen == 0 {
        return;
    }
    // SAFETY: the caller fulfils this function's requirements.
    unsafe {
        let mut item = libc::CMSG_FIRSTHDR(message);
        while !item.is_null() {
            if (*item).cmsg_level == libc::SOL_SOCKET && (*item).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(item);
                let length = ((*item).cmsg_len as usize).saturating_sub(data.addr() - item.addr());
                for number in 0..length / 4 {
                    table::forget(data.cast::<c_int>().add(number).read_unaligned());
                }
            }
            item = libc::CMSG_NXTHDR(message, item);
        }
    }
}

/// Receives one message with its ancillary data, with flags of recvmsg(2). Returns the number of bytes received.
///
/// # Errors
/// The errors of recvmsg(2).
///
/// # Safety
/// The message's pointers are valid.
pub unsafe fn receive_message(fd: c_int, message: &mut msghdr, flags: c_int) -> Outcome {
    // SAFETY: the caller fulfils this function's requirements.
    let parts = unsafe { parts_of(message.msg_iov, message.msg_iovlen as usize) }?;
    let mut received = receive(fd, parts, flags)?;
    let wants = |bits| table::has(fd, bits);
    received.header.flags |= if wants(bit::WANTS_RCVINFO) { flag::WITH_RCVINFO } else { 0 };
    received.header.flags |= if wants(bit::WANTS_NXTINFO) { flag::WITH_NXTINFO } else { 0 };
    message.msg_flags = received.flags;
    if received.header.kind == Kind::Data {
        // SAFETY: the caller fulfils this function's requirements.
        unsafe { crate::cmsg::write(message, &received.header, next_info(fd, &received, flags).as_ref()) };
    } else {
        message.msg_controllen = 0;
    }
    // SAFETY: the caller fulfils this function's requirements.
    unsafe { copy_peer(fd, &received, message.msg_name.cast(), &raw mut message.msg_namelen) };
    isize::try_from(received.length).map_err(|_| libc::EMSGSIZE)
}

/// Returns the header and the length of the message after the received one, if the program has requested them (`SCTP_NXTINFO`).
/// Returns `None` if the call only peeked, if the rest of the received message is still unread, or if no further message waits.
#[inline(never)]
fn next_info(fd: c_int, received: &Received, flags: c_int) -> Option<(DataHeader, usize)> {
    let is_taken = flags & libc::MSG_PEEK == 0 && received.flags & libc::MSG_EOR != 0;
    if received.header.flags & flag::WITH_NXTINFO == 0 || !is_taken {
        return None;
    }
    let mut prefix = [0; DATA_HEADER + PEER_LENGTH];
    let prefix = &mut prefix[..table::prefix(fd)];
    let length = peek(fd, &mut Parts::new(part_mut(prefix), &[]).ok()?.message()).ok()?;
    let header = DataHeader::read(&prefix[..length.min(DATA_HEADER)])?;
    let is_message = matches!(header.kind, Kind::Data | Kind::Notification);
    is_message.then(|| (header, length.saturating_sub(prefix.len())))
}

/// Receives up to `count` messages, as recvmmsg(2) without a time limit does. Returns the number of messages received.
///
/// # Errors
/// The errors of recvmsg(2), if the first message cannot be received.
///
/// # Safety
/// `messages` points to `count` messages, whose pointers are valid.
pub unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Outcome<c_int> {
    let mut received = 0;
    for number in 0..count as usize {
        let flags = if received > 0 && flags & libc::MSG_WAITFORONE != 0 {
            flags | libc::MSG_DONTWAIT
        } else {
            flags
        };
        // SAFETY: the caller fulfils this function's requirements.
        let taken = unsafe {
            let message = &mut *messages.add(number);
            receive_message(fd, &mut message.msg_hdr, flags).inspect(|length| {
                message.msg_len = c_uint::try_from(*length).unwrap_or(c_uint::MAX);
            })
        };
        match taken {
            Ok(length) => {
                received += 1;
                if length == 0 {
                    break;
                }
            }
            Err(error) if received == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(received)
}

/// Returns the number of bytes of the first message that have not been read. Returns 0 if no message waits.
///
/// # Errors
/// `ENOTCONN` for a socket that listens.
#[inline(never)]
pub fn unread(fd: c_int) -> Outcome<c_int> {
    if table::has(fd, bit::LISTENING) {
        return Err(libc::ENOTCONN);
    }
    let mut prefix = [0; DATA_HEADER + PEER_LENGTH];
    let prefix = &mut prefix[..table::prefix(fd)];
    let _lock = table::lock(fd);
    // If the message was read in part, only the unread bytes count. The position `SO_PEEK_OFF` is reset while the header is
    // examined, and then restored.
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

//! Functions that send messages. One system call sends sctpify's header and the program's bytes together.

use core::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t};
use sockproto::abi::{SOL_SCTP, option, sinfo};
use sockproto::{
    DATA_HEADER, DataHeader, Kind, MESSAGE_MAX, Operation, PEER_LENGTH, Peer, SOCKADDR_MAX, SockAddr, flag,
    read_addresses,
};

use crate::ask::ask;
use crate::parts::{Parts, part, parts_of};
use crate::recv::must_be_connected;
use crate::setup::{connect_to, is_nonblocking, wait_until_writable};
use crate::table::{self, bit};
use crate::{Outcome, outcome, real};

/// Header and peer of an outgoing message, as far as the program has specified them.
pub(crate) struct Given {
    pub(crate) header: DataHeader,
    pub(crate) peer: Peer,
}

impl Given {
    /// Returns the header and the peer of a message for which the program specifies nothing.
    pub(crate) fn nothing() -> Given {
        Given { header: DataHeader::new(Kind::Data), peer: Peer::default() }
    }
}

/// Sends one message. Returns the number of the program's bytes that were sent.
#[inline(never)]
fn transmit(fd: c_int, parts: &[iovec], given: &Given, flags: c_int) -> Outcome {
    let length = parts.iter().fold(0_usize, |length, part| length.saturating_add(part.iov_len));
    let is_one_to_many = table::is_one_to_many(fd);
    // SCTP has no empty messages. On a one-to-many socket, an empty message with SCTP_EOF or SCTP_ABORT ends an association.
    let may_be_empty = is_one_to_many && given.header.sinfo_flags & (sinfo::EOF | sinfo::ABORT) != 0;
    match length {
        0 if !may_be_empty => return Err(libc::EINVAL),
        0..=MESSAGE_MAX => {}
        _ => return Err(libc::EMSGSIZE),
    }
    if table::has(fd, bit::LISTENING) {
        return Err(libc::EPIPE);
    }
    let mut prefix = [0; DATA_HEADER + PEER_LENGTH];
    prefix[..DATA_HEADER].copy_from_slice(&given.header.to_bytes());
    let prefix = if is_one_to_many {
        has_association(fd, given)?;
        prefix[DATA_HEADER..].copy_from_slice(&given.peer.to_bytes());
        &prefix[..]
    } else {
        has_stream(fd, &given.header)?;
        &prefix[..DATA_HEADER]
    };
    if table::has(fd, bit::UNFRAGMENTED) {
        fits_one_packet(fd, given, length)?;
    }
    let mut all = Parts::new(part(prefix), parts)?;
    let message = all.message();
    // All flags except MSG_DONTWAIT are dropped: AF_UNIX refuses MSG_OOB, and the other flags have no use on this pair.
    let kept = flags & libc::MSG_DONTWAIT;
    if !is_one_to_many {
        must_take_messages(fd, given, kept != 0)?;
    }
    // SAFETY: the kernel checks the program's buffers.
    match outcome(unsafe { real::sendmsg(fd, &raw const message, kept | libc::MSG_NOSIGNAL) }) {
        Ok(sent) => {
            if is_one_to_many && kept == 0 && !is_nonblocking(fd) {
                wait_for_peer(fd, given);
            }
            Ok(sent - prefix.len() as isize)
        }
        // The association or the server has ended.
        Err(libc::ECONNREFUSED | libc::ENOTCONN | libc::ECONNRESET) => Err(libc::EPIPE),
        error => error,
    }
}

/// Ensures that a one-to-one socket has an association that is up. Waits while the association is being set up, unless the call
/// must not wait. If the socket has no association and the program names an address, begins an association.
///
/// # Errors
/// `EAGAIN` if the call must not wait; `EPIPE` without an association and an address; the errors of connect(2).
fn must_take_messages(fd: c_int, given: &Given, is_nonblocking_call: bool) -> Outcome<()> {
    while !table::has(fd, bit::CONNECTED) {
        match (must_be_connected(fd), &given.peer.address) {
            (Ok(true), _) => return Ok(()),
            (Ok(false), _) if is_nonblocking_call || is_nonblocking(fd) => return Err(libc::EAGAIN),
            (Ok(false), _) => wait_until_writable(fd)?,
            (Err(libc::ENOTCONN), Some(address)) => drop(connect_to(fd, address.as_bytes(), &mut 0)?),
            (Err(libc::ENOTCONN), None) => return Err(libc::EPIPE),
            (Err(error), _) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for an association that the message has begun, until the association is up. Linux does the same. Without this wait, a
/// program could close its socket before the association is up. The result of the wait is ignored, because the message was
/// already sent to the server.
fn wait_for_peer(fd: c_int, given: &Given) {
    let Some(address) = given.peer.address.filter(|_| given.header.association == 0) else { return };
    if given.header.sinfo_flags & (sinfo::EOF | sinfo::ABORT | sinfo::SENDALL) != 0 {
        return;
    }
    // The table stores this association under a hash of the peer's address, because its identifier is unknown. The hash cannot
    // equal an identifier, because identifiers are lower numbers.
    let place = table::hash(fd, address.as_bytes());
    if table::association_streams(fd, place).is_none() {
        let errno = crate::errno();
        let _ = ask(Operation::AwaitPeer, (1, 0), address.as_bytes(), Some(fd), &mut []);
        crate::set_errno(errno);
        table::set_association_streams(fd, place, u16::MAX);
    }
}

/// Checks that the message's stream exists. The library makes this check, because the server receives the message too late to refuse it.
///
/// # Errors
/// `EINVAL` if the association does not have the stream.
fn has_stream(fd: c_int, header: &DataHeader) -> Outcome<()> {
    if header.flags & flag::WITH_INFO == 0 || header.stream == 0 {
        return Ok(());
    }
    if table::streams(fd).is_some_and(|streams| header.stream < streams) {
        return Ok(());
    }
    let mut status = [0; STATUS];
    match ask(Operation::GetOption, (SOL_SCTP, option::STATUS), &[0; STATUS], Some(fd), &mut status) {
        // The numbers of streams are agreed only when the association is up.
        Ok(_) if status[4] < ESTABLISHED => Ok(()),
        Ok(_) => {
            let streams = u16::from_ne_bytes([status[18], status[19]]);
            table::set_streams(fd, streams);
            if header.stream < streams { Ok(()) } else { Err(libc::EINVAL) }
        }
        // Without an association, the send itself fails.
        Err(_) => Ok(()),
    }
}

/// Checks that a message of a one-to-many socket has an association or an address, and that its stream exists. The library makes this
/// check, because the server receives the message too late to refuse it.
///
/// # Errors
/// `EPIPE` without an association and an address; `EINVAL` if the association does not have the stream.
fn has_association(fd: c_int, given: &Given) -> Outcome<()> {
    let (id, flags) = (given.header.association, given.header.sinfo_flags);
    if flags & sinfo::SENDALL != 0 {
        return Ok(());
    }
    if id == 0 {
        given.peer.address.ok_or(libc::EPIPE)?;
        table::set(fd, bit::CONNECTED);
        return Ok(());
    }
    let streams = match table::association_streams(fd, id) {
        Some(streams) => streams,
        None => {
            let mut wanted = [0; STATUS];
            wanted[..4].copy_from_slice(&id.to_ne_bytes());
            let mut status = [0; STATUS];
            ask(Operation::GetOption, (SOL_SCTP, option::STATUS), &wanted, Some(fd), &mut status)
                .map_err(|error| if error == libc::EINVAL { libc::EPIPE } else { error })?;
            // The numbers of streams are agreed only when the association is up.
            let is_up = status[4] >= ESTABLISHED;
            let streams = u16::from_ne_bytes([status[18], status[19]]);
            if !is_up {
                return Ok(());
            }
            table::set_association_streams(fd, id, streams);
            streams
        }
    };
    if given.header.stream < streams { Ok(()) } else { Err(libc::EINVAL) }
}

/// Checks that a message of `length` bytes fits into one packet.
///
/// # Errors
/// `EMSGSIZE` for a message that needs more than one packet.
fn fits_one_packet(fd: c_int, given: &Given, length: usize) -> Outcome<()> {
    /// Length of a packet's headers in bytes: the header of a DATA chunk, SCTP's common header, and the headers of IPv4 and UDP.
    const HEADERS: usize = 16 + 12 + 20 + 8;
    let mut value = [0; STATUS];
    let limit = match (&given.peer.address, given.header.association) {
        (Some(address), 0) => {
            // The last field of struct sctp_paddrinfo is the path's MTU.
            let mut wanted = [0; 152];
            wanted[4..4 + address.as_bytes().len()].copy_from_slice(address.as_bytes());
            let name = option::GET_PEER_ADDR_INFO;
            ask(Operation::GetOption, (SOL_SCTP, name), &wanted, Some(fd), &mut value)
                .map(|_| u32_at(&value, 148).saturating_sub(HEADERS))
        }
        (_, id) => {
            let mut wanted = [0; STATUS];
            wanted[..4].copy_from_slice(&id.to_ne_bytes());
            ask(Operation::GetOption, (SOL_SCTP, option::STATUS), &wanted, Some(fd), &mut value)
                .map(|_| u32_at(&value, 20))
        }
    };
    // The limit is known only when the association is up.
    if limit.is_ok_and(|limit| limit > 0 && length > limit) { Err(libc::EMSGSIZE) } else { Ok(()) }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let number = u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Length of `struct sctp_status` in bytes, and the value `SCTP_ESTABLISHED` of the state in this structure.
const STATUS: usize = 176;
const ESTABLISHED: u8 = 4;

/// Sends one message of `length` bytes, with flags of send(2). Returns the number of bytes sent. `EPIPE` raises no signal.
///
/// # Errors
/// The errors of send(2).
///
/// # Safety
/// The `length` bytes at `buffer` may be read. The kernel checks the pointer.
pub unsafe fn send_bytes(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> Outcome {
    let part = iovec { iov_base: buffer.cast_mut(), iov_len: length };
    transmit(fd, &[part], &Given::nothing(), flags)
}

/// Sends one message from `count` buffers, as writev(2) does. Returns the number of bytes sent. `EPIPE` raises no signal.
///
/// # Errors
/// The errors of writev(2).
///
/// # Safety
/// `parts` points to `count` descriptions of buffers, or is null. The buffers may be read.
pub unsafe fn send_parts(fd: c_int, parts: *const iovec, count: c_int) -> Outcome {
    // SAFETY: the caller fulfils this function's requirements.
    let parts = unsafe { parts_of(parts, usize::try_from(count).unwrap_or(usize::MAX)) };
    parts.and_then(|parts| transmit(fd, parts, &Given::nothing(), 0))
}

/// Sends one message of `length` bytes to an address of `size` bytes, as sendto(2) does. Returns the number of bytes sent. `EPIPE`
/// raises no signal.
///
/// # Errors
/// The errors of sendto(2).
///
/// # Safety
/// The `length` bytes at `buffer` may be read. The kernel checks this pointer. `address` points to `size` bytes, or is null.
pub unsafe fn send_to(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> Outcome {
    let part = iovec { iov_base: buffer.cast_mut(), iov_len: length };
    // SAFETY: the caller fulfils this function's requirements.
    let given = unsafe { peer_of(fd, address, size) }.map(|peer| Given { peer, ..Given::nothing() });
    given.and_then(|given| transmit(fd, &[part], &given, flags))
}

/// Returns the peer that a program names. On a connected one-to-one socket, checks that the address belongs to the socket's peer,
/// and returns no address.
///
/// # Errors
/// `EADDRNOTAVAIL` for an address of another peer; `EFAULT` or `EINVAL` for an invalid address.
///
/// # Safety
/// `address` points to `length` bytes, or is null.
unsafe fn peer_of(fd: c_int, address: *const sockaddr, length: socklen_t) -> Outcome<Peer> {
    if address.is_null() || length == 0 {
        return Ok(Peer::default());
    }
    // SAFETY: the caller fulfils this function's requirements.
    let address = unsafe { crate::address::given(address, length) }?;
    let address = SockAddr::read(address).map_err(|_| libc::EINVAL)?;
    let is_connected = || table::has(fd, bit::CONNECTED) || must_be_connected(fd) == Ok(true);
    if !table::is_one_to_many(fd) && is_connected() {
        // A message of a peeled-off socket goes to the socket's peer, even if the program names another address.
        let checked = if table::has(fd, bit::PEELED) { Ok(()) } else { is_of_peer(fd, &address) };
        return checked.map(|()| Peer::default());
    }
    Ok(Peer { address: Some(address), ..Peer::default() })
}

/// Checks that an address belongs to the peer of a connected socket.
///
/// # Errors
/// `EADDRNOTAVAIL` if the address belongs to no path of this peer.
fn is_of_peer(fd: c_int, address: &SockAddr) -> Outcome<()> {
    /// Length of the fields before the addresses of `struct sctp_getaddrs`, in bytes: the identifier and the number of addresses.
    const HEAD: usize = 8;
    let wanted = read_addresses(address.as_bytes()).next();
    let is_wanted = |bytes: &[u8]| read_addresses(bytes).any(|address| Some(address) == wanted);
    if crate::address::peer(fd).is_none_or(|(bytes, length)| is_wanted(&bytes[..length])) {
        // Either the address is the peer's first address, or the socket has no association. Without an association, the send itself
        // fails later.
        return Ok(());
    }
    let mut all = [0; HEAD + 64 * SOCKADDR_MAX];
    let name = (SOL_SCTP, option::GET_PEER_ADDRS);
    let wanted = [0; HEAD + 64 * SOCKADDR_MAX];
    let reply = ask(Operation::GetOption, name, &wanted, Some(fd), &mut all)?;
    let told = all.get(HEAD..reply.length.min(all.len())).unwrap_or_default();
    if is_wanted(told) { Ok(()) } else { Err(libc::EADDRNOTAVAIL) }
}

/// Sends one message with its ancillary data, with flags of sendmsg(2). Returns the number of bytes sent. `EPIPE` raises no signal.
///
/// # Errors
/// The errors of sendmsg(2).
///
/// # Safety
/// The message's pointers are valid.
pub unsafe fn send_message(fd: c_int, message: &msghdr, flags: c_int) -> Outcome {
    // SAFETY: the caller fulfils this function's requirements.
    let (parts, mut given, peer) = unsafe {
        let is_one_to_many = table::is_one_to_many(fd);
        let address = peer_of(fd, message.msg_name.cast(), message.msg_namelen)?;
        (
            parts_of(message.msg_iov, message.msg_iovlen as usize)?,
            crate::cmsg::read(message, is_one_to_many)?,
            address,
        )
    };
    given.peer.address = peer.address;
    transmit(fd, parts, &given, flags)
}

/// Sends `count` messages, as sendmmsg(2) does. Returns the number of messages sent. `EPIPE` raises no signal.
///
/// # Errors
/// The errors of sendmsg(2), if the first message cannot be sent.
///
/// # Safety
/// `messages` points to `count` messages, whose pointers are valid.
pub unsafe fn send_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Outcome<c_int> {
    let mut sent = 0;
    for number in 0..count as usize {
        // SAFETY: the caller fulfils this function's requirements.
        let result = unsafe {
            let message = &mut *messages.add(number);
            send_message(fd, &message.msg_hdr, flags).inspect(|length| {
                message.msg_len = c_uint::try_from(*length).unwrap_or(c_uint::MAX);
            })
        };
        match result {
            Ok(_) => sent += 1,
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}

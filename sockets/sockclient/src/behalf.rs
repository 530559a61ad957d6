//! Socket calls that one process performs on behalf of another process. The caller passes copies of the other process's descriptors
//! and memory.
//!
//! No call waits for the peer. If a call on a blocking socket would wait, the call returns `EAGAIN` or `EINPROGRESS`. A call still
//! waits for the server's answer. Each descriptor must have been entered with [`table::put`].

use core::ffi::c_int;
use core::time::Duration;

use libc::{iovec, msghdr, socklen_t};
use sockproto::abi::option;
use sockproto::{Operation, SOCKADDR_MAX};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::ask::ask;
use crate::table::{self, Facts, bit};
use crate::{Outcome, parts, recv, send, setup};

pub use crate::recv::unread;
pub use crate::setup::{is_of_server, listen, shutdown};

/// Buffers for a message to receive.
#[derive(Debug)]
pub struct Message<'a> {
    /// Buffer for the message's data.
    pub bytes: &'a mut [u8],
    /// Buffer for the control data.
    pub control: &'a mut [u8],
    /// Buffer for the peer's address. If it is empty, the address is not requested.
    pub name: &'a mut [u8],
}

/// Lengths of the filled parts of the buffers in a [`Message`], and the received message's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Octets of data.
    pub length: usize,
    /// Octets of control data.
    pub control_length: usize,
    /// Octets of the peer's address.
    pub name_length: usize,
    /// The bits `MSG_EOR`, `MSG_NOTIFICATION` and `MSG_CTRUNC`.
    pub flags: c_int,
}

/// Takes ownership of a descriptor that a call has just created. Removes the descriptor from the table.
fn owned(fd: c_int) -> OwnedFd {
    table::forget(fd);
    // SAFETY: the call has just created the descriptor for its caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Opens a socket of this address family and type.
///
/// # Errors
/// The errors of socket(2); `ENETDOWN` if the server does not exist.
pub fn open(domain: c_int, kind: c_int) -> Outcome<(OwnedFd, Facts)> {
    let fd = setup::open(domain, kind | libc::SOCK_CLOEXEC)?;
    let facts = table::take(fd);
    Ok((owned(fd), facts))
}

/// Reports whether the program has made the socket nonblocking (`O_NONBLOCK`).
pub fn is_nonblocking(fd: c_int) -> bool {
    setup::has_nonblocking_flag(fd)
}

/// Returns the time limit of a socket (`SO_SNDTIMEO` or `SO_RCVTIMEO`), or `None` if the socket has no limit.
pub fn time_limit(fd: c_int, is_to_send: bool) -> Option<Duration> {
    let name = if is_to_send { libc::SO_SNDTIMEO } else { libc::SO_RCVTIMEO };
    let milliseconds = setup::milliseconds(fd, name);
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// Binds the socket to the first address of a packed list, as bind(2) does.
///
/// # Errors
/// The errors of bind(2).
pub fn bind(fd: c_int, addresses: &[u8]) -> Outcome<c_int> {
    let length = socklen_t::try_from(addresses.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the list has this length.
    unsafe { setup::bind(fd, addresses.as_ptr().cast(), length) }
}

/// Connects to a peer with a packed list of addresses. Sets `begun` to the association's identifier, even if the call fails with
/// `EINPROGRESS`.
///
/// # Errors
/// The errors of connect(2). `EINPROGRESS` means that the association is being set up. The socket becomes writable when the attempt has
/// ended, and [`finish_connect`] then returns the result.
pub fn connect(fd: c_int, addresses: &[u8], begun: &mut c_int) -> Outcome<c_int> {
    setup::connect_to(fd, addresses, begun)
}

/// Returns the result of an attempt of [`connect`] that was in progress and has ended.
///
/// # Errors
/// The attempt's error, such as `ECONNREFUSED` and `ETIMEDOUT`.
pub fn finish_connect(fd: c_int) -> Outcome<()> {
    match setup::pending_error(fd)? {
        0 => {
            table::set(fd, bit::CONNECTED);
            Ok(())
        }
        error => Err(error),
    }
}

/// Begins to connect a one-to-many socket. Returns the connection on which the server will report the end of the attempt. When the
/// connection is readable, [`end_attempt`] returns the result. Closing the connection cancels the report.
///
/// # Errors
/// `ENETDOWN` if the server does not exist; `EMFILE` or `ENFILE` for too many descriptors.
pub fn attempt(fd: c_int, addresses: &[u8]) -> Outcome<OwnedFd> {
    table::set(fd, bit::CONNECTED);
    crate::ask::begin(Operation::Connect, (1, 0), addresses, Some(fd)).map(owned)
}

/// Receives the server's report about an [`attempt`], and returns the association's identifier.
///
/// # Errors
/// The attempt's error, such as `ECONNREFUSED`, `ETIMEDOUT` and `EISCONN`. `EINPROGRESS` if too many callers wait at the server.
pub fn end_attempt(connection: OwnedFd) -> Outcome<c_int> {
    let reply = crate::ask::answer(connection.as_raw_fd(), &mut [])?;
    if reply.is_in_progress { Err(libc::EINPROGRESS) } else { Ok(reply.value) }
}

/// Asks the server to report when the association with this peer is up. The caller uses this function after a message that began
/// the association, because in Linux a blocking send waits until the association is up.
///
/// The returned connection becomes readable when the report arrives. Closing the connection cancels the report.
///
/// # Errors
/// `ENETDOWN` if the server does not exist; `EMFILE` or `ENFILE` for too many descriptors.
pub fn await_peer(fd: c_int, address: &[u8]) -> Outcome<OwnedFd> {
    crate::ask::begin(Operation::AwaitPeer, (1, 0), address, Some(fd)).map(owned)
}

/// Takes an association from a listener's queue. The new socket is nonblocking only if `flags` has `SOCK_NONBLOCK`.
///
/// # Errors
/// The errors of accept(2).
pub fn accept(fd: c_int, flags: c_int) -> Outcome<(OwnedFd, Facts)> {
    let accepted = setup::accept_one(fd, flags | libc::SOCK_CLOEXEC)?;
    let facts = table::take(accepted);
    Ok((owned(accepted), facts))
}

/// Moves an association of a one-to-many socket to a new socket. The new socket is nonblocking only if `flags` has `SOCK_NONBLOCK`.
///
/// # Errors
/// `EINVAL` for an unknown identifier.
pub fn peel_off(fd: c_int, id: c_int, flags: c_int) -> Outcome<(OwnedFd, Facts)> {
    let mut value = [id, 0, flags | libc::SOCK_CLOEXEC];
    let length = size_of_val(&value);
    // SAFETY: the value has this length.
    let peeled = unsafe { setup::peel_off(fd, option::PEELOFF_FLAGS, value.as_mut_ptr().cast(), length) }?;
    let facts = table::take(peeled);
    Ok((owned(peeled), facts))
}

/// Returns the socket's local address or its peer's address: the bytes and their number. `operation` is [`Operation::LocalName`] or
/// [`Operation::PeerName`].
///
/// # Errors
/// The errors of getsockname(2) and getpeername(2).
pub fn name(fd: c_int, operation: Operation) -> Outcome<([u8; SOCKADDR_MAX], usize)> {
    let mut bytes = [0; SOCKADDR_MAX];
    let reply = ask(operation, (0, 0), &[], Some(fd), &mut bytes)?;
    if reply.is_in_progress { Err(libc::ENOTCONN) } else { Ok((bytes, reply.length.min(SOCKADDR_MAX))) }
}

/// Reads an option. Before the call, `value` holds the content of the program's buffer; afterwards it holds the answer. Returns the
/// answer's length in bytes.
///
/// # Errors
/// The errors of getsockopt(2).
pub fn option(fd: c_int, level: c_int, name: c_int, value: &mut [u8]) -> Outcome<usize> {
    let mut length = socklen_t::try_from(value.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the value has this length.
    unsafe { setup::get_option(fd, level, name, value.as_mut_ptr().cast(), &raw mut length) }?;
    usize::try_from(length).map_err(|_| libc::EINVAL)
}

/// Sets an option. If the kernel's `AF_UNIX` socket has the option, the kernel sets it with the rights of the calling process.
///
/// # Errors
/// The errors of setsockopt(2).
pub fn set_option(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Outcome<c_int> {
    let length = socklen_t::try_from(value.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the value has this length.
    unsafe { setup::setsockopt(fd, level, name, value.as_ptr().cast(), length) }
}

/// Receives one message, or as much of it as fits into the buffers.
///
/// # Errors
/// The errors of recvmsg(2).
pub fn receive(fd: c_int, message: Message<'_>, flags: c_int) -> Outcome<Taken> {
    let mut part = parts::part_mut(message.bytes);
    let mut control = Control([0; CONTROL_MAX]);
    let mut header = header(&raw mut part, &mut control, message.control.len().min(CONTROL_MAX));
    if !message.name.is_empty() {
        header.msg_name = message.name.as_mut_ptr().cast();
        header.msg_namelen = socklen_t::try_from(message.name.len()).unwrap_or(0);
    }
    // SAFETY: all pointers are valid during the call.
    let length = unsafe { recv::receive_message(fd, &mut header, flags) }?;
    let control_length = (header.msg_controllen as usize).min(message.control.len());
    message.control[..control_length].copy_from_slice(&control.0[..control_length]);
    Ok(Taken {
        length: usize::try_from(length).unwrap_or(0),
        control_length,
        name_length: usize::try_from(header.msg_namelen).unwrap_or(0).min(message.name.len()),
        flags: header.msg_flags,
    })
}

/// Sends one message. The control data `control` and the destination address `name` may be empty. Returns the number of bytes sent.
///
/// # Errors
/// The errors of sendmsg(2); `ENOBUFS` for more than [`CONTROL_MAX`] octets of control data. `EPIPE` raises no signal.
pub fn send(fd: c_int, bytes: &[u8], control: &[u8], name: &[u8], flags: c_int) -> Outcome<usize> {
    let mut part = parts::part(bytes);
    let mut copy = Control([0; CONTROL_MAX]);
    copy.0.get_mut(..control.len()).ok_or(libc::ENOBUFS)?.copy_from_slice(control);
    let mut header = header(&raw mut part, &mut copy, control.len());
    if !name.is_empty() {
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = socklen_t::try_from(name.len()).map_err(|_| libc::EINVAL)?;
    }
    // SAFETY: all pointers are valid during the call, which only reads.
    let sent = unsafe { send::send_message(fd, &header, flags | libc::MSG_DONTWAIT) }?;
    usize::try_from(sent).map_err(|_| libc::EMSGSIZE)
}

/// Limit on the control data of a message, in octets. All ancillary data items of SCTP together need less than a quarter of this
/// limit.
pub const CONTROL_MAX: usize = 1024;

/// Control data, aligned as `struct cmsghdr`.
#[repr(align(8))]
struct Control([u8; CONTROL_MAX]);

/// Returns a message header for one buffer and its control data. The header points to the buffer and to the control data, and
/// must not outlive them.
fn header(part: *mut iovec, control: &mut Control, control_length: usize) -> msghdr {
    // SAFETY: zeroes are a valid message header.
    let mut header: msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    if control_length > 0 {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control_length as _;
    }
    header
}

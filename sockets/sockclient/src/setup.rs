//! Functions that create, name, connect and shut down sockets, and get or set their options.

use core::ffi::{c_int, c_short, c_void};
use core::mem::MaybeUninit;

use libc::{SO_ERROR, SOL_SOCKET, pollfd, sockaddr, socklen_t, timeval};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{DATA_HEADER, DataHeader, Kind, Operation, PEER_LENGTH, SOCKADDR_MAX};

use crate::ask::{DescriptorSpace, ask, has_server, received_descriptor};
use crate::parts::{Parts, part, part_mut};
use crate::recv::{peek, peek_offset, set_peek_offset, wait_for_message};
use crate::table::{self, bit};
use crate::{Outcome, address, errno, outcome, real};

/// Longest option value that is passed to the server, in bytes.
const OPTION_MAX: usize = 16 << 10;

/// Options of `SOL_SOCKET` that the server implements. The kernel's `AF_UNIX` socket implements all other options.
const OF_SERVER: [c_int; 11] = [
    libc::SO_ERROR,
    libc::SO_DOMAIN,
    libc::SO_TYPE,
    libc::SO_PROTOCOL,
    libc::SO_ACCEPTCONN,
    libc::SO_LINGER,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_KEEPALIVE,
    libc::SO_OOBINLINE,
    libc::SO_DONTROUTE,
];

/// Reports whether a new socket of this domain, type and protocol becomes an sctpify socket. The protocol must be SCTP, or 0 with
/// the type `SOCK_SEQPACKET`. The program must also know the name of a server.
pub fn is_served(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    let style = style(kind);
    let is_inet = matches!(domain, libc::AF_INET | libc::AF_INET6);
    let is_sctp = protocol == libc::IPPROTO_SCTP && matches!(style, libc::SOCK_STREAM | libc::SOCK_SEQPACKET)
        || protocol == 0 && style == libc::SOCK_SEQPACKET;
    is_inet && is_sctp && has_server()
}

/// Returns the socket type without the flags that socket(2) accepts with it.
fn style(kind: c_int) -> c_int {
    kind & 0xf
}

/// Creates a socket, as socket(2) does. `kind` is the type, perhaps with `SOCK_CLOEXEC` and `SOCK_NONBLOCK`. Returns the socket's
/// descriptor.
///
/// # Errors
/// The server's error, as errno; `ENETDOWN` if the server does not exist; `EMFILE` for too many descriptors.
pub fn open(domain: c_int, kind: c_int) -> Outcome<c_int> {
    let style = style(kind);
    ask(Operation::Socket, (domain, style), &[], None, &mut []).and_then(|reply| {
        // If the process has too many descriptors, the kernel has dropped the new descriptor.
        let fd = lowest(reply.descriptor.ok_or(libc::EMFILE)?);
        set_flags(fd, kind & libc::SOCK_CLOEXEC != 0, kind & libc::SOCK_NONBLOCK != 0);
        table::add(fd, if style == libc::SOCK_SEQPACKET { bit::MANY } else { 0 });
        Ok(fd)
    })
}

/// Moves a new descriptor to the lowest free number, as POSIX requires. When the descriptor arrived, this number was still in use
/// by the connection to the server, which is now closed.
fn lowest(fd: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    let copy = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    let (kept, other) = if (0..fd).contains(&copy) { (copy, fd) } else { (fd, copy) };
    if other >= 0 {
        // SAFETY: this function owns the descriptor.
        unsafe { real::close(other) };
    }
    kept
}

/// Sets the flags of a new descriptor. A descriptor from the server is close-on-exec and blocking at first.
fn set_flags(fd: c_int, is_cloexec: bool, is_nonblocking: bool) {
    // SAFETY: the calls take no pointers.
    unsafe {
        if !is_cloexec {
            real::fcntl(fd, libc::F_SETFD, 0);
        }
        if is_nonblocking {
            let flags = real::fcntl(fd, libc::F_GETFL, 0);
            real::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK).into());
        }
    }
}

/// Reports whether calls on a descriptor must not wait.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    table::has(fd, bit::ON_BEHALF) || has_nonblocking_flag(fd)
}

/// Reports whether a descriptor has `O_NONBLOCK`.
pub(crate) fn has_nonblocking_flag(fd: c_int) -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { real::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
}

/// Returns `MSG_DONTWAIT` for a copy of another process's descriptor, on which calls must never wait. Returns 0 for other descriptors.
pub(crate) fn without_waiting(fd: c_int) -> c_int {
    if table::has(fd, bit::ON_BEHALF) { libc::MSG_DONTWAIT } else { 0 }
}

/// Gives a socket its local address, of `length` bytes, as bind(2) does. Returns 0.
///
/// # Errors
/// The errors of bind(2).
///
/// # Safety
/// `address` points to `length` bytes, or is null.
pub unsafe fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> Outcome<c_int> {
    // SAFETY: the caller fulfils this function's requirements.
    let packed = unsafe { address::given(address, length) };
    packed.and_then(|packed| tell(fd, Operation::Bind, (0, 0), packed))
}

/// Sends a request whose answer is only success or an error. Returns 0.
fn tell(fd: c_int, operation: Operation, arguments: (c_int, c_int), payload: &[u8]) -> Outcome<c_int> {
    ask(operation, arguments, payload, Some(fd), &mut []).map(|_| 0)
}

/// Makes a socket listen, as listen(2) does. A backlog of 0 ends the listening. Returns 0.
///
/// # Errors
/// The errors of listen(2).
pub fn listen(fd: c_int, backlog: c_int) -> Outcome<c_int> {
    let listening = tell(fd, Operation::Listen, (backlog, 0), &[]);
    if listening.is_ok() && table::is_one_to_many(fd) {
        table::set(fd, bit::CONNECTED);
    } else if listening.is_ok() && backlog != 0 {
        table::set(fd, bit::LISTENING);
    } else if listening.is_ok() {
        table::clear(fd, bit::LISTENING);
    }
    listening
}

/// Connects to an address of `length` bytes, as connect(2) does. Returns 0.
///
/// # Errors
/// The errors of connect(2).
///
/// # Safety
/// `address` points to `length` bytes, or is null.
pub unsafe fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> Outcome<c_int> {
    // SAFETY: the caller fulfils this function's requirements.
    let packed = unsafe { address::given(address, length) };
    packed.and_then(|packed| connect_to(fd, packed, &mut 0)).map(|_| 0)
}

/// Connects to a peer with a packed list of addresses. Returns the association's identifier.
///
/// # Errors
/// The errors of connect(2). If the error is `EINPROGRESS`, `begun` is the association's identifier.
pub(crate) fn connect_to(fd: c_int, packed: &[u8], begun: &mut c_int) -> Outcome<c_int> {
    // If the call may wait, the server answers only when the attempt has ended. Otherwise the server answers at once.
    let waits = c_int::from(!is_nonblocking(fd));
    let reply = ask(Operation::Connect, (waits, 0), packed, Some(fd), &mut [])?;
    *begun = reply.value;
    if table::is_one_to_many(fd) || !reply.is_in_progress {
        table::set(fd, bit::CONNECTED);
    }
    if reply.is_in_progress { Err(libc::EINPROGRESS) } else { Ok(reply.value) }
}

/// Returns the socket's pending error, and clears the error (`SO_ERROR`).
pub(crate) fn pending_error(fd: c_int) -> Outcome<c_int> {
    let mut value = [0; 4];
    ask(Operation::GetOption, (SOL_SOCKET, SO_ERROR), &[0; 4], Some(fd), &mut value)?;
    Ok(c_int::from_ne_bytes(value))
}

/// Waits until a descriptor is writable.
///
/// # Errors
/// `EAGAIN` after the time limit `SO_SNDTIMEO`; `EINTR` after a signal.
pub(crate) fn wait_until_writable(fd: c_int) -> Outcome<()> {
    wait_until(fd, libc::POLLOUT, fd)
}

/// Waits until a descriptor has one of these events of poll(2), up to the time limit `SO_SNDTIMEO` of `socket`.
///
/// # Errors
/// `EAGAIN` after the time limit; `EINTR` after a signal.
pub(crate) fn wait_until(fd: c_int, events: c_short, socket: c_int) -> Outcome<()> {
    let mut waiting = pollfd { fd, events, revents: 0 };
    // SAFETY: the pointer refers to one entry, which is the count that is passed.
    match outcome(
        unsafe { real::poll(&raw mut waiting, 1, milliseconds(socket, libc::SO_SNDTIMEO)) } as isize
    )? {
        0 => Err(libc::EAGAIN),
        _ => Ok(()),
    }
}

/// Returns the time limit of the option `name` (`SO_SNDTIMEO` or `SO_RCVTIMEO`) in milliseconds, or -1 for no limit, as for poll(2).
pub(crate) fn milliseconds(fd: c_int, name: c_int) -> c_int {
    let mut limit = timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = socklen_t::try_from(size_of::<timeval>()).unwrap_or(0);
    // SAFETY: the buffer has this length.
    let result = unsafe { real::getsockopt(fd, SOL_SOCKET, name, (&raw mut limit).cast(), &raw mut length) };
    if result != 0 || limit.tv_sec == 0 && limit.tv_usec == 0 {
        return -1;
    }
    let milliseconds =
        limit.tv_sec.saturating_mul(1000).saturating_add(limit.tv_usec.div_euclid(1000).max(1));
    c_int::try_from(milliseconds).unwrap_or(c_int::MAX)
}

/// Accepts an association, and copies the peer's address to `address`, as accept4(2) does. Returns the new socket's descriptor.
///
/// # Errors
/// The errors of accept4(2).
///
/// # Safety
/// `address` is null, or points to `*length` bytes.
pub unsafe fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Outcome<c_int> {
    let is_valid = address::is_plausible(address.cast::<u8>()) && address::is_plausible(length);
    if !address.is_null() && !is_valid {
        return Err(libc::EFAULT);
    }
    let errno = errno();
    accept_one(fd, flags).inspect(|accepted| {
        crate::set_errno(errno);
        // SAFETY: the caller fulfils this function's requirements.
        unsafe { address::copy_peer(*accepted, address, length) };
    })
}

#[inline(never)]
pub(crate) fn accept_one(fd: c_int, flags: c_int) -> Outcome<c_int> {
    if table::is_one_to_many(fd) {
        return Err(libc::EOPNOTSUPP);
    }
    if !table::has(fd, bit::LISTENING) {
        let mut value = [0; 4];
        ask(Operation::GetOption, (SOL_SOCKET, libc::SO_ACCEPTCONN), &[0; 4], Some(fd), &mut value)?;
        if value == [0; 4] {
            return Err(libc::EINVAL);
        }
        table::set(fd, bit::LISTENING);
    }
    let mut header = [0; DATA_HEADER];
    let mut peer = [0; SOCKADDR_MAX];
    let mut space = DescriptorSpace::new();
    let mut parts = Parts::new(part_mut(&mut header), &[part_mut(&mut peer)])?;
    let mut message = parts.message();
    message.msg_control = space.as_mut_ptr();
    message.msg_controllen = DescriptorSpace::length() as _;
    // ECONNRESET means that the server's end of the pair was closed.
    let is_down = |error| if error == libc::ECONNRESET { libc::ENETDOWN } else { error };
    wait_for_message(fd).map_err(is_down)?;
    // Without a free descriptor, recvmsg(2) would remove the association from the queue and drop it.
    has_free_descriptor()?;
    // SAFETY: all pointers are valid during the call.
    let received =
        outcome(unsafe { real::recvmsg(fd, &raw mut message, libc::MSG_CMSG_CLOEXEC | without_waiting(fd)) });
    let received = received.map_err(is_down)?;
    let received = usize::try_from(received).unwrap_or(0);
    let is_accepted = DataHeader::read(&header[..received.min(DATA_HEADER)])
        .is_some_and(|header| header.kind == Kind::Accepted);
    let accepted = match received_descriptor(&message) {
        Some(accepted) if is_accepted => accepted,
        None if message.msg_flags & libc::MSG_CTRUNC != 0 => return Err(libc::EMFILE),
        // The server has ended.
        _ => return Err(libc::ENETDOWN),
    };
    set_flags(accepted, flags & libc::SOCK_CLOEXEC != 0, flags & libc::SOCK_NONBLOCK != 0);
    table::add(accepted, bit::CONNECTED);
    table::set_peer(accepted, &peer[..received.saturating_sub(DATA_HEADER).min(SOCKADDR_MAX)]);
    // This message informs the server that the association no longer waits to be accepted.
    let told = DataHeader::new(Kind::Filling).to_bytes();
    let mut parts = Parts::new(part(&told), &[])?;
    let message = parts.message();
    // SAFETY: all pointers are valid during the call. An error is ignored: it means that the association or the server has ended,
    // which the program's next call also detects.
    unsafe { real::sendmsg(accepted, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    Ok(accepted)
}

/// Checks that the process may have one more descriptor.
///
/// # Errors
/// The errors of socket(2), such as `EMFILE`.
fn has_free_descriptor() -> Outcome<()> {
    // SAFETY: the calls take no pointers, and this function owns the descriptor.
    unsafe {
        let copy = outcome(real::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) as isize)?;
        real::close(c_int::try_from(copy).unwrap_or(-1));
    }
    Ok(())
}

/// Copies the socket's local address ([`Operation::LocalName`]) or its peer's address ([`Operation::PeerName`]) into `room`, as
/// getsockname(2) and getpeername(2) do. Returns 0.
///
/// # Errors
/// The errors of getsockname(2) and getpeername(2).
///
/// # Safety
/// `room` points to `*length` bytes. Either pointer may also be null or another pointer that
/// [`is_plausible`](address::is_plausible) rejects.
pub unsafe fn name(
    fd: c_int,
    operation: Operation,
    room: *mut sockaddr,
    length: *mut socklen_t,
) -> Outcome<c_int> {
    if !address::is_plausible(room.cast::<u8>()) || !address::is_plausible(length) {
        return Err(libc::EFAULT);
    }
    let mut bytes = [0; SOCKADDR_MAX];
    let reply = ask(operation, (0, 0), &[], Some(fd), &mut bytes)?;
    if reply.is_in_progress {
        return Err(libc::ENOTCONN);
    }
    // SAFETY: the caller fulfils this function's requirements.
    unsafe { address::copy(&bytes[..reply.length.min(SOCKADDR_MAX)], room, length) };
    Ok(0)
}

/// Reports whether the server implements an option. The kernel's `AF_UNIX` socket implements all other options.
pub fn is_of_server(level: c_int, name: c_int) -> bool {
    level != SOL_SOCKET || OF_SERVER.contains(&name)
}

/// Sets an option to a value of `length` bytes, as setsockopt(2) does. Returns 0, or the association's identifier for
/// `SCTP_SOCKOPT_CONNECTX`.
///
/// # Errors
/// The errors of setsockopt(2).
///
/// # Safety
/// `value` points to `length` bytes, or is null.
pub unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> Outcome<c_int> {
    if !is_of_server(level, name) {
        // SAFETY: the caller fulfils this function's requirements.
        outcome(unsafe { real::setsockopt(fd, level, name, value, length) } as isize)?;
        if name == libc::SO_SNDBUF {
            // A larger send buffer must not make a socket writable before the socket can send. The server therefore fills the
            // enlarged buffer again. An error is ignored, because it means that the server has ended.
            let _ = tell(fd, Operation::SetOption, (level, name), &[]);
        }
        return Ok(0);
    }
    // SAFETY: the caller fulfils this function's requirements.
    unsafe { bytes_of(value, length) }.and_then(|value| set_option(fd, level, name, value))
}

/// Returns the bytes of a value of the program.
///
/// # Errors
/// `EINVAL` for more than [`OPTION_MAX`] bytes; `EFAULT` for an invalid pointer.
///
/// # Safety
/// `value` points to `length` bytes, or is null.
unsafe fn bytes_of<'a>(value: *const c_void, length: socklen_t) -> Outcome<&'a [u8]> {
    let length = usize::try_from(length).ok().filter(|length| *length <= OPTION_MAX).ok_or(libc::EINVAL)?;
    match (address::is_plausible(value.cast::<u8>()), length) {
        (_, 0) => Ok(&[]),
        (false, _) => Err(libc::EFAULT),
        // SAFETY: the caller fulfils this function's requirements.
        _ => Ok(unsafe { core::slice::from_raw_parts(value.cast(), length) }),
    }
}

fn set_option(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Outcome<c_int> {
    match (level, name) {
        (SOL_SCTP, option::BINDX_ADD) => tell(fd, Operation::BindAdd, (0, 0), value),
        (SOL_SCTP, option::BINDX_REM) => tell(fd, Operation::BindRemove, (0, 0), value),
        (SOL_SCTP, option::CONNECTX) => connect_to(fd, value, &mut 0),
        (SOL_SCTP, option::CONNECTX_OLD) => connect_to(fd, value, &mut 0).map(|_| 0),
        (SOL_SCTP, option::DISABLE_FRAGMENTS) => set_switch(fd, name, value, bit::UNFRAGMENTED),
        // These options also apply to messages that already wait in the socket, so the library itself implements them.
        (SOL_SCTP, option::RECVRCVINFO) => set_switch(fd, name, value, bit::WANTS_RCVINFO),
        (SOL_SCTP, option::RECVNXTINFO) => set_switch(fd, name, value, bit::WANTS_NXTINFO),
        _ => tell(fd, Operation::SetOption, (level, name), value),
    }
}

/// Sets an option whose value is one `int`. Sets `bits` in the table if the value is not 0, and clears them otherwise.
fn set_switch(fd: c_int, name: c_int, value: &[u8], bits: u16) -> Outcome<c_int> {
    let done = tell(fd, Operation::SetOption, (SOL_SCTP, name), value)?;
    let is_on = value.iter().take(4).any(|byte| *byte != 0);
    if is_on {
        table::set(fd, bits)
    } else {
        table::clear(fd, bits)
    }
    Ok(done)
}

/// Copies an option's value to `value`, and its length to `length`, as getsockopt(2) does. Returns 0, or the new descriptor for
/// `SCTP_SOCKOPT_PEELOFF`.
///
/// # Errors
/// The errors of getsockopt(2).
///
/// # Safety
/// `value` points to `*length` bytes. Either pointer may also be null or another pointer that
/// [`is_plausible`](address::is_plausible) rejects.
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Outcome<c_int> {
    if !is_of_server(level, name) {
        // SAFETY: the caller fulfils this function's requirements.
        return outcome(unsafe { real::getsockopt(fd, level, name, value, length) } as isize).map(|_| 0);
    }
    if !address::is_plausible(value.cast::<u8>()) || !address::is_plausible(length) {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller fulfils this function's requirements.
    unsafe { get_option(fd, level, name, value, length) }
}

/// Does the same as [`getsockopt`] for an option that the server implements.
///
/// # Safety
/// `length` is valid, and `value` points to `*length` bytes.
#[inline(never)]
pub(crate) unsafe fn get_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Outcome<c_int> {
    // SAFETY: the caller fulfils this function's requirements.
    let room = usize::try_from(unsafe { *length }).map_err(|_| libc::EINVAL)?;
    if (level, name) == (SOL_SCTP, option::CONNECTX3) {
        // SAFETY: the caller fulfils this function's requirements.
        return unsafe { connectx3(fd, value, room, length) };
    }
    if level == SOL_SCTP && matches!(name, option::PEELOFF | option::PEELOFF_FLAGS) {
        // SAFETY: the caller fulfils this function's requirements.
        return unsafe { peel_off(fd, name, value, room) };
    }
    let mut answer = MaybeUninit::<[u8; OPTION_MAX]>::uninit();
    // SAFETY: bytes may have any value, and only those that the kernel has written are read.
    let answer = unsafe { core::slice::from_raw_parts_mut(answer.as_mut_ptr().cast::<u8>(), OPTION_MAX) };
    // SAFETY: the caller fulfils this function's requirements.
    let given = unsafe { core::slice::from_raw_parts(value.cast::<u8>(), room.min(OPTION_MAX)) };
    let reply = ask(Operation::GetOption, (level, name), given, Some(fd), answer)?;
    let told = reply.length.min(room).min(OPTION_MAX);
    // SAFETY: the caller fulfils this function's requirements, and the server's answer has at least these bytes.
    unsafe {
        core::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast(), told);
        *length = socklen_t::try_from(told).unwrap_or(0);
    }
    if (level, name) == (SOL_SOCKET, SO_ERROR) && told == 4 && answer[..4] == [0; 4] {
        // After a nonblocking connect(2), a program reads SO_ERROR. The answer 0 shows that the server works again.
        table::clear(fd, bit::DEAD);
    }
    Ok(0)
}

/// `struct sctp_peeloff_flags`. `struct sctp_peeloff` has the same fields except the flags.
#[repr(C)]
#[derive(Clone, Copy)]
struct PeelOff {
    id: c_int,
    descriptor: c_int,
    flags: c_int,
}

/// Moves an association to a new socket, and returns the socket's descriptor (`SCTP_SOCKOPT_PEELOFF`). `room` is the length of `value` in
/// bytes.
///
/// # Safety
/// `value` points to `room` bytes.
pub(crate) unsafe fn peel_off(fd: c_int, name: c_int, value: *mut c_void, room: usize) -> Outcome<c_int> {
    let length = if name == option::PEELOFF { 8 } else { size_of::<PeelOff>() };
    if room < length {
        return Err(libc::EINVAL);
    }
    let mut wanted = PeelOff { id: 0, descriptor: 0, flags: 0 };
    // SAFETY: the program's buffer and the structure have at least this length.
    unsafe { core::ptr::copy_nonoverlapping(value.cast::<u8>(), (&raw mut wanted).cast(), length) };
    // The server removes all unread messages from the socket's queue, and puts back the messages of other associations. The lock
    // prevents other threads from receiving during this time.
    let _lock = table::lock(fd);
    let partial = first_is_partial(fd);
    let asked = ask(Operation::PeelOff, (wanted.id, 0), &[], Some(fd), &mut []);
    let peeled = asked.and_then(|reply| reply.descriptor.ok_or(libc::EMFILE)).inspect_err(|_| {
        if let Some((read, _)) = partial {
            set_peek_offset(fd, c_int::try_from(read).unwrap_or(0));
        }
    })?;
    let peeled = lowest(peeled);
    set_flags(peeled, wanted.flags & libc::SOCK_CLOEXEC != 0, wanted.flags & libc::SOCK_NONBLOCK != 0);
    table::forget_association(fd, wanted.id);
    table::add(peeled, bit::CONNECTED | bit::PEELED);
    if let Some((read, id)) = partial {
        // On the new socket, the peer's address does not precede the data.
        let (of, read) = if id == wanted.id { (peeled, read - PEER_LENGTH) } else { (fd, read) };
        table::clear(fd, bit::PARTIAL);
        table::set(of, bit::PARTIAL);
        set_peek_offset(of, c_int::try_from(read).unwrap_or(0));
    }
    wanted.descriptor = peeled;
    // SAFETY: the program's buffer and the structure have at least this length.
    unsafe { core::ptr::copy_nonoverlapping((&raw const wanted).cast::<u8>(), value.cast(), length) };
    Ok(peeled)
}

/// If the first message of a one-to-many socket was read in part, returns the number of bytes read and the association's
/// identifier. Resets `SO_PEEK_OFF`, so the whole message counts as unread.
fn first_is_partial(fd: c_int) -> Option<(usize, c_int)> {
    let read = peek_offset(fd).filter(|read| *read > DATA_HEADER + PEER_LENGTH)?;
    set_peek_offset(fd, -1);
    let mut header = [0; DATA_HEADER];
    peek(fd, &mut Parts::new(part_mut(&mut header), &[]).ok()?.message()).ok()?;
    Some((read, DataHeader::read(&header)?.association))
}

/// `struct sctp_getaddrs_old`, which libsctp passes to connect.
#[repr(C)]
struct ConnectList {
    id: c_int,
    length: c_int,
    addresses: *const c_void,
}

/// Connects to a list of addresses, and writes the association's identifier to `value` (`SCTP_SOCKOPT_CONNECTX3`). `room` is the length of
/// `value` in bytes.
///
/// # Safety
/// `length` is valid, and `value` points to `room` bytes. The list of addresses in `value` has the length that `value` states.
unsafe fn connectx3(fd: c_int, value: *mut c_void, room: usize, length: *mut socklen_t) -> Outcome<c_int> {
    if room < size_of::<ConnectList>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller fulfils this function's requirements.
    let list = unsafe { value.cast::<ConnectList>().read_unaligned() };
    let bytes = socklen_t::try_from(list.length).map_err(|_| libc::EINVAL)?;
    // SAFETY: the program guarantees that the list has this length.
    let mut id = 0;
    let connected = connect_to(fd, unsafe { bytes_of(list.addresses, bytes) }?, &mut id);
    // The server returns the identifier even if the association is not up yet.
    if id != 0 && matches!(connected, Ok(_) | Err(libc::EINPROGRESS)) {
        // SAFETY: the caller fulfils this function's requirements.
        unsafe {
            value.cast::<c_int>().write_unaligned(id);
            *length = 4;
        }
    }
    connected.map(|_| 0)
}

/// Shuts a socket down, as shutdown(2) does. Returns 0.
///
/// # Errors
/// The errors of shutdown(2); `EOPNOTSUPP` for a one-to-many socket.
pub fn shutdown(fd: c_int, how: c_int) -> Outcome<c_int> {
    if table::is_one_to_many(fd) {
        return Err(libc::EOPNOTSUPP);
    }
    if !table::has(fd, bit::CONNECTED) {
        let mut room = [0; SOCKADDR_MAX];
        match ask(Operation::PeerName, (0, 0), &[], Some(fd), &mut room) {
            Ok(reply) if !reply.is_in_progress => table::set(fd, bit::CONNECTED),
            Ok(_) => return Err(libc::ENOTCONN),
            Err(error) => return Err(error),
        }
    }
    if how != libc::SHUT_WR {
        table::set(fd, bit::READ_OVER);
    }
    // SAFETY: the call takes no pointers.
    outcome(unsafe { real::shutdown(fd, how) } as isize).map(|_| 0)
}

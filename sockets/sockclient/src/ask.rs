//! Requests to the socket server, each over a separate connection. A lasting connection would not work, because a program may fork,
//! close all its descriptors or change its user ID at any time.

use core::ffi::{CStr, c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::ffi::CString;
use std::sync::OnceLock;

use libc::{cmsghdr, msghdr, sockaddr_un, socklen_t, timeval, ucred};
use sockproto::{Answer, Operation, Request, SERVER_VARIABLE};

use crate::parts::{Parts, part, part_mut};
use crate::{Outcome, errno, outcome, real, table};

/// A buffer for ancillary data of one descriptor, aligned as `struct cmsghdr`.
#[repr(C, align(8))]
pub(crate) struct DescriptorSpace([u8; 32]);

impl DescriptorSpace {
    pub(crate) const fn new() -> DescriptorSpace {
        DescriptorSpace([0; 32])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Returns the length of one descriptor's ancillary data, in bytes.
    pub(crate) fn length() -> usize {
        // SAFETY: the call only computes a length.
        usize::try_from(unsafe { libc::CMSG_SPACE(4) }).unwrap_or(0)
    }
}

/// The server's answer.
pub(crate) struct Reply {
    /// True if the server answered `EINPROGRESS`.
    pub(crate) is_in_progress: bool,
    pub(crate) value: c_int,
    /// Length of the whole payload, in bytes. If the caller's buffer is shorter, it contains only the beginning of the payload.
    pub(crate) length: usize,
    /// Descriptor that arrived with the answer. The caller owns the descriptor.
    pub(crate) descriptor: Option<c_int>,
}

/// The server's name, if [`set_server`] has set it. This name has priority over the name in the environment.
static SERVER: OnceLock<CString> = OnceLock::new();

/// Sets the server's abstract name, without the leading zero byte. A process needs this call if its environment does not contain
/// the name. Only the first call has an effect.
pub fn set_server(name: CString) {
    SERVER.get_or_init(|| name);
}

fn server() -> Option<&'static CStr> {
    SERVER.get().map(CString::as_c_str).or_else(|| real::environment(SERVER_VARIABLE))
}

/// Reports whether this program has the name of a server.
pub(crate) fn has_server() -> bool {
    server().is_some()
}

/// Time limit on waiting for the server, in seconds; 0: no limit.
static LIMIT: AtomicU32 = AtomicU32::new(0);

/// Time until which the server counts as stalled, in seconds of the monotonic clock ([`table::seconds`]).
static STALLED_UNTIL: AtomicU32 = AtomicU32::new(0);

/// Limits the time that one call of this process waits for the server, in whole seconds; 0: no limit. A call that exceeds the limit
/// fails with `ENETDOWN`.
pub fn set_limit(limit: Duration) {
    LIMIT.store(u32::try_from(limit.as_secs()).unwrap_or(0), Ordering::Relaxed);
}

/// Sends a request to the server and waits for the answer. `socket` is the socket that the request concerns, if any. Copies the
/// beginning of the answer's payload into `room`.
///
/// # Errors
/// The server's error, as errno; `ENETDOWN` if the server does not exist or does not answer; `EMFILE` or `ENFILE` for too many descriptors.
/// A wait for an association can also end with `EINTR`, or with `EINPROGRESS` after the socket's time limit.
pub(crate) fn ask(
    operation: Operation,
    (first, second): (c_int, c_int),
    payload: &[u8],
    socket: Option<c_int>,
    room: &mut [u8],
) -> Outcome<Reply> {
    let errno = errno();
    let connection = begin(operation, (first, second), payload, socket)?;
    // The server answers some requests only when the set-up of an association has ended. A signal ends the wait for such an answer,
    // as on a kernel's socket.
    let waits = matches!(operation, Operation::Connect | Operation::AwaitPeer) && first != 0;
    let waited = match socket.filter(|_| waits) {
        Some(socket) => {
            crate::setup::wait_until(connection, libc::POLLIN, socket).map_err(|error| match error {
                libc::EAGAIN => libc::EINPROGRESS,
                other => other,
            })
        }
        None => Ok(()),
    };
    let answered = waited.and_then(|()| answer(connection, room));
    // SAFETY: this function owns the descriptor.
    unsafe { real::close(connection) };
    if answered.is_ok() {
        crate::set_errno(errno);
    }
    answered
}

/// Sends a request over a new connection, and returns the connection.
///
/// # Errors
/// `ENETDOWN` if the server does not exist or stalls; `EMFILE` or `ENFILE` for too many descriptors.
pub(crate) fn begin(
    operation: Operation,
    (first, second): (c_int, c_int),
    payload: &[u8],
    socket: Option<c_int>,
) -> Outcome<c_int> {
    // After one call has exceeded the time limit, all calls fail at once for the duration of the limit.
    if table::seconds() < STALLED_UNTIL.load(Ordering::Relaxed) {
        return Err(libc::ENETDOWN);
    }
    let connection = connect().map_err(|error| {
        note_stalled(error);
        match error {
            libc::EMFILE | libc::ENFILE => error,
            _ => libc::ENETDOWN,
        }
    })?;
    let sent = send(connection, &Request { operation, first, second, payload }, socket);
    if sent.is_err() {
        // SAFETY: this function owns the descriptor.
        unsafe { real::close(connection) };
    }
    sent.map(|()| connection)
}

/// If the error shows that a call has exceeded the time limit, marks the server as stalled for the duration of the limit.
fn note_stalled(error: c_int) {
    if error == libc::EAGAIN {
        STALLED_UNTIL.store(table::seconds() + LIMIT.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Connects to the server. The server's name ends with a user ID. Checks that the server runs as this user.
fn connect() -> Outcome<c_int> {
    let name = server().ok_or(libc::ENETDOWN)?.to_bytes();
    // SAFETY: zeroes are a valid address.
    let mut address: sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(0);
    let places = address.sun_path.get_mut(1..=name.len()).ok_or(libc::ENAMETOOLONG)?;
    for (place, byte) in places.iter_mut().zip(name) {
        *place = byte.cast_signed() as core::ffi::c_char;
    }
    let length = offset_of!(sockaddr_un, sun_path) + 1 + name.len();
    let length = socklen_t::try_from(length).map_err(|_| libc::ENAMETOOLONG)?;
    // SAFETY: the call takes no pointers.
    let socket = unsafe { real::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(errno());
    }
    let limit = timeval { tv_sec: LIMIT.load(Ordering::Relaxed).into(), tv_usec: 0 };
    if limit.tv_sec > 0 {
        let length = socklen_t::try_from(size_of::<timeval>()).unwrap_or(0);
        for name in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
            // SAFETY: the value has this length.
            unsafe { real::setsockopt(socket, libc::SOL_SOCKET, name, (&raw const limit).cast(), length) };
        }
    }
    // SAFETY: the address has this length.
    let connected = unsafe { real::connect(socket, (&raw const address).cast(), length) };
    let result = match connected {
        0 if is_of_named_user(socket, name) => Ok(socket),
        0 => Err(libc::EACCES),
        _ => Err(errno()),
    };
    if result.is_err() {
        // SAFETY: this function owns the descriptor.
        unsafe { real::close(socket) };
    }
    result
}

/// Reports whether the server runs as the user whose ID is at the end of the server's name. The check is needed, because any user
/// can take an unused name.
fn is_of_named_user(socket: c_int, name: &[u8]) -> bool {
    let digits = name.rsplit(|byte| *byte == b'-').next().unwrap_or_default();
    let wanted = core::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok());
    let mut found = ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = socklen_t::try_from(size_of::<ucred>()).unwrap_or(0);
    // SAFETY: the buffer has this length.
    let result = unsafe {
        real::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    result == 0 && wanted == Some(found.uid)
}

#[inline(never)]
fn send(connection: c_int, request: &Request<'_>, socket: Option<c_int>) -> Outcome<()> {
    let header = request.header();
    let mut parts = Parts::new(part(&header), &[part(request.payload)])?;
    let mut space = DescriptorSpace::new();
    let mut message = parts.message();
    if let Some(socket) = socket {
        message.msg_control = space.as_mut_ptr();
        message.msg_controllen = DescriptorSpace::length() as _;
        // SAFETY: the space is large enough for one descriptor, and aligned.
        unsafe {
            let control: *mut cmsghdr = libc::CMSG_FIRSTHDR(&raw const message);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(control).cast::<c_int>().write_unaligned(socket);
        }
    }
    // SAFETY: all pointers are valid during the call.
    let sent = repeat(|| unsafe { real::sendmsg(connection, &raw const message, libc::MSG_NOSIGNAL) });
    // A server that refuses this user closes the connection, so the send fails.
    sent.map_err(|error| {
        note_stalled(error);
        match error {
            libc::EFAULT => error,
            _ => libc::ENETDOWN,
        }
    })?;
    Ok(())
}

/// Receives the answer to a request of [`begin`], and copies the beginning of the answer's payload into `room`.
///
/// # Errors
/// The server's error, as errno; `ENETDOWN` if the server does not answer.
#[inline(never)]
pub(crate) fn answer(connection: c_int, room: &mut [u8]) -> Outcome<Reply> {
    let mut space = DescriptorSpace::new();
    let mut header = [0; 16];
    let mut parts = Parts::new(part_mut(&mut header), &[part_mut(room)])?;
    let mut message = parts.message();
    message.msg_control = space.as_mut_ptr();
    message.msg_controllen = DescriptorSpace::length() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
    // SAFETY: all pointers are valid during the call.
    let received = repeat(|| unsafe { real::recvmsg(connection, &raw mut message, flags) });
    let received = received.map_err(|error| {
        note_stalled(error);
        libc::ENETDOWN
    })?;
    let length = usize::try_from(received).unwrap_or(0);
    let descriptor = received_descriptor(&message);
    let answer = Answer::read(&header[..length.min(16)]).ok_or(libc::ENETDOWN)?;
    match answer.error {
        0 | libc::EINPROGRESS => Ok(Reply {
            is_in_progress: answer.error != 0,
            value: answer.value,
            length: length - 16,
            descriptor,
        }),
        error => Err(error),
    }
}

/// Returns the first descriptor that arrived with a message. Returns `None` if no descriptor arrived.
pub(crate) fn received_descriptor(message: &msghdr) -> Option<c_int> {
    // SAFETY: the kernel has filled in the header.
    unsafe {
        let control: *mut cmsghdr = libc::CMSG_FIRSTHDR(message);
        let is_one = !control.is_null()
            && (*control).cmsg_level == libc::SOL_SOCKET
            && (*control).cmsg_type == libc::SCM_RIGHTS;
        is_one.then(|| libc::CMSG_DATA(control).cast::<c_int>().read_unaligned())
    }
}

/// Repeats a call for as long as signals interrupt it (`EINTR`).
fn repeat(mut call: impl FnMut() -> isize) -> Outcome {
    loop {
        match outcome(call()) {
            Err(libc::EINTR) => {}
            other => return other,
        }
    }
}

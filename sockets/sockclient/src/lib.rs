//! A program's side of an SCTP socket.
//!
//! A socket of protocol 132 is one end of an `AF_UNIX` pair, whose other end the socket server has ([`sockproto`]); the kernel does
//! reading, writing, polling, `fork` and closing, and this crate translates between the headers of the pair's messages and what RFC 6458
//! puts into ancillary data and options. Its functions take descriptors that [`table::is_ours`] knows; calls on all others belong to the
//! C library ([`real`]).
//!
//! Nothing here allocates, keeps a thread or takes a lock that a signal handler could wait for without end. Which descriptors are
//! sockets of ours is kept in a table ([`table`]), which the kernel's name of the socket can always rebuild. No function replaces one of
//! the C library: only `libsctpify` does. Begin with [`setup::open`].
#![allow(unsafe_code, reason = "the functions of a C library take pointers")]

pub mod address;
pub mod ask;
pub mod behalf;
mod cmsg;
mod parts;
pub mod real;
pub mod recv;
pub mod send;
pub mod setup;
pub mod table;

use core::ffi::c_int;

/// The result of a call: a number, or errno.
pub type Outcome<T = isize> = Result<T, c_int>;

/// Returns the thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the C library's function returns a valid pointer for each thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's errno.
pub fn set_errno(error: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error }
}

/// Returns a C library's result as an [`Outcome`].
///
/// # Errors
/// The thread's errno, if the result is negative.
pub fn outcome(result: isize) -> Outcome {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

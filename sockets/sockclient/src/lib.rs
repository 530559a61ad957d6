//! A program's side of an SCTP socket.
//!
//! A socket of protocol 132 is one end of a pair of `AF_UNIX` sockets. The socket server owns the other end ([`sockproto`]). The
//! kernel handles reading, writing, polling, `fork` and closing. This crate translates between the headers of the pair's messages
//! and the ancillary data and options of RFC 6458. The functions of this crate handle descriptors for which [`table::is_ours`]
//! returns true. The C library handles all other descriptors ([`real`]).
//!
//! The calls on sockets neither allocate memory nor start threads. They take no lock on which a signal handler could wait forever.
//! The table ([`table`]) caches which descriptors are sctpify's sockets. The table can be rebuilt at any time, because the kernel
//! stores a name for each of these sockets. This crate does not replace functions of the C library: only `libsctpify` does. Begin
//! with [`setup::open`].
#![allow(unsafe_code, reason = "the functions of a C library take pointers")]
#![allow(
    clippy::unnecessary_cast,
    reason = "lengths in headers of messages have other types in musl than in glibc"
)]

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

/// The result of a call: a number, or the error's errno.
pub type Outcome<T = isize> = Result<T, c_int>;

/// Returns the thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the C library's function returns a valid pointer for each thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's errno.
pub fn set_errno(error: c_int) {
    // SAFETY: the C library's function returns a valid pointer for each thread.
    unsafe { *libc::__errno_location() = error }
}

/// Converts the result of a C library's function to an [`Outcome`].
///
/// # Errors
/// The thread's errno, if the result is negative.
pub fn outcome(result: isize) -> Outcome {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

//! A program's side of an SCTP socket.
//!
//! A socket of protocol 132 is one end of an `AF_UNIX` pair, whose other end the socket server has ([`sockproto`]). The kernel handles
//! reading, writing, polling, `fork` and closing. This crate translates between the headers of the pair's messages and the ancillary data
//! and options of RFC 6458. Its functions take descriptors for which [`table::is_ours`] returns true; the C library handles all others
//! ([`real`]).
//!
//! The calls on sockets neither allocate memory nor start threads. They take no lock on which a signal handler could wait forever. The
//! table ([`table`]) caches the descriptors that are sctpify's sockets. It can always be rebuilt from the sockets' names in the kernel.
//! This crate does not replace functions of the C library: only `libsctpify` does. Begin with [`setup::open`].
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

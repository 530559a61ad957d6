//! Gives unmodified programs SCTP sockets on kernels without SCTP.
//!
//! `LD_PRELOAD` puts the functions of this library in front of the C library's. A socket of protocol 132 is one end of an `AF_UNIX` pair,
//! whose other end the socket server has ([`sockproto`]); the kernel does reading, writing, polling, `fork` and closing, and this library
//! translates between the headers of the pair's messages and what RFC 6458 puts into ancillary data and options. Calls on all other
//! descriptors go on to the C library.
//!
//! Nothing here allocates, keeps a thread or takes a lock that a signal handler could wait for without end. Which descriptors are
//! sockets of ours is kept in a table ([`table`]), which the kernel's name of the socket can always rebuild.
#![allow(unsafe_code, reason = "the functions of a C library take pointers")]

mod address;
mod ask;
mod cmsg;
mod other;
mod parts;
mod real;
mod recv;
mod send;
mod setup;
mod table;

use core::ffi::c_int;

/// The result of a call: a number, or errno.
type Outcome<T = isize> = Result<T, c_int>;

fn errno() -> c_int {
    // SAFETY: the C library's function returns a valid pointer for each thread.
    unsafe { *libc::__errno_location() }
}

fn set_errno(error: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error }
}

/// Returns a C library's result as an [`Outcome`].
fn outcome(result: isize) -> Outcome {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Returns an outcome as the program sees it.
fn give(outcome: Outcome) -> isize {
    outcome.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}

/// The same for functions that return an `int`.
fn give_int(outcome: Outcome<c_int>) -> c_int {
    outcome.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}

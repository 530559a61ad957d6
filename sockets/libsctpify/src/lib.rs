//! Gives unmodified programs SCTP sockets on kernels without SCTP.
//!
//! `LD_PRELOAD` puts the functions of this library in front of the functions of the C library. Each function checks whether the
//! descriptor is one of sctpify's sockets. [`sockclient`] handles calls on sctpify's sockets; the C library handles all other
//! calls. If a call fails, the library sets errno, and raises SIGPIPE where the kernel would send it.
//!
//! This library neither allocates memory nor starts threads. It takes no lock on which a signal handler could wait forever.
#![allow(unsafe_code, reason = "the functions of a C library take pointers")]

mod other;
mod recv;
mod send;
mod setup;

use core::ffi::c_int;

use sockclient::{Outcome, set_errno};

/// Converts an outcome to the C function's result: -1 with errno set if the outcome is an error.
fn give(outcome: Outcome) -> isize {
    outcome.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}

/// Does the same as [`give`] for functions that return an `int`.
fn give_int(outcome: Outcome<c_int>) -> c_int {
    outcome.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}

//! Gives unmodified programs SCTP sockets on kernels without SCTP.
//!
//! `LD_PRELOAD` puts the functions of this library in front of the C library's. Each asks whether the descriptor is a socket of ours, and
//! leaves it to [`sockclient`] then; calls on all other descriptors go on to the C library. Errors become errno, and a signal where the
//! kernel sends one.
//!
//! Nothing here allocates, keeps a thread or takes a lock that a signal handler could wait for without end.
#![allow(unsafe_code, reason = "the functions of a C library take pointers")]

mod other;
mod recv;
mod send;
mod setup;

use core::ffi::c_int;

use sockclient::{Outcome, set_errno};

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

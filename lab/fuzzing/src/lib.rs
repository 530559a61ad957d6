//! The fuzz targets.
//!
//! Each target is a function that interprets its input as a script (arrivals, losses, calls of the program),
//! runs it with engines in virtual time, and panics on a fault. The code is here and not with the fuzzer, so
//! that plain tests can replay the committed inputs. The targets: [`packet`] (parsing and writing packets),
//! [`endpoint`] (a hostile peer), [`pair`] (an honest pair over a bad network: everything arrives once and in
//! order; also with sealed packets), [`operations`] (calls in any order), [`mux`] (a hostile peer of a relay), [`sip`](mod@sip) (SIP
//! from strangers). [`torture`] mutates known messages without a fuzzer. Every byte string is a valid input.
//! Begin at [`TARGETS`].

#![forbid(unsafe_code)]

pub mod endpoint;
mod input;
pub mod mux;
pub mod operations;
pub mod packet;
pub mod pair;
mod side;
pub mod sip;
pub mod torture;

/// Runs a target with an input.
pub type Target = fn(&[u8]);

/// The targets by name; each has a directory of this name in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("packet", packet::run),
    ("endpoint", endpoint::run),
    ("pair", pair::run),
    ("sealed", pair::run_sealed),
    ("operations", operations::run),
    ("mux", mux::run),
    ("sip", self::sip::run),
];

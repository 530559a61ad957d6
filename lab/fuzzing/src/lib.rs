//! The fuzz targets.
//!
//! Each target is a function that interprets its input as a script. Steps of a script are, for example,
//! arrivals of packets, losses of packets, and calls of a program. The function plays the script with
//! engines in virtual time, and panics if an invariant fails. Every byte string is a valid script. The code
//! is outside the fuzzer's crate, so plain tests can replay the committed inputs. The targets are:
//!
//! - [`packet`]: parsing and writing of packets
//! - [`endpoint`]: a hostile peer
//! - [`pair`]: an honest pair over a bad network, with plain or sealed packets; no message arrives twice,
//!   and ordered messages arrive in order
//! - [`operations`]: calls in any order
//! - [`mux`]: a hostile peer on a shared association
//! - [`sip`](mod@sip): SIP messages of any content
//!
//! [`torture`] mutates known SIP messages without a fuzzer. Begin at [`TARGETS`].

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

/// Function that plays an input.
pub type Target = fn(&[u8]);

/// The targets by name. The inputs of each target are in `fuzz/corpus`, in a directory with the target's
/// name.
pub const TARGETS: &[(&str, Target)] = &[
    ("packet", packet::run),
    ("endpoint", endpoint::run),
    ("pair", pair::run),
    ("sealed", pair::run_sealed),
    ("operations", operations::run),
    ("mux", mux::run),
    ("sip", self::sip::run),
];

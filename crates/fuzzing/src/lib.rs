//! What the fuzzers do with a string of bytes.
//!
//! Each target is a function that reads its input as a story (what comes, what is lost, what the program calls), plays it
//! with engines in virtual time, and panics where something is wrong. It lies here and not beside the fuzzer so that the
//! committed inputs are replayed by plain tests. The targets: [`packet`] (reading and writing packets), [`endpoint`] (a
//! hostile peer), [`pair`] (an honest pair over a bad network: everything arrives once and in order), [`operations`] (calls
//! in any order), [`trunk`] (a hostile peer of a relay), [`sip`](mod@sip) (SIP from
//! strangers). [`torture`] changes known messages where no fuzzer chooses the bytes. Refuses nothing: every byte string means something. Begin at [`TARGETS`].

#![forbid(unsafe_code)]

pub mod endpoint;
mod input;
pub mod operations;
pub mod packet;
pub mod pair;
mod side;
pub mod sip;
pub mod torture;
pub mod trunk;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// The targets by name; each has a directory of this name in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("packet", packet::run),
    ("endpoint", endpoint::run),
    ("pair", pair::run),
    ("operations", operations::run),
    ("trunk", trunk::run),
    ("sip", self::sip::run),
];

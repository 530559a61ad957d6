//! Version of this build: begin with [`FULL`].

#![forbid(unsafe_code)]

/// Version of the programs. Optimised builds from a git repository add the time of the commit in UTC and its hash:
/// `0.1.0+git20261124.1533.1a2b3c4d5e`. Such versions sort by the minute of their commits, also in Debian's tools.
pub const FULL: &str = env!("SCTPIFY_FULL_VERSION");

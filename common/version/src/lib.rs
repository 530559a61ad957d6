//! Which build this is: begin with [`FULL`].

#![forbid(unsafe_code)]

/// The version of the programs, and in optimised builds from a git repository the time and hash of the commit:
/// `0.1.0+git20261124.1533.1a2b3c4d5e`, in UTC. A later commit's sorts behind that of an earlier minute, for Debian's
/// tools too.
pub const FULL: &str = env!("SCTPIFY_FULL_VERSION");

//! Tests of `sctpify run --sctp`: unmodified SCTP programs on a kernel without SCTP. Their peers run on another host
//! whose kernel lacks SCTP, or in a guest whose kernel has SCTP.
//!
//! The tests need root to create the hosts. They also need the programs, built next to the tests or in SCTPIFY_BIN_DIR.

mod both;
mod judges;
mod preloaded;
mod shim;
mod supervised;
mod world;

//! `sctpify run --sctp`: unmodified SCTP programs on a kernel without SCTP, between two hosts, and with a guest whose kernel has SCTP.
//!
//! Needs root to create the hosts, and the programs built next to the tests or in SCTPIFY_BIN_DIR.

mod both;
mod judges;
mod preloaded;
mod shim;
mod supervised;
mod world;

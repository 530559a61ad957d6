//! Many protocol engines and links in one deterministic world.

#![forbid(unsafe_code)]

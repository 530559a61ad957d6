//! Tests of the program between real hosts. The daemon advertises for unmodified programs, and the router classifies their
//! packets.
//!
//! Needs root. The programs `sctpifyd`, `sctpify` and `shimrules` must be in the tests' directory (`./x test` builds them there)
//! or in SCTPIFY_BIN_DIR.

mod classes;
mod ends;
mod flows;
mod guest;
mod made;
mod pages;
mod running;
mod world;

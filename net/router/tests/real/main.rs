//! Tests of the program between real hosts. The daemon advertises for unmodified programs, and the router classifies their
//! packets.
//!
//! Needs root, and `sctpifyd`, `sctpify` and `shimrules` built beside the tests (`./x test` does) or in SCTPIFY_BIN_DIR.

mod classes;
mod ends;
mod flows;
mod guest;
mod made;
mod pages;
mod running;
mod world;

//! The program between real hosts: packets of unmodified programs, which the daemon advertises for, meet the kernel's classes.
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

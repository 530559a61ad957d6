//! Comparison of our SCTP engine with other engines, which play the same scenarios in virtual time.
//!
//! The library itself is empty. All code is in `tests/differential`, so the other engines stay
//! dev-dependencies. `docs/differences.md` lists the cases in which another engine behaves differently from
//! ours.

#![forbid(unsafe_code)]

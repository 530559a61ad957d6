//! The same scenarios with our engine and with others, in virtual time.
//!
//! The library itself is empty: everything is in `tests/differential`, so that the other engines stay
//! dev-dependencies. `docs/differences.md` lists their differences from ours.

#![forbid(unsafe_code)]

//! The same scenarios with our engine and with those of others, in virtual time.
//!
//! Has no code of its own: everything is in `tests/differential`, so that the other engines stay dev-dependencies. What
//! they do otherwise than ours is listed in `docs/differences.md`.

#![forbid(unsafe_code)]

//! A TCP byte stream over an SCTP association, as a pure state machine.

#![forbid(unsafe_code)]

//! SCTP packets, chunks, parameters and error causes as types.

#![forbid(unsafe_code)]

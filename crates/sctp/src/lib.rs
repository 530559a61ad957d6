//! The SCTP protocol engine, without sockets, clock or threads.

#![forbid(unsafe_code)]

//! Values that all layers share: [`Time`], [`Route`] and [`Carrier`], and RFC 1982 serial numbers.
//!
//! The crate keeps no state, reads no clock and uses no sockets. Begin with [`Time`]: the caller passes the
//! time to each engine, so the same code runs in virtual time and in real time.

#![forbid(unsafe_code)]

mod net;
mod serial;
mod shard;
mod time;

pub use net::{Carrier, Ecn, Route};
pub use shard::Shard;
pub use time::Time;

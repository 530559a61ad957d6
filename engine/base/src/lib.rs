//! Values every layer shares: [`Time`], [`Route`] and [`Carrier`], and RFC 1982 serial numbers.
//!
//! Nothing here has state, reads a clock or touches a socket. Begin with [`Time`]: every engine is told
//! the time through it, so the same code runs in virtual and in real time.

#![forbid(unsafe_code)]

mod net;
mod serial;
mod shard;
mod time;

pub use net::{Carrier, Ecn, Route};
pub use shard::Shard;
pub use time::Time;

//! Connections to the servers that hosts share things by: a Redis server, with TLS or without, and what any server's certificate must
//! come from.
//!
//! Everything blocks, each step for a limited time. Nothing is known here of what is kept there. Failures are sentences without
//! secrets. Begin with [`RedisServer`] and [`Roots`].

#![forbid(unsafe_code)]

mod redis_server;
mod roots;

pub use redis_server::{RedisConnection, RedisServer};
pub use roots::{Roots, USUAL_ROOTS, certificates};

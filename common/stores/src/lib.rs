//! Connects to the servers through which hosts share data, and reads the root certificates that verify such servers. The supported server
//! is Redis, with or without TLS.
//!
//! All calls block; each TCP connect, read and write has a time limit. The crate does not interpret the stored data. Errors are sentences
//! for people and contain no secrets. Begin with [`RedisServer`] and [`Roots`].

#![forbid(unsafe_code)]

mod redis_server;
mod roots;

pub use redis_server::{RedisConnection, RedisServer};
pub use roots::{Roots, USUAL_ROOTS, certificates};

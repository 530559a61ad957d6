//! Deterministic simulation of many protocol engines and links.
//!
//! A [`World`] holds hosts, links between their addresses, and NATs. Each host has an `sctp::Endpoint` and a scripted [`App`]. A
//! world has its own time, which jumps from one event to the next, without threads, sockets or a clock. The same seed gives the
//! same run, bit for bit ([`World::trace_hash`]). A packet without a route is lost, as on a network.
//!
//! Begin at [`World::new`], [`World::add_host`], [`World::add_link`], [`World::join`], then [`World::connect`] and
//! [`World::run_for`] or [`World::run_until`]. Other modules support comparisons:
//! - [`tcp`] is a model of TCP over the same links.
//! - [`Exchange`] is a script of a conversation, for SCTP and for TCP.
//! - [`dumbbell`] sends thousands of flows through one bottleneck.
//! - [`kernel`] is a model of the SCTP of Linux 4.6, for comparison with a dumbbell.

#![forbid(unsafe_code)]

mod app;
mod capture;
mod clear;
pub mod dumbbell;
mod exchange;
mod host;
pub mod kernel;
mod keying;
mod link;
mod nat;
mod script;
pub mod tcp;
mod world;

pub use app::{Accept, App, Close, Conversation, Listen, Outgoing, Progress, Reading, Received};
pub use clear::InTheClear;
pub use exchange::{Exchange, Side, Step};
pub use host::Host;
pub use keying::{Keying, protection};
pub use link::{Direction, Link};
pub use nat::NatConfig;
pub use netem::{Counters as LinkCounters, DirectionConfig as LinkConfig, Loss, LossPlace};
pub use script::{chunk_names, opened, packet};
pub use world::{Change, Fate, HostId, LinkId, NatId, Record, World};

//! Many protocol engines and links in one deterministic world.
//!
//! A [`World`] holds hosts (each an `sctp::Endpoint` with a scripted [`App`]), links between their addresses, and NATs. It has
//! its own time: it jumps from one happening to the next, without threads, sockets or clock. One seed gives the same
//! run, bit for bit ([`World::trace_hash`]). It refuses nothing: what cannot be routed is lost, as on a network.
//!
//! Begin at [`World::new`], [`World::add_host`], [`World::add_link`], [`World::join`], then [`World::connect`] and
//! [`World::run_for`] or [`World::run_until`]. Beside it is a model of TCP ([`tcp`]), to be compared with over the same links, and
//! scripts of what programs say ([`Exchange`]) for both; thousands of flows through one bottleneck ([`dumbbell`]), and a model of the
//! SCTP of Linux 4.6 ([`kernel`]) to be compared with there.

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

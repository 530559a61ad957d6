//! Shared parts of programs that forward packets from one interface to another. The programs decide what happens to each packet.
//!
//! - A [`LinkEnd`] is an interface, perhaps in another network namespace. A [`Claim`] reserves it for one program.
//! - [`finish`] cuts long segments into packets, and computes checksums that a host left to its interface.
//! - [`packet`] finds the packet in a frame. [`checksum`] corrects the checksum after a change.
//! - An [`Outbox`] sends frames in batches.
//! - [`PreciseSleep`] sleeps until a packet is due, with a precision of a few microseconds. It uses [`clock`].

#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
mod error;
mod finish;
mod link_end;
mod outbox;
pub mod packet;
mod precise_sleep;

pub use error::BridgeError;
pub use finish::{Unfinishable, finish};
pub use link_end::{Claim, LinkEnd};
pub use outbox::{Outbox, PACKETS_PER_TURN};
pub use precise_sleep::PreciseSleep;

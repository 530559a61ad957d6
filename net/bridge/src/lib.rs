//! Shared parts of programs that pass packets from one interface to another.
//!
//! Interfaces are [`LinkEnd`]s, perhaps in other network namespaces, each taken by one program alone ([`Claim`]). Work that a host left
//! whole is cut into packets ([`finish`]), [`packet`] finds the packet in a frame, [`checksum`] mends what a change breaks. An [`Outbox`]
//! sends frames by the batch, [`PreciseSleep`] sleeps until a packet is due, to a few microseconds, by [`clock`]. Decides nothing of what
//! becomes of a packet.

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

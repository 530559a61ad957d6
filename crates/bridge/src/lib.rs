//! Shared parts of programs that pass packets from one interface to another.
//!
//! Interfaces are [`LinkEnd`]s, perhaps in other network namespaces, each taken by one program alone ([`Claim`]). Work that a host left
//! whole is cut into packets ([`finish`]), [`packet`] finds the packet in a frame, [`checksum`] mends what a change breaks.
//! An [`Outbox`] sends frames by the batch, [`Naps`] sleep until a packet is due, to a few microseconds, by [`clock`]. Decides nothing of what becomes of a packet.

#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
mod error;
mod finish;
mod link_end;
mod nap;
mod outbox;
pub mod packet;

pub use error::BridgeError;
pub use finish::{Unfinishable, finish};
pub use link_end::{Claim, LinkEnd};
pub use nap::Naps;
pub use outbox::{Outbox, PACKETS_PER_TURN};

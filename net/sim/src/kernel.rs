//! SCTP as Linux 4.6 sends it, as a model in virtual time: what the authors of the report on send-buffer advertisement had at both ends.
//! Where it differs from our engine is what decides about a queue of a few packets: losses are found by three reports of later chunks
//! and by T3 alone, there is no probe of the tail, and T3 doubles up to a minute until a chunk that was sent once is acknowledged.
//!
//! The model covers writes of a program that waits for room, RFC 4960's windows with the kernel's floor of four packets, the burst limit, one
//! fast retransmission for each chunk, T3 with Karn's rule, delayed SACKs with gaps, the receiver's window less what is in flight.
//! It does **not** cover the handshake, several paths and heartbeats, lost or late SACKs, pieces of messages that the receiver keeps until the
//! rest is there, and the host's own queues.
//!
//! Begin at [`KernelConfig`] and [`run`].

mod config;
mod receiver;
mod run;
mod sender;

pub use config::{Bottleneck, KernelConfig};
pub use run::{KernelFlow, run};
pub use sender::Buffer;

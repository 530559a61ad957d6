//! Model of SCTP as in Linux 4.6, in virtual time. The authors of the report on send-buffer advertisement used this kernel at
//! both ends. The model differs from our engine in the points that matter for a queue of a few packets:
//! - Losses are found only by three reports of later chunks, and by T3.
//! - No probe is sent for a lost tail.
//! - T3 doubles, up to a minute, until a round trip is measured again. Only chunks that were sent once are measured.
//!
//! The model covers writes of a program that waits for room, and the windows of RFC 4960 with the kernel's minimum of four
//! packets. It covers the burst limit, one fast retransmission for each chunk, T3 with Karn's rule, and delayed SACKs with gaps.
//! In the model, the sender subtracts the data in flight from the receiver's window.
//!
//! The model does **not** cover the handshake, several paths, heartbeats, and lost or late SACKs. It does not cover partial
//! messages that the receiver keeps until they are complete, or the host's own queues.
//!
//! Begin at [`KernelConfig`] and [`run`].

mod config;
mod receiver;
mod run;
mod sender;

pub use config::{Bottleneck, KernelConfig};
pub use run::{KernelFlow, run};
pub use sender::Buffer;

//! Model of TCP in virtual time. Our transports are compared with this model where experiments in real time would take days.
//!
//! The model has two kinds of sender: NewReno without SACK, and SACK with RACK and TLP. FreeBSD 4.10 has the first kind. The
//! papers (`docs/papers.md`) compare with FreeBSD. Linux has the second kind. Each kind has the window of Reno or of CUBIC. A
//! sender cuts a stream, of which only the length matters, into segments. The segments pass two directions of `netem`.
//!
//! The model covers:
//! - The handshake, slow start, congestion avoidance, fast retransmit, partial acknowledgements, and limited transmit.
//! - Time-outs with back-off and Karn's rule.
//! - Delayed acknowledgements, and SACK blocks.
//! - RACK's reordering window, proportional rate reduction, the tail-loss probe, and HyStart's test of the delay.
//!
//! The model does **not** cover:
//! - Sequence numbers that wrap, closed windows, and the end of the connection.
//! - F-RTO, and the undoing of reductions.
//! - Pauses of the application (slow start after idle), pacing, and ECN.
//!
//! Begin at [`TcpConfig`] and [`run`].

mod config;
mod cubic;
mod end;
mod newreno;
mod rack;
mod receiver;
mod rto;
mod run;
mod segment;
mod sender;
mod window;

pub use config::{Growth, Recovery, RtoFloor, TcpConfig};
pub use run::{TcpRun, run};
pub use sender::TcpCounters;

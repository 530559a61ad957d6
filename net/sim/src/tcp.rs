//! TCP as a model in virtual time: what our transports are compared with where real time would take days.
//!
//! Two kinds of sender: NewReno without SACK, as the papers' rival had it (FreeBSD 4.10), and SACK with RACK and TLP, as Linux
//! has it, each with Reno's or CUBIC's window. They cut a stream, of which only the length counts, into segments and
//! send them over two directions of `netem`. The model covers the handshake, slow start, congestion avoidance, fast retransmit,
//! partial acknowledgements, limited transmit, time-outs with back-off and Karn's rule, delayed acknowledgements, SACK blocks,
//! RACK's reordering window, proportional rate reduction, the tail-loss probe, and HyStart's test of the delay. It does **not** cover
//! sequence numbers that wrap, closed windows, F-RTO and the undoing of reductions, pauses of the application (slow start after
//! idle), pacing, ECN, and the end of the connection.
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

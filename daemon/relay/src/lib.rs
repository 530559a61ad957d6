//! Carries a TCP byte stream over an SCTP association, or over a pair of its streams. This crate is a pure state machine.
//!
//! A [`Relay`] joins one TCP socket and one association. Its driver owns both. The driver reports input to the relay, and asks it for the
//! next action. The relay has no socket, no engine and no clock.
//!
//! There are two kinds of peer ([`Peer`]):
//!
//! - Another shim: the end of each direction travels as a separate message, so half-close works.
//! - A native SCTP program: it gets the unchanged bytes. The application's FIN causes SHUTDOWN, because SCTP has no half-close. If the
//!   program expects messages of its protocol, a [`Framing`] finds them ([`Relay::framed`]).
//!
//! The relay refuses input that could hide a truncated stream. Another shim must not send an unknown kind of message. Its association must
//! not close before the ends of both directions were announced. It reads nothing after the end.
//!
//! Invariants:
//!
//! - Bytes leave in the order in which they arrived.
//! - Up to [`UNSENT_MAX`] bytes wait for the association.
//! - Up to [`UNWRITTEN_MAX`] bytes plus one message wait for the TCP socket. With a framing, its answers may take as many bytes again, plus
//!   the answers to one read.
//! - The application sees a clean end of stream only if the peer's application ended it, or a native peer sent SHUTDOWN. Everything else is
//!   a reset.
//!
//! Many connections may share one association ([`mux`]).
//!
//! Begin at [`Relay`].

#![forbid(unsafe_code)]

mod framing;
pub mod mux;
mod outgoing;
mod peer;
mod pieces;
mod relay;

pub use framing::{Framed, Framing, FramingError};
pub use outgoing::{Outgoing, UNSENT_MAX};
pub use peer::{ADAPTATION, PPID_DATA, PPID_END, PPID_NATIVE, Peer, SHARED_ADAPTATION};
pub use relay::{Action, Closed, Relay, Role, UNWRITTEN_LEAST, UNWRITTEN_MAX};

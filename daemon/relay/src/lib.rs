//! Carries a TCP byte stream over an SCTP association, or over a pair of its streams. This crate is a pure state machine.
//!
//! A [`Relay`] joins one TCP socket and one association. The driver owns the socket and the association. It reports input to the relay, and
//! asks the relay for the next action. The relay has no socket, no engine and no clock.
//!
//! There are two kinds of peer ([`Peer`]):
//!
//! - Another shim: the end of each direction travels as a separate message, so half-close works.
//! - A native SCTP program: it gets the unchanged bytes. The application's FIN causes SHUTDOWN, because SCTP has no half-close. If the
//!   program expects messages of its protocol, a [`Framing`] finds them ([`Relay::framed`]).
//!
//! The relay refuses input that could hide a truncated stream. Another shim must not send an unknown kind of message. An association with
//! another shim must not close before the ends of both directions were announced. No data may follow an announced end.
//!
//! Invariants:
//!
//! - Bytes leave in the order in which they arrived.
//! - Up to [`UNSENT_MAX`] bytes wait for the association.
//! - Up to [`UNWRITTEN_MAX`] bytes plus one message wait for the TCP socket. With a framing, messages and answers together take up to twice
//!   [`UNWRITTEN_MAX`], plus the answers to one read.
//! - The application sees a clean end of stream only if the peer's application ended it, or a native peer sent SHUTDOWN. In all other
//!   cases, the application sees a reset.
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

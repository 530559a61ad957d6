//! A TCP byte stream over an SCTP association, or over a pair of its streams, as a pure state machine.
//!
//! A [`Relay`] stands between one TCP socket and one association. Its driver owns both: it tells the relay
//! what came in and asks it what to do next. The relay knows no socket, no engine and no clock.
//!
//! Two kinds of peer ([`Peer`]): another shim, with which the end of each direction travels as a message of its
//! own, so that half-close works; and a native SCTP program, to which the bytes go as they are and to which the
//! application's FIN means SHUTDOWN, as SCTP has no half-close. Where a native program expects messages of its own protocol a
//! [`Framing`] finds them ([`Relay::framed`]).
//!
//! It refuses what it cannot tell from a truncated stream: from another shim, an unknown kind of message, and an
//! association that closes before both ends were announced. Nothing is read after the end.
//!
//! Invariants: bytes leave in the order they came; at most [`UNSENT_MAX`] bytes wait for the association, and
//! at most [`UNWRITTEN_MAX`] bytes plus one message for the TCP socket, with a framing as many again of its answers plus those to
//! one read; the application sees a clean end of stream only
//! if the peer's application (or a native peer's SHUTDOWN) ended it; everything else is a reset.
//!
//! Many connections may share one association: [`mux`].
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

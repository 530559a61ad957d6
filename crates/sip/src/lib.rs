//! SIP (RFC 3261): messages, transactions, and a stateful proxy with a registrar. No sockets, no clock, no threads.
//!
//! [`Message`] keeps the bytes that came: what is forwarded differs from what was received only where RFC 3261 section
//! 16 has a proxy change it. Refuses what RFC 4475 calls invalid, each with the status it names ([`Fault`]). Invariants:
//! no input panics, and everything that input can make grow has a limit ([`Limits`]). Begin with [`Message::parse`].

#![forbid(unsafe_code)]

mod address;
mod cursor;
mod essentials;
mod fault;
mod framing;
mod header;
mod message;
mod parse;
mod uri;
mod via;

pub use address::{Address, addresses};
pub use essentials::{CSeq, Essentials};
pub use fault::Fault;
pub use framing::{FrameError, Framer};
pub use header::{Header, Name};
pub use message::{Message, Method, Start};
pub use parse::{Limits, ParseError};
pub use uri::{Scheme, Uri};
pub use via::Via;

//! SIP (RFC 3261): messages, transactions, a user agent, and a proxy with a registrar. The proxy can be stateful, stateless, or a
//! redirect server. The crate has no sockets, clock or threads.
//!
//! [`Message`] keeps the received bytes. A forwarded message differs from the received message only where an RFC requires a proxy to
//! change it (RFC 3261 section 16, RFC 5393). Messages that RFC 4475 calls invalid are rejected with the status in that RFC ([`Fault`]).
//! No input causes a panic. All state that grows with input has a limit ([`Limits`], [`proxy::ProxyLimits`]). Begin with
//! [`Message::parse`], then [`proxy::Proxy`].

#![forbid(unsafe_code)]

mod address;
pub mod agent;
mod cursor;
pub mod digest;
mod essentials;
mod fault;
mod framing;
mod header;
mod location;
mod message;
mod network;
mod parse;
pub mod proxy;
pub mod transaction;
mod transport;
mod uri;
mod via;

pub use address::{Address, addresses};
pub use essentials::{CSeq, Essentials};
pub use fault::Fault;
pub use framing::{FrameError, Framer, in_stream};
pub use header::{Header, Name};
pub use location::{Binding, Change, Location, LocationLimits};
pub use message::{Message, Method, Start};
pub use network::{Network, NetworkError};
pub use parse::{Limits, ParseError};
pub use transport::{ConnectionId, Hop, Transport};
pub use uri::{Scheme, Uri};
pub use via::Via;

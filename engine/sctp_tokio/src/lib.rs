//! SCTP (RFC 9260) for [tokio](https://docs.rs/tokio), in user space, on Linux.
//!
//! The engine of [`sctp_engine`](sctp) runs in the program: the kernel needs no SCTP, and over UDP the program needs no rights. A
//! [`Stack`] has the engine and the sockets for packets; on it are opened:
//!
//! | socket | for |
//! |---|---|
//! | [`SctpStream`] | one association: messages, or bytes as of a TCP connection |
//! | [`SctpListener`] | the associations that others begin, each as a stream |
//! | [`SctpSocket`] | many associations on one port (one-to-many style, RFC 6458 section 3) |
//!
//! An association has all network paths of both hosts, and goes on while one works.
//!
//! ```
//! use sctp_tokio::{ConnectOptions, Stack, StackConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), sctp_tokio::Error> {
//! // Two programs in one: with UDP port 0 each takes one that is free. On two hosts both have 9899.
//! let any_port = StackConfig { udp_port: Some(0), ..StackConfig::default() };
//! let (server, client) = (Stack::open(any_port.clone())?, Stack::open(any_port)?);
//!
//! let listener = server.listen(7)?;
//! tokio::spawn(async move {
//!     let stream = listener.accept().await?;
//!     while let Some(message) = stream.recv().await? {
//!         stream.send(message.into_bytes(), 0).await?;
//!     }
//!     Ok::<_, sctp_tokio::Error>(())
//! });
//!
//! let options = ConnectOptions { peer_udp_port: server.udp_port(), ..ConnectOptions::default() };
//! let stream = client.connect_with("127.0.0.1:7", &options).await?;
//! stream.send("hello", 0).await?;
//! assert_eq!(&stream.recv().await?.unwrap().into_bytes()[..], b"hello");
//! stream.close().await
//! # }
//! ```
//!
//! # Timers
//!
//! The defaults are RFC 9260's: a dead path is noticed after seconds. Programs that cannot wait set
//! [`Timing::doubts_silence`](sctp::Timing::doubts_silence) and a smaller `rto_min` in [`StackConfig::engine`]; see `examples/echo.rs`.
//!
//! # Security
//!
//! Associations are neither encrypted nor authenticated, as TCP connections: use TLS on top ([`SctpStream`] reads and writes bytes), or the keys of
//! RFC 4895 ([`AssociationConfig::auth`](sctp::AssociationConfig::auth)).

#![forbid(unsafe_code)]

mod driver;
mod error;
mod listener;
mod one_to_many;
mod ports;
mod shared;
mod stack;
mod state;
mod stream;
mod wakers;

pub use error::Error;
pub use listener::SctpListener;
pub use one_to_many::{SctpSocket, SocketEvent};
pub use stack::{ConnectOptions, Stack, StackConfig};
pub use stream::{SctpStream, SendInfo};

/// The engine, whose types the sockets' API has.
pub use sctp;
pub use sctp::{
    AssociationConfig, AssociationId, AssociationInfo, Bytes, CloseReason, EndpointConfig, Event, Message,
    Ppid, Reliability, SendOptions, StreamId, Timing,
};

//! SCTP (RFC 9260) for [tokio](https://docs.rs/tokio), in user space, on Linux.
//!
//! The engine ([`sctp_engine`](sctp)) runs inside the program, so the kernel needs no SCTP. Over UDP, the program needs no privileges. A
//! [`Stack`] contains the engine and the sockets that carry its packets. The program opens these sockets on a stack:
//!
//! | socket | for |
//! |---|---|
//! | [`SctpStream`] | one association, as messages or as a byte stream like TCP |
//! | [`SctpListener`] | the associations that peers begin, each as an [`SctpStream`] |
//! | [`SctpSocket`] | many associations on one port (one-to-many style, RFC 6458 section 3) |
//!
//! An association uses all network paths between the two hosts. It continues while at least one path works.
//!
//! ```
//! use sctp_tokio::{ConnectOptions, Stack, StackConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), sctp_tokio::Error> {
//! // This program has two stacks. With UDP port 0, each stack takes a free port.
//! // On two hosts, both stacks would use the default port 9899.
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
//! The default timers are RFC 9260's, so the detection of a dead path takes seconds. A program that needs faster detection sets
//! [`Timing::doubts_silence`](sctp::Timing::doubts_silence) and a smaller `rto_min` in [`StackConfig::engine`]. `examples/echo.rs` shows
//! these settings.
//!
//! # Security
//!
//! Associations are neither encrypted nor authenticated, like plain TCP connections. Run TLS over [`SctpStream`], which reads and writes
//! bytes. To authenticate packets only, use the keys of RFC 4895 ([`AssociationConfig::auth`](sctp::AssociationConfig::auth)).

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

/// The SCTP engine, whose types appear in the API of the sockets.
pub use sctp;
pub use sctp::{
    AssociationConfig, AssociationId, AssociationInfo, Bytes, CloseReason, EndpointConfig, Event, Message,
    Ppid, Reliability, SendOptions, StreamId, Timing,
};

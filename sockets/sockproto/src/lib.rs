//! The messages between a program with SCTP sockets and the socket server.
//!
//! A program's SCTP socket is one end of an `AF_UNIX` pair of type `SOCK_SEQPACKET`; the server has the other end. Each message
//! of the pair begins with a [`DataHeader`]. A call that neither sends nor receives a message becomes a [`Request`] to the
//! server, which sends an [`Answer`]. Each request uses a separate connection. A request carries the descriptor of its socket, so
//! any process that has the descriptor may make requests about the socket.
//!
//! Both processes are on one host, so numbers are in the host's byte order. This crate allocates no memory, because the library in the
//! program has no allocator.
#![no_std]
#![forbid(unsafe_code)]

pub mod abi;
mod control;
mod data;
mod peer;
mod sockaddr;

pub use control::{Answer, CONTROL_MAX, Operation, Request};
pub use data::{DATA_HEADER, DataHeader, Kind, flag};
pub use peer::{PEER_LENGTH, Peer};
pub use sockaddr::{AddressError, Addresses, SOCKADDR_MAX, SockAddr, read_addresses};

/// Prefix of the abstract name of each program's end. From this prefix, the library recognises the program's end. A hexadecimal
/// number follows the prefix.
pub const SOCKET_NAME_PREFIX: &[u8] = b"\0sctpify/";

/// Prefix of the abstract name of a one-to-many socket. Messages of such a socket have a [`Peer`] after the header.
pub const MANY_NAME_PREFIX: &[u8] = b"\0sctpify/many/";

/// The environment variable with the server's abstract name, without the leading zero byte.
pub const SERVER_VARIABLE: &core::ffi::CStr = c"SCTPIFY_SOCKETS";

/// Longest message that a program may send, in bytes. The server's receive buffer has room for such a message with its header.
pub const MESSAGE_MAX: usize = 4 << 20;

/// Limit on the user data of one message to the program, in bytes. A longer user message is delivered in parts.
pub const PART_MAX: usize = 192 << 10;

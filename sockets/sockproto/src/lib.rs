//! The messages between a program with SCTP sockets and the socket server.
//!
//! A program's SCTP socket is one end of an `AF_UNIX` pair of type `SOCK_SEQPACKET`; the server has the other end. Each message of the pair
//! begins with a [`DataHeader`]. Everything that is not data goes by a connection of its own to the server, which lasts for one
//! [`Request`] and its [`Answer`]: the socket in question is passed along, so whoever holds it may ask.
//!
//! Both processes are on one host, so numbers are in its byte order. The library in the program is without an allocator: nothing here
//! allocates.
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

/// The abstract name's prefix of each program's end, by which the library knows it: `\0sctpify/` and a number in hexadecimal.
pub const SOCKET_NAME_PREFIX: &[u8] = b"\0sctpify/";

/// The same of a one-to-many socket: its messages have a [`Peer`] behind the header.
pub const MANY_NAME_PREFIX: &[u8] = b"\0sctpify/many/";

/// The environment variable with the server's abstract name, without the leading zero byte.
pub const SERVER_VARIABLE: &core::ffi::CStr = c"SCTPIFY_SOCKETS";

/// Longest message that a program may send, in bytes: a limit of the server's receive buffer.
pub const MESSAGE_MAX: usize = 4 << 20;

/// Bytes of user data that one message to the program carries at most. A longer one is delivered in parts.
pub const PART_MAX: usize = 192 << 10;

//! Errors of the commands.

use thiserror::Error;

/// Why [`connect`](crate::Endpoint::connect) refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// No way to the peer was given.
    #[error("no route to the peer was given")]
    NoRoute,
    /// An association with these ports and addresses exists.
    #[error("an association with this peer and these ports exists already")]
    Exists,
    /// [`Limits::associations`](crate::Limits::associations) is reached.
    #[error("the limit of {0} associations is reached")]
    TooMany(usize),
}

/// Why a stream's setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// The association does not exist, or is not beyond its INIT.
    #[error("the association is not up")]
    Closed,
    /// The stream was not negotiated.
    #[error("stream {stream} does not exist; the association has {streams} outbound streams")]
    NoSuchStream {
        /// The stream asked for.
        stream: u16,
        /// How many there are.
        streams: u16,
    },
}

/// Why [`send`](crate::Endpoint::send) refused a message; it was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The association does not exist, or sends no more.
    #[error("the association is closed for sending")]
    Closed,
    /// The send buffer is full; [`Event::Writable`](crate::Event::Writable) follows.
    #[error("the send buffer is full")]
    WouldBlock,
    /// The stream was not negotiated.
    #[error("stream {stream} does not exist; the association has {streams} outbound streams")]
    NoSuchStream {
        /// The stream asked for.
        stream: u16,
        /// How many there are.
        streams: u16,
    },
    /// SCTP has no empty messages (RFC 9260 section 3.3.1).
    #[error("a message must have at least one byte")]
    Empty,
    /// The message exceeds the send buffer and could never be taken.
    #[error("a message of {length} bytes exceeds the send buffer of {max}")]
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Bytes of the send buffer.
        max: usize,
    },
}

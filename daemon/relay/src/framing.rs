//! Message boundaries for a native peer: finds the messages of the peer's protocol in the application's byte stream.
//!
//! A native program reads one SCTP message as one message of its protocol (SIP: RFC 4168). An application on TCP marks the ends of its
//! messages in the stream. The implementation of [`Framing`] knows the protocol. The user of this crate provides the implementation.

use std::fmt;

use bytes::Bytes;

/// The next part of the application's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Framed {
    /// A whole message for the peer.
    Message(Bytes),
    /// The answer to bytes that were meant for this end of the TCP connection.
    Answer(&'static [u8]),
}

/// Error: no further message can be found. The text gives the reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FramingError(pub String);

/// Finds a protocol's messages in a byte stream, and writes messages into a byte stream.
pub trait Framing: fmt::Debug + Send {
    /// Takes bytes that the application has sent.
    fn push(&mut self, bytes: &[u8]);

    /// Returns the next part, or `None` if it is not complete yet.
    ///
    /// # Errors
    /// Fails if the bytes do not belong to the protocol, or a message exceeds the length limit of this end.
    fn next(&mut self) -> Result<Option<Framed>, FramingError>;

    /// Reports whether an incomplete message waits for its remaining bytes.
    fn has_part(&self) -> bool;

    /// Returns the peer's message in the form that it must have in a byte stream.
    fn in_stream(&self, message: Bytes) -> Bytes;
}

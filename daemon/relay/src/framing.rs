//! Messages where a native peer expects them: its protocol's own boundaries, found in the application's stream of bytes.
//!
//! A native program reads a message of SCTP as a message of its protocol (SIP: RFC 4168), while an application on TCP
//! marks the ends of its messages in the stream. The detector of the ends knows the protocol, and comes from outside.

use std::fmt;

use bytes::Bytes;

/// The next part of the application's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Framed {
    /// A whole message, for the peer.
    Message(Bytes),
    /// Something that was meant for this end of the TCP connection, and the answer to it.
    Answer(&'static [u8]),
}

/// No message can be found any more; the text says why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FramingError(pub String);

/// Finds a protocol's messages in a stream, and puts messages into one.
pub trait Framing: fmt::Debug + Send {
    /// Takes what the application has sent.
    fn push(&mut self, bytes: &[u8]);

    /// Returns the next part; `None` if it is not whole yet.
    ///
    /// # Errors
    /// When the bytes are none of the protocol's, or a message is longer than this end takes.
    fn next(&mut self) -> Result<Option<Framed>, FramingError>;

    /// Reports whether a part of a message waits for the rest.
    fn has_part(&self) -> bool;

    /// The peer's message as it has to stand in a stream.
    fn in_stream(&self, message: Bytes) -> Bytes;
}

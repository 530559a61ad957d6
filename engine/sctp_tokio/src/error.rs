//! Errors of all socket operations.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use sctp::{AbortCause, CloseReason, ConnectError, SendError, Unreachable};
use thiserror::Error;

/// Reason why an operation failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The stack cannot be opened with these settings.
    #[error("{0}")]
    Settings(&'static str),
    /// A system call failed while the stack opened sockets, resolved a name, or received packets. A failure to receive packets ends all
    /// sockets of the stack.
    #[error("{what}: {error}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The kernel's error.
        error: Arc<io::Error>,
    },
    /// Another socket of the stack uses the port. Over IP, the port may also be in use by another program of the host.
    #[error("SCTP port {0} is in use")]
    PortInUse(u16),
    /// All ephemeral ports are in use.
    #[error("all ephemeral SCTP ports are in use")]
    NoPort,
    /// No address of the peer is given, or the addresses have different ports.
    #[error("a peer needs at least one address, and one port for all of them")]
    Peer,
    /// This host has no address from which the peer can be reached.
    #[error("no local address leads to {0}")]
    NoRoute(SocketAddr),
    /// The association cannot begin.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The message cannot be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The one-to-many socket has no association with this identifier.
    #[error("the socket has no such association")]
    NoAssociation,
    /// The peer refused the association with an ABORT.
    #[error("the peer refused the association (cause {})", .0.code)]
    Refused(AbortCause),
    /// The association has ended.
    #[error("{}", describe(.0))]
    Closed(CloseReason),
    /// The runtime or the stack has ended.
    #[error("the stack has ended")]
    StackEnded,
}

fn describe(reason: &CloseReason) -> String {
    match reason {
        CloseReason::Graceful => "the association was shut down".to_owned(),
        CloseReason::PeerAborted(cause) => format!("the peer aborted the association (cause {})", cause.code),
        CloseReason::Aborted(cause) => format!("the association was aborted (cause {})", cause.code),
        CloseReason::NoAnswer => "the peer did not answer".to_owned(),
        CloseReason::Unreachable(what) => format!(
            "the peer cannot be reached: {}",
            match what {
                Unreachable::Host => "no route",
                Unreachable::Protocol => "it has no SCTP",
                Unreachable::Port => "nobody listens on the UDP port",
                Unreachable::Prohibited => "a filter forbids it",
            }
        ),
        CloseReason::LostContact => "all paths to the peer have failed".to_owned(),
        CloseReason::Restarted => "the peer has restarted".to_owned(),
        #[allow(unreachable_patterns, reason = "with the engine's feature `exhaustive`")]
        _ => "the association has ended".to_owned(),
    }
}

impl Error {
    /// Returns a function that adds the failed step `what` to an I/O error.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::System { what, error: Arc::new(error) }
    }

    /// Converts the reason why an association ended before it was established.
    pub(crate) fn of_attempt(reason: CloseReason) -> Error {
        match reason {
            CloseReason::PeerAborted(cause) => Error::Refused(cause),
            other => Error::Closed(other),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as Kind;
        match self {
            Error::Settings(_) | Error::Peer => Kind::InvalidInput,
            Error::System { error, .. } => error.kind(),
            Error::PortInUse(_) | Error::NoPort | Error::Connect(ConnectError::Exists) => Kind::AddrInUse,
            Error::NoRoute(_) => Kind::HostUnreachable,
            Error::Connect(ConnectError::NoMemory { .. } | ConnectError::NoMemoryForHost { .. }) => {
                Kind::OutOfMemory
            }
            Error::Connect(_) => Kind::InvalidInput,
            Error::Send(SendError::Closed) | Error::StackEnded => Kind::BrokenPipe,
            Error::Send(SendError::WouldBlock) => Kind::WouldBlock,
            Error::Send(_) => Kind::InvalidInput,
            Error::NoAssociation => Kind::NotConnected,
            Error::Refused(_) => Kind::ConnectionRefused,
            Error::Closed(reason) => match reason {
                CloseReason::Graceful => Kind::BrokenPipe,
                CloseReason::NoAnswer | CloseReason::LostContact => Kind::TimedOut,
                CloseReason::Unreachable(Unreachable::Host | Unreachable::Prohibited) => {
                    Kind::HostUnreachable
                }
                CloseReason::Unreachable(_) => Kind::ConnectionRefused,
                CloseReason::Aborted(_) => Kind::ConnectionAborted,
                _ => Kind::ConnectionReset,
            },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

//! One-to-many sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use sctp::{AssociationId, AssociationInfo, Bytes, CloseReason, Message};

use crate::error::Error;
use crate::shared::{Shared, WaitsOn};
use crate::state::State;
use crate::wakers::Wait;
use crate::{SctpStream, SendInfo};

/// An event or message for the program of a one-to-many socket.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SocketEvent {
    /// An association is established. Either a peer or [`SctpSocket::send_to`] began it.
    Up {
        /// The association.
        association: AssociationId,
        /// The peer's address and port.
        peer: SocketAddr,
    },
    /// A message has arrived.
    Message {
        /// The association.
        association: AssociationId,
        /// The peer's address and port.
        peer: SocketAddr,
        /// The message.
        message: Message,
    },
    /// An association has ended, or could not begin. The socket has already returned all messages of the association.
    Over {
        /// The association. Its identifier is invalid from now on.
        association: AssociationId,
        /// The reason for the end.
        reason: CloseReason,
    },
}

impl SocketEvent {
    pub(crate) fn association(&self) -> AssociationId {
        match self {
            SocketEvent::Up { association, .. }
            | SocketEvent::Message { association, .. }
            | SocketEvent::Over { association, .. } => *association,
        }
    }
}

/// A socket with any number of associations (RFC 6458 section 3).
///
/// The program must keep calling [`recv`](Self::recv), because only `recv` reports the beginning and the end of associations. Associations
/// with messages are served in turn. A drop shuts the associations of the socket down. If an association has unread messages or is not yet
/// established, the drop aborts this association instead.
pub struct SctpSocket {
    shared: Arc<Shared>,
    port: u16,
}

impl SctpSocket {
    pub(crate) fn new(shared: Arc<Shared>, port: u16) -> SctpSocket {
        SctpSocket { shared, port }
    }

    /// Returns the next message or event. Cancellation loses neither messages nor events.
    ///
    /// # Errors
    /// Returns [`Error::System`] or [`Error::StackEnded`] if the stack has ended.
    pub async fn recv(&self) -> Result<SocketEvent, Error> {
        let on = WaitsOn::Port(self.port);
        self.shared.wait(on, |state, wait| state.poll_socket(wait, self.port)).await
    }

    /// Sends a message to a peer, and returns the association. If no association with the peer exists, begins one. In this case, the
    /// message waits until the association is established. If the association cannot be established, the call returns an error, and
    /// [`SocketEvent::Over`] follows.
    ///
    /// # Errors
    /// Returns the errors of [`SctpStream::send`], and [`Error::NoRoute`] and others if an association cannot begin.
    pub async fn send_to(
        &self,
        peer: SocketAddr,
        message: impl Into<Bytes>,
        info: impl Into<SendInfo>,
    ) -> Result<AssociationId, Error> {
        let association = self.shared.with(|state| state.association_with(self.port, peer))?;
        self.send(association, message, info).await?;
        Ok(association)
    }

    /// Sends a message over an association.
    ///
    /// # Errors
    /// Returns the errors of [`SctpStream::send`], and [`Error::NoAssociation`].
    pub async fn send(
        &self,
        association: AssociationId,
        message: impl Into<Bytes>,
        info: impl Into<SendInfo>,
    ) -> Result<(), Error> {
        let (message, info) = (message.into(), info.into());
        let send = |state: &mut State, wait: Wait<'_>| {
            state.member(self.port, association)?;
            state.poll_send(wait, association, &message, &info)
        };
        self.shared.wait(WaitsOn::Association(association), send).await
    }

    /// Moves an association from this socket to a separate stream (`sctp_peeloff`). The unread messages move with it.
    ///
    /// # Errors
    /// Returns [`Error::NoAssociation`].
    pub fn peel_off(&self, association: AssociationId) -> Result<SctpStream, Error> {
        self.shared.with(|state| state.peel_off(self.port, association))?;
        Ok(SctpStream::new(Arc::clone(&self.shared), association))
    }

    /// Shuts an association down. [`SocketEvent::Over`] follows.
    ///
    /// # Errors
    /// Returns [`Error::NoAssociation`].
    pub fn shutdown(&self, association: AssociationId) -> Result<(), Error> {
        self.shared.with(|state| {
            state.member(self.port, association)?;
            state.shutdown(association);
            Ok(())
        })
    }

    /// Returns the engine's information about an association.
    ///
    /// # Errors
    /// Returns [`Error::NoAssociation`].
    pub fn info(&self, association: AssociationId) -> Result<AssociationInfo, Error> {
        let mut state = self.shared.lock();
        state.member(self.port, association)?;
        state.engine().0.info(association).ok_or(Error::NoAssociation)
    }

    /// Returns the SCTP port.
    pub fn local_port(&self) -> u16 {
        self.port
    }
}

impl Drop for SctpSocket {
    fn drop(&mut self) {
        self.shared.with(|state| state.close_port(self.port));
    }
}

impl std::fmt::Debug for SctpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SctpSocket").field("port", &self.port).finish_non_exhaustive()
    }
}

//! One-to-many sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use sctp::{AssociationId, AssociationInfo, Bytes, CloseReason, Message};

use crate::error::Error;
use crate::shared::{Shared, WaitsOn};
use crate::state::State;
use crate::wakers::Wait;
use crate::{SctpStream, SendInfo};

/// Something that a one-to-many socket has for its program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SocketEvent {
    /// An association is up: a peer has connected, or [`SctpSocket::send_to`] has.
    Up {
        /// The association.
        association: AssociationId,
        /// The peer's address and port.
        peer: SocketAddr,
    },
    /// A message.
    Message {
        /// The association.
        association: AssociationId,
        /// The peer's address and port.
        peer: SocketAddr,
        /// The message.
        message: Message,
    },
    /// An association is over, or could not begin. All of its messages were received before.
    Over {
        /// The association, whose identifier means nothing from now on.
        association: AssociationId,
        /// Why it ended.
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
/// [`recv`](Self::recv) must be called: it brings the beginning and the end of associations, too. Associations with messages have their
/// turn one after another. When the socket is dropped, its associations are shut down.
pub struct SctpSocket {
    shared: Arc<Shared>,
    port: u16,
}

impl SctpSocket {
    pub(crate) fn new(shared: Arc<Shared>, port: u16) -> SctpSocket {
        SctpSocket { shared, port }
    }

    /// Returns the next message or event. Cancelling it loses none.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::StackEnded`]: the stack is at an end.
    pub async fn recv(&self) -> Result<SocketEvent, Error> {
        let on = WaitsOn::Port(self.port);
        self.shared.wait(on, |state, wait| state.poll_socket(wait, self.port)).await
    }

    /// Sends a message to a peer, and returns the association. If there is none, it begins and the message waits until it is up. If it
    /// cannot begin, [`SocketEvent::Over`] comes as well.
    ///
    /// # Errors
    /// As [`SctpStream::send`]; [`Error::NoRoute`] and the like if an association cannot begin.
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

    /// Sends a message by an association.
    ///
    /// # Errors
    /// As [`SctpStream::send`]; [`Error::NoAssociation`].
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

    /// Makes an association a stream of its own (`sctp_peeloff`). Its messages that were not received go along.
    ///
    /// # Errors
    /// [`Error::NoAssociation`].
    pub fn peel_off(&self, association: AssociationId) -> Result<SctpStream, Error> {
        self.shared.with(|state| state.peel_off(self.port, association))?;
        Ok(SctpStream::new(Arc::clone(&self.shared), association))
    }

    /// Shuts an association down; [`SocketEvent::Over`] follows.
    ///
    /// # Errors
    /// [`Error::NoAssociation`].
    pub fn shutdown(&self, association: AssociationId) -> Result<(), Error> {
        self.shared.with(|state| {
            state.member(self.port, association)?;
            state.shutdown(association);
            Ok(())
        })
    }

    /// Returns what the engine knows of an association.
    ///
    /// # Errors
    /// [`Error::NoAssociation`].
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

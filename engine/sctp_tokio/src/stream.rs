//! One-to-one sockets, each with one association.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sctp::{
    AbortCause, AssociationId, AssociationInfo, Bytes, CloseReason, Endpoint, Event, Message, Ppid,
    SendOptions, StreamId, Time,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::Error;
use crate::shared::{Shared, WaitsOn};
use crate::state::State;
use crate::wakers::Wait;

/// Limit on the message that one write of bytes sends, in bytes.
const WRITE_MAX: usize = 64 * 1024;

/// Stream, identifier and options of a sent message (`sctp_sndinfo` of RFC 6458 section 5.3.4, `sctp_prinfo` of section 5.3.7). A stream
/// number converts to this type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendInfo {
    /// The stream on which the message is sent.
    pub stream: StreamId,
    /// Payload protocol identifier.
    pub ppid: Ppid,
    /// Order and reliability of the message.
    pub options: SendOptions,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl From<u16> for SendInfo {
    fn from(stream: u16) -> SendInfo {
        SendInfo { stream: StreamId(stream), ..SendInfo::default() }
    }
}

/// A socket with one association, which carries messages or bytes.
///
/// - For messages, call [`send`](Self::send) and [`recv`](Self::recv), from any number of tasks.
/// - For bytes, use [`AsyncRead`] and [`AsyncWrite`], as with TCP. Written bytes are sent on stream 0. A read returns the bytes of all
///   messages, from all streams.
///
/// Use only one of the two interfaces on one `SctpStream`.
///
/// SCTP has no half-closed state. After a [`shutdown`](Self::shutdown) by either end, neither end can send more. Data that was sent before
/// the shutdown is still delivered.
///
/// A drop shuts the association down, and sent data is still delivered in the background. If received messages are unread, a drop aborts
/// the association instead. Messages that arrive after a drop are discarded.
pub struct SctpStream {
    shared: Arc<Shared>,
    id: AssociationId,
    /// Unread bytes of a message that was read in part.
    rest: Bytes,
}

impl SctpStream {
    pub(crate) fn new(shared: Arc<Shared>, id: AssociationId) -> SctpStream {
        SctpStream { shared, id, rest: Bytes::new() }
    }

    async fn wait<R>(&self, f: impl FnMut(&mut State, Wait<'_>) -> Poll<R>) -> R {
        self.shared.wait(WaitsOn::Association(self.id), f).await
    }

    /// Waits until the association is established.
    pub(crate) async fn up(&self) -> Result<(), Error> {
        self.wait(|state, wait| state.poll_up(wait, self.id)).await
    }

    /// Waits until the send buffer has room for the message, and sends it. If the call is cancelled before the buffer has room, nothing is
    /// sent.
    ///
    /// ```no_run
    /// # async fn example(stream: sctp_tokio::SctpStream) -> Result<(), sctp_tokio::Error> {
    /// use sctp_tokio::{Ppid, SendInfo, StreamId};
    /// stream.send("on stream 3", 3).await?;
    /// stream.send("with an identifier", SendInfo { stream: StreamId(1), ppid: Ppid(46), ..SendInfo::default() }).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Send`] if the message is empty or too long, the stream does not exist, or the association is shutting down. Returns
    /// [`Error::Closed`] if the association has ended.
    pub async fn send(&self, message: impl Into<Bytes>, info: impl Into<SendInfo>) -> Result<(), Error> {
        let (message, info) = (message.into(), info.into());
        self.wait(|state, wait| state.poll_send(wait, self.id, &message, &info)).await
    }

    /// Returns the next message. Returns `None` if the peer has shut the association down and all messages are read. Cancellation loses no
    /// message.
    ///
    /// A message that is longer than the receive window arrives in parts ([`Message::end`]).
    ///
    /// # Errors
    /// Returns [`Error::Closed`] if the association has ended without a shutdown. The method returns all received messages before this
    /// error.
    pub async fn recv(&self) -> Result<Option<Message>, Error> {
        self.wait(|state, wait| state.poll_recv(wait, self.id)).await
    }

    /// Returns the next event about paths, addresses or streams. Returns `None` if the association has ended. Only the 64 most recent
    /// unread events are kept.
    pub async fn event(&self) -> Option<Event> {
        self.wait(|state, wait| state.poll_event(wait, self.id)).await
    }

    /// Begins a shutdown. Messages that were sent before the shutdown are delivered, and then the association ends. No more messages can be
    /// sent. Messages of the peer can still be received.
    pub fn shutdown(&self) {
        self.shared.with(|state| state.shutdown(self.id));
    }

    /// Shuts the association down, and waits until both ends have delivered all data. Unread messages of the peer are discarded.
    ///
    /// # Errors
    /// Returns [`Error::Closed`] if the association ended without a complete shutdown. Data may then be lost.
    pub async fn close(self) -> Result<(), Error> {
        self.shutdown();
        let over = self.wait(|state, wait| {
            // Unread messages would fill the receive buffer, and the peer could then not deliver its data and complete the shutdown.
            while let Poll::Ready(Ok(Some(_))) = state.poll_recv(wait, self.id) {}
            state.poll_over(wait, self.id)
        });
        match over.await? {
            CloseReason::Graceful => Ok(()),
            other => Err(Error::Closed(other)),
        }
    }

    /// Ends the association at once. An ABORT reports `reason` to the peer. Data that is not yet delivered is lost.
    pub fn abort(self, reason: impl Into<Bytes>) {
        let cause = AbortCause::user(reason);
        self.shared.with(|state| state.abort(self.id, cause));
    }

    /// Returns the local address and port of the association's set-up.
    ///
    /// # Errors
    /// Returns an error if the stack has ended.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.shared.lock().addresses_of(self.id).map(|(local, _)| local)
    }

    /// Returns the peer's address and port of the association's set-up.
    ///
    /// # Errors
    /// Returns an error if the stack has ended.
    pub fn peer_addr(&self) -> Result<SocketAddr, Error> {
        self.shared.lock().addresses_of(self.id).map(|(_, peer)| peer)
    }

    /// Returns the engine's information about paths, streams and counters, even after the association has ended. Returns `None` if the peer
    /// has not answered the INIT.
    pub fn info(&self) -> Option<AssociationInfo> {
        self.shared.lock().engine().0.info(self.id)
    }

    /// Calls `f` with the engine, for commands that the stack does not offer. Examples are the primary path, timers, stream priorities,
    /// keys, and all other methods of [`Endpoint`] that name an association. The stack handles the resulting events. `f` runs under the
    /// stack's lock, so it must not use sockets of the stack: such a use would deadlock.
    pub fn with_engine<R>(&self, f: impl FnOnce(&mut Endpoint, Time, AssociationId) -> R) -> R {
        self.shared.with(|state| {
            let (engine, now) = state.engine();
            f(engine, now, self.id)
        })
    }
}

impl Drop for SctpStream {
    fn drop(&mut self) {
        let has_rest = !self.rest.is_empty();
        self.shared.with(|state| {
            if has_rest {
                state.abort(self.id, AbortCause::default());
            }
            state.abandon(self.id);
        });
    }
}

impl AsyncRead for SctpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        while stream.rest.is_empty() {
            let (shared, id) = (&stream.shared, stream.id);
            let received = ready!(shared.poll(context, Wait::READ, |state, wait| state.poll_recv(wait, id)))?;
            let Some(message) = received else { return Poll::Ready(Ok(())) };
            stream.rest = message.into_bytes();
        }
        let length = stream.rest.len().min(buf.remaining());
        buf.put_slice(&stream.rest.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SctpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let id = self.id;
        self.shared.poll(context, Wait::WRITE, |state, wait| {
            // The message fills the free space of the send buffer, up to `WRITE_MAX`. If the buffer is full, this function tries a message
            // of one byte. The engine refuses this message, and later reports free space.
            let room = state.send_capacity(id).clamp(1, WRITE_MAX);
            let length = buf.len().min(room);
            let message = Bytes::copy_from_slice(&buf[..length]);
            ready!(state.poll_send(wait, id, &message, &SendInfo::default()))?;
            Poll::Ready(Ok(length))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shutdown();
        Poll::Ready(Ok(()))
    }
}

impl std::fmt::Debug for SctpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SctpStream").field("id", &self.id.number()).finish_non_exhaustive()
    }
}

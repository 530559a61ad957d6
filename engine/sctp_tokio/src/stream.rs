//! One-to-one sockets.

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

/// Longest message that a write of bytes makes.
const WRITE_MAX: usize = 64 * 1024;

/// How a message is sent (`sctp_sndinfo` of RFC 6458 section 5.3.4, `sctp_prinfo` of section 5.3.7). A stream's number converts to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendInfo {
    /// The stream.
    pub stream: StreamId,
    /// Payload protocol identifier.
    pub ppid: Ppid,
    /// Order and reliability.
    pub options: SendOptions,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl From<u16> for SendInfo {
    fn from(stream: u16) -> SendInfo {
        SendInfo { stream: StreamId(stream), ..SendInfo::default() }
    }
}

/// An association.
///
/// Messages: [`send`](Self::send) and [`recv`](Self::recv), from any number of tasks. Bytes: [`AsyncRead`] and [`AsyncWrite`], for
/// programs that know TCP. Written bytes go by stream 0, and what is read are the bytes of all messages. Use one of both.
///
/// SCTP has no half-closed state: after [`shutdown`](Self::shutdown) of either end both ends send no more, and what was sent before is
/// delivered.
///
/// Dropping it shuts the association down, and data goes on to be delivered in the background. If received messages are unread, or come
/// later, the association is aborted or they are discarded.
pub struct SctpStream {
    shared: Arc<Shared>,
    id: AssociationId,
    /// Bytes of a message that was read in part.
    rest: Bytes,
}

impl SctpStream {
    pub(crate) fn new(shared: Arc<Shared>, id: AssociationId) -> SctpStream {
        SctpStream { shared, id, rest: Bytes::new() }
    }

    async fn wait<R>(&self, f: impl FnMut(&mut State, Wait<'_>) -> Poll<R>) -> R {
        self.shared.wait(WaitsOn::Association(self.id), f).await
    }

    /// Waits until it is up.
    pub(crate) async fn up(&self) -> Result<(), Error> {
        self.wait(|state, wait| state.poll_up(wait, self.id)).await
    }

    /// Sends a message, once the send buffer has room for it. Cancelling it before means that nothing is sent.
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
    /// [`Error::Send`] if the message is empty or too long, the stream does not exist, or the association is being shut down;
    /// [`Error::Closed`].
    pub async fn send(&self, message: impl Into<Bytes>, info: impl Into<SendInfo>) -> Result<(), Error> {
        let (message, info) = (message.into(), info.into());
        self.wait(|state, wait| state.poll_send(wait, self.id, &message, &info)).await
    }

    /// Returns the next message. `None`: the peer has shut the association down, and all messages are read. Cancelling it loses none.
    ///
    /// A message that is longer than the receive window comes in parts ([`Message::end`]).
    ///
    /// # Errors
    /// [`Error::Closed`] if the association ended otherwise, after all messages are read.
    pub async fn recv(&self) -> Result<Option<Message>, Error> {
        self.wait(|state, wait| state.poll_recv(wait, self.id)).await
    }

    /// Returns the next event that is neither a message nor the end: paths, addresses, streams. `None`: the association is over. If nobody
    /// asks, the last 64 are kept.
    pub async fn event(&self) -> Option<Event> {
        self.wait(|state, wait| state.poll_event(wait, self.id)).await
    }

    /// Sends no more: what was sent is delivered, and the association ends. Messages of the peer can still be received.
    pub fn shutdown(&self) {
        self.shared.with(|state| state.shutdown(self.id));
    }

    /// Shuts the association down, and waits until all is delivered at both ends. Messages that the peer has sent and nobody reads are
    /// discarded.
    ///
    /// # Errors
    /// [`Error::Closed`] if it ended otherwise: data may be lost.
    pub async fn close(self) -> Result<(), Error> {
        self.shutdown();
        let over = self.wait(|state, wait| {
            // Unread messages would keep the peer from its shutdown.
            while let Poll::Ready(Ok(Some(_))) = state.poll_recv(wait, self.id) {}
            state.poll_over(wait, self.id)
        });
        match over.await? {
            CloseReason::Graceful => Ok(()),
            other => Err(Error::Closed(other)),
        }
    }

    /// Ends the association at once by ABORT with this reason, which the peer is told. Data that is not delivered is lost.
    pub fn abort(self, reason: impl Into<Bytes>) {
        let cause = AbortCause::user(reason);
        self.shared.with(|state| state.abort(self.id, cause));
    }

    /// Returns our address and port as the set-up had them.
    ///
    /// # Errors
    /// If the stack is at an end.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.shared.lock().addresses_of(self.id).map(|(local, _)| local)
    }

    /// Returns the peer's address and port as the set-up had them.
    ///
    /// # Errors
    /// If the stack is at an end.
    pub fn peer_addr(&self) -> Result<SocketAddr, Error> {
        self.shared.lock().addresses_of(self.id).map(|(_, peer)| peer)
    }

    /// Returns what the engine knows of the association, also after its end: paths, streams, counters. `None`: there has been none.
    pub fn info(&self) -> Option<AssociationInfo> {
        self.shared.lock().engine().0.info(self.id)
    }

    /// Gives commands to the engine: primary path, timers, priorities of streams, keys, and all others of [`Endpoint`] that name an
    /// association. The stack takes the events. The function must not use sockets of the stack: it would wait for itself.
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
            // A message takes what there is room for. Where there is none, the engine says when there is.
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

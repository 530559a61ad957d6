//! A connection whose bytes flow between its TCP socket, its relay and its association.
//!
//! A channel of a shared association sends only the bytes that the peer has granted. A bulk transfer on a channel leaves a part of the
//! association's send buffer to connections with short messages. Begin at [`Flowing::serve`].

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use intercept::disarm_linger;
use mio::Interest;
use mio::event::Event;
use mio::net::TcpStream;
use relay::mux::{ChannelId, Mux, Received};
use relay::{
    Action, Closed, FramingError, PPID_DATA, PPID_END, Relay, UNSENT_MAX, UNWRITTEN_LEAST, UNWRITTEN_MAX,
};
use sctp::{AbortCause, AssociationId, Endpoint, Ppid, SendError, SendOptions, StreamId};

use crate::shared::flush;

/// Limit on the reads and writes of one connection in one turn.
const ROUNDS: usize = 4;
/// Limit on the slices in one write.
const SLICES: usize = 64;
/// Bytes of a shared association's send buffer that bulk transfers leave free. Short messages therefore leave at once.
const RESERVE: usize = 8 * 1024;
/// Greatest length of a short message, in bytes.
const SHORT: usize = 2 * 1024;
/// Time that earlier bytes get to leave after an application's socket has failed. After this time, the failure ends the association. These
/// bytes may wait, because many connections may have bytes to send in the same turn.
const LEAVING_LIMIT: Duration = Duration::from_millis(10);
/// Events of interest on a connection's socket. They include urgent data, because a read stops before an urgent byte.
pub(crate) const INTERESTS: Interest = Interest::READABLE.add(Interest::WRITABLE).add(Interest::PRIORITY);
/// Stream that a connection uses in both directions, if it has a separate association.
const STREAM: StreamId = StreamId(0);

/// A connection whose bytes flow.
pub(crate) struct Flowing {
    stream: TcpStream,
    relay: Relay,
    /// True if the TCP socket may have bytes to read.
    readable: bool,
    /// True if the TCP socket may accept bytes.
    writable: bool,
    /// True if the TCP socket may have reported its end or an urgent byte. A short read then does not mean that the buffer is empty.
    /// Reading continues until the end, or until a read would block.
    hung_up: bool,
    /// True if the TCP socket failed. The socket's remaining bytes are still read and sent before the failure ends the association, because
    /// the application wrote these bytes before the failure.
    broken: bool,
    /// Deadline for earlier data to leave before the failure ends the association.
    leaving_until: Option<Time>,
}

impl Flowing {
    pub(crate) const fn new(stream: TcpStream, relay: Relay) -> Flowing {
        // Earlier events of the socket were not recorded, so the connection may already have ended.
        let (readable, writable, hung_up) = (true, true, true);
        Flowing { stream, relay, readable, writable, hung_up, broken: false, leaving_until: None }
    }

    /// Returns the socket of the local TCP connection.
    pub(crate) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) const fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Notes an event of the socket.
    pub(crate) fn on_event(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed();
        self.writable |= event.is_writable();
        self.hung_up |= event.is_read_closed() || event.is_priority();
        self.broken |= event.is_error();
    }

    /// Handles SHUTDOWN from the peer.
    pub(crate) fn on_peer_shutdown(&mut self) {
        self.relay.on_peer_shutdown();
    }

    /// Handles the end of the association.
    pub(crate) fn on_closed(&mut self, how: Closed) {
        self.relay.on_closed(how);
    }

    /// Copies the bytes that wait for the program. The copy releases the packets that carried these bytes.
    pub(crate) fn keep_unwritten(&mut self) {
        self.relay.keep_unwritten();
    }

    /// Returns the framing's error, once.
    pub(crate) fn take_framing_error(&mut self) -> Option<FramingError> {
        self.relay.take_framing_error()
    }

    /// Reports whether the socket's failure must wait until earlier data has left. An ABORT would overtake data that a separate association
    /// has not transmitted yet.
    fn waits_to_leave(&mut self, now: Time, engine: &Endpoint, association: AssociationId) -> bool {
        self.broken
            && engine.is_waiting_to_transmit(association)
            && now < *self.leaving_until.get_or_insert(now + LEAVING_LIMIT)
    }

    /// Moves bytes for one turn, with `scratch` as the read buffer. Returns `None` if the socket's failure must wait.
    pub(crate) fn serve(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        association: AssociationId,
        medium: Medium<'_>,
        scratch: &mut [u8],
    ) -> Option<Outcome> {
        if matches!(medium, Medium::Association) && self.waits_to_leave(now, engine, association) {
            return None;
        }
        let mut turn = Turn { now, engine, association, medium, scratch, is_full: false };
        let outcome = turn.run(self);
        Some(Outcome { is_full: turn.is_full, ..outcome })
    }
}

/// Effects of one turn of one connection.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) finished: bool,
    /// True if more work can be done without waiting.
    pub(crate) more: bool,
    /// True if the send buffer of the shared association had no room for a message.
    pub(crate) is_full: bool,
}

/// The medium of a connection's bytes.
pub(crate) enum Medium<'a> {
    /// A separate association.
    Association,
    /// A channel of a shared association.
    Channel { mux: &'a mut Mux, id: ChannelId },
}

/// One turn of one connection.
struct Turn<'a> {
    now: Time,
    engine: &'a mut Endpoint,
    association: AssociationId,
    medium: Medium<'a>,
    scratch: &'a mut [u8],
    /// True if the send buffer of the shared association had no room for a message.
    is_full: bool,
}

impl Turn<'_> {
    fn run(&mut self, flowing: &mut Flowing) -> Outcome {
        let mut outcome = Outcome { more: true, ..Outcome::default() };
        for _ in 0..ROUNDS {
            let received = if flowing.broken { 0 } else { self.receive(flowing) };
            let sent = self.send(flowing);
            outcome.received += received;
            outcome.sent += sent;
            if matches!(self.medium, Medium::Channel { .. }) && flowing.relay.has_exchanged_ends() {
                flowing.relay.on_closed(Closed::Gracefully);
            }
            let acted = self.act(flowing);
            if flowing.relay.is_finished() {
                outcome.finished = true;
                break;
            }
            if received + sent == 0 && !acted {
                // With a framing, the bytes that were read may end within a message, so reading can continue. An answer of the framing may
                // wait to be written to the program.
                let reads = flowing.readable && flowing.relay.wants_bytes();
                outcome.more = flowing.broken || reads || flowing.writable && flowing.relay.has_unwritten();
                break;
            }
            if flowing.broken {
                // The bytes must leave now, or the failure would overtake them.
                break;
            }
        }
        outcome
    }

    /// Moves data from the association to TCP. Returns the number of bytes written.
    fn receive(&mut self, flowing: &mut Flowing) -> u64 {
        let is_short = self.engine.is_memory_short(self.association);
        let most = if is_short { UNWRITTEN_LEAST } else { UNWRITTEN_MAX };
        // While the program reads nothing, messages stay in the association. The association's shrinking receive window then stops the
        // peer.
        while flowing.relay.wants_message(most) && (flowing.writable || !flowing.relay.has_unwritten()) {
            if !self.take_message(&mut flowing.relay) {
                flowing.relay.on_no_message();
                break;
            }
        }
        let mut written = 0;
        while flowing.writable && flowing.relay.has_unwritten() {
            written += write_some(flowing);
        }
        if let Medium::Channel { mux, id } = &mut self.medium {
            mux.on_consumed(*id, written as usize);
        }
        if !flowing.writable && flowing.relay.has_unwritten() {
            flowing.relay.on_tcp_full();
            if is_short && let Medium::Channel { mux, id } = &mut self.medium {
                flowing.relay.keep_unwritten();
                mux.keep(*id);
            }
        }
        let waiting = self.waiting(&flowing.relay);
        self.engine.set_user_memory(self.association, waiting);
        written
    }

    /// Returns the memory, in bytes, of received bytes that have left the association and wait for programs.
    fn waiting(&mut self, relay: &Relay) -> usize {
        match &mut self.medium {
            Medium::Association => relay.unwritten_memory(),
            Medium::Channel { mux, .. } => mux.memory(),
        }
    }

    /// Gives the relay the next message. Returns false if none is available.
    fn take_message(&mut self, relay: &mut Relay) -> bool {
        match &mut self.medium {
            Medium::Association => {
                let Some(message) = self.engine.recv(self.now, self.association) else { return false };
                relay.on_message(message.ppid.0, message.pieces);
            }
            Medium::Channel { mux, id } => match mux.recv(*id) {
                Some(Received::Data(bytes)) => relay.on_message(PPID_DATA, [bytes]),
                Some(Received::End) => relay.on_message(PPID_END, []),
                None => return false,
            },
        }
        true
    }

    /// Moves data from TCP to the association. Returns the number of bytes sent.
    fn send(&mut self, flowing: &mut Flowing) -> u64 {
        let fragment = self.engine.fragment_size(self.association).max(1);
        if flowing.broken && !flowing.relay.wants_bytes() {
            flowing.relay.on_tcp_error();
        }
        if (flowing.readable || flowing.broken) && flowing.relay.wants_bytes() {
            let whole_fragments = (UNSENT_MAX.min(self.send_room()) / fragment).max(1) * fragment;
            let length = whole_fragments.min(self.scratch.len());
            read_some(flowing, &mut self.scratch[..length]);
        }
        let mut sent = 0;
        while let Some((stream, limit)) = self.permission(&flowing.relay, flowing.readable, fragment)
            && let Some(message) = flowing.relay.next_message(limit)
        {
            let length = message.bytes.len();
            let (now, ppid) = (self.now, Ppid(message.ppid));
            let options = SendOptions::default();
            match self.engine.send(now, self.association, stream, ppid, message.bytes, options) {
                Ok(()) => {
                    flowing.relay.on_sent(length);
                    self.note_sent(ppid.0, length);
                    sent += length as u64;
                }
                Err(SendError::WouldBlock) => {
                    self.is_full = true;
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, "a message was refused");
                    flowing.relay.on_send_refused();
                }
            }
        }
        sent
    }

    /// Returns the number of bytes that can be sent at once. The caller reads no more than this number from the program, because further
    /// bytes would wait outside the association's memory.
    fn send_room(&self) -> usize {
        let free = self.engine.send_capacity(self.association);
        match &self.medium {
            Medium::Association => free,
            Medium::Channel { mux, id } => mux.send_room(*id).min(free.saturating_sub(RESERVE)),
        }
    }

    /// Returns the stream on which the connection may send, and the greatest length of a message. Returns `None` if the connection must
    /// wait. `has_more` is true if the program has likely written more bytes than were read.
    fn permission(&mut self, relay: &Relay, has_more: bool, fragment: usize) -> Option<(StreamId, usize)> {
        let Medium::Channel { mux, id } = &mut self.medium else { return Some((STREAM, fragment)) };
        // The message that opens or accepts a channel precedes the bytes of the channel.
        if mux.has_out() && !flush(self.now, self.engine, self.association, mux) {
            self.is_full = true;
            return None;
        }
        let stream = StreamId(mux.stream(*id)?);
        let unsent = relay.unsent();
        if unsent == 0 {
            return Some((stream, fragment));
        }
        let room = mux.send_room(*id);
        if room == 0 {
            mux.on_stopped(*id);
            return None;
        }
        let limit = fragment.min(room);
        let free = self.engine.send_capacity(self.association);
        let is_bulk = unsent > SHORT || has_more;
        if is_bulk && touches_reserve(limit, free, self.engine.unacknowledged(self.association)) {
            self.engine.notify_when_writable(self.now, self.association);
            self.is_full = true;
            return None;
        }
        Some((stream, limit))
    }

    /// Records that the association has accepted a message of the connection.
    fn note_sent(&mut self, ppid: u32, length: usize) {
        if let Medium::Channel { mux, id } = &mut self.medium {
            match ppid {
                PPID_END => mux.on_end_sent(*id),
                _ => mux.on_data_sent(*id, length),
            }
        }
    }

    /// Performs the relay's actions. Reports whether any action was due.
    fn act(&mut self, flowing: &mut Flowing) -> bool {
        let mut acted = false;
        while let Some(action) = flowing.relay.next_action() {
            acted = true;
            match action {
                // If the application has gone, the socket's next event reports it.
                Action::EndTcp => drop(flowing.stream.shutdown(std::net::Shutdown::Write)),
                Action::ShutDownAssociation => self.engine.shutdown(self.now, self.association),
                Action::AbortAssociation => match &mut self.medium {
                    Medium::Association => {
                        self.engine.abort(self.now, self.association, AbortCause::user(""))
                    }
                    Medium::Channel { mux, id } => mux.release(*id),
                },
                Action::CloseTcp => drop(disarm_linger(&flowing.stream)),
                // The linger option of the socket makes its close a reset.
                Action::ResetTcp => {}
            }
        }
        acted
    }
}

/// Reports whether a message of a bulk transfer would use the part of a shared association's send buffer that is reserved for short
/// messages. This part is [`RESERVE`], or a quarter of a buffer that has shrunk for lack of memory. With no data in flight the answer is
/// false, because no acknowledgement would make room.
fn touches_reserve(length: usize, free: usize, unacknowledged: usize) -> bool {
    let reserve = RESERVE.min((free + unacknowledged) / 4);
    free < reserve + length && unacknowledged > 0
}

fn write_some(flowing: &mut Flowing) -> u64 {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let filled = flowing.relay.unwritten(&mut slices);
    let offered: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
    match flowing.stream.write_vectored(&slices[..filled]) {
        Ok(written) => {
            flowing.writable = written == offered;
            flowing.relay.on_written(written);
            written as u64
        }
        Err(error) => {
            flowing.writable = false;
            flowing.broken |= is_failure(&error);
            flowing.writable |= error.kind() == ErrorKind::Interrupted;
            0
        }
    }
}

fn read_some(flowing: &mut Flowing, buffer: &mut [u8]) {
    match flowing.stream.read(buffer) {
        // If a write has reported the failure, a later read reports an end that the application did not send.
        Ok(0) if flowing.broken => flowing.relay.on_tcp_error(),
        Ok(0) => {
            flowing.readable = false;
            flowing.relay.on_eof();
        }
        Ok(length) => {
            flowing.readable = length == buffer.len() || flowing.hung_up;
            flowing.relay.on_bytes(Bytes::copy_from_slice(&buffer[..length]));
        }
        Err(error) if is_failure(&error) && flowing.broken => flowing.relay.on_tcp_error(),
        // The bytes of the last read must still leave.
        Err(error) if is_failure(&error) => flowing.broken = true,
        Err(error) => {
            flowing.readable = error.kind() == ErrorKind::Interrupted;
            flowing.hung_up &= flowing.readable;
            if flowing.broken && !flowing.readable {
                flowing.relay.on_tcp_error();
            }
        }
    }
}

/// Reports whether the error is a failure of the connection, and not only a sign that the socket is not ready.
fn is_failure(error: &io::Error) -> bool {
    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_leaves_room_for_short_messages_and_goes_on_beside_them_in_the_smallest_buffer() {
        assert!(touches_reserve(1400, RESERVE + 1399, 100_000));
        assert!(!touches_reserve(1400, RESERVE + 1400, 100_000));
        // If memory is short, an association keeps a send buffer of 8 KiB.
        assert!(!touches_reserve(1400, 8192 - 100, 100), "short messages are on their way");
        assert!(touches_reserve(1400, 2048 + 1399, 8192 - 2048 - 1399));
        assert!(!touches_reserve(60_000, 8192, 0), "nothing would make room");
    }
}

//! State of one connection: two directions, the end of the association, and the actions that remain.

use std::io::IoSlice;

use bytes::{Bytes, BytesMut};

use crate::framing::{Framed, Framing, FramingError};
use crate::outgoing::{Outgoing, Sender};
use crate::peer::{PPID_DATA, PPID_END, Peer};
use crate::pieces::Pieces;

/// Limit on the bytes that wait for TCP. From this number of bytes on, the relay requests no further message. The driver may take messages
/// up to this limit, and write them to TCP, before it serves packets again.
pub const UNWRITTEN_MAX: usize = 256 * 1024;
/// Replacement of [`UNWRITTEN_MAX`] while memory is short.
pub const UNWRITTEN_LEAST: usize = 16 * 1024;
/// Limit on the waiting pieces. Each piece takes a place and an allocation, even if it is short.
const PIECES_MAX: usize = 512;

/// The side that began the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// This side began the association. Between shims, the initiator shuts the association down when both directions have ended. The peer
    /// therefore sends no SHUTDOWN that could cross this side's SHUTDOWN.
    Initiator,
    /// The peer began the association.
    Acceptor,
}

/// The way in which the association has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The association was shut down: all data of both sides was delivered.
    Gracefully,
    /// The association has ended in another way, for example with ABORT.
    Lost,
}

/// An action that the caller performs once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// End the sending side of the TCP socket. The application then sees the end of the stream.
    EndTcp,
    /// Shut the association down after all data that was sent.
    ShutDownAssociation,
    /// Abort the association.
    AbortAssociation,
    /// Close the TCP socket in order. No action follows.
    CloseTcp,
    /// Reset the TCP connection. No action follows.
    ResetTcp,
}

/// Progress of the peer's sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Incoming {
    /// More bytes may arrive.
    Open,
    /// The end was announced. Earlier bytes may still wait to be written.
    Ending,
    /// The application has been informed of the end.
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Running,
    /// The association must be aborted, and TCP must then be reset.
    Aborting,
    /// The association is lost. Bytes that had arrived are written while TCP accepts them, and then TCP is reset.
    Lost,
    /// TCP must be reset.
    Resetting,
    Finished,
}

/// One TCP connection carried by one association.
///
/// After each input, the driver calls [`next_action`](Self::next_action) until it returns `None`. The driver then serves
/// [`wants_bytes`](Self::wants_bytes), [`next_message`](Self::next_message), [`wants_message`](Self::wants_message) and
/// [`has_unwritten`](Self::has_unwritten), if the TCP socket and the association are ready for them.
#[derive(Debug)]
pub struct Relay {
    peer: Peer,
    role: Role,
    sender: Sender,
    /// Finds the messages for a native peer that expects messages of its protocol.
    framing: Option<Box<dyn Framing>>,
    incoming: Incoming,
    unwritten: Pieces,
    /// True if a native peer sent SHUTDOWN.
    peer_shutdown: bool,
    shutdown_asked: bool,
    closed: Option<Closed>,
    fate: Fate,
    framing_error: Option<FramingError>,
}

impl Relay {
    /// Creates a relay over an association that is up.
    pub fn new(peer: Peer, role: Role) -> Relay {
        Relay::with(peer, role, None)
    }

    /// Creates a relay to a native program that expects messages. `framing` finds these messages. Each of these messages is sent as one
    /// SCTP message.
    pub fn framed(role: Role, framing: Box<dyn Framing>) -> Relay {
        Relay::with(Peer::Native, role, Some(framing))
    }

    fn with(peer: Peer, role: Role, framing: Option<Box<dyn Framing>>) -> Relay {
        Relay {
            peer,
            role,
            sender: Sender::new(peer, framing.is_some()),
            framing,
            incoming: Incoming::Open,
            unwritten: Pieces::default(),
            peer_shutdown: false,
            shutdown_asked: false,
            closed: None,
            fate: Fate::Running,
            framing_error: None,
        }
    }

    /// Reports whether up to [`UNSENT_MAX`](crate::UNSENT_MAX) bytes should be read from TCP now. While an application does not read the
    /// framing's answers, its bytes are not read either.
    pub fn wants_bytes(&self) -> bool {
        let has_room = self.framing.is_none() || self.unwritten.bytes() < 2 * UNWRITTEN_MAX;
        self.fate == Fate::Running && self.sender.wants_bytes() && has_room
    }

    /// Handles bytes read from TCP, after [`wants_bytes`](Self::wants_bytes) requested them.
    pub fn on_bytes(&mut self, bytes: Bytes) {
        if self.closed.is_some() || self.peer_shutdown {
            // The peer will not read these bytes. TCP also answers data after the end of both directions with RST.
            self.fail();
            return;
        }
        match &mut self.framing {
            None => self.sender.take(bytes),
            Some(framing) => {
                framing.push(&bytes);
                self.find_messages();
            }
        }
    }

    /// Returns the reason why no message was found in the application's bytes, once.
    pub fn take_framing_error(&mut self) -> Option<FramingError> {
        self.framing_error.take()
    }

    /// Handles the end of the application's sending (read returned 0). If the application ends within a message, the connection fails, and
    /// the peer is informed of a failure.
    pub fn on_eof(&mut self) {
        if self.framing.as_ref().is_some_and(|framing| framing.has_part()) {
            self.fail();
            return;
        }
        self.sender.end();
    }

    /// Handles a failure of TCP: the application has reset the connection, or has gone.
    pub fn on_tcp_error(&mut self) {
        self.fail();
    }

    /// Gives the connection up, by decision of the driver.
    pub fn give_up(&mut self) {
        self.fail();
    }

    /// Returns the message to send next. It has up to `fragment_size` bytes, unless it is a whole message of the application. Returns the
    /// same message until [`on_sent`](Self::on_sent).
    pub fn next_message(&self, fragment_size: usize) -> Option<Outgoing> {
        let sending = self.fate == Fate::Running && self.closed.is_none();
        if sending { self.sender.next(fragment_size) } else { None }
    }

    /// Notes that the association has taken the message of `length` bytes that [`next_message`](Self::next_message) returned.
    pub fn on_sent(&mut self, length: usize) {
        self.sender.sent(length);
    }

    /// Handles a permanent refusal of a message by the association.
    pub fn on_send_refused(&mut self) {
        self.fail();
    }

    /// Reports whether a message should be taken from the association now. Returns false if `most` or more bytes wait for TCP. The driver
    /// passes [`UNWRITTEN_MAX`], or [`UNWRITTEN_LEAST`] if memory is short.
    pub fn wants_message(&self, most: usize) -> bool {
        matches!(self.fate, Fate::Running | Fate::Lost)
            && self.incoming == Incoming::Open
            && self.unwritten.bytes() < most
            && self.unwritten.count() < PIECES_MAX
    }

    /// Returns the memory of the bytes that wait for TCP, in bytes.
    pub fn unwritten_memory(&self) -> usize {
        self.unwritten.memory()
    }

    /// Copies the bytes for TCP, because they will wait for long. The copy releases the memory that these bytes share with other messages.
    pub fn keep_unwritten(&mut self) {
        self.unwritten.keep();
    }

    /// Handles a received message in `pieces`.
    pub fn on_message(&mut self, ppid: u32, pieces: impl IntoIterator<Item = Bytes>) {
        match (self.peer, ppid) {
            (Peer::Native, _) => match &self.framing {
                None => self.queue(pieces),
                Some(framing) => {
                    let message = framing.in_stream(joined(pieces));
                    self.queue([message]);
                }
            },
            (Peer::Shim, PPID_DATA) => self.queue(pieces),
            (Peer::Shim, PPID_END) => self.incoming = Incoming::Ending,
            (Peer::Shim, _) => self.fail(),
        }
    }

    /// Notes that the association was asked for a message and had none.
    pub fn on_no_message(&mut self) {
        if self.incoming != Incoming::Open {
            return;
        }
        let over = self.peer_shutdown || self.closed == Some(Closed::Gracefully);
        match self.peer {
            Peer::Native if over => self.incoming = Incoming::Ending,
            // The association closed without an announced end, so the stream is cut off.
            Peer::Shim if self.closed == Some(Closed::Gracefully) => self.fail(),
            Peer::Native | Peer::Shim => {}
        }
        if self.fate == Fate::Lost && self.unwritten.is_empty() {
            self.fate = Fate::Resetting;
        }
    }

    /// Handles SHUTDOWN from the peer.
    pub fn on_peer_shutdown(&mut self) {
        self.peer_shutdown = self.peer == Peer::Native;
    }

    /// Handles the end of the association. Messages that arrived before the end may still be requested.
    pub fn on_closed(&mut self, how: Closed) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(how);
        match how {
            Closed::Lost if self.fate == Fate::Running => self.fate = Fate::Lost,
            Closed::Gracefully if self.sender.is_cut_by_close() => self.fail(),
            Closed::Lost | Closed::Gracefully => {}
        }
    }

    /// Reports whether bytes wait to be written to TCP.
    pub fn has_unwritten(&self) -> bool {
        matches!(self.fate, Fate::Running | Fate::Lost) && !self.unwritten.is_empty()
    }

    /// Fills `slices` with the bytes to write to TCP next. Returns the number of filled slices.
    pub fn unwritten<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.unwritten.fill(slices)
    }

    /// Notes that TCP took `written` bytes.
    pub fn on_written(&mut self, written: usize) {
        self.unwritten.advance(written);
    }

    /// Notes that TCP takes no more bytes for now.
    pub fn on_tcp_full(&mut self) {
        if self.fate == Fate::Lost {
            self.fate = Fate::Resetting;
        }
    }

    /// Returns the next action. Each action is returned once.
    pub fn next_action(&mut self) -> Option<Action> {
        match self.fate {
            Fate::Finished => None,
            Fate::Aborting => {
                self.fate = Fate::Resetting;
                if self.closed.is_none() { Some(Action::AbortAssociation) } else { self.next_action() }
            }
            Fate::Resetting => {
                self.fate = Fate::Finished;
                Some(Action::ResetTcp)
            }
            Fate::Lost => {
                self.fate = self.after_loss();
                if self.fate == Fate::Resetting { self.next_action() } else { None }
            }
            Fate::Running => self.next_orderly_action(),
        }
    }

    /// Reports whether the last action was returned.
    pub fn is_finished(&self) -> bool {
        self.fate == Fate::Finished
    }

    /// Reports whether both directions have ended and only the close of the association is awaited.
    pub fn is_ending(&self) -> bool {
        self.sender.has_ended() && self.incoming == Incoming::Ended
    }

    /// Reports whether each end has informed the other that its program has ended its sending. On a [shared association](crate::mux) this
    /// exchange replaces SHUTDOWN: the driver then calls [`on_closed`](Self::on_closed).
    pub fn has_exchanged_ends(&self) -> bool {
        self.sender.has_ended() && self.incoming != Incoming::Open
    }

    /// Returns the number of bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        if self.fate == Fate::Running && self.closed.is_none() { self.sender.unsent() } else { 0 }
    }

    fn next_orderly_action(&mut self) -> Option<Action> {
        if self.incoming == Incoming::Ending && self.unwritten.is_empty() {
            self.incoming = Incoming::Ended;
            return Some(Action::EndTcp);
        }
        if self.is_due_to_shut_down() {
            self.shutdown_asked = true;
            return Some(Action::ShutDownAssociation);
        }
        if self.closed == Some(Closed::Gracefully) && self.is_ending() {
            self.fate = Fate::Finished;
            return Some(Action::CloseTcp);
        }
        None
    }

    fn is_due_to_shut_down(&self) -> bool {
        if self.shutdown_asked || self.closed.is_some() || !self.sender.has_ended() {
            return false;
        }
        match self.peer {
            Peer::Native => !self.peer_shutdown,
            Peer::Shim => self.role == Role::Initiator && self.incoming != Incoming::Open,
        }
    }

    /// Returns the next state of a lost connection. Received bytes are still written, but a reset follows them.
    fn after_loss(&self) -> Fate {
        let complete = self.incoming != Incoming::Open && self.unwritten.is_empty();
        if complete { Fate::Resetting } else { Fate::Lost }
    }

    /// Gives complete messages to the sender, and the framing's answers to the application.
    fn find_messages(&mut self) {
        let mut answers = BytesMut::new();
        // The loop terminates, because each round removes some of the pushed bytes.
        while let Some(framing) = &mut self.framing {
            match framing.next() {
                Ok(Some(Framed::Message(message))) => self.sender.take(message),
                Ok(Some(Framed::Answer(answer))) => answers.extend_from_slice(answer),
                Ok(None) => return self.answer(answers.freeze()),
                Err(error) => {
                    self.framing_error = Some(error);
                    return self.fail();
                }
            }
        }
    }

    /// Writes the framing's answers to the application between the peer's messages, while the peer may still send.
    fn answer(&mut self, answers: Bytes) {
        if self.incoming == Incoming::Open {
            self.unwritten.push(answers);
        }
    }

    fn queue(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        if self.incoming != Incoming::Open {
            self.fail();
            return;
        }
        pieces.into_iter().for_each(|piece| self.unwritten.push(piece));
    }

    fn fail(&mut self) {
        if self.fate != Fate::Finished {
            self.fate = if self.closed.is_some() { Fate::Resetting } else { Fate::Aborting };
            self.unwritten.clear();
        }
    }

    /// Reports whether the application may still send.
    pub fn is_sending(&self) -> bool {
        self.sender.is_open()
    }

    /// Reports whether the peer may still send.
    pub fn is_receiving(&self) -> bool {
        self.incoming == Incoming::Open
    }
}

/// Joins the pieces of a message.
fn joined(pieces: impl IntoIterator<Item = Bytes>) -> Bytes {
    let mut pieces = pieces.into_iter();
    let first = pieces.next().unwrap_or_default();
    let mut rest = pieces.peekable();
    if rest.peek().is_none() {
        return first;
    }
    let mut whole = BytesMut::from(&first[..]);
    rest.for_each(|piece| whole.extend_from_slice(&piece));
    whole.freeze()
}

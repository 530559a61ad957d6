//! The state of one connection: two directions, the association's end, and what remains to be done.

use std::io::IoSlice;

use bytes::{Bytes, BytesMut};

use crate::framing::{Framed, Framing, FramingError};
use crate::outgoing::{Outgoing, Sender};
use crate::peer::{PPID_DATA, PPID_END, Peer};
use crate::pieces::Pieces;

/// Bytes for TCP that may wait before no further message is asked for: in one batch, so many are taken from the association, and
/// written, before packets are served again.
pub const UNWRITTEN_MAX: usize = 256 * 1024;
/// The same where memory is short.
pub const UNWRITTEN_LEAST: usize = 16 * 1024;
/// Pieces of them: each takes a place, and an allocation, however short it is.
const PIECES_MAX: usize = 512;

/// Which side began the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// This one. Between shims it is the one that shuts the association down when both directions have ended, so
    /// that the two SHUTDOWNs never cross.
    Initiator,
    /// The peer.
    Acceptor,
}

/// End of the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// By SHUTDOWN: all data of both sides was delivered.
    Gracefully,
    /// In any other way.
    Lost,
}

/// An action for the caller, to be done once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// End the TCP socket's sending side: the application sees the end of the stream.
    EndTcp,
    /// Shut the association down, after what was sent.
    ShutDownAssociation,
    /// Abort the association.
    AbortAssociation,
    /// Close the TCP socket in an orderly way. Nothing follows.
    CloseTcp,
    /// Reset the TCP connection. Nothing follows.
    ResetTcp,
}

/// Progress of the peer's sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Incoming {
    /// More may come.
    Open,
    /// The end was announced; what came before it may still wait to be written.
    Ending,
    /// The application was told.
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Running,
    /// The association is to be aborted, then TCP reset.
    Aborting,
    /// The association is gone; what had arrived is offered to TCP as far as it takes it, then TCP is reset.
    Lost,
    /// TCP is to be reset.
    Resetting,
    Finished,
}

/// One TCP connection carried by one association.
///
/// After each input the driver asks [`next_action`](Self::next_action) until there is none, and serves whichever
/// of [`wants_bytes`](Self::wants_bytes), [`next_message`](Self::next_message),
/// [`wants_message`](Self::wants_message) and [`has_unwritten`](Self::has_unwritten) its sockets are ready for.
#[derive(Debug)]
pub struct Relay {
    peer: Peer,
    role: Role,
    sender: Sender,
    /// Of a native peer that expects its protocol's messages.
    framing: Option<Box<dyn Framing>>,
    incoming: Incoming,
    unwritten: Pieces,
    /// A native peer sent SHUTDOWN.
    peer_shutdown: bool,
    shutdown_asked: bool,
    closed: Option<Closed>,
    fate: Fate,
    framing_error: Option<FramingError>,
}

impl Relay {
    /// A relay over an association that is up.
    pub fn new(peer: Peer, role: Role) -> Relay {
        Relay::with(peer, role, None)
    }

    /// The same to a native program that expects the messages that `framing` finds, each as one.
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

    /// Reports whether TCP should be read now, at most [`UNSENT_MAX`](crate::UNSENT_MAX) bytes. An application that does not
    /// read its answers is not read either.
    pub fn wants_bytes(&self) -> bool {
        let has_room = self.framing.is_none() || self.unwritten.bytes() < 2 * UNWRITTEN_MAX;
        self.fate == Fate::Running && self.sender.wants_bytes() && has_room
    }

    /// Bytes were read from TCP, as [`wants_bytes`](Self::wants_bytes) asked.
    pub fn on_bytes(&mut self, bytes: Bytes) {
        if self.closed.is_some() || self.peer_shutdown {
            // Nobody will read them: TCP answers data after the end of both directions by RST.
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

    /// Why no message was found in the application's bytes, once.
    pub fn take_framing_error(&mut self) -> Option<FramingError> {
        self.framing_error.take()
    }

    /// The application ended its sending (read returned 0). A message that it began and did not end is none: then the peer is
    /// told of a failure.
    pub fn on_eof(&mut self) {
        if self.framing.as_ref().is_some_and(|framing| framing.has_part()) {
            self.fail();
            return;
        }
        self.sender.end();
    }

    /// TCP failed: the application reset the connection, or is gone.
    pub fn on_tcp_error(&mut self) {
        self.fail();
    }

    /// The driver gives the connection up.
    pub fn give_up(&mut self) {
        self.fail();
    }

    /// The message to be sent next, of at most `fragment_size` bytes where it is none of the application's own; the same until [`on_sent`](Self::on_sent).
    pub fn next_message(&self, fragment_size: usize) -> Option<Outgoing> {
        let sending = self.fate == Fate::Running && self.closed.is_none();
        if sending { self.sender.next(fragment_size) } else { None }
    }

    /// The association took the message of `length` bytes that [`next_message`](Self::next_message) gave.
    pub fn on_sent(&mut self, length: usize) {
        self.sender.sent(length);
    }

    /// The association refused a message for ever.
    pub fn on_send_refused(&mut self) {
        self.fail();
    }

    /// Reports whether the association should be asked for a message now, if fewer than `most` bytes may wait for TCP:
    /// [`UNWRITTEN_MAX`], or [`UNWRITTEN_LEAST`] where memory is short.
    pub fn wants_message(&self, most: usize) -> bool {
        matches!(self.fate, Fate::Running | Fate::Lost)
            && self.incoming == Incoming::Open
            && self.unwritten.bytes() < most
            && self.unwritten.count() < PIECES_MAX
    }

    /// Bytes of memory that it takes to keep what waits for TCP.
    pub fn unwritten_memory(&self) -> usize {
        self.unwritten.memory()
    }

    /// The bytes for TCP will wait for long: they let go of the memory that they share with other messages.
    pub fn keep_unwritten(&mut self) {
        self.unwritten.keep();
    }

    /// A message came, in `pieces`.
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

    /// The association was asked for a message and had none.
    pub fn on_no_message(&mut self) {
        if self.incoming != Incoming::Open {
            return;
        }
        let over = self.peer_shutdown || self.closed == Some(Closed::Gracefully);
        match self.peer {
            Peer::Native if over => self.incoming = Incoming::Ending,
            // The association closed, but its end was never announced: the stream is cut.
            Peer::Shim if self.closed == Some(Closed::Gracefully) => self.fail(),
            Peer::Native | Peer::Shim => {}
        }
        if self.fate == Fate::Lost && self.unwritten.is_empty() {
            self.fate = Fate::Resetting;
        }
    }

    /// The peer sent SHUTDOWN.
    pub fn on_peer_shutdown(&mut self) {
        self.peer_shutdown = self.peer == Peer::Native;
    }

    /// The association is over; messages that came before may still be asked for.
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

    /// The bytes to be written to TCP next, as many slices as `slices` holds; returns how many it filled.
    pub fn unwritten<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.unwritten.fill(slices)
    }

    /// TCP took `written` bytes.
    pub fn on_written(&mut self, written: usize) {
        self.unwritten.advance(written);
    }

    /// TCP takes no more bytes for now.
    pub fn on_tcp_full(&mut self) {
        if self.fate == Fate::Lost {
            self.fate = Fate::Resetting;
        }
    }

    /// Returns the next action; each comes once.
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

    /// Reports whether the last action was given.
    pub fn is_finished(&self) -> bool {
        self.fate == Fate::Finished
    }

    /// Reports whether both directions have ended and only the association's close is awaited.
    pub fn is_ending(&self) -> bool {
        self.sender.has_ended() && self.incoming == Incoming::Ended
    }

    /// Reports whether each end has told the other that its program has ended its sending. On a [shared association](crate::mux) this is what
    /// SHUTDOWN is elsewhere: the driver says [`on_closed`](Self::on_closed) then.
    pub fn has_exchanged_ends(&self) -> bool {
        self.sender.has_ended() && self.incoming != Incoming::Open
    }

    /// Bytes that wait to be sent.
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

    /// Once lost: everything that came is still worth writing, but the end of it is a reset.
    fn after_loss(&self) -> Fate {
        let complete = self.incoming != Incoming::Open && self.unwritten.is_empty();
        if complete { Fate::Resetting } else { Fate::Lost }
    }

    /// Gives the sender the messages that have come whole, and the application what it asked of this end.
    fn find_messages(&mut self) {
        let mut answers = BytesMut::new();
        // Ends: each round takes something out of what was pushed.
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

    /// The application hears this between the peer's messages, while it can hear anything.
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

/// A message in one piece.
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

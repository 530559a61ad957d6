//! Moves messages between the programs' sockets and the engine, and handles the engine's events.

use std::time::Duration;

use base::Time;
use bytes::Bytes;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use sockets::{Delivery, Output, Sent, SocketKey};
use sockproto::{DATA_HEADER, DataHeader, Kind, PEER_LENGTH, Peer, SockAddr};

use crate::closer::NOBODY_KNOWN;
use crate::{Server, pair};

/// Limit on the messages of one socket in one direction in a turn. The limit bounds the delay of other sockets' messages.
const MESSAGES_PER_TURN: usize = 64;

/// Time limit after the peer of a one-to-many socket's association has shut down. After this time, the server shuts the association
/// down, even if it has not taken all messages of the program.
const ENDING_LIMIT: Duration = Duration::from_secs(1);
/// Limit on the messages of a socket that are taken before a request about the socket is answered.
const MESSAGES_BEFORE_REQUEST: usize = 1024;
/// Limit on the messages that are discarded in one call. A send buffer has room for fewer messages.
const MESSAGES_MAX: usize = 1 << 20;

/// The outcome of reading one message.
enum Step {
    /// Further messages may follow.
    More,
    /// Nothing can be read now.
    Done,
}

impl Server {
    /// Passes the engine's events to the sockets, and performs the sockets' outputs, until no events and outputs are left.
    pub(crate) fn follow_events(&mut self, now: Time) {
        loop {
            // Requests of programs also cause outputs. The outputs that already exist are therefore performed before the next
            // event.
            while let Some(output) = self.sockets.poll_output() {
                self.follow(now, output);
            }
            let Some((id, event)) = self.engine.poll_event() else { return };
            self.sockets.handle_event(now, &mut self.engine, id, &event);
        }
    }

    fn follow(&mut self, now: Time, output: Output) {
        match output {
            Output::Settled(key) => match self.awaited_connect(key) {
                // The waiting caller gets the error. The program's end therefore need not become writable to report the error.
                Some((association, error)) if error != 0 => self.end_attempt(key, association, error),
                Some((association, _)) => {
                    self.empty(key);
                    self.end_attempt(key, association, 0);
                }
                None => self.empty(key),
            },
            Output::Accepted { listener, socket, peer } => self.hand_over(now, listener, socket, &peer),
            Output::Attempted { socket, association, error } => {
                self.end_attempt(socket, association, error);
            }
            Output::OneSendingOver { socket, association } => {
                self.ends.ending.push_back((now, socket, association));
                self.ends.readable.insert(socket);
            }
            Output::Readable(key) => drop(self.ends.writable.insert(key)),
            Output::Writable(key) => drop(self.ends.readable.insert(key)),
            Output::SendingOver(key) => {
                if let Some(socket) = self.ends.socket(key) {
                    // An error means that the program has closed its end. In this case the program cannot send either.
                    let _ = shutdown(socket, Shutdown::Read);
                    // The server still takes the messages that the program has already sent.
                    self.ends.readable.insert(key);
                } else {
                    self.sockets.shut_down(now, &mut self.engine, key);
                }
                if !self.sockets.takes_messages(key) {
                    self.discard(key);
                }
            }
        }
    }

    /// Removes the filling from a program's send buffer, so the program's end becomes writable.
    fn empty(&mut self, key: SocketKey) {
        self.ends.readable.insert(key);
        if self.sockets.takes_messages(key) {
            return;
        }
        // The attempt to connect has failed, so the buffer holds only the filling.
        self.take_all(key);
    }

    /// Discards the messages of a program whose association has ended. The program's end becomes writable, and the program's next
    /// send fails.
    fn discard(&mut self, key: SocketKey) {
        self.take_all(key);
        if let Some(end) = self.ends.get_mut(key) {
            (end.is_at_end, end.held) = (true, None);
        }
    }

    /// Removes all messages from a program's send buffer, and discards them.
    fn take_all(&mut self, key: SocketKey) {
        for _ in 0..MESSAGES_MAX {
            let Some(end) = self.ends.get_mut(key) else { return };
            match pair::receive(&end.socket, &mut self.room) {
                Ok(received) => {
                    self.closer.close(end.uid, received.descriptors);
                    if received.length == 0 {
                        return;
                    }
                    let header = DataHeader::read(&self.room[..received.length]);
                    if header.is_some_and(|header| header.kind == Kind::Filling) {
                        self.note_accepted(key);
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Creates the socket pair for a listener's new association, and sends the program's end to the listener's program.
    fn hand_over(&mut self, now: Time, listener: SocketKey, key: SocketKey, peer: &SockAddr) {
        let uid = self.ends.get_mut(listener).map_or(NOBODY_KNOWN, |end| end.uid);
        let program = match self.ends.open(key, self.poll.registry(), (uid, false), Some(listener)) {
            Ok(program) => program,
            Err(error) => {
                tracing::warn!(%error, "an association was ended: no socket can be made for it");
                self.sockets.close(now, &mut self.engine, key, true);
                return self.sockets.set_waiting(listener, self.ends.waiting_of(listener));
            }
        };
        let header = DataHeader::new(Kind::Accepted);
        let to = self.ends.socket(listener);
        let sent = to.map(|to| pair::send(to, &header, peer.as_bytes(), Some(program.as_fd())));
        if sent != Some(Ok(())) {
            self.let_go(now, key, true);
        }
    }

    /// Moves messages between programs and the engine in both directions.
    pub(crate) fn pump(&mut self, now: Time) {
        for key in std::mem::take(&mut self.ends.readable) {
            let mut is_done = false;
            for _ in 0..MESSAGES_PER_TURN {
                if let Step::Done = self.read(now, key) {
                    is_done = true;
                    break;
                }
            }
            if !is_done {
                self.ends.readable.insert(key);
            }
        }
        for key in std::mem::take(&mut self.ends.writable) {
            if !self.write_some(now, key) {
                self.ends.writable.insert(key);
            }
            let is_hung_up = self.ends.get_mut(key).is_some_and(|end| end.is_hung_up);
            if is_hung_up && !self.sockets.takes_messages(key) {
                self.let_go(now, key, false);
            }
        }
    }

    /// Shuts down the associations of one-to-many sockets whose peer has shut down and for which `is_due` is true. The arguments of
    /// `is_due` are the socket and the time of the peer's shutdown.
    fn end_those(&mut self, now: Time, is_due: impl Fn(SocketKey, Time) -> bool) {
        for _ in 0..self.ends.ending.len() {
            let Some((since, socket, association)) = self.ends.ending.pop_front() else { return };
            if is_due(socket, since) {
                self.sockets.shut_down_one(now, &mut self.engine, socket, association);
            } else {
                self.ends.ending.push_back((since, socket, association));
            }
        }
    }

    /// Takes the messages that a program has sent through a one-to-many socket. If the engine has no room for a message, the
    /// message waits with its association.
    pub(crate) fn drain(&mut self, now: Time, key: SocketKey) {
        let set = |server: &mut Server, is_draining: bool| {
            if let Some(end) = server.ends.get_mut(key) {
                end.is_draining = is_draining;
            }
        };
        set(self, true);
        self.read_all(now, key);
        set(self, false);
    }

    /// Shuts down the associations of one-to-many sockets whose peer has shut down at least [`ENDING_LIMIT`] ago.
    pub(crate) fn end_overdue(&mut self, now: Time) {
        let overdue = |since: Time| now >= since + ENDING_LIMIT;
        let sockets: Vec<SocketKey> = self
            .ends
            .ending
            .iter()
            .filter(|(since, ..)| overdue(*since))
            .map(|(_, socket, _)| *socket)
            .collect();
        for socket in sockets {
            self.drain(now, socket);
        }
        self.end_those(now, |_, since| overdue(since));
    }

    /// Takes up to [`MESSAGES_BEFORE_REQUEST`] messages that a program has sent. Stops when the engine has no room.
    pub(crate) fn read_all(&mut self, now: Time, key: SocketKey) {
        for _ in 0..MESSAGES_BEFORE_REQUEST {
            if let Step::Done = self.read(now, key) {
                return;
            }
        }
    }

    /// Takes one message from a program, and offers it to the engine.
    fn read(&mut self, now: Time, key: SocketKey) -> Step {
        let Some(end) = self.ends.get_mut(key) else { return Step::Done };
        if !self.sockets.takes_messages(key) || end.is_at_end {
            // The server cannot take a message now, but the program may have closed its end.
            if end.is_hung_up {
                self.let_go(now, key, false);
            }
            return Step::Done;
        }
        if let Some((header, peer, message)) = end.held.take() {
            return self.offer(now, key, header, peer, message);
        }
        let is_one_to_many = end.is_one_to_many;
        if self.closer.is_overloaded(end.uid) {
            // The server does not read, because each message may carry further descriptors to close.
            self.ends.paused.insert(key);
            return Step::Done;
        }
        match pair::receive(&end.socket, &mut self.room) {
            Err(Errno::AGAIN) => {
                self.end_those(now, |socket, _| socket == key);
                Step::Done
            }
            Err(Errno::INTR) => Step::More,
            // The program has closed its end with unread messages. The server can still read the messages that the program has sent
            // before the close.
            Err(Errno::CONNRESET) if !end.is_reset => {
                end.is_reset = true;
                Step::More
            }
            Err(_) => {
                self.let_go(now, key, true);
                Step::Done
            }
            Ok(received) if received.length == 0 => {
                self.closer.close(end.uid, received.descriptors);
                end.is_at_end = true;
                if end.is_hung_up || end.is_reset {
                    // Unread notifications alone do not cause an ABORT, so `has_data` is also required.
                    let has_unread = end.is_reset && end.has_data;
                    self.let_go(now, key, has_unread);
                } else {
                    self.sockets.shut_down(now, &mut self.engine, key);
                }
                Step::Done
            }
            Ok(received) => {
                self.closer.close(end.uid, received.descriptors);
                let length = if received.is_cut { 0 } else { received.length };
                self.take(now, key, length, is_one_to_many)
            }
        }
    }

    /// Handles a message that was received from a program's end. `room` contains the message, whose length is `length` bytes.
    fn take(&mut self, now: Time, key: SocketKey, length: usize, is_one_to_many: bool) -> Step {
        let message = &self.room[..length];
        match DataHeader::read(message) {
            Some(header) if header.kind == Kind::Data => {
                let rest = &message[DATA_HEADER..];
                let split = rest.split_first_chunk::<PEER_LENGTH>().filter(|_| is_one_to_many);
                let (peer, bytes) =
                    split.map_or((Peer::default(), rest), |(peer, bytes)| (Peer::read(peer), bytes));
                let bytes = Bytes::copy_from_slice(bytes);
                self.offer(now, key, header, peer, bytes)
            }
            Some(header) if header.kind == Kind::Filling => {
                self.note_accepted(key);
                Step::More
            }
            _ => {
                tracing::warn!(
                    "a program wrote to its socket past libsctpify: its associations were aborted"
                );
                self.sockets.abort(now, &mut self.engine, key, "the program broke the protocol");
                if is_one_to_many {
                    self.let_go(now, key, true);
                }
                Step::Done
            }
        }
    }

    /// Records that the program has accepted a socket.
    fn note_accepted(&mut self, key: SocketKey) {
        let Some(listener) = self.ends.get_mut(key).and_then(|end| end.listener.take()) else { return };
        self.sockets.set_waiting(listener, self.ends.waiting_of(listener));
    }

    /// Offers a message to the engine. If the engine has no room, stores the message in `held`, or with its association.
    fn offer(&mut self, now: Time, key: SocketKey, header: DataHeader, peer: Peer, message: Bytes) -> Step {
        let is_one_to_many = self.sockets.is_one_to_many(key);
        let sent = match is_one_to_many {
            false => self.sockets.send(now, &mut self.engine, key, &header, message),
            true => {
                let to = (&header, &peer);
                self.sockets.send_to(now, &mut self.engine, key, to, message, &mut self.network)
            }
        };
        match sent {
            Sent::Taken => Step::More,
            Sent::Full(message)
                if is_one_to_many
                    && self.ends.get_mut(key).is_some_and(|end| end.is_hung_up || end.is_draining)
                    && self.sockets.queue_unsent(&self.engine, key, (&header, &peer), message.clone()) =>
            {
                Step::More
            }
            Sent::Full(message) => {
                if let Some(end) = self.ends.get_mut(key) {
                    end.held = Some((header, peer, message));
                }
                Step::Done
            }
            Sent::Refused => {
                tracing::debug!(stream = header.stream, "a message was refused");
                Step::More
            }
        }
    }

    /// Passes messages to a program. Returns false if the limit of a turn is reached, because further messages may wait.
    fn write_some(&mut self, now: Time, key: SocketKey) -> bool {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(end) = self.ends.get_mut(key) else { return true };
            let next = end.pending.take().or_else(|| self.sockets.next(now, &mut self.engine, key));
            let Some(delivery) = next else { return true };
            match pair::deliver(end.socket.as_fd(), &delivery, end.is_one_to_many) {
                Ok(()) if matches!(delivery.header.kind, Kind::Ended | Kind::Failed) => {
                    // From now on, each send of the program fails (EPIPE).
                    end.is_at_end = true;
                    let _ = shutdown(&end.socket, Shutdown::Read);
                }
                Ok(()) => end.has_data |= delivery.header.kind == Kind::Data,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                    end.pending = Some(delivery);
                    return true;
                }
                // The program has closed its end with unread messages.
                Err(Errno::CONNRESET) => end.is_reset = true,
                // The program has closed its end, or shut it down for reading.
                Err(_) => {}
            }
        }
        false
    }

    /// Closes the server's end and the socket after the program has closed its end. The association of a one-to-one socket ends
    /// by ABORT if `has_unread` is true, or if a message waits in `held` or user data in `pending`. In other cases,
    /// `Sockets::close` chooses between ABORT and SHUTDOWN.
    fn let_go(&mut self, now: Time, key: SocketKey, has_unread: bool) {
        let Some(end) = self.ends.remove(key, self.poll.registry()) else { return };
        let is_data = |delivery: &Delivery| delivery.header.kind == Kind::Data;
        let is_cut_off = end.held.is_some() || end.pending.as_ref().is_some_and(is_data);
        self.sockets.close(now, &mut self.engine, key, has_unread || is_cut_off);
        if let Some(listener) = end.listener {
            self.sockets.set_waiting(listener, self.ends.waiting_of(listener));
        }
        self.ends.ending.retain(|(_, socket, _)| *socket != key);
        self.end_attempts(key);
        self.closer.close_socket(end.uid, end.socket);
    }
}

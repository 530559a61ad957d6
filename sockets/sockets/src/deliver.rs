//! Deliveries to the program. A socket delivers in this order: the rest of a divided message, notifications in `before`,
//! messages, notifications in `after`, the end of the association.

use base::Time;
use bytes::Bytes;
use sctp::{Endpoint, Message};
use sockproto::abi::sinfo;
use sockproto::{DataHeader, Kind, PART_MAX, SockAddr, flag};

use crate::socket::{Socket, State};
use crate::{SocketKey, Sockets};

/// End of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer has shut the association down, or a member's attempt to connect has failed.
    Orderly,
    /// The program gets this error.
    Failed(i32),
}

/// A message for a program, or a part of one.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Header, with the kind and the stream.
    pub header: DataHeader,
    /// The peer's address; `None` on a one-to-one socket.
    pub peer: Option<SockAddr>,
    /// The payload: user data, or a notification.
    pub bytes: Bytes,
}

impl Sockets {
    /// Takes the next delivery for the program, if a delivery is ready. After [`Kind::Ended`] or [`Kind::Failed`], the program
    /// cannot send any further message.
    pub fn next(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey) -> Option<Delivery> {
        if self.is_one_to_many(key) {
            return self.next_of_many(now, engine, key);
        }
        let (header, bytes) = self.next_of_one(now, engine, key)?;
        Some(Delivery { header, peer: None, bytes })
    }

    /// Takes the next delivery of a socket with one association.
    pub(crate) fn next_of_one(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
    ) -> Option<(DataHeader, Bytes)> {
        let socket = self.get_mut(key).ok()?;
        if let Some((header, rest)) = socket.rest.take() {
            return Some(socket.part(header, rest));
        }
        if let Some(note) = socket.before.pop_front() {
            return Some(socket.notification(note));
        }
        let association = match socket.state {
            State::Up(association) | State::Over(Some(association)) => Some(association),
            _ => None,
        };
        while let Some(message) = association.and_then(|association| engine.recv(now, association)) {
            socket.is_in_message = !message.end;
            // If the sender has abandoned a message after some parts, the engine ends the message with an empty part. The program
            // does not get the empty part.
            if !message.is_empty() {
                let header = socket.header_of(&message);
                return Some(socket.part(header, message.into_bytes()));
            }
        }
        if let Some(note) = socket.after.pop_front() {
            return Some(socket.notification(note));
        }
        let end = socket.end.take()?;
        socket.state = State::Over(None);
        let header = match end {
            End::Orderly => DataHeader::new(Kind::Ended),
            End::Failed(error) => {
                // The program gets the error once. Later calls get ENOTCONN, like calls on a socket without an association.
                socket.end = (error != libc::ENOTCONN).then_some(End::Failed(libc::ENOTCONN));
                DataHeader { context: error.cast_unsigned(), ..DataHeader::new(Kind::Failed) }
            }
        };
        if let Some(association) = association {
            engine.release(now, association);
            self.by_association.remove(&association);
        }
        Some((header, Bytes::new()))
    }
}

impl Socket {
    fn header_of(&self, message: &Message) -> DataHeader {
        let mut header = DataHeader::new(Kind::Data);
        header.stream = message.stream.0;
        header.sinfo_flags = if message.unordered { sinfo::UNORDERED } else { 0 };
        header.ppid = message.ppid.0.to_be();
        header.context = self.options.context();
        header.association = self.id;
        header.flags = self.options.wanted_info() | if message.end { 0 } else { flag::MORE };
        header
    }

    /// Returns up to [`PART_MAX`] bytes of a message as one part, and keeps the rest in the socket.
    fn part(&mut self, header: DataHeader, mut bytes: Bytes) -> (DataHeader, Bytes) {
        if bytes.len() <= PART_MAX {
            return (header, bytes);
        }
        let rest = bytes.split_off(PART_MAX);
        self.rest = Some((header, rest));
        (DataHeader { flags: header.flags | flag::MORE, ..header }, bytes)
    }

    fn notification(&self, note: Vec<u8>) -> (DataHeader, Bytes) {
        let header = DataHeader { association: self.id, ..DataHeader::new(Kind::Notification) };
        (header, note.into())
    }
}

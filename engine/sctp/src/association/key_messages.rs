//! Key-management messages of the peer, reassembled from the parts in which they were delivered.

use bytes::Bytes;

use wire::Tsn;

use crate::event::Message;
use crate::extension::protection::{KEY_MESSAGE_MAX, KEY_PPID};
use crate::rx::Inbound;

/// Length of an encoded [`Boundary`], in octets.
const BOUNDARY_LEN: usize = 12;

/// The end of the data that one direction carried in the clear (unsealed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClearEnd {
    /// Last TSN of this data.
    pub(super) tsn: Tsn,
    /// Number of messages in this data, modulo 2^16.
    pub(super) messages: u16,
}

impl ClearEnd {
    fn to_bytes(self) -> [u8; BOUNDARY_LEN / 2] {
        let ([a, b, c, d], [e, f]) = (self.tsn.0.to_be_bytes(), self.messages.to_be_bytes());
        [a, b, c, d, e, f]
    }

    fn from_bytes([a, b, c, d, e, f]: [u8; BOUNDARY_LEN / 2]) -> ClearEnd {
        ClearEnd { tsn: Tsn(u32::from_be_bytes([a, b, c, d])), messages: u16::from_be_bytes([e, f]) }
    }
}

/// The end of data in the clear in both directions, as one host sees it. The client appends its boundary to its first
/// sealed key-management message. The server compares the client's boundary with the server's boundary.
///
/// The comparison is necessary because no key authenticates DATA chunks in the clear. An attacker on the path could
/// split or join chunks and messages. Sealed chunks could then count as duplicates, or the receiver could wait for
/// chunks that never arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boundary {
    /// Data that this host has accepted.
    pub(super) taken: ClearEnd,
    /// Data that this host has sent.
    pub(super) sent: ClearEnd,
}

impl Boundary {
    /// Appends the boundary to a message.
    fn behind(self, message: &[u8]) -> Bytes {
        [message, &self.taken.to_bytes(), &self.sent.to_bytes()].concat().into()
    }

    /// Removes the boundary from the end of a message. Returns `None` if the message is too short.
    fn off(message: &Bytes) -> Option<(Bytes, Boundary)> {
        let at = message.len().checked_sub(BOUNDARY_LEN)?;
        let (taken, sent) = message[at..].split_first_chunk()?;
        let sent = ClearEnd::from_bytes(*sent.first_chunk()?);
        Some((message.slice(..at), Boundary { taken: ClearEnd::from_bytes(*taken), sent }))
    }

    /// Reports whether each host has accepted exactly the data that the other one has sent.
    fn fits(self, other: Boundary) -> bool {
        (self.taken, self.sent) == (other.sent, other.taken)
    }
}

/// Key-management messages of one association.
#[derive(Debug, Default)]
pub(super) struct KeyMessages {
    /// Parts received so far of a message that is delivered in parts (RFC 9260 section 6.9).
    begun: Option<Vec<u8>>,
    fault: Option<&'static str>,
    /// Number of whole messages received in the clear (`taken`), and number of messages sent in the clear (`sent`),
    /// modulo 2^16.
    taken: u16,
    sent: u16,
    /// Boundary of this host, until it is sent or compared.
    boundary: Option<Boundary>,
    /// Number of messages at the front of the ready queue that were examined and belong to the application.
    examined: usize,
}

impl KeyMessages {
    /// Records the end of data in the clear. `taken` is the last TSN that this host has accepted, and `sent` is the
    /// last TSN that it has sent.
    pub(super) fn end_clear(&mut self, taken: Tsn, sent: Tsn) {
        self.boundary = Some(Boundary {
            taken: ClearEnd { tsn: taken, messages: self.taken },
            sent: ClearEnd { tsn: sent, messages: self.sent },
        });
    }

    /// Counts a message that this host sends. Appends the boundary to the client's first sealed message.
    pub(super) fn on_send(&mut self, message: Bytes, is_client: bool) -> Bytes {
        match self.boundary.take_if(|_| is_client) {
            Some(boundary) => boundary.behind(&message),
            None => {
                // The count is used only until the data in the clear ends.
                self.sent = self.sent.wrapping_add(1);
                message
            }
        }
    }

    /// Removes the next key-management message, or a part of one, from the messages that are ready to be read. Examines
    /// each message once.
    pub(super) fn next_of(&mut self, inbound: &mut Inbound) -> Option<Message> {
        inbound.take_ready(KEY_PPID, &mut self.examined)
    }

    /// Records that the application has read a message.
    pub(super) fn on_read(&mut self) {
        self.examined = self.examined.saturating_sub(1);
    }

    /// Removes the client's boundary from the client's first sealed message, and compares this boundary with the
    /// server's boundary. Returns `None` and records a fault if the boundaries do not match.
    pub(super) fn check_boundary(&mut self, message: Bytes) -> Option<Bytes> {
        let Some(own) = self.boundary.take() else { return Some(message) };
        let found = Boundary::off(&message).filter(|(_, boundary)| boundary.fits(own));
        if found.is_none() {
            self.fault = Some("the peer has taken or sent other data in the clear than this host");
        }
        found.map(|(message, _)| message)
    }

    /// Adds a message or a part of one. Returns the message once it is complete.
    pub(super) fn take(&mut self, part: Message, sealed: bool) -> Option<Bytes> {
        let whole = self.join(part)?;
        if !sealed {
            self.taken = self.taken.wrapping_add(1);
        }
        Some(whole)
    }

    fn join(&mut self, part: Message) -> Option<Bytes> {
        let is_continued = self.begun.is_some() != part.begin;
        if part.aborted || part.unordered || part.stream.0 != 0 || !is_continued {
            self.fault = Some("a message about keys that is not whole, or not in order on stream 0");
            return None;
        }
        let (length, end) = (part.len() + self.begun.as_ref().map_or(0, Vec::len), part.end);
        if length > KEY_MESSAGE_MAX {
            self.fault = Some("a message about keys that is too long");
            return None;
        }
        if part.begin && end {
            return Some(part.into_bytes());
        }
        self.begun.get_or_insert_default().extend_from_slice(&part.into_bytes());
        if end { self.begun.take().map(Bytes::from) } else { None }
    }

    /// Reports whether the beginning of a message was received, but not its end.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Returns the reason for which the association must end, if any.
    pub(super) fn fault(&self) -> Option<&'static str> {
        self.fault
    }

    pub(super) fn memory(&self) -> usize {
        self.begun.as_ref().map_or(0, Vec::capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;
    use wire::{Ppid, StreamId};

    fn part(bytes: &'static [u8], begin: bool, end: bool) -> Message {
        Message {
            stream: StreamId(0),
            ppid: Ppid(4242),
            unordered: false,
            begin,
            end,
            aborted: false,
            pieces: smallvec![Bytes::from_static(bytes)],
        }
    }

    #[test]
    fn parts_are_put_together() {
        let mut messages = KeyMessages::default();
        assert_eq!(messages.take(part(b"whole", true, true), false).unwrap(), "whole");
        assert_eq!(messages.take(part(b"a", true, false), false), None);
        assert!(messages.has_begun());
        assert_eq!(messages.take(part(b"b", false, false), false), None);
        assert_eq!(messages.take(part(b"c", false, true), true).unwrap(), "abc");
        assert!(!messages.has_begun() && messages.fault().is_none());
        assert_eq!(messages.taken, 1, "the second one was sealed");
    }

    /// Creates one end that has sent `sent` and accepted `taken` messages in the clear.
    fn end(sent: u16, taken: u16, last_sent: u32, last_taken: u32) -> KeyMessages {
        let mut messages = KeyMessages { taken, ..KeyMessages::default() };
        for _ in 0..sent {
            assert_eq!(messages.on_send(Bytes::from_static(b"clear"), false), "clear");
        }
        messages.end_clear(Tsn(last_taken), Tsn(last_sent));
        messages
    }

    #[test]
    fn a_key_message_whose_boundary_differs_from_the_servers_is_refused() {
        let last = || Bytes::from_static(b"last");
        let mut client = end(2, 1, 9, 7);
        let message = client.on_send(last(), true);
        assert_eq!(message.len(), 4 + BOUNDARY_LEN);
        assert_eq!(client.on_send(last(), true), "last", "once only");
        let mut server = end(1, 2, 7, 9);
        assert_eq!(server.check_boundary(message.clone()).unwrap(), "last");
        assert_eq!(server.check_boundary(message.clone()).unwrap(), message, "once only");
        for mut other in
            [end(0, 2, 7, 9), end(1, 3, 7, 9), end(1, 2, 8, 9), end(1, 2, 7, 8), end(1, 2, 7, 10)]
        {
            assert_eq!(other.check_boundary(message.clone()), None);
            assert!(other.fault().is_some());
        }
        assert_eq!(end(1, 2, 7, 9).check_boundary(Bytes::from_static(b"short")), None);
    }

    #[test]
    fn an_incomplete_or_unordered_key_message_ends_the_association() {
        let base = || part(b"x", true, true);
        let wrong = [
            part(b"x", false, true),
            Message { aborted: true, ..base() },
            Message { unordered: true, ..base() },
            Message { stream: StreamId(1), ..base() },
        ];
        for part in wrong {
            let mut messages = KeyMessages::default();
            assert_eq!(messages.take(part, false), None);
            assert!(messages.fault().is_some());
        }
        let mut messages = KeyMessages::default();
        messages.take(part(b"x", true, false), false);
        assert!(messages.take(base(), false).is_none() && messages.fault().is_some());
        let long: &'static [u8] = vec![0; KEY_MESSAGE_MAX].leak();
        let mut messages = KeyMessages::default();
        assert!(messages.take(part(long, true, true), false).is_some());
        messages.take(part(long, true, false), false);
        assert!(messages.take(base(), false).is_none() && messages.fault().is_some());
    }
}

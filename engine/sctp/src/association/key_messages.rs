//! Messages of the peer about keys, put together from the parts in which they were delivered.

use bytes::Bytes;

use wire::Tsn;

use crate::event::Message;
use crate::extension::protection::{KEY_MESSAGE_MAX, KEY_PPID};
use crate::rx::Inbound;

/// Octets of a [`Boundary`].
const BOUNDARY_LEN: usize = 6;

/// The place where data in the clear ends: what the client has taken of the server until then. It goes behind the client's first sealed message
/// about keys. The server compares it with what it has sent, since the keys cover no DATA chunk in the clear: somebody on the way could
/// split or join chunks and messages, so that sealed ones would later count as duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boundary {
    /// The last TSN.
    pub(super) tsn: Tsn,
    /// The number of messages, modulo 2^16.
    pub(super) messages: u16,
}

impl Boundary {
    /// Puts it behind a message.
    pub(super) fn behind(self, message: &[u8]) -> Bytes {
        [message, &self.tsn.0.to_be_bytes(), &self.messages.to_be_bytes()].concat().into()
    }

    /// Takes it off a message; `None` if the message is too short.
    fn off(message: &Bytes) -> Option<(Bytes, Boundary)> {
        let at = message.len().checked_sub(BOUNDARY_LEN)?;
        let [a, b, c, d, e, f] = *message.last_chunk::<BOUNDARY_LEN>()?;
        let (tsn, messages) = (Tsn(u32::from_be_bytes([a, b, c, d])), u16::from_be_bytes([e, f]));
        Some((message.slice(..at), Boundary { tsn, messages }))
    }
}

/// Messages about keys of one association.
#[derive(Debug, Default)]
pub(super) struct KeyMessages {
    /// The parts so far of a message that is delivered in parts (RFC 9260 section 6.9).
    begun: Option<Vec<u8>>,
    fault: Option<&'static str>,
    /// Whole messages that came in the clear, and messages that were sent so.
    taken: u16,
    sent: u16,
    /// The boundary was sent or compared.
    is_bounded: bool,
    /// Messages at the front of those that are ready to be read that are the application's.
    examined: usize,
}

impl KeyMessages {
    /// Counts a message that is sent; returns true if the client's boundary goes behind it.
    pub(super) fn on_send(&mut self, sealed: bool) -> bool {
        if !sealed {
            self.sent = self.sent.wrapping_add(1);
        }
        sealed && !std::mem::replace(&mut self.is_bounded, true)
    }

    /// Takes the next message about keys, or a part of one, out of those that are ready to be read. Each message is looked at once.
    pub(super) fn next_of(&mut self, inbound: &mut Inbound) -> Option<Message> {
        inbound.take_ready(KEY_PPID, &mut self.examined)
    }

    /// Follows the reading of a message.
    pub(super) fn on_read(&mut self) {
        self.examined = self.examined.saturating_sub(1);
    }

    /// Returns the number of whole messages that came in the clear.
    pub(super) fn taken(&self) -> u16 {
        self.taken
    }

    /// Takes the client's boundary off its first sealed message, and compares it with what was sent in the clear, of which `last` is the last
    /// TSN.
    pub(super) fn check_boundary(&mut self, message: Bytes, last: Tsn) -> Option<Bytes> {
        if std::mem::replace(&mut self.is_bounded, true) {
            return Some(message);
        }
        let sent = Boundary { tsn: last, messages: self.sent };
        let found = Boundary::off(&message).filter(|(_, boundary)| *boundary == sent);
        if found.is_none() {
            self.fault = Some("the peer has taken other data in the clear than was sent");
        }
        found.map(|(message, _)| message)
    }

    /// Takes a message or a part of one; returns the message once it is whole.
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

    /// Reports whether a message has begun and not ended.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Reports why the association must end, if so.
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
        assert_eq!(messages.taken(), 1, "the second one was sealed");
    }

    #[test]
    fn a_boundary_must_be_what_was_sent() {
        let boundary = Boundary { tsn: Tsn(7), messages: 1 };
        let message = boundary.behind(b"last");
        let mut client = KeyMessages::default();
        assert_eq!([false, true, true].map(|sealed| client.on_send(sealed)), [false, true, false]);
        let mut server = KeyMessages::default();
        server.on_send(false);
        assert_eq!(server.check_boundary(message.clone(), Tsn(7)).unwrap(), "last");
        assert_eq!(server.check_boundary(message.clone(), Tsn(9)).unwrap(), message, "once only");
        for (last, sent) in [(Tsn(8), 1), (Tsn(6), 1), (Tsn(7), 0), (Tsn(7), 2)] {
            let mut server = KeyMessages::default();
            for _ in 0..sent {
                server.on_send(false);
            }
            assert_eq!(server.check_boundary(message.clone(), last), None);
            assert!(server.fault().is_some());
        }
        assert_eq!(KeyMessages::default().check_boundary(Bytes::from_static(b"short"), Tsn(7)), None);
    }

    #[test]
    fn what_is_not_whole_or_in_order_ends_the_association() {
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

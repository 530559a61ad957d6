//! Messages of the peer about keys, put together from the parts in which they were delivered.

use bytes::Bytes;

use crate::event::Message;
use crate::extension::protection::KEY_MESSAGE_MAX;

/// Messages about keys of one association.
#[derive(Debug, Default)]
pub(super) struct KeyMessages {
    /// The parts so far of a message that is delivered in parts (RFC 9260 section 6.9).
    begun: Option<Vec<u8>>,
    fault: Option<&'static str>,
}

impl KeyMessages {
    /// Takes a message or a part of one; returns the message once it is whole.
    pub(super) fn take(&mut self, part: Message) -> Option<Bytes> {
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
        assert_eq!(messages.take(part(b"whole", true, true)).unwrap(), "whole");
        assert_eq!(messages.take(part(b"a", true, false)), None);
        assert!(messages.has_begun());
        assert_eq!(messages.take(part(b"b", false, false)), None);
        assert_eq!(messages.take(part(b"c", false, true)).unwrap(), "abc");
        assert!(!messages.has_begun() && messages.fault().is_none());
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
            assert_eq!(messages.take(part), None);
            assert!(messages.fault().is_some());
        }
        let mut messages = KeyMessages::default();
        messages.take(part(b"x", true, false));
        assert!(messages.take(base()).is_none() && messages.fault().is_some());
        let long: &'static [u8] = vec![0; KEY_MESSAGE_MAX].leak();
        let mut messages = KeyMessages::default();
        assert!(messages.take(part(long, true, true)).is_some());
        messages.take(part(long, true, false));
        assert!(messages.take(base()).is_none() && messages.fault().is_some());
    }
}

//! Messages that wait for their first transmission, first come, first served.
//!
//! A message becomes one or more fragments as it leaves (RFC 9260 section 6.9). Invariant: `bytes` is the sum of what
//! is left of the queued messages. Begin at [`SendQueue::next_fragment`].

use std::collections::VecDeque;

use bytes::Bytes;
use wire::{Ppid, Ssn, StreamId};

/// The user data of one DATA chunk.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) payload: Bytes,
    pub(crate) stream: StreamId,
    pub(crate) ssn: Ssn,
    pub(crate) ppid: Ppid,
    pub(crate) unordered: bool,
    pub(crate) begin: bool,
    pub(crate) end: bool,
}

#[derive(Debug)]
struct Queued {
    rest: Bytes,
    stream: StreamId,
    ssn: Ssn,
    ppid: Ppid,
    unordered: bool,
    begun: bool,
}

/// Queue of messages not yet sent, or not yet wholly.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    messages: VecDeque<Queued>,
    bytes: usize,
    next_ssn: Vec<Ssn>,
}

impl SendQueue {
    /// Bytes waiting.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes a message, which must not be empty.
    pub(crate) fn push(&mut self, stream: StreamId, ppid: Ppid, payload: Bytes, unordered: bool) {
        debug_assert!(!payload.is_empty());
        self.bytes += payload.len();
        let ssn = if unordered { Ssn(0) } else { self.take_ssn(stream) };
        self.messages.push_back(Queued { rest: payload, stream, ssn, ppid, unordered, begun: false });
    }

    fn take_ssn(&mut self, stream: StreamId) -> Ssn {
        let index = usize::from(stream.0);
        if self.next_ssn.len() <= index {
            self.next_ssn.resize(index + 1, Ssn(0));
        }
        let ssn = self.next_ssn[index];
        self.next_ssn[index] = ssn.next();
        ssn
    }

    /// How many bytes [`next_fragment`](Self::next_fragment) would take: at most `max`.
    pub(crate) fn next_length(&self, max: usize) -> Option<usize> {
        self.messages.front().map(|m| m.rest.len().min(max))
    }

    /// Takes the next fragment, of at most `max` bytes.
    pub(crate) fn next_fragment(&mut self, max: usize) -> Option<Fragment> {
        let message = self.messages.front_mut()?;
        let payload = message.rest.split_to(message.rest.len().min(max));
        self.bytes -= payload.len();
        let fragment = Fragment {
            payload,
            stream: message.stream,
            ssn: message.ssn,
            ppid: message.ppid,
            unordered: message.unordered,
            begin: !message.begun,
            end: message.rest.is_empty(),
        };
        message.begun = true;
        if fragment.end {
            self.messages.pop_front();
        }
        Some(fragment)
    }

    /// Recounts `bytes`.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.bytes, self.messages.iter().map(|m| m.rest.len()).sum::<usize>(), "queued bytes");
        assert!(self.messages.iter().all(|m| !m.rest.is_empty()), "an empty message is queued");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_leaves_in_fragments_under_one_ssn() {
        let mut q = SendQueue::default();
        q.push(StreamId(1), Ppid(7), Bytes::from_static(b"abcdefgh"), false);
        q.push(StreamId(1), Ppid(7), Bytes::from_static(b"xy"), false);
        let cut: Vec<_> =
            std::iter::from_fn(|| q.next_fragment(3)).map(|f| (f.payload, f.ssn.0, f.begin, f.end)).collect();
        let b = Bytes::from_static;
        assert_eq!(
            cut,
            [
                (b(b"abc"), 0, true, false),
                (b(b"def"), 0, false, false),
                (b(b"gh"), 0, false, true),
                (b(b"xy"), 1, true, true)
            ]
        );
        q.check_invariants();
    }

    #[test]
    fn each_stream_counts_its_own_ssns_and_unordered_messages_use_none() {
        let mut q = SendQueue::default();
        for (stream, unordered) in [(0, false), (5, false), (0, true), (0, false)] {
            q.push(StreamId(stream), Ppid(0), Bytes::from_static(b"m"), unordered);
        }
        let ssns: Vec<_> =
            std::iter::from_fn(|| q.next_fragment(10)).map(|f| (f.stream.0, f.ssn.0)).collect();
        assert_eq!(ssns, [(0, 0), (5, 0), (0, 0), (0, 1)]);
    }
}

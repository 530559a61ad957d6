//! PR-SCTP messages, which may be abandoned (RFC 3758, RFC 7496): the limit and the outstanding chunks of each message.
//!
//! This module finds the messages to abandon, but never abandons one itself. Messages of full reliability are not recorded here.
//! Invariants:
//!
//! - A message is known while a part of it is queued or not cumulatively acknowledged.
//! - The map `chunks` has exactly the chunks in the lists of the messages.
//!
//! Start at [`PrMessages::exhausted`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Time;
use wire::StreamId;

use super::{MessageId, Seq};
use crate::memory::{heap, tree};

/// Limit on the effort for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Time at which the message expires and becomes useless (RFC 3758 section 4.1).
    Until(Time),
    /// Limit on retransmissions of each of its chunks (RFC 7496 section 3.1).
    Retransmissions(u32),
    /// Priority: when the buffer is full, the message gives way to messages with a lower number (RFC 7496 section 3.2).
    Priority(u32),
}

#[derive(Debug)]
struct Message {
    limit: Limit,
    stream: StreamId,
    /// Chunks that are sent and not cumulatively acknowledged.
    chunks: VecDeque<Seq>,
    /// True if a part of the message was sent.
    begun: bool,
    /// True if a part of the message was not sent yet.
    queued: bool,
}

/// A message to abandon.
#[derive(Debug)]
pub(crate) struct GivenUp {
    pub(crate) stream: StreamId,
    pub(crate) chunks: VecDeque<Seq>,
    /// True if a part of the message was sent.
    pub(crate) begun: bool,
    pub(crate) queued: bool,
}

/// All messages that may be abandoned.
#[derive(Debug, Default)]
pub(crate) struct PrMessages {
    messages: BTreeMap<MessageId, Message>,
    /// The message of each chunk, and the number of the chunk's retransmissions.
    chunks: BTreeMap<Seq, (MessageId, u32)>,
    /// Deadlines of messages that are still queued.
    deadlines: BTreeSet<(Time, MessageId)>,
    priorities: BTreeSet<(Reverse<u32>, MessageId)>,
}

impl PrMessages {
    /// Returns the bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        if self.messages.is_empty() {
            return 0;
        }
        // A list of chunks begins with four places. Just after it has grown, it has twice as many places as chunks.
        tree(self.messages.len(), size_of::<(MessageId, Message)>())
            + self.messages.len() * heap(4 * size_of::<Seq>())
            + tree(self.chunks.len(), size_of::<(Seq, (MessageId, u32))>() + 2 * size_of::<Seq>())
            + tree(self.deadlines.len(), size_of::<(Time, MessageId)>())
            + tree(self.priorities.len(), size_of::<(Reverse<u32>, MessageId)>())
    }

    /// Records that a message was queued.
    pub(crate) fn on_queued(&mut self, id: MessageId, stream: StreamId, limit: Limit) {
        match limit {
            Limit::Until(time) => {
                self.deadlines.insert((time, id));
            }
            Limit::Priority(priority) => {
                self.priorities.insert((Reverse(priority), id));
            }
            Limit::Retransmissions(_) => {}
        }
        let message = Message { limit, stream, chunks: VecDeque::new(), begun: false, queued: true };
        self.messages.insert(id, message);
    }

    /// Records the first transmission of a chunk; `end` is true for the last chunk of its message.
    pub(crate) fn on_sent(&mut self, id: MessageId, seq: Seq, end: bool) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.chunks.push_back(seq);
        message.begun = true;
        self.chunks.insert(seq, (id, 0));
        if end {
            message.queued = false;
            if let Limit::Until(time) = message.limit {
                self.deadlines.remove(&(time, id));
            }
        }
    }

    pub(crate) fn on_retransmitted(&mut self, seq: Seq) {
        if let Some((_, count)) = self.chunks.get_mut(&seq) {
            *count += 1;
        }
    }

    /// Forgets the chunks before `first`, which are cumulatively acknowledged.
    pub(crate) fn on_cumulative(&mut self, first: Seq) {
        while let Some(entry) = self.chunks.first_entry() {
            if *entry.key() >= first {
                break;
            }
            let (id, _) = entry.remove();
            let Some(message) = self.messages.get_mut(&id) else { continue };
            message.chunks.pop_front();
            if message.chunks.is_empty() && !message.queued {
                self.forget(id);
            }
        }
    }

    /// Returns the message of the lost chunk `seq` if the message's limit forbids a retransmission. The caller must then abandon the
    /// message.
    pub(crate) fn exhausted(&self, seq: Seq, now: Time) -> Option<MessageId> {
        let (id, retransmissions) = *self.chunks.get(&seq)?;
        let over = match self.messages.get(&id)?.limit {
            Limit::Until(time) => time <= now,
            //= rfc7496#section-3.1
            //# The sender MUST abandon a user message if the number of retransmissions of any of the DATA chunks of the
            //# user message would exceed the provided limit.
            Limit::Retransmissions(max) => retransmissions >= max,
            Limit::Priority(_) => false,
        };
        over.then_some(id)
    }

    /// Returns a queued message that has expired.
    pub(crate) fn expired(&self, now: Time) -> Option<MessageId> {
        self.deadlines.first().filter(|(time, _)| *time <= now).map(|(_, id)| *id)
    }

    /// Returns the time at which the next queued message expires.
    pub(crate) fn next_deadline(&self) -> Time {
        self.deadlines.first().map_or(Time::NEVER, |(time, _)| *time)
    }

    /// Returns the message to abandon first in favour of a message of `priority`.
    pub(crate) fn least_important(&self, priority: u32) -> Option<MessageId> {
        self.priorities.first().filter(|(Reverse(p), _)| *p > priority).map(|(_, id)| *id)
    }

    /// Forgets a message, and returns its stream, its chunks, and whether parts of it were sent or are queued.
    pub(crate) fn take(&mut self, id: MessageId) -> Option<GivenUp> {
        let message = self.forget(id)?;
        for seq in &message.chunks {
            self.chunks.remove(seq);
        }
        let Message { stream, chunks, begun, queued, .. } = message;
        Some(GivenUp { stream, chunks, begun, queued })
    }

    fn forget(&mut self, id: MessageId) -> Option<Message> {
        let message = self.messages.remove(&id)?;
        match message.limit {
            Limit::Until(time) => self.deadlines.remove(&(time, id)),
            Limit::Priority(priority) => self.priorities.remove(&(Reverse(priority), id)),
            Limit::Retransmissions(_) => false,
        };
        Some(message)
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        if self.messages.is_empty() {
            *self = PrMessages::default();
        }
    }

    /// Recounts chunks and indexes.
    pub(crate) fn check_invariants(&self) {
        let listed: usize = self.messages.values().map(|m| m.chunks.len()).sum();
        assert_eq!(listed, self.chunks.len(), "chunks of PR-SCTP messages");
        for (id, message) in &self.messages {
            assert!(message.queued || !message.chunks.is_empty(), "nothing is left of {id:?}");
            for seq in &message.chunks {
                assert_eq!(self.chunks.get(seq).map(|c| c.0), Some(*id), "message of {seq:?}");
            }
        }
        assert!(self.deadlines.len() + self.priorities.len() <= self.messages.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MessageId = MessageId(4);
    const STREAM: StreamId = StreamId(2);

    fn sent(limit: Limit, chunks: u64) -> PrMessages {
        let mut l = PrMessages::default();
        l.on_queued(ID, STREAM, limit);
        for n in 0..chunks {
            l.on_sent(ID, Seq(n), n + 1 == chunks);
        }
        l.check_invariants();
        l
    }

    #[test]
    fn a_chunk_may_be_sent_again_as_often_as_its_message_says_and_not_once_more() {
        let mut l = sent(Limit::Retransmissions(2), 2);
        for _ in 0..2 {
            assert_eq!(l.exhausted(Seq(1), Time::ZERO), None);
            l.on_retransmitted(Seq(1));
        }
        assert_eq!(l.exhausted(Seq(1), Time::ZERO), Some(ID));
        assert_eq!(l.exhausted(Seq(0), Time::ZERO), None);
    }

    #[test]
    fn a_queued_message_expires_at_its_deadline_and_a_sent_message_only_on_a_loss() {
        let due = Time::from_millis(5);
        let mut l = PrMessages::default();
        l.on_queued(ID, STREAM, Limit::Until(due));
        assert_eq!((l.next_deadline(), l.expired(Time::from_millis(4))), (due, None));
        assert_eq!(l.expired(due), Some(ID));
        l.on_sent(ID, Seq(0), true);
        assert_eq!((l.next_deadline(), l.expired(due)), (Time::NEVER, None));
        assert_eq!(l.exhausted(Seq(0), Time::from_millis(4)), None);
        assert_eq!(l.exhausted(Seq(0), due), Some(ID));
    }

    #[test]
    fn the_oldest_least_important_message_gives_way_only_to_a_more_important_message() {
        let mut l = PrMessages::default();
        for (n, priority) in [(1, 5), (2, 9), (3, 9)] {
            l.on_queued(MessageId(n), STREAM, Limit::Priority(priority));
        }
        assert_eq!(l.least_important(9), None);
        assert_eq!(l.least_important(8), Some(MessageId(2)));
        l.take(MessageId(2)).unwrap();
        l.take(MessageId(3)).unwrap();
        assert_eq!(l.least_important(5), None);
        assert_eq!(l.least_important(4), Some(MessageId(1)));
    }

    #[test]
    fn a_message_is_forgotten_once_all_its_chunks_are_acknowledged() {
        let mut l = sent(Limit::Priority(1), 3);
        l.on_cumulative(Seq(2));
        l.check_invariants();
        assert_eq!(l.take(ID).unwrap().chunks, [Seq(2)]);
        let mut l = sent(Limit::Priority(1), 3);
        l.on_cumulative(Seq(3));
        assert!(l.take(ID).is_none() && l.least_important(0).is_none());
    }

    #[test]
    fn a_message_whose_rest_is_queued_stays_known_with_no_chunk_in_flight() {
        let mut l = PrMessages::default();
        l.on_queued(ID, STREAM, Limit::Until(Time::from_millis(5)));
        l.on_sent(ID, Seq(0), false);
        l.on_cumulative(Seq(1));
        let given_up = l.take(l.expired(Time::from_millis(5)).unwrap()).unwrap();
        assert!(given_up.chunks.is_empty() && given_up.begun && given_up.queued);
    }
}

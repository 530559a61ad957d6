//! Messages that wait for their first transmission, by stream.
//!
//! A message becomes one or more fragments as it leaves (RFC 9260 section 6.9). It gets its number (SSN or MID) with the first fragment, so
//! a message that is abandoned earlier has no number. Invariants:
//!
//! - `bytes` is the sum of the unsent parts of the queued messages.
//! - The scheduler knows exactly the streams that have a message which no hold delays.
//!
//! Start at [`SendQueue::next_fragment`].

mod hold;
mod scheduler;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::Bytes;
use wire::{Fsn, Mid, Ppid, Ssn, StreamId};

use crate::config::Scheduler;
use crate::memory::{heap, list};
use scheduler::{Rank, Standing, Turns};

/// Number of a message, in the order in which messages were queued.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct MessageId(pub(crate) u64);

/// The user data of one DATA or I-DATA chunk.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) payload: Bytes,
    pub(crate) stream: StreamId,
    /// Number of the message among the ordered or among the unordered messages of its stream. For an ordered message, the low 16 bits are
    /// the SSN.
    pub(crate) mid: Mid,
    pub(crate) fsn: Fsn,
    pub(crate) ppid: Ppid,
    pub(crate) unordered: bool,
    pub(crate) begin: bool,
    pub(crate) end: bool,
}

impl Fragment {
    /// Returns the stream sequence number of a DATA chunk.
    #[expect(clippy::cast_possible_truncation, reason = "the SSN is the number modulo 2^16")]
    pub(crate) fn ssn(&self) -> Ssn {
        //= rfc9260#6.5-5
        if self.unordered { Ssn(0) } else { Ssn(self.mid.0 as u16) }
    }
}

/// A fragment that leaves the queue.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) fragment: Fragment,
    /// The fragment's message, if it may be abandoned.
    pub(crate) pr_message: Option<MessageId>,
}

/// Unsent rest of a message that was abandoned.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Next fragment of the message, without payload. `None` if no fragment has left.
    pub(crate) next: Option<Fragment>,
}

#[derive(Debug)]
struct Queued {
    id: MessageId,
    rest: Bytes,
    mid: Mid,
    fsn: Fsn,
    ppid: Ppid,
    unordered: bool,
    begun: bool,
    is_pr: bool,
}

/// Messages of one stream.
#[derive(Debug)]
struct Stream {
    messages: VecDeque<Queued>,
    next_ordered: Mid,
    next_unordered: Mid,
    priority: u16,
    weight: u16,
    served: u128,
    /// Rank in the scheduler, valid while the stream has messages.
    rank: Rank,
    /// The first message that waits for a reset of the stream.
    held: Option<MessageId>,
}

impl Default for Stream {
    fn default() -> Self {
        Stream {
            messages: VecDeque::new(),
            //= rfc9260#6.5-3
            next_ordered: Mid(0),
            next_unordered: Mid(0),
            priority: 0,
            weight: 1,
            served: 0,
            rank: 0,
            held: None,
        }
    }
}

impl Stream {
    /// Returns the first message, if it need not wait.
    fn first_to_leave(&self) -> Option<&Queued> {
        self.messages.front().filter(|m| self.held.is_none_or(|held| m.id < held))
    }

    fn standing(&self) -> Option<Standing> {
        let head = self.first_to_leave()?.id;
        Some(Standing { head, priority: self.priority, served: self.served })
    }
}

/// Queue of messages that are not sent, or only partly sent.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Streams by number; created at the first use.
    streams: Vec<Option<Box<Stream>>>,
    turns: Turns,
    bytes: usize,
    messages: usize,
    /// Number of streams created.
    made: usize,
    /// Number of messages that the lists of all streams have places for.
    places: usize,
    /// Unsent bytes of the message that is next; 0 if no message is next.
    head: usize,
    next_id: u64,
    /// True if fragments of several messages may alternate (RFC 8260).
    interleaves: bool,
    /// The first message that waits during a hold of all streams. Applies to streams that are used for the first time during the hold.
    all_held: Option<MessageId>,
}

impl SendQueue {
    pub(crate) fn new(scheduler: Scheduler, interleaves: bool) -> SendQueue {
        SendQueue { turns: Turns::new(scheduler), interleaves, ..SendQueue::default() }
    }

    /// Returns the number of unsent user bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.measure() + self.made * heap(size_of::<Stream>()) + self.turns.memory()
    }

    /// Returns the bytes of memory in use, except those that grow with the number of streams that have or had messages.
    #[inline]
    pub(crate) fn measure(&self) -> usize {
        // Memory that an allocation takes in addition to the payload.
        const PAYLOAD: usize = 32;
        self.bytes
            + self.messages * PAYLOAD
            + self.places * size_of::<Queued>()
            + list::<Option<Box<Stream>>>(self.streams.capacity())
    }

    /// Reports whether no message may leave now.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == 0
    }

    /// Queues a message, which must not be empty. `is_pr` is set if the message may be abandoned (PR-SCTP).
    pub(crate) fn push(
        &mut self,
        stream: StreamId,
        ppid: Ppid,
        payload: Bytes,
        unordered: bool,
        is_pr: bool,
    ) -> MessageId {
        debug_assert!(!payload.is_empty());
        let id = MessageId(self.next_id);
        self.next_id += 1;
        self.bytes += payload.len();
        self.messages += 1;
        let queue = self.stream_mut(stream);
        let was_idle = queue.first_to_leave().is_none();
        let places = queue.messages.capacity();
        queue.messages.push_back(Queued {
            id,
            rest: payload,
            mid: Mid(0),
            fsn: Fsn(0),
            ppid,
            unordered,
            begun: false,
            is_pr,
        });
        let grown = queue.messages.capacity() - places;
        self.places += grown;
        if was_idle {
            self.activate(stream);
            self.note_head();
        }
        id
    }

    fn stream_mut(&mut self, stream: StreamId) -> &mut Stream {
        let index = usize::from(stream.0);
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, || None);
        }
        let (held, made) = (self.all_held, &mut self.made);
        self.streams[index].get_or_insert_with(|| {
            *made += 1;
            Box::new(Stream { held, ..Stream::default() })
        })
    }

    fn stream(&self, stream: StreamId) -> Option<&Stream> {
        self.streams.get(usize::from(stream.0))?.as_deref()
    }

    /// Updates the unsent length of the message that is next.
    fn note_head(&mut self) {
        let head = self.turns.current().and_then(|s| self.stream(s)?.messages.front());
        self.head = head.map_or(0, |m| m.rest.len());
    }

    fn known_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(usize::from(stream.0))?.as_deref_mut()
    }

    /// Adds a stream with messages to the scheduler.
    fn activate(&mut self, stream: StreamId) {
        let Some(queue) = self.streams.get_mut(usize::from(stream.0)).and_then(Option::as_deref_mut) else {
            return;
        };
        if let Some(mut standing) = queue.standing() {
            queue.rank = self.turns.activate(stream, &mut standing);
            queue.served = standing.served;
        }
    }

    /// Recomputes the rank of an active stream.
    fn re_rank(&mut self, stream: StreamId) {
        let Some(rank) = self.stream(stream).filter(|s| s.first_to_leave().is_some()).map(|s| s.rank) else {
            return;
        };
        let held = self.turns.deactivate(stream, rank);
        self.activate(stream);
        if held && let Some(rank) = self.stream(stream).map(|s| s.rank) {
            self.turns.hold(stream, rank);
        }
        self.note_head();
    }

    /// Changes the scheduler. A partly sent message that must not be interleaved is completed first.
    pub(crate) fn set_scheduler(&mut self, scheduler: Scheduler) {
        let held = self.turns.held();
        self.turns = Turns::new(scheduler);
        for (n, stream) in (0..=u16::MAX).zip(&mut self.streams) {
            let Some(stream) = stream.as_deref_mut() else { continue };
            stream.served = 0;
            if let Some(mut standing) = stream.standing() {
                stream.rank = self.turns.activate(StreamId(n), &mut standing);
            }
        }
        if let Some(held) = held
            && let Some(rank) = self.stream(held).map(|s| s.rank)
        {
            self.turns.hold(held, rank);
        }
        self.note_head();
    }

    pub(crate) fn set_priority(&mut self, stream: StreamId, priority: u16) {
        self.stream_mut(stream).priority = priority;
        self.re_rank(stream);
    }

    pub(crate) fn set_weight(&mut self, stream: StreamId, weight: u16) {
        self.stream_mut(stream).weight = weight;
        self.re_rank(stream);
    }

    /// Returns the number of bytes that [`next_fragment`](Self::next_fragment) would take, up to `max`.
    pub(crate) fn next_length(&self, max: usize) -> Option<usize> {
        (self.head > 0).then(|| self.head.min(max))
    }

    /// Reports whether the packet being filled may take the next fragment.
    pub(crate) fn fits_packet(&self) -> bool {
        self.turns.packet_takes_current()
    }

    /// Ends the packet being filled.
    #[inline]
    pub(crate) fn end_packet(&mut self) {
        if let Some(stream) = self.turns.end_packet() {
            self.after_turn(stream);
        }
    }

    /// Ends the turn of the current stream, which has more to send.
    fn after_turn(&mut self, stream: StreamId) {
        let Some(standing) = self.stream(stream).and_then(Stream::standing) else { return };
        let rank = self.turns.rotate(stream, &standing);
        self.stream_mut(stream).rank = rank;
        self.note_head();
    }

    /// Takes the next fragment, with up to `max` bytes.
    pub(crate) fn next_fragment(&mut self, max: usize) -> Option<Taken> {
        let id = self.turns.current()?;
        let stream = self.streams.get_mut(usize::from(id.0))?.as_deref_mut()?;
        //= rfc8260#2.2.2-5
        let message = stream.messages.front_mut()?;
        if !message.begun {
            let next = if message.unordered { &mut stream.next_unordered } else { &mut stream.next_ordered };
            message.mid = *next;
            //= rfc9260#6.5-4 6.5-6
            *next = next.next();
        }
        //= rfc9260#6-8 6.9-2
        let payload = message.rest.split_to(message.rest.len().min(max));
        self.bytes -= payload.len();
        if self.turns.is_fair() {
            stream.served += self.turns.cost(payload.len(), stream.weight);
        }
        let fragment = message.fragment(id, payload);
        let pr_message = message.is_pr.then_some(message.id);
        message.begun = true;
        message.fsn = message.fsn.next();
        if fragment.end {
            stream.messages.pop_front();
            self.messages -= 1;
        }
        let keeps_turn = self.turns.keeps_turn(id, fragment.end || self.interleaves);
        match stream.first_to_leave() {
            Some(next) if keeps_turn => self.head = next.rest.len(),
            Some(_) => self.after_turn(id),
            None => {
                self.turns.deactivate(id, stream.rank);
                self.note_head();
            }
        }
        Some(Taken { fragment, pr_message })
    }

    /// Removes the unsent rest of a message that is abandoned.
    pub(crate) fn remove(&mut self, stream: StreamId, id: MessageId) -> Option<Rest> {
        let queue = self.known_mut(stream)?;
        let index = queue.messages.binary_search_by_key(&id, |m| m.id).ok()?;
        let mut message = queue.messages.remove(index)?;
        let (rank, is_empty) = (queue.rank, queue.messages.is_empty());
        self.bytes -= message.rest.len();
        self.messages -= 1;
        if index == 0 {
            // The turn ends with the message.
            self.turns.deactivate(stream, rank);
            if !is_empty {
                self.activate(stream);
            }
            self.note_head();
        }
        message.rest.clear();
        let next = message.begun.then(|| message.fragment(stream, Bytes::new()));
        Some(Rest { next })
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        for stream in self.streams.iter_mut().flatten() {
            stream.messages.shrink_to_fit();
        }
        self.places = self.streams.iter().flatten().map(|s| s.messages.capacity()).sum();
    }

    /// Recounts the queue, and compares it with the scheduler.
    pub(crate) fn check_invariants(&self) {
        let head = self.turns.current().map(|s| self.stream(s).map(|s| s.messages[0].rest.len()));
        assert_eq!(self.head, head.flatten().unwrap_or(0), "message in turn");
        let streams = || self.streams.iter().flatten();
        let messages = || streams().flat_map(|s| &s.messages);
        assert_eq!(self.bytes, messages().map(|m| m.rest.len()).sum::<usize>(), "queued bytes");
        assert_eq!(self.messages, messages().count(), "queued messages");
        assert_eq!(self.made, streams().count(), "streams made");
        assert_eq!(self.places, streams().map(|s| s.messages.capacity()).sum::<usize>(), "places");
        assert!(messages().all(|m| !m.rest.is_empty()), "an empty message is queued");
        let active = streams().filter(|s| s.first_to_leave().is_some()).count();
        assert_eq!(active, self.turns.active(), "streams with messages");
        for (n, stream) in (0..=u16::MAX).zip(&self.streams) {
            if let Some(stream) = stream.as_deref().filter(|s| s.first_to_leave().is_some()) {
                assert!(self.turns.knows(StreamId(n), stream.rank), "stream {n} is not scheduled");
            }
        }
    }
}

impl Queued {
    /// Returns the next fragment of this message, with `payload`.
    fn fragment(&self, stream: StreamId, payload: Bytes) -> Fragment {
        Fragment {
            payload,
            stream,
            mid: self.mid,
            fsn: self.fsn,
            ppid: self.ppid,
            //= rfc9260#3.3.1-4 3.3.1-6 3.3.1-7 3.3.1-11 6.9-13
            unordered: self.unordered,
            //= rfc8260#2.2.2-1 2.2.2-2 2.2.2-3
            begin: !self.begun,
            end: self.rest.is_empty(),
        }
    }
}

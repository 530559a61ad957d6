//! The sending side of an association: messages that wait, chunks in flight, and what limits them.
//!
//! Groups the parts of [`tx`](crate::tx), each of which owns its state, so that they can be borrowed apart from the
//! paths. Start at [`Sender::takes`] and [`Sender::next_length`].

use std::collections::BTreeMap;

use wire::{Mid, StreamId};

use super::ecn::Answer;
use super::probes::Probes;
use super::stranded::Stranded;
use crate::association::negotiated::Negotiated;
use crate::config::AssociationConfig;
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::tx::{
    Copies, Forward, Fragment, Load, Outstanding, PeerWindow, PrMessages, SendBuffer, SendQueue, Seq,
};

pub(crate) struct Sender {
    pub(crate) queue: SendQueue,
    pub(crate) outstanding: Outstanding,
    /// Copies on other paths of chunks in flight.
    pub(crate) copies: Copies,
    /// Messages that may be abandoned.
    pub(crate) pr_messages: PrMessages,
    /// FORWARD TSN of abandoned messages.
    pub(crate) forward: Forward,
    pub(crate) window: PeerWindow,
    pub(crate) buffer: SendBuffer,
    /// CWR for echoes of congestion marks.
    pub(crate) answer: Answer,
    pub(crate) probes: Probes,
    pub(crate) stranded: Stranded,
}

impl Sender {
    /// `peer_rwnd`: the peer's first receive window, in bytes.
    pub(crate) fn new(config: &AssociationConfig, negotiated: &Negotiated, peer_rwnd: u32) -> Self {
        Sender {
            queue: SendQueue::new(config.scheduler, negotiated.has(Extension::Interleaving)),
            //= rfc9260#5.1-20
            outstanding: Outstanding::default(),
            copies: Copies::default(),
            pr_messages: PrMessages::default(),
            forward: Forward::default(),
            window: PeerWindow::new(peer_rwnd as usize),
            buffer: SendBuffer::new(config.buffer_start, config.send_buffer),
            answer: Answer::default(),
            probes: Probes::default(),
            stranded: Stranded::default(),
        }
    }

    /// Bytes of user data queued, or kept until the peer's cumulative acknowledgement.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.queue.bytes() + self.outstanding.bytes()
    }

    /// Bytes queued or in flight. Chunks that the peer holds behind a gap need no sending, so they do not
    /// block new messages.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.queue.bytes() + self.outstanding.total_flight()
    }

    fn load(&self) -> Load {
        Load { unacknowledged: self.unacknowledged(), held: self.held() }
    }

    /// Bytes that may be queued now.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity(self.load())
    }

    /// Returns whether a message of `length` bytes may be queued.
    pub(crate) fn takes(&self, length: usize) -> bool {
        self.buffer.takes(length, self.load())
    }

    /// Returns, once, that enough room is free for a driver that waits.
    pub(crate) fn take_room(&mut self) -> bool {
        self.buffer.take_room(self.load())
    }

    /// Returns, once, that nothing is left to send or acknowledge and the driver waits for that.
    pub(crate) fn take_dry(&mut self) -> bool {
        self.queue.is_empty() && self.outstanding.is_empty() && self.buffer.take_dry()
    }

    /// The length of the next new chunk, at most `max` bytes, if the peer's window has room for it.
    #[inline]
    pub(crate) fn next_length(&self, max: usize) -> Option<usize> {
        if self.outstanding.is_full() {
            return None;
        }
        let length = self.queue.next_length(max)?;
        // With nothing in flight, one chunk may probe a closed window.
        //= rfc9260#6.1-2 6.1-4 6.1-5 6.1-9
        //= rfc8260#2.2.2-4
        //= rfc9260#6.1-2 6.1-4 6.1-5 6.1-9
        let window_open = self.window.room() >= length || self.outstanding.total_flight() == 0;
        window_open.then_some(length)
    }

    /// Returns the next chunk to retransmit, and the path on which it was lost.
    #[inline]
    pub(crate) fn next_lost(&self) -> Option<(Seq, &Fragment, PathIndex)> {
        if self.outstanding.has_lost() { self.stranded.next_lost(&self.outstanding) } else { None }
    }

    /// User bytes in flight on a path, copies included, that its window must hold.
    pub(crate) fn flight_with_copies(&self, path: PathIndex) -> usize {
        self.outstanding.flight(path) + self.copies.flight(path)
    }

    /// The same for sending originals. Copies are settled only by SACKs, and with nothing else in flight none
    /// would come, so copies then do not count.
    pub(crate) fn flight_beside_copies(&self, path: PathIndex) -> usize {
        let (own, copies) = (self.outstanding.flight(path), self.copies.flight(path));
        if copies == 0 || self.outstanding.total_flight() == 0 { own } else { own + copies }
    }

    /// Returns the last abandoned message of each stream and kind, at most `max` of them, and the sequence up
    /// to which the list is complete. `interleaved` is set if I-FORWARD-TSN reports it.
    //= rfc3758#section-3.5
    //# For each "abandoned" TSN, the sender of the FORWARD TSN MUST determine if the chunk has a valid stream and sequence
    //# number (i.e., it was ordered). [...] If the total size of the FORWARD TSN does NOT fit in a single MTU, then the sender of
    //# the FORWARD TSN SHOULD lower the Advanced.Peer.Ack.Point to the last TSN that will fit in a single MTU.
    //= rfc3758#3.5-12
    pub(crate) fn skipped_streams(
        &self,
        interleaved: bool,
        max: usize,
    ) -> (Seq, BTreeMap<(StreamId, bool), Mid>) {
        let mut streams = BTreeMap::new();
        let mut point = self.outstanding.first();
        for fragment in self.outstanding.fragments() {
            let key = (fragment.stream, fragment.unordered);
            //= rfc3758#3.2-3 3.5-10 3.5-11
            let is_old = self.forward.has_old_number(fragment.stream, point);
            let listed = (interleaved || !fragment.unordered) && !is_old;
            if point >= self.forward.advanced()
                || (listed && !streams.contains_key(&key) && streams.len() >= max)
            {
                break;
            }
            if listed {
                streams.insert(key, fragment.mid);
            }
            point = point.next();
        }
        (point, streams)
    }

    /// Bytes held, in sizes the allocator hands out.
    pub(crate) fn memory(&self) -> usize {
        self.queue.memory()
            + self.outstanding.memory()
            + self.copies.memory()
            + self.pr_messages.memory()
            + self.forward.memory()
    }

    /// Returns spare memory of the queues.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink();
        self.outstanding.shrink();
        self.pr_messages.shrink();
    }

    /// Recounts all counters.
    pub(crate) fn check_invariants(&self) {
        self.queue.check_invariants();
        self.outstanding.check_invariants();
        self.pr_messages.check_invariants();
    }
}

//! Sending side of an association: waiting messages, chunks in flight, and the limits on both.
//!
//! [`Sender`] groups the parts of [`tx`](crate::tx). Each part owns its state, so callers can borrow a part
//! separately from the paths. Start at [`Sender::takes`] and [`Sender::next_length`].

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
    /// Copies, sent on other paths, of chunks that are in flight.
    pub(crate) copies: Copies,
    /// Messages that may be abandoned.
    pub(crate) pr_messages: PrMessages,
    /// Progress of the FORWARD TSN chunks that report abandoned messages.
    pub(crate) forward: Forward,
    pub(crate) window: PeerWindow,
    pub(crate) buffer: SendBuffer,
    /// State of the CWR chunks that answer the peer's ECNE chunks.
    pub(crate) answer: Answer,
    pub(crate) probes: Probes,
    pub(crate) stranded: Stranded,
}

impl Sender {
    /// Creates the sending side of a new association. `peer_rwnd` is the peer's initial receive window, in
    /// bytes.
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

    /// Returns the bytes of user data that are queued, or kept until the peer's cumulative acknowledgement.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.queue.bytes() + self.outstanding.bytes()
    }

    /// Returns the bytes that are queued or in flight. Chunks that the peer has received behind a gap do not
    /// count, so they do not block new messages.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.queue.bytes() + self.outstanding.total_flight()
    }

    fn load(&self) -> Load {
        Load { unacknowledged: self.unacknowledged(), held: self.held() }
    }

    /// Returns the number of bytes that may be queued now.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity(self.load())
    }

    /// Reports whether a message of `length` bytes may be queued.
    pub(crate) fn takes(&self, length: usize) -> bool {
        self.buffer.takes(length, self.load())
    }

    /// Reports whether a driver waits for room and the buffer now has enough room. Returns true once for each
    /// wait.
    pub(crate) fn take_room(&mut self) -> bool {
        self.buffer.take_room(self.load())
    }

    /// Reports whether a driver waits for the end of all data, and no data is queued or unacknowledged.
    /// Returns true once for each wait.
    pub(crate) fn take_dry(&mut self) -> bool {
        self.queue.is_empty() && self.outstanding.is_empty() && self.buffer.take_dry()
    }

    /// Returns the length of the next new chunk, limited to `max` bytes. Returns `None` if nothing may be
    /// sent: the peer's window has no room, too many chunks are outstanding, or the queue is empty.
    #[inline]
    pub(crate) fn next_length(&self, max: usize) -> Option<usize> {
        if self.outstanding.is_full() {
            return None;
        }
        let length = self.queue.next_length(max)?;
        // If nothing is in flight, one chunk may probe a closed window.
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

    /// Returns the user bytes in flight on a path, including copies. All of them count against the path's
    /// congestion window.
    pub(crate) fn flight_with_copies(&self, path: PathIndex) -> usize {
        self.outstanding.flight(path) + self.copies.flight(path)
    }

    /// Returns the user bytes in flight on a path that count against the window when data other than copies
    /// is sent. Copies are included only while other data is in flight on any path. Without other data in
    /// flight, no SACK would arrive to remove the copies from the count.
    pub(crate) fn flight_beside_copies(&self, path: PathIndex) -> usize {
        let (own, copies) = (self.outstanding.flight(path), self.copies.flight(path));
        if copies == 0 || self.outstanding.total_flight() == 0 { own } else { own + copies }
    }

    /// Returns the list of a FORWARD TSN. For each stream, the list has the last abandoned ordered message
    /// and the last abandoned unordered message. The list is limited to `max` entries. Also returns the first
    /// sequence that the list does not cover. `interleaved` is true if I-FORWARD-TSN reports the list.
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

    /// Returns the bytes of memory that the queues hold, in the sizes that the allocator hands out.
    pub(crate) fn memory(&self) -> usize {
        self.queue.memory()
            + self.outstanding.memory()
            + self.copies.memory()
            + self.pr_messages.memory()
            + self.forward.memory()
    }

    /// Frees the spare memory of the queues.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink();
        self.outstanding.shrink();
        self.pr_messages.shrink();
    }

    /// Recounts all counters. Panics if one is wrong.
    pub(crate) fn check_invariants(&self) {
        self.queue.check_invariants();
        self.outstanding.check_invariants();
        self.pr_messages.check_invariants();
    }
}

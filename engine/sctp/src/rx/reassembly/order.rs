//! Order of the messages in each stream. Messages that arrive before their turn wait in this module.
//!
//! Message numbers are SSNs (16 bits) or MIDs (32 bits). A stream's next number is the number of the ordered message that
//! is due. Invariant: parked messages have numbers after the stream's next number. Begin at [`Order::deliver`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use wire::StreamId;

use crate::event::Message;
use crate::memory::{heap, list, tree};

/// Number of streams on one page.
const PAGE: usize = 16;

/// Next message number of each stream; 0 before the first message. A page is created when a stream on this page is first
/// used.
#[derive(Debug, Default)]
struct Turns {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    /// Memory of the pages and of their list, in bytes.
    memory: usize,
}

impl Turns {
    #[inline]
    fn get(&self, id: StreamId) -> u32 {
        let index = usize::from(id.0);
        let page = self.pages.get(index / PAGE).and_then(Option::as_ref);
        page.map_or(0, |page| page[index % PAGE])
    }

    #[inline]
    fn get_mut(&mut self, id: StreamId) -> &mut u32 {
        let index = usize::from(id.0);
        if self.pages.len() <= index / PAGE {
            self.memory -= list::<usize>(self.pages.capacity());
            self.pages.reserve_exact(index / PAGE + 1 - self.pages.len());
            self.memory += list::<usize>(self.pages.capacity());
            self.pages.resize_with(index / PAGE + 1, || None);
        }
        let memory = &mut self.memory;
        let page = self.pages[index / PAGE].get_or_insert_with(|| {
            *memory += heap(size_of::<[u32; PAGE]>());
            Box::new([0; PAGE])
        });
        &mut page[index % PAGE]
    }

    #[inline]
    fn memory(&self) -> usize {
        self.memory
    }
}

/// Order of all streams. All streams share two maps, so a stream with few waiting messages uses little memory.
#[derive(Debug)]
pub(super) struct Order {
    turns: Turns,
    /// Ordered messages that arrived before their turn, by stream and number.
    parked: BTreeMap<(u16, u32), Message>,
    /// Streams with an unordered message that is being delivered in parts, each with its waiting messages. Other unordered
    /// messages of the stream wait for the end of this message, because the reader could not distinguish parts of two
    /// messages.
    open: BTreeMap<u16, Vec<Message>>,
    /// Number of unordered messages that wait in `open`.
    behind: usize,
    /// Greatest message number, which is also the bit mask of message numbers.
    mask: u32,
}

/// Returns the range of keys in `parked` for `numbers` of the stream `id`.
fn places(id: StreamId, numbers: RangeInclusive<u32>) -> RangeInclusive<(u16, u32)> {
    (id.0, *numbers.start())..=(id.0, *numbers.end())
}

impl Order {
    /// Creates the order of streams whose greatest message number is `mask`.
    pub(super) fn new(mask: u32) -> Order {
        Order { turns: Turns::default(), parked: BTreeMap::new(), open: BTreeMap::new(), behind: 0, mask }
    }

    /// Returns the number of waiting messages.
    pub(super) fn parked(&self) -> usize {
        self.parked.len() + self.behind
    }

    /// Returns the memory of the bookkeeping for waiting messages in bytes, without the messages' pieces.
    pub(super) fn memory(&self) -> usize {
        const PARKED: usize = size_of::<((u16, u32), Message)>();
        let parked = tree(self.parked.len(), PARKED);
        if self.open.is_empty() {
            return parked;
        }
        // The first message that waits behind an open message allocates a list with four places. Later, the list has up to
        // twice as many places as messages.
        parked
            + tree(self.open.len(), size_of::<(u16, Vec<Message>)>())
            + self.open.len() * heap(4 * size_of::<Message>())
            + self.behind * 2 * size_of::<Message>()
    }

    /// Returns the memory of the next numbers of all streams in bytes. This memory is not released when messages are
    /// delivered.
    #[inline]
    pub(super) fn turns_memory(&self) -> usize {
        self.turns.memory()
    }

    /// Reports whether the ordered message `number` is due.
    pub(super) fn is_turn(&self, id: StreamId, number: u32) -> bool {
        self.turns.get(id) == number
    }

    /// Returns the number of the ordered message that is due.
    pub(super) fn next(&self, id: StreamId) -> u32 {
        self.turns.get(id)
    }

    /// Reports whether the turn of the ordered message `number` has passed.
    pub(super) fn is_over(&self, id: StreamId, number: u32) -> bool {
        self.distance(self.next(id), number) > self.mask / 2
    }

    //= rfc9260#1.6-5
    /// Returns the distance from `from` ahead to `to`, modulo the number of message numbers.
    fn distance(&self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & self.mask
    }

    /// Reports whether an unordered message of the stream is being delivered in parts.
    pub(super) fn is_open(&self, id: StreamId) -> bool {
        self.open.contains_key(&id.0)
    }

    /// Begins the delivery of an unordered message in parts.
    pub(super) fn open(&mut self, id: StreamId) {
        self.open.entry(id.0).or_default();
    }

    /// Delivers a whole message, or parks it until its turn. If another message with this number is parked, returns the
    /// message.
    //= rfc9260#6.6-1 6.6-2
    pub(super) fn deliver(
        &mut self,
        number: u32,
        message: Message,
        ready: &mut VecDeque<Message>,
    ) -> Option<Message> {
        let id = message.stream;
        if message.unordered {
            match self.open.get_mut(&id.0) {
                Some(behind) => {
                    behind.push(message);
                    self.behind += 1;
                }
                //= rfc9260#3.3.1-3
                None => ready.push_back(message),
            }
            return None;
        }
        let next = self.turns.get_mut(id);
        if *next != number {
            return match self.parked.entry((id.0, number)) {
                Entry::Occupied(_) => Some(message),
                Entry::Vacant(place) => {
                    place.insert(message);
                    None
                }
            };
        }
        ready.push_back(message);
        *next = next.wrapping_add(1) & self.mask;
        if !self.parked.is_empty() {
            self.let_out_due(id, ready);
        }
        None
    }

    /// Ends an unordered message that was delivered in parts, and delivers the messages that waited for its end.
    pub(super) fn close(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let Some(behind) = self.open.remove(&id.0) else { return };
        self.behind -= behind.len();
        ready.extend(behind);
    }

    /// Increments the stream's next number, and delivers the parked messages that are due after this change.
    pub(super) fn advance(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let next = self.turns.get_mut(id);
        *next = next.wrapping_add(1) & self.mask;
        self.let_out_due(id, ready);
    }

    /// Delivers the parked message with the stream's next number, if any, and its parked successors without gaps.
    fn let_out_due(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let next = self.turns.get_mut(id);
        while let Some(message) = self.parked.remove(&(id.0, *next)) {
            ready.push_back(message);
            *next = next.wrapping_add(1) & self.mask;
        }
    }

    /// Skips the ordered messages up to `number`. Whole messages among them are delivered. Incomplete messages among them
    /// will not arrive.
    ///
    /// The work depends on the number of parked messages, not on the number of skipped messages.
    pub(super) fn skip(&mut self, id: StreamId, number: u32, ready: &mut VecDeque<Message>) {
        if self.is_over(id, number) {
            return;
        }
        let next = self.next(id);
        //= rfc3758#section-3.6
        //# the receiver MUST use the stream sequence information to examine all of the listed stream reordering queues, and
        //# immediately make available for delivery stream sequence numbers earlier than or equal to the stream sequence number
        //# listed inside the FORWARD TSN.
        //= rfc3758#3.6-7 3.6-8
        if next <= number {
            self.let_out(places(id, next..=number), ready);
        } else {
            self.let_out(places(id, next..=u32::MAX), ready);
            self.let_out(places(id, 0..=number), ready);
        }
        *self.turns.get_mut(id) = number;
        self.advance(id, ready);
    }

    /// Delivers the parked messages with keys in `places`, in the order of their numbers.
    fn let_out(&mut self, places: RangeInclusive<(u16, u32)>, ready: &mut VecDeque<Message>) {
        while let Some((&place, _)) = self.parked.range(places.clone()).next() {
            ready.extend(self.parked.remove(&place));
        }
    }

    /// Restarts `streams` with number 0, or all streams if `streams` is empty. Delivers the waiting messages, although
    /// earlier messages are missing.
    pub(super) fn restart(&mut self, streams: &[StreamId], ready: &mut VecDeque<Message>) {
        if streams.is_empty() {
            while let Some(&(stream, _)) = self.parked.keys().next() {
                self.restart_one(StreamId(stream), ready);
            }
            self.behind = 0;
            ready.extend(std::mem::take(&mut self.open).into_values().flatten());
            self.turns = Turns::default();
        }
        for id in streams {
            self.restart_one(*id, ready);
        }
    }

    fn restart_one(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let next = self.next(id);
        self.let_out(places(id, next..=u32::MAX), ready);
        if next > 0 {
            self.let_out(places(id, 0..=next - 1), ready);
            *self.turns.get_mut(id) = 0;
        }
        self.close(id, ready);
    }

    /// Returns all messages that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Message> {
        self.parked.values().chain(self.open.values().flatten())
    }

    /// Releases memory that is not in use.
    pub(super) fn shrink(&mut self) {
        if self.parked.is_empty() {
            self.parked = BTreeMap::new();
        }
        if self.open.is_empty() {
            self.open = BTreeMap::new();
        }
        self.open.values_mut().for_each(Vec::shrink_to_fit);
    }

    /// Checks the stored counts and the invariant of the module.
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.behind, self.open.values().map(Vec::len).sum::<usize>(), "messages behind open ones");
        let pages = self.turns.pages.iter().flatten().count() * heap(size_of::<[u32; PAGE]>());
        let list = list::<usize>(self.turns.pages.capacity());
        assert_eq!(self.turns.memory, list + pages, "bytes of the turns of streams");
        let early = |&(stream, number): &(u16, u32)| self.turns.get(StreamId(stream)) != number;
        assert!(self.parked.keys().all(early), "a message waits whose turn has come");
        let behind = self.open.values().map(|b| heap(b.capacity() * size_of::<Message>())).sum::<usize>();
        assert!(behind <= self.memory(), "{behind} bytes behind open messages");
    }

    #[cfg(test)]
    pub(super) fn set_next(&mut self, id: StreamId, number: u32) {
        *self.turns.get_mut(id) = number;
    }
}

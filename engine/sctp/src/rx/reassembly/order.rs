//! The order of each stream: messages that arrive before their turn wait here.
//!
//! Numbers are SSNs (16 bits) or MIDs (32 bits). Invariant: parked messages come after the stream's next number. Begin at
//! [`Order::deliver`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use wire::StreamId;

use crate::event::Message;
use crate::memory::{heap, list, tree};

/// Number of streams on one page.
const PAGE: usize = 16;

/// Next number of each stream; 0 if no message has arrived. A page is created when one of its streams is first used.
#[derive(Debug, Default)]
struct Turns {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    /// Bytes of the pages and of their list.
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

/// Order of all streams. All streams share the maps, so a stream on which little waits takes little memory.
#[derive(Debug)]
pub(super) struct Order {
    turns: Turns,
    /// Ordered messages that arrived before their turn, by stream and number.
    parked: BTreeMap<(u16, u32), Message>,
    /// Streams with an unordered message that is being delivered in parts. Other unordered messages of the stream wait for
    /// its end, because parts of two messages could not be distinguished.
    open: BTreeMap<u16, Vec<Message>>,
    /// Number of unordered messages that wait so.
    behind: usize,
    /// Greatest number.
    mask: u32,
}

/// Returns the keys in `parked` for these numbers of one stream.
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

    /// Returns the bytes of bookkeeping for waiting messages, without their pieces.
    pub(super) fn memory(&self) -> usize {
        const PARKED: usize = size_of::<((u16, u32), Message)>();
        let parked = tree(self.parked.len(), PARKED);
        if self.open.is_empty() {
            return parked;
        }
        // The first message behind an open one makes room for four. Later, the list has room for up to twice as many as it
        // holds.
        parked
            + tree(self.open.len(), size_of::<(u16, Vec<Message>)>())
            + self.open.len() * heap(4 * size_of::<Message>())
            + self.behind * 2 * size_of::<Message>()
    }

    /// Returns the bytes of the next numbers of all streams. This memory stays.
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
    /// Returns how far `to` is ahead of `from`, modulo the range of numbers.
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

    /// Delivers a whole message, or parks it until its turn. Returns the message if its number is taken.
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

    /// Ends an unordered message that was delivered in parts. The messages that waited behind it follow.
    pub(super) fn close(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let Some(behind) = self.open.remove(&id.0) else { return };
        self.behind -= behind.len();
        ready.extend(behind);
    }

    /// Moves the stream's turn to the next number, and delivers the parked messages that are then due.
    pub(super) fn advance(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let next = self.turns.get_mut(id);
        *next = next.wrapping_add(1) & self.mask;
        self.let_out_due(id, ready);
    }

    /// Delivers the message that is due if it is parked, and its successors.
    fn let_out_due(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let next = self.turns.get_mut(id);
        while let Some(message) = self.parked.remove(&(id.0, *next)) {
            ready.push_back(message);
            *next = next.wrapping_add(1) & self.mask;
        }
    }

    /// Skips ordered messages up to `number`: those that are incomplete will not arrive.
    ///
    /// The work depends on the number of parked messages, not on the distance.
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

    /// Delivers the messages parked at these places, in order.
    fn let_out(&mut self, places: RangeInclusive<(u16, u32)>, ready: &mut VecDeque<Message>) {
        while let Some((&place, _)) = self.parked.range(places.clone()).next() {
            ready.extend(self.parked.remove(&place));
        }
    }

    /// Restarts these streams (all streams if none is named) with number 0. Waiting messages are delivered as they are.
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

    /// Checks the stored counts and the invariant.
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

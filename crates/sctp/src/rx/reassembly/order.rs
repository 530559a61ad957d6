//! The order of each stream: messages that came before their turn wait here.
//!
//! Numbers are SSNs (16 bits) or MIDs (32 bits). Invariant: what is parked comes after the stream's next number. Begin at
//! [`Order::deliver`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use wire::StreamId;

use crate::event::Message;

/// One stream.
#[derive(Debug, Default)]
struct Stream {
    next: u32,
    parked: BTreeMap<u32, Message>,
    /// Whether an unordered message is being delivered in parts.
    unordered_open: bool,
    /// Unordered messages that wait for its end: parts of two could not be told apart.
    behind: Vec<Message>,
}

impl Stream {
    /// Delivers what waits, in the order of its numbers.
    fn let_out(mut self, ready: &mut VecDeque<Message>) {
        let wrapped = self.parked.split_off(&self.next);
        ready.extend(wrapped.into_values().chain(self.parked.into_values()));
        ready.extend(self.behind);
    }
}

/// Streams with numbers below this are found by their number alone.
const LOW: u16 = 16;

/// Streams by number; most programs use few, and low ones.
#[derive(Debug, Default)]
struct Streams {
    low: Vec<Stream>,
    others: BTreeMap<u16, Stream>,
}

impl Streams {
    #[inline]
    fn get(&self, id: StreamId) -> Option<&Stream> {
        if id.0 < LOW { self.low.get(usize::from(id.0)) } else { self.others.get(&id.0) }
    }

    #[inline]
    fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        if id.0 < LOW { self.low.get_mut(usize::from(id.0)) } else { self.others.get_mut(&id.0) }
    }

    /// The stream, made if nothing came on it before.
    #[inline]
    fn or_default(&mut self, id: StreamId) -> &mut Stream {
        if id.0 >= LOW {
            return self.others.entry(id.0).or_default();
        }
        let index = usize::from(id.0);
        if self.low.len() <= index {
            self.low.resize_with(index + 1, Stream::default);
        }
        &mut self.low[index]
    }

    fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.low.iter().chain(self.others.values())
    }

    fn into_values(self) -> impl Iterator<Item = Stream> {
        self.low.into_iter().chain(self.others.into_values())
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.low.iter_mut().chain(self.others.values_mut())
    }
}

/// All streams on which anything came.
#[derive(Debug)]
pub(super) struct Order {
    streams: Streams,
    parked: usize,
    /// The greatest number.
    mask: u32,
}

impl Order {
    /// `mask` is the greatest number.
    pub(super) fn new(mask: u32) -> Order {
        Order { streams: Streams::default(), parked: 0, mask }
    }

    /// Messages that wait.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Whether the ordered message `number` is the one due.
    pub(super) fn is_turn(&self, id: StreamId, number: u32) -> bool {
        self.streams.get(id).map_or(0, |s| s.next) == number
    }

    /// The number of the ordered message that is due.
    pub(super) fn next(&self, id: StreamId) -> u32 {
        self.streams.get(id).map_or(0, |s| s.next)
    }

    /// Whether the turn of the ordered message `number` is over.
    pub(super) fn is_over(&self, id: StreamId, number: u32) -> bool {
        self.distance(self.next(id), number) > self.mask / 2
    }

    //= rfc9260#1.6-5
    fn distance(&self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & self.mask
    }

    /// Whether an unordered message of the stream is being delivered in parts.
    pub(super) fn is_open(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|s| s.unordered_open)
    }

    /// An unordered message begins to be delivered in parts.
    pub(super) fn open(&mut self, id: StreamId) {
        self.streams.or_default(id).unordered_open = true;
    }

    /// Delivers a whole message or keeps it for its turn; returns it if its place is taken.
    //= rfc9260#6.6-1 6.6-2
    pub(super) fn deliver(
        &mut self,
        number: u32,
        message: Message,
        ready: &mut VecDeque<Message>,
    ) -> Option<Message> {
        let id = message.stream;
        if message.unordered {
            match self.streams.get_mut(id).filter(|s| s.unordered_open) {
                Some(stream) => {
                    stream.behind.push(message);
                    self.parked += 1;
                }
                //= rfc9260#3.3.1-3
                None => ready.push_back(message),
            }
            return None;
        }
        let stream = self.streams.or_default(id);
        if stream.next != number {
            return match stream.parked.entry(number) {
                Entry::Occupied(_) => Some(message),
                Entry::Vacant(place) => {
                    place.insert(message);
                    self.parked += 1;
                    None
                }
            };
        }
        ready.push_back(message);
        self.advance(id, ready);
        None
    }

    /// An unordered message that was delivered in parts is complete: those behind it follow.
    pub(super) fn close(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.unordered_open = false;
        self.parked -= stream.behind.len();
        ready.extend(stream.behind.drain(..));
    }

    /// The stream's turn moves on, and with it what was parked.
    pub(super) fn advance(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let mask = self.mask;
        let stream = self.streams.or_default(id);
        stream.next = stream.next.wrapping_add(1) & mask;
        while let Some(message) = stream.parked.remove(&stream.next) {
            self.parked -= 1;
            ready.push_back(message);
            stream.next = stream.next.wrapping_add(1) & mask;
        }
    }

    /// Ordered messages up to `number` that have not come whole will not come.
    ///
    /// The work is that of what is parked, whatever the distance.
    pub(super) fn skip(&mut self, id: StreamId, number: u32, ready: &mut VecDeque<Message>) {
        if self.is_over(id, number) {
            return;
        }
        let stream = self.streams.or_default(id);
        let due: Vec<u32> = if stream.next <= number {
            stream.parked.range(stream.next..=number).map(|(n, _)| *n).collect()
        } else {
            stream
                .parked
                .range(stream.next..)
                .chain(stream.parked.range(..=number))
                .map(|(n, _)| *n)
                .collect()
        };
        //= rfc3758#section-3.6
        //# the receiver MUST use the stream sequence information to examine all of the listed stream reordering queues, and
        //# immediately make available for delivery stream sequence numbers earlier than or equal to the stream sequence number
        //# listed inside the FORWARD TSN.
        //= rfc3758#3.6-7 3.6-8
        ready.extend(due.iter().filter_map(|n| stream.parked.remove(n)));
        self.parked -= due.len();
        stream.next = number;
        self.advance(id, ready);
    }

    /// These streams (all, if none is named) begin anew with number 0; what waited is delivered as it is.
    pub(super) fn restart(&mut self, streams: &[StreamId], ready: &mut VecDeque<Message>) {
        if streams.is_empty() {
            self.parked = 0;
            std::mem::take(&mut self.streams).into_values().for_each(|s| s.let_out(ready));
        }
        for id in streams {
            let Some(stream) = self.streams.get_mut(*id).map(std::mem::take) else { continue };
            self.parked -= stream.parked.len() + stream.behind.len();
            stream.let_out(ready);
        }
    }

    /// All messages that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Message> {
        self.streams.iter().flat_map(|s| s.parked.values().chain(&s.behind))
    }

    /// Gives back memory that is not in use.
    pub(super) fn shrink(&mut self) {
        for stream in self.streams.iter_mut() {
            if stream.parked.is_empty() {
                stream.parked = BTreeMap::new();
            }
            stream.behind.shrink_to_fit();
        }
    }

    #[cfg(test)]
    pub(super) fn set_next(&mut self, id: StreamId, number: u32) {
        self.streams.or_default(id).next = number;
    }
}

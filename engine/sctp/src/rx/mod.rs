//! The receiving side of an association. [`Tracker`] stores which TSNs have arrived, [`AckTimer`] decides when a SACK leaves, and
//! [`Reassembly`] builds the messages.
//!
//! Two counts limit the buffered data. [`Inbound::held`] counts user bytes, plus a small overhead for each piece. The window that
//! is advertised to the peer depends on this count. [`Inbound::cost`] counts the bytes of the allocator's blocks for this data.
//! With pieces of one octet, the cost is many times `held`. Invariant: neither count exceeds its limit, regardless of the sizes of
//! the pieces. Begin at [`Inbound::on_data`].

mod ack;
mod arena;
mod reassembly;
mod reset;
mod tracker;
mod window;

use std::collections::VecDeque;
use std::time::Duration;

use base::Time;
use smallvec::SmallVec;
use wire::{GapBlock, Ppid, Sack, Tsn};

use crate::config::{AssociationConfig, Limits, Timing};
use crate::event::Message;
use crate::memory::{COST_BASE, COST_MOST, FLOOR, Pressure};
use crate::tx::{FAR_AHEAD, Seq};
pub(crate) use ack::AckTimer;
use arena::Arena;
use bytes::{Bytes, BytesMut};
use reassembly::Reassembly;
pub(crate) use reassembly::{Piece, Skip};
use reset::HeldBack;
use tracker::{Arrival, Tracker};
use window::Window;

/// Estimated overhead of each piece of a message, in bytes: the overhead of a separate allocation, and a place in a list.
const MESSAGE_OVERHEAD: usize = 64;

/// Size of one free place in a list of pieces, in bytes. A list that has just grown has about one free place for each piece.
const SPARE_PLACE: usize = size_of::<Bytes>();

/// Maximum number of waiting pieces at which a new payload may share a block with other payloads.
const MAX_SHARING_WAITING: usize = 8;

/// Divisor of the window. The window stretches for long messages only if the buffered user bytes are at least the quotient. Thus
/// many tiny pieces do not stretch the window.
const STRETCH_PART: usize = 16;

/// Minimum window size in the computation of the cost limit, in bytes.
const LEAST_ROOM: usize = 32 * 1024;

/// Divisor of the receive buffer. When the queue to the reader becomes empty, it keeps its memory only up to the quotient.
const QUEUE_PART: usize = 8;

/// Outcome of a DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataOutcome {
    /// The chunk was accepted.
    Taken,
    /// The chunk has arrived before.
    Duplicate,
    /// There was no room for the chunk, so the peer must retransmit it.
    Dropped,
}

/// All data that was received and is not yet read.
#[derive(Debug)]
pub(crate) struct Inbound {
    initial: Tsn,
    tracker: Tracker,
    reassembly: Reassembly,
    /// Messages that are ready for the reader.
    ready: VecDeque<Message>,
    /// True once a chunk was discarded because it belonged to no message that was still expected.
    has_unplaced: bool,
    arena: Arena,
    /// Bytes held, including [`MESSAGE_OVERHEAD`] for each piece.
    held: usize,
    /// User bytes held.
    payload: usize,
    window: Window,
    /// Last memory pressure reported by the endpoint.
    pressure: Pressure,
    /// Cost of the buffered data at the time at which the pressure became [`Pressure::Over`].
    cost_before: usize,
    /// Window that the last SACK advertised, in bytes.
    advertised: usize,
    /// Limit on the number of messages and runs of fragments that wait for other chunks.
    max_parked: usize,
    /// Chunks that are held back until a reset of their stream.
    held_back: Option<Box<HeldBack>>,
    reset_done: bool,
    pub(crate) ack: AckTimer,
}

impl Inbound {
    /// Creates the state; `initial` is the peer's initial TSN.
    pub(crate) fn new(
        initial: Tsn,
        config: &AssociationConfig,
        interleaved: bool,
        limits: &Limits,
    ) -> Inbound {
        let window = Window::new(config);
        Inbound {
            initial,
            tracker: Tracker::new(limits.gap_ranges, limits.duplicates),
            reassembly: Reassembly::new(interleaved),
            ready: VecDeque::new(),
            has_unplaced: false,
            arena: Arena::new(window.max()),
            held: 0,
            payload: 0,
            advertised: window.limit(),
            window,
            pressure: Pressure::Calm,
            cost_before: 0,
            max_parked: limits.parked_messages,
            held_back: None,
            reset_done: false,
            ack: AckTimer::default(),
        }
    }

    /// Processes a DATA or I-DATA chunk whose stream is valid and whose payload is not empty.
    //= rfc9260#6.2-1
    //= rfc3758#3.6-1
    //= rfc9260#6.2-1
    pub(crate) fn on_data(&mut self, chunk: &Piece<'_>, now: Time, timing: &Timing) -> DataOutcome {
        let Some(seq) = self.tracker.first_missing().nearest(self.initial, chunk.tsn) else {
            self.tracker.note_duplicate(chunk.tsn);
            self.ack.on_irregular();
            return DataOutcome::Duplicate;
        };
        if self.tracker.has(seq) {
            //= rfc9260#6.2-20 6.2-21
            self.tracker.note_duplicate(chunk.tsn);
            self.ack.on_irregular();
            return DataOutcome::Duplicate;
        }
        if !self.has_room(seq) {
            self.ack.on_irregular();
            //= rfc9260#6.2-4 6.2-5 6.2-27
            return DataOutcome::Dropped;
        }
        let arrival = self.tracker.insert(seq);
        match arrival {
            Arrival::Full => {
                self.ack.on_irregular();
                return DataOutcome::Dropped;
            }
            //= rfc9260#5.1-18
            Arrival::InOrder if seq == Seq(0) => self.ack.on_irregular(),
            Arrival::InOrder if !self.tracker.has_gaps() => self.ack.on_data(chunk.immediate, now, timing),
            //= rfc9260#6.7-1 7.2.4-1
            Arrival::InOrder | Arrival::OutOfOrder => self.ack.on_irregular(),
        }
        let payload = self.keep(chunk.payload, arrival);
        self.held += payload.len() + MESSAGE_OVERHEAD;
        self.payload += payload.len();
        if let Some(payload) = self.hold_back(seq, chunk, payload) {
            self.place(seq, chunk, payload);
        }
        self.finish_reset();
        self.deliver_partially();
        DataOutcome::Taken
    }

    /// Passes a chunk to the reassembly.
    fn place(&mut self, seq: Seq, chunk: &Piece<'_>, payload: BytesMut) {
        let placed = self.reassembly.insert(seq, chunk, payload, &mut self.ready);
        if placed.joined {
            self.held -= MESSAGE_OVERHEAD;
        }
        if let Some(unplaceable) = placed.unplaceable {
            self.has_unplaced = true;
            self.let_go(&unplaceable);
        }
    }

    /// Returns a copy of a payload. A payload that may wait for long gets a separate allocation. Otherwise a peer could pin whole blocks
    /// with a few bytes in each.
    fn keep(&mut self, payload: &[u8], arrival: Arrival) -> BytesMut {
        let shares = arrival == Arrival::InOrder && self.held_back.is_none();
        if shares && self.waiting_pieces() <= MAX_SHARING_WAITING {
            self.arena.keep(payload)
        } else {
            BytesMut::from(payload)
        }
    }

    /// Returns an upper bound of the number of pieces that belong to no ready message. The bound counts one piece for each ready
    /// message, although some have more.
    #[inline]
    fn waiting_pieces(&self) -> usize {
        if self.reassembly.parked() == 0 {
            return 0;
        }
        ((self.held - self.payload) / MESSAGE_OVERHEAD).saturating_sub(self.ready.len())
    }

    /// Returns the number of bytes in the allocator's blocks for the buffered data.
    #[inline]
    fn cost(&self) -> usize {
        let pieces = (self.held - self.payload) / MESSAGE_OVERHEAD;
        // The first piece of each message has its place in the message itself, not in a separate list.
        let listed = pieces.saturating_sub(self.ready.len() + self.reassembly.parked());
        self.held
            + listed * SPARE_PLACE
            + self.places() * size_of::<Message>()
            + self.reassembly.memory()
            + self.held_back.as_ref().map_or(0, |h| h.memory())
    }

    /// Reports whether the cost is below `bound`. In most cases, an upper bound from `held` shows this without a full count of the
    /// cost.
    #[inline]
    fn costs_less_than(&self, bound: usize) -> bool {
        self.held_back.is_none() && COST_MOST * self.held + COST_BASE < bound || self.cost() < bound
    }

    /// Returns the number of places in the queue to the reader that count as cost. These are up to twice as many places as
    /// messages, because the queue doubles when it grows. Places that are kept for later messages do not count.
    #[inline]
    fn places(&self) -> usize {
        let (used, places) = (self.ready.len(), self.ready.capacity());
        if used < places { places.min(2 * used) } else { 2 * used }
    }

    /// Returns the memory of the receiving side in bytes.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        // The queue to the reader keeps the capacity that it had at its longest.
        let kept = self.ready.capacity().saturating_sub(self.places()) * size_of::<Message>();
        self.cost()
            + kept
            + self.tracker.memory()
            + self.reassembly.turns_memory()
            + self.arena.memory()
            + self.arena.pinned_by(self.waiting_pieces().min(MAX_SHARING_WAITING))
    }

    /// Returns a measure, in bytes, of the memory that changes with user data. If this measure changes little, the memory changes
    /// little.
    #[inline]
    pub(crate) fn measure(&self) -> usize {
        self.held
            + self.ready.capacity() * size_of::<Message>()
            + self.reassembly.turns_memory()
            + self.arena.memory()
    }

    /// Sets the memory pressure, after a change that the endpoint reports.
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        if pressure == Pressure::Over && self.pressure != Pressure::Over {
            self.cost_before = self.cost();
        }
        if pressure >= Pressure::Full && self.pressure < Pressure::Full {
            // The blocks that are kept for reuse are the first memory to release.
            self.arena.shrink();
        }
        self.pressure = pressure;
    }

    /// Ends the accounting of a message. Returns the number of bytes in the receive buffer that the message occupied.
    #[inline]
    fn let_go(&mut self, message: &Message) -> usize {
        let length = message.len();
        let cost = length + message.pieces.len() * MESSAGE_OVERHEAD;
        self.held -= cost;
        self.payload -= length;
        cost
    }

    /// If a message occupies much of the buffer and no message is ready, stretches the window or delivers a part of the message.
    #[inline]
    fn deliver_partially(&mut self) {
        if self.is_blocked() {
            self.deliver_blocked();
        }
    }

    /// Reports whether the buffered data occupies much of the buffer, and no message is ready to be read.
    #[inline]
    fn is_blocked(&self) -> bool {
        if !self.ready.is_empty() {
            return false;
        }
        let limit = self.window.limit();
        // If memory has run out, only `FLOOR` bytes of room remain, in which accepted messages can be completed.
        let most = if self.pressure == Pressure::Over { limit.min(self.cost_before + FLOOR) } else { limit };
        self.held > limit / 2 || !self.costs_less_than(most + 1)
    }

    /// Stretches the window for a long message or, if that fails, delivers a part of the message.
    fn deliver_blocked(&mut self) {
        let limit = self.window.limit();
        if self.payload >= limit / STRETCH_PART && self.window.stretch(self.pressure) {
            // A SACK must report the new room, because the sender may wait after a SACK that reported a full window.
            self.ack.on_irregular();
        } else {
            self.reassembly.deliver_partially(self.tracker.first_missing(), &mut self.ready);
        }
    }

    /// Reports whether `tsn` is too far ahead of the first missing TSN. Such a TSN can only date from before a reset of the
    /// association.
    pub(crate) fn is_from_before_reset(&self, tsn: Tsn) -> bool {
        let first_missing = self.tracker.first_missing();
        let seq = first_missing.nearest(self.initial, tsn);
        seq.is_some_and(|s| s.0.saturating_sub(first_missing.0) > FAR_AHEAD)
    }

    /// Processes a FORWARD TSN or I-FORWARD-TSN. Returns whether the chunk moved the cumulative TSN.
    pub(crate) fn on_forward(
        &mut self,
        new_cumulative: Tsn,
        skips: impl Iterator<Item = Skip>,
        now: Time,
        timing: &Timing,
    ) -> bool {
        let first_missing = self.tracker.first_missing();
        let skipped = first_missing.nearest(self.initial, new_cumulative.next());
        //= rfc3758#section-3.6
        //# if the "New Cumulative TSN" value carried in the arrived FORWARD TSN chunk is found to be behind or at the current
        //# cumulative TSN point, the data receiver MUST treat this FORWARD TSN as out-of-date and MUST NOT update its Cumulative
        //# TSN. The receiver SHOULD send a SACK to its peer
        //= rfc3758#3.6-4 3.6-5
        let possible = skipped.filter(|s| *s > first_missing && self.has_room_for_skips());
        let Some(skipped) = possible else {
            self.ack.on_irregular();
            return false;
        };
        let skips: Vec<Skip> = skips.collect();
        //= rfc3758#section-3.6
        //# When a FORWARD TSN chunk arrives, the data receiver MUST first update its cumulative TSN point to the value carried
        //# in the FORWARD TSN chunk, and then MUST further advance its cumulative TSN point locally if possible
        //= rfc3758#3.6-2 3.6-3
        self.tracker.forward(skipped);
        if !self.hold_back_skips(skipped, &skips) {
            self.skip(skipped, &skips);
        }
        self.finish_reset();
        //= rfc3758#section-3.6
        //# Any time a FORWARD TSN chunk arrives, for the purposes of sending a SACK, the receiver MUST follow the same rules as
        //# if a DATA chunk had been received
        //= rfc3758#3.6-6
        if self.tracker.has_gaps() {
            self.ack.on_irregular();
        } else {
            self.ack.on_data(false, now, timing);
        }
        true
    }

    /// Removes the incomplete messages that the peer has abandoned: the messages in `skips`, and all fragments before `skipped`.
    /// Delivers the messages that waited only for removed messages.
    fn skip(&mut self, skipped: Seq, skips: &[Skip]) {
        let (first_missing, skips) = (self.tracker.first_missing(), skips.iter().copied());
        for bytes in self.reassembly.forward(skipped, first_missing, skips, &mut self.ready) {
            self.held -= bytes.len() + MESSAGE_OVERHEAD;
            self.payload -= bytes.len();
        }
    }

    /// Records a chunk that is acknowledged but not kept (RFC 9260 section 6.5: its stream does not exist).
    pub(crate) fn on_discarded(&mut self, tsn: Tsn) -> DataOutcome {
        self.ack.on_irregular();
        let seq = self.tracker.first_missing().nearest(self.initial, tsn).filter(|&s| !self.tracker.has(s));
        let arrival = seq.map(|seq| self.tracker.insert(seq));
        self.finish_reset();
        match arrival {
            None => DataOutcome::Duplicate,
            Some(Arrival::Full) => DataOutcome::Dropped,
            Some(Arrival::InOrder | Arrival::OutOfOrder) => DataOutcome::Taken,
        }
    }

    /// Reports whether there is room for the chunk `seq`. The window limits the user bytes, and a separate limit applies to the
    /// cost. Chunks that fill the first gap may exceed both limits a little, because the buffered data cannot be delivered without
    /// these chunks.
    //= rfc9260#6.2-26 6.2-29 6.2-2
    fn has_room(&self, seq: Seq) -> bool {
        let parked = self.reassembly.parked() + self.held_back.as_ref().map_or(0, |h| h.len());
        let (limit, room) = (self.window.limit(), self.window.limit().max(LEAST_ROOM));
        let (is_first, is_over) = (seq == self.tracker.first_missing(), self.pressure == Pressure::Over);
        if is_first && (self.ready.is_empty() || self.tracker.has_gaps() && !is_over) {
            let cost = match self.pressure {
                Pressure::Over if parked == 0 => FLOOR,
                Pressure::Over => (self.cost_before + 2 * FLOOR).min(2 * room + room / 8),
                Pressure::Calm | Pressure::Tight | Pressure::Full => 2 * room + room / 8,
            };
            // The reader cannot read between the chunks of one packet. Therefore in-order chunks may exceed the window by an eighth
            // while messages are ready.
            let has_window = self.ready.is_empty() || self.payload < limit + limit / 8;
            return has_window && self.costs_less_than(cost) && parked < 2 * self.max_parked;
        }
        let (limit, room) = if is_over { (FLOOR.min(limit), FLOOR) } else { (limit, room) };
        self.payload < limit && self.costs_less_than(2 * room) && parked < self.max_parked
    }

    /// Removes the next ready message, and returns it to the reader.
    #[inline]
    pub(crate) fn read(&mut self, now: Time, rtt: Option<Duration>) -> Option<Message> {
        let message = self.ready.pop_front()?;
        let cost = self.let_go(&message);
        if self.ready.is_empty()
            && self.ready.capacity() * size_of::<Message>() > self.window.max() / QUEUE_PART
        {
            self.ready = VecDeque::new();
        }
        let least = if self.pressure >= Pressure::Full { self.payload.max(self.cost() / 2) } else { 0 };
        self.window.on_read(cost, least, now, rtt, self.pressure);
        self.deliver_partially();
        Some(message)
    }

    /// Reports whether reading has reopened the window so far that the peer should get a SACK.
    #[inline]
    //= rfc9260#6.2-6 6.2-11 6.2-12
    pub(crate) fn has_reopened(&self) -> bool {
        let limit = self.window.limit();
        let enough = self.advertised + (limit / 4).max(2 * 1452).min(limit);
        // In most cases, `held` shows that the room is too small, without a full count of the cost.
        limit.saturating_sub(self.held) >= enough && self.free() >= enough
    }

    /// Removes a message with the payload protocol identifier `ppid`, or a part of such a message, from the ready messages. The
    /// first `examined` ready messages are known to have other identifiers.
    pub(crate) fn take_ready(&mut self, ppid: Ppid, examined: &mut usize) -> Option<Message> {
        let found = self.ready.iter().skip(*examined).position(|message| message.ppid == ppid);
        *examined = found.map_or(self.ready.len(), |at| *examined + at);
        let message = self.ready.remove(*examined)?;
        self.let_go(&message);
        Some(message)
    }

    /// Reports whether all data that arrived was delivered and read. If so, no bytes are held, no gap exists, and no chunk was
    /// discarded as unplaceable.
    pub(crate) fn is_all_read(&self) -> bool {
        let is_missing = self.held_back.is_some() || self.tracker.has_gaps();
        self.held == 0 && !is_missing && !self.has_unplaced
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the bytes held, including [`MESSAGE_OVERHEAD`] for each piece.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of bytes of room that may be advertised to the peer.
    fn free(&self) -> usize {
        let limit = self.window.limit();
        // If memory has run out, only `FLOOR` bytes are accepted, so only `FLOOR` bytes may be advertised.
        let (limit, least) = match self.pressure {
            Pressure::Over => (FLOOR.min(limit), FLOOR),
            Pressure::Calm | Pressure::Tight | Pressure::Full => (limit, LEAST_ROOM),
        };
        let (room, most) = (limit.saturating_sub(self.held), 2 * limit.max(least));
        if self.costs_less_than(most - room + 1) { room } else { most.saturating_sub(self.cost()) }
    }

    /// Returns the a_rwnd to advertise, and stores it as advertised.
    //= rfc9260#6.2-23 6.2-24 6.2-28
    pub(crate) fn advertise(&mut self) -> u32 {
        self.advertised = self.free();
        u32::try_from(self.advertised).unwrap_or(u32::MAX)
    }

    /// Returns the highest TSN up to which all TSNs have arrived.
    //= rfc9260#6.2-16
    pub(crate) fn cumulative_tsn(&self) -> Tsn {
        self.tracker.first_missing().tsn(self.initial).prev()
    }

    /// Calls `push` with a SACK of all TSNs that have arrived. The SACK has as many gap blocks as fit into a chunk of `room` bytes.
    //= rfc9260#6.2-17 6.2-25 6.7-6 6.7-7
    pub(crate) fn with_sack<R>(
        &mut self,
        room: usize,
        duplicates: &[Tsn],
        push: impl FnOnce(Sack<'_>) -> R,
    ) -> R {
        let gaps_max = Sack::gaps_max(room, duplicates.len());
        let gaps: SmallVec<[GapBlock; 32]> = self.tracker.gap_blocks().take(gaps_max).collect();
        let (cumulative_tsn, a_rwnd) = (self.cumulative_tsn(), self.advertise());
        push(Sack { cumulative_tsn, a_rwnd, gaps: (&gaps[..]).into(), duplicates: duplicates.into() })
    }

    pub(crate) fn has_duplicates(&self) -> bool {
        !self.tracker.duplicates().is_empty()
    }

    pub(crate) fn duplicates(&self) -> &[Tsn] {
        self.tracker.duplicates()
    }

    /// Handles the transmission of a SACK.
    pub(crate) fn on_sack_sent(&mut self) {
        self.tracker.forget_duplicates();
        self.ack.on_sent();
    }

    /// Releases memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.ready.shrink_to_fit();
        self.arena.shrink();
        self.tracker.shrink();
        self.reassembly.shrink();
    }

    /// Checks the stored counts of bytes against the buffered data.
    pub(crate) fn check_invariants(&self) {
        let cost = |m: &Message| m.len() + m.pieces.len() * MESSAGE_OVERHEAD;
        let ready: usize = self.ready.iter().map(cost).sum();
        let back = |overhead| self.held_back.as_ref().map_or(0, |h| h.held(overhead));
        let held = self.reassembly.held(MESSAGE_OVERHEAD) + back(MESSAGE_OVERHEAD);
        assert_eq!(self.held, ready + held, "bytes held");
        let ready: usize = self.ready.iter().map(Message::len).sum();
        assert_eq!(self.payload, ready + self.reassembly.held(0) + back(0), "user bytes held");
        self.reassembly.check_invariants();
        if let Some(held_back) = &self.held_back {
            held_back.check_invariants();
        }
        assert!(
            self.held_back.is_some() || self.cost() <= COST_MOST * self.held + COST_BASE,
            "{} bytes cost {}",
            self.held,
            self.cost()
        );
        self.tracker.check_invariants();
        self.window.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Fsn, Ppid, StreamId};

    const INITIAL: Tsn = Tsn(1);

    fn take(inbound: &mut Inbound, n: u32) -> DataOutcome {
        let chunk = Piece {
            immediate: false,
            unordered: false,
            begin: true,
            end: true,
            tsn: INITIAL.plus(n),
            stream: StreamId(0),
            number: n,
            fsn: Fsn(0),
            ppid: Ppid(0),
            payload: &[0; 64],
        };
        inbound.on_data(&chunk, Time::ZERO, &Timing::default())
    }

    #[test]
    fn data_that_fills_a_gap_is_taken_under_any_memory_pressure() {
        const GAP: u32 = 2000;
        for pressure in [Pressure::Calm, Pressure::Full, Pressure::Over] {
            let mut inbound = Inbound::new(INITIAL, &AssociationConfig::default(), false, &Limits::default());
            let held = (GAP..).take_while(|&n| take(&mut inbound, n) == DataOutcome::Taken).count();
            assert!(held > 100, "{held}");
            inbound.set_pressure(pressure);
            for n in 0..GAP {
                assert_eq!(take(&mut inbound, n), DataOutcome::Taken, "{pressure:?}: {n}");
                if n + 1 < GAP {
                    assert!(inbound.read(Time::ZERO, None).is_some());
                }
                inbound.check_invariants();
            }
            assert_eq!(std::iter::from_fn(|| inbound.read(Time::ZERO, None)).count(), held + 1);
        }
    }
}

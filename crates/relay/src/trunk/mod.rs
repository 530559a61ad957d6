//! Many connections on one association between two shims: each is a *lane*, a pair of streams of one number.
//!
//! A [`Trunk`] is one end. Its driver owns the association: it hands over every message that came ([`Trunk::on_message`]),
//! sends what the trunk has to say ([`Trunk::next_out`]), and lets each lane's bytes flow through a
//! [`Relay`](crate::Relay) as it would with an association of its own, but for two things: a lane sends no more than the
//! peer has granted ([`Trunk::send_room`]), and its orderly end is that both ends were announced, not a SHUTDOWN.
//!
//! An association has one receive window for all its streams, so a program that does not read would stop all others. The
//! driver therefore takes every message off the association at once, and the trunk bounds what waits for each program by
//! credit: a window per lane, which doubles when the sender has more to send and the program keeps up.
//!
//! Streams are used again. The first lane of a stream may begin another one when it has sent its last word and got the
//! peer's; numbers of generations tell what belongs to which. The end that began the association opens lanes on odd
//! streams, the other on even ones, so that the two never meet. Stream 0 is for both ends' greetings.
//!
//! Refuses, by an error that means the end of the whole trunk, what a peer of this version never sends
//! ([`TrunkFault`]). Invariants: what waits of one lane is at most its window; the sum of the windows is known
//! ([`Trunk::windows`]); at most [`LANES_MAX`] lanes are opened by each end. `docs/trunk.md` has the messages. Begin at
//! [`Trunk::open`] and [`Trunk::on_message`].

mod lane;
mod message;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use lane::{Lane, Look, Stage};
pub use lane::{WINDOW_LEAST, WINDOW_MAX, WINDOW_START};
pub use message::{CONTROL_MAX, Generation, Malformed, Message, Refusal, VERSION};

/// Lanes that one end may have open at once.
pub const LANES_MAX: u16 = 8_192;
/// Streams that a trunk needs in each direction.
pub const TRUNK_STREAMS: u16 = 2 * LANES_MAX + 1;
/// Messages that may wait to be sent: each lane has at most an opening, a word of credit and a last word at once, and what
/// came before may still wait.
const OUTBOX_MAX: usize = 8 * LANES_MAX as usize;
/// Places that an outbox keeps once it is empty.
const OUTBOX_KEPT: usize = 64;

/// The stream of the greetings.
const GREETING: u16 = 0;

/// Which end of the association this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It began the association, and opens lanes on odd streams.
    Initiator,
    /// It opens lanes on even streams.
    Acceptor,
}

/// One end's name for a lane; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LaneId(u64);

/// Event of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneEvent {
    /// A program of the peer's host connects: [`Trunk::accept`] or [`Trunk::refuse`] it.
    Offered {
        /// Its address.
        client: SocketAddr,
        /// Where it connects to.
        server: SocketAddr,
    },
    /// The peer has accepted.
    Accepted,
    /// The peer has refused. The lane is over.
    Refused(Refusal),
    /// There is something to read.
    Readable,
    /// More may be sent, after [`Trunk::on_stopped`].
    Writable,
    /// The peer has reset it; what came before may still be read.
    Reset,
}

/// Something read from a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// Bytes, never none.
    Data(Bytes),
    /// The peer's program has ended its sending. Nothing follows.
    End,
}

/// Why a trunk cannot go on: the peer sent what none of this version sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrunkFault {
    /// A message that cannot be read.
    #[error("stream {stream}: {what}")]
    Malformed {
        /// Where it came.
        stream: u16,
        /// The fault.
        what: Malformed,
    },
    /// A message that has no place there and then.
    #[error("stream {stream}: {kind} where none may come")]
    Unexpected {
        /// Where it came.
        stream: u16,
        /// Its kind.
        kind: &'static str,
    },
    /// More bytes than were granted.
    #[error("stream {stream}: more than the {granted} bytes that were granted")]
    Overrun {
        /// Where they came.
        stream: u16,
        /// Bytes granted from the beginning of the connection.
        granted: u64,
    },
    /// A version of the messages that this end does not speak.
    #[error("the peer speaks version {0} of the trunk's messages, this end version {VERSION}")]
    Version(u8),
    /// The peer makes us say more than it listens to.
    #[error("{OUTBOX_MAX} messages wait for the peer to take them")]
    Deaf,
}

/// Why a lane cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The peer has not greeted yet.
    #[error("the peer has not greeted yet")]
    NotReady,
    /// As many as the peer allows are open.
    #[error("all {0} connections that one association may carry are open")]
    TooMany(u16),
    /// Addresses of two families.
    #[error("client and server are of two address families")]
    Families,
}

/// A stream that was used.
#[derive(Debug, Default)]
struct Slot {
    generation: Generation,
    /// The lane that uses it now.
    lane: Option<LaneId>,
}

/// One end of a trunk.
#[derive(Debug)]
pub struct Trunk {
    side: Side,
    /// Number of lanes that the peer allows us, once it has greeted.
    allowed: Option<u16>,
    slots: BTreeMap<u16, Slot>,
    /// Streams of ours that were used, and are free.
    free: BTreeSet<u16>,
    /// The next of our streams that was never used.
    fresh: u16,
    lanes: BTreeMap<LaneId, Lane>,
    last: u64,
    /// Lanes that are not over, opened by us and by the peer.
    ours: u16,
    theirs: u16,
    outbox: VecDeque<(u16, Message)>,
    /// Lanes whose peer is to hear what it was granted.
    credits: BTreeSet<LaneId>,
    /// Lanes whose peer has more to send than it may.
    stopped: BTreeSet<LaneId>,
    /// Lanes with bytes that share memory with other messages.
    sharing: Vec<LaneId>,
    events: VecDeque<(LaneId, LaneEvent)>,
    windows: usize,
    spare: usize,
    /// Bytes that came and were not taken.
    waiting: usize,
    /// Bytes of memory that lanes were last seen to take, and those whose part may have changed since.
    lanes_memory: usize,
    changed: Vec<LaneId>,
}

impl Trunk {
    /// One end of an association that is up and has [`TRUNK_STREAMS`] streams each way. The greeting is ready to be sent.
    pub fn new(side: Side) -> Trunk {
        let hello = Message::Hello { version: VERSION, lanes: LANES_MAX };
        Trunk {
            side,
            allowed: None,
            slots: BTreeMap::new(),
            free: BTreeSet::new(),
            fresh: if side == Side::Initiator { 1 } else { 2 },
            lanes: BTreeMap::new(),
            last: 0,
            ours: 0,
            theirs: 0,
            outbox: VecDeque::from([(GREETING, hello)]),
            credits: BTreeSet::new(),
            stopped: BTreeSet::new(),
            sharing: Vec::new(),
            events: VecDeque::new(),
            windows: 0,
            spare: WINDOW_MAX,
            waiting: 0,
            lanes_memory: 0,
            changed: Vec::new(),
        }
    }

    /// Reports whether the peer has greeted, so that lanes may be opened.
    pub fn is_ready(&self) -> bool {
        self.allowed.is_some()
    }

    /// Lanes that are not over, or not let go of.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Bytes that peers may have waiting here in all.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Bytes that came and wait for programs to take them.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Bytes of memory that the peer makes this end keep: what [waits](Self::waiting), here and at the driver, and messages that the peer
    /// does not take.
    pub fn memory(&mut self) -> usize {
        for id in self.changed.drain(..) {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            self.lanes_memory -= lane.counted;
            self.lanes_memory += lane.count();
        }
        self.lanes_memory + self.outbox.capacity() * size_of::<(u16, Message)>()
    }

    /// Says how many bytes [`windows`](Self::windows) may still grow. Each lane gets [`WINDOW_LEAST`] in any case.
    pub fn set_spare(&mut self, bytes: usize) {
        self.spare = bytes;
    }

    /// Opens a lane for a program's connection; [`LaneEvent::Accepted`], `Refused` or `Reset` follows.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&mut self, client: SocketAddr, server: SocketAddr) -> Result<LaneId, OpenError> {
        let allowed = self.allowed.ok_or(OpenError::NotReady)?.min(LANES_MAX);
        if client.is_ipv4() != server.is_ipv4() {
            return Err(OpenError::Families);
        }
        if self.ours >= allowed {
            return Err(OpenError::TooMany(allowed));
        }
        let stream = self.free.pop_first().unwrap_or_else(|| {
            self.fresh += 2;
            self.fresh - 2
        });
        let generation = self.slots.get(&stream).map_or(Generation(0), |slot| slot.generation).next();
        self.ours += 1;
        let id = self.begin(stream, generation, true);
        let window = self.window_of(id);
        self.outbox.push_back((stream, Message::Open { generation, window, client, server }));
        Ok(id)
    }

    /// Accepts an offered lane. One that is over by now is let be.
    pub fn accept(&mut self, id: LaneId) {
        let window = self.window_of(id);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.stage == Stage::Offered && !lane.is_over() {
            lane.stage = Stage::Open;
            let message = Message::Accepted { generation: lane.generation, window };
            self.outbox.push_back((lane.stream, message));
        }
    }

    /// Refuses an offered lane, and forgets it.
    pub fn refuse(&mut self, id: LaneId, reason: Refusal) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.stage == Stage::Offered && !lane.is_over() {
            (lane.has_sent_end, lane.has_got_end) = (true, true);
            let message = Message::Refused { generation: lane.generation, reason };
            self.outbox.push_back((lane.stream, message));
            self.settle(id);
        }
        self.release(id);
    }

    /// Forgets a lane. One that is not over is reset. Later bytes are thrown away: its window counts no more, however late the peer
    /// answers.
    pub fn release(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.is_gone) else { return };
        self.waiting -= lane.waiting();
        lane.note_change(id, &mut self.changed);
        lane.is_gone = true;
        lane.inbox.clear();
        self.windows -= std::mem::take(&mut lane.inbox.window);
        if lane.is_over() {
            return self.remove(id);
        }
        lane.has_sent_end = true;
        self.outbox.push_back((lane.stream, Message::Reset { generation: lane.generation }));
        self.settle(id);
    }

    /// The next thing read from a lane.
    pub fn recv(&mut self, id: LaneId) -> Option<Received> {
        let lane = self.lanes.get_mut(&id)?;
        if let Some(bytes) = lane.inbox.pop() {
            lane.note_change(id, &mut self.changed);
            return Some(Received::Data(bytes));
        }
        std::mem::take(&mut lane.inbox.has_unread_end).then_some(Received::End)
    }

    /// The program of the lane does not take what came: that lets go of the memory that it shares with other messages.
    pub fn keep(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.inbox.keep();
            lane.note_change(id, &mut self.changed);
        }
    }

    /// Does so for lanes whose bytes have waited since the last call, and names them: the driver may hold some of these bytes. To be
    /// called from time to time. Bytes can keep at most the arrivals between two calls from others' memory.
    pub fn keep_what_waits(&mut self) -> Vec<LaneId> {
        let mut kept = Vec::new();
        self.sharing.retain(|id| {
            let Some(lane) = self.lanes.get_mut(id) else { return false };
            let look = lane.inbox.look();
            lane.note_change(*id, &mut self.changed);
            if look == Look::Kept {
                kept.push(*id);
            }
            look == Look::Again
        });
        kept
    }

    /// The program took bytes that were read from the lane.
    pub fn on_consumed(&mut self, id: LaneId, bytes: usize) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.is_gone) else { return };
        let before = lane.waiting();
        if lane.inbox.consume(bytes) && lane.is_receiving() {
            self.credits.insert(id);
        }
        self.waiting -= before - lane.waiting();
        lane.note_change(id, &mut self.changed);
    }

    /// The stream on which a lane's bytes are sent.
    pub fn stream(&self, id: LaneId) -> Option<u16> {
        self.lanes.get(&id).map(|lane| lane.stream)
    }

    /// Bytes that the lane may send now.
    pub fn send_room(&self, id: LaneId) -> usize {
        let sends = |lane: &&Lane| lane.stage == Stage::Open && !lane.has_sent_end;
        self.lanes.get(&id).filter(sends).map_or(0, |lane| lane.sending.room())
    }

    /// The driver has sent bytes of the lane, within [`send_room`](Self::send_room), as a message of its own.
    pub fn on_data_sent(&mut self, id: LaneId, bytes: usize) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.sending.sent += bytes as u64;
        }
    }

    /// The driver has sent the end of the lane's bytes.
    pub fn on_end_sent(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.has_sent_end = true;
            self.settle(id);
        }
    }

    /// The lane has bytes and no room to send them: the peer is told, and [`LaneEvent::Writable`] follows.
    pub fn on_stopped(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let limit = lane.sending.limit;
        if lane.stage == Stage::Open && !lane.has_sent_end && lane.sending.stopped_at != Some(limit) {
            lane.sending.stopped_at = Some(limit);
            self.outbox.push_back((lane.stream, Message::Blocked { generation: lane.generation, limit }));
        }
    }

    /// Widens the windows of lanes whose peer was stopped and whose program keeps up. To be called when programs have been
    /// given what came.
    pub fn widen_windows(&mut self) {
        while let Some(id) = self.stopped.pop_first() {
            let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.is_receiving()) else { continue };
            let more = lane.inbox.widen(self.spare);
            self.windows += more;
            self.spare -= more;
            if more > 0 {
                self.credits.insert(id);
            }
        }
    }

    /// Returns the next message to send: stream, payload protocol identifier and bytes; the same until
    /// [`on_out_sent`](Self::on_out_sent). Ordered, and before any bytes of lanes.
    pub fn next_out(&mut self) -> Option<(u16, u32, Bytes)> {
        if self.outbox.is_empty() {
            // A lane that has ended meanwhile needs none.
            let lane = loop {
                let id = self.credits.pop_first()?;
                if let Some(lane) = self.lanes.get(&id).filter(|lane| lane.is_receiving()) {
                    break lane;
                }
            };
            let (generation, limit) = (lane.generation, lane.inbox.granted);
            self.outbox.push_back((lane.stream, Message::Credit { generation, limit }));
        }
        let (stream, message) = self.outbox.front()?;
        let (ppid, bytes) = message.write();
        Some((*stream, ppid, bytes))
    }

    /// The association took what [`next_out`](Self::next_out) gave.
    pub fn on_out_sent(&mut self) {
        self.outbox.pop_front();
        if self.outbox.is_empty() {
            self.outbox.shrink_to(OUTBOX_KEPT);
        }
    }

    /// Reports whether anything is to be sent.
    pub fn has_out(&self) -> bool {
        !self.outbox.is_empty() || !self.credits.is_empty()
    }

    /// Reports whether [`widen_windows`](Self::widen_windows) has anything to look at.
    pub fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<(LaneId, LaneEvent)> {
        self.events.pop_front()
    }

    /// A message came, in `pieces`; `is_whole` unless they are only a part of it.
    ///
    /// # Errors
    /// See [`TrunkFault`]: the association is to be aborted, and every lane with it.
    pub fn on_message(
        &mut self,
        stream: u16,
        ppid: u32,
        pieces: impl IntoIterator<Item = Bytes>,
        is_whole: bool,
    ) -> Result<(), TrunkFault> {
        if self.outbox.len() > OUTBOX_MAX {
            return Err(TrunkFault::Deaf);
        }
        if ppid == crate::PPID_DATA {
            return pieces.into_iter().try_for_each(|piece| self.on_data(stream, piece));
        }
        let malformed = |what| TrunkFault::Malformed { stream, what };
        let mut bytes = BytesMut::new();
        for piece in pieces {
            bytes.extend_from_slice(&piece);
            if bytes.len() > CONTROL_MAX {
                return Err(malformed(Malformed::TooLong { length: bytes.len() }));
            }
        }
        if !is_whole {
            return Err(malformed(Malformed::TooLong { length: bytes.len() }));
        }
        let message = Message::parse(ppid, bytes.freeze()).map_err(malformed)?;
        self.on_control(stream, message)
    }

    fn on_control(&mut self, stream: u16, message: Message) -> Result<(), TrunkFault> {
        match message {
            Message::Hello { version, lanes } => self.on_hello(stream, version, lanes),
            Message::Open { generation, window, client, server } => {
                self.on_open(stream, generation, window, client, server)
            }
            Message::Accepted { generation, window } => self.on_accepted(stream, generation, window),
            Message::Refused { generation, reason } => self.on_refused(stream, generation, reason),
            Message::Data(bytes) => self.on_data(stream, bytes),
            Message::End => self.on_end(stream),
            Message::Credit { generation, limit } => self.on_credit(stream, generation, limit),
            Message::Blocked { generation, .. } => self.on_blocked(stream, generation),
            Message::Reset { generation } => self.on_reset(stream, generation),
        }
    }

    fn on_hello(&mut self, stream: u16, version: u8, lanes: u16) -> Result<(), TrunkFault> {
        if stream != GREETING || self.allowed.is_some() {
            return Err(TrunkFault::Unexpected { stream, kind: "a greeting" });
        }
        if version != VERSION {
            return Err(TrunkFault::Version(version));
        }
        self.allowed = Some(lanes);
        Ok(())
    }

    fn on_open(
        &mut self,
        stream: u16,
        generation: Generation,
        window: u32,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<(), TrunkFault> {
        let is_used = self.slots.get(&stream).is_some_and(|s| s.lane.is_some() || s.generation == generation);
        if stream == GREETING || self.is_ours(stream) || stream >= TRUNK_STREAMS || is_used {
            return Err(TrunkFault::Unexpected { stream, kind: "the opening of a connection" });
        }
        // Each stream has one lane, so there are never more than are allowed.
        self.theirs += 1;
        let id = self.begin(stream, generation, false);
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.sending.limit = u64::from(window);
        }
        self.events.push_back((id, LaneEvent::Offered { client, server }));
        Ok(())
    }

    fn on_accepted(&mut self, stream: u16, generation: Generation, window: u32) -> Result<(), TrunkFault> {
        let Some((id, lane)) = self.named(stream, generation, "an acceptance")? else { return Ok(()) };
        if lane.stage != Stage::Opening {
            return Err(TrunkFault::Unexpected { stream, kind: "an acceptance" });
        }
        lane.stage = Stage::Open;
        lane.sending.limit = u64::from(window);
        if !lane.is_gone {
            self.events.push_back((id, LaneEvent::Accepted));
        }
        Ok(())
    }

    fn on_refused(&mut self, stream: u16, generation: Generation, reason: Refusal) -> Result<(), TrunkFault> {
        let Some((id, lane)) = self.named(stream, generation, "a refusal")? else { return Ok(()) };
        if lane.stage != Stage::Opening {
            return Err(TrunkFault::Unexpected { stream, kind: "a refusal" });
        }
        (lane.has_sent_end, lane.has_got_end) = (true, true);
        if !lane.is_gone {
            self.events.push_back((id, LaneEvent::Refused(reason)));
        }
        self.settle(id);
        Ok(())
    }

    fn on_data(&mut self, stream: u16, bytes: Bytes) -> Result<(), TrunkFault> {
        let unexpected = TrunkFault::Unexpected { stream, kind: "data" };
        let id = self.lane_on(stream).ok_or(unexpected)?;
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(unexpected) };
        if lane.stage != Stage::Open || lane.has_got_end {
            return Err(unexpected);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let length = bytes.len();
        if !lane.inbox.push(bytes) {
            return Err(TrunkFault::Overrun { stream, granted: lane.inbox.granted });
        }
        if lane.is_gone {
            lane.inbox.clear();
        } else {
            if lane.inbox.begins_to_share() {
                self.sharing.push(id);
            }
            self.waiting += length;
            lane.note_change(id, &mut self.changed);
            self.events.push_back((id, LaneEvent::Readable));
        }
        Ok(())
    }

    fn on_end(&mut self, stream: u16) -> Result<(), TrunkFault> {
        let unexpected = TrunkFault::Unexpected { stream, kind: "an end" };
        let id = self.lane_on(stream).ok_or(unexpected)?;
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(unexpected) };
        if lane.stage != Stage::Open || lane.has_got_end {
            return Err(unexpected);
        }
        lane.has_got_end = true;
        if !lane.is_gone {
            lane.inbox.has_unread_end = true;
            self.events.push_back((id, LaneEvent::Readable));
        }
        self.settle(id);
        Ok(())
    }

    fn on_credit(&mut self, stream: u16, generation: Generation, limit: u64) -> Result<(), TrunkFault> {
        let Some((id, lane)) = self.named(stream, generation, "credit")? else { return Ok(()) };
        lane.sending.limit = lane.sending.limit.max(limit);
        if !lane.is_gone && lane.sending.stopped_at.is_some_and(|stopped| stopped < limit) {
            lane.sending.stopped_at = None;
            self.events.push_back((id, LaneEvent::Writable));
        }
        Ok(())
    }

    fn on_blocked(&mut self, stream: u16, generation: Generation) -> Result<(), TrunkFault> {
        if let Some((id, lane)) = self.named(stream, generation, "a word of being stopped")?
            && lane.is_receiving()
        {
            self.stopped.insert(id);
        }
        Ok(())
    }

    fn on_reset(&mut self, stream: u16, generation: Generation) -> Result<(), TrunkFault> {
        let Some((id, lane)) = self.named(stream, generation, "a reset")? else { return Ok(()) };
        lane.has_got_end = true;
        let answer = Message::Reset { generation: lane.generation };
        let is_first = !std::mem::replace(&mut lane.has_sent_end, true);
        if !lane.is_gone {
            self.events.push_back((id, LaneEvent::Reset));
        }
        if is_first {
            self.outbox.push_back((stream, answer));
        }
        self.settle(id);
        Ok(())
    }

    /// The lane that a message on this stream means. None if it means an earlier one, which is over.
    fn named(
        &mut self,
        stream: u16,
        generation: Generation,
        kind: &'static str,
    ) -> Result<Option<(LaneId, &mut Lane)>, TrunkFault> {
        let slot = self.slots.get(&stream).ok_or(TrunkFault::Unexpected { stream, kind })?;
        let Some(id) = slot.lane.filter(|_| slot.generation == generation) else { return Ok(None) };
        Ok(self.lanes.get_mut(&id).map(|lane| (id, lane)))
    }

    fn lane_on(&self, stream: u16) -> Option<LaneId> {
        self.slots.get(&stream)?.lane
    }

    fn is_ours(&self, stream: u16) -> bool {
        (stream % 2 == 1) == (self.side == Side::Initiator)
    }

    fn window_of(&self, id: LaneId) -> u32 {
        let window = self.lanes.get(&id).map_or(0, |lane| lane.inbox.window);
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    fn begin(&mut self, stream: u16, generation: Generation, is_ours: bool) -> LaneId {
        self.last += 1;
        let id = LaneId(self.last);
        let window = self.spare.clamp(WINDOW_LEAST, WINDOW_START);
        self.windows += window;
        self.spare = self.spare.saturating_sub(window);
        self.lanes.insert(id, Lane::new(stream, generation, is_ours, window));
        self.slots.insert(stream, Slot { generation, lane: Some(id) });
        id
    }

    /// If the lane is over its stream is free, whoever still reads from it.
    fn settle(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get(&id).filter(|lane| lane.is_over()) else { return };
        let (stream, is_ours, is_gone) = (lane.stream, lane.is_ours, lane.is_gone);
        let Some(slot) = self.slots.get_mut(&stream).filter(|slot| slot.lane == Some(id)) else { return };
        slot.lane = None;
        if is_ours {
            self.free.insert(stream);
            self.ours -= 1;
        } else {
            self.theirs -= 1;
        }
        if is_gone {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.remove(&id) {
            self.windows -= lane.inbox.window;
            self.waiting -= lane.waiting();
            self.lanes_memory -= lane.counted;
            self.credits.remove(&id);
            self.stopped.remove(&id);
        }
    }

    /// Recounts everything that is counted; panics if a count is wrong. For tests and fuzzing.
    pub fn check_invariants(&self) {
        let windows: usize = self.lanes.values().map(|lane| lane.inbox.window).sum();
        assert_eq!(windows, self.windows, "the sum of the windows");
        let waiting: usize = self.lanes.values().map(Lane::waiting).sum();
        assert_eq!(waiting, self.waiting, "bytes that wait");
        let memory: usize = self.lanes.values().map(|lane| lane.counted).sum();
        assert_eq!(memory, self.lanes_memory, "memory of lanes");
        let mut unchanged = self.lanes.iter().filter(|(id, _)| !self.changed.contains(id));
        assert!(
            unchanged.all(|(_, lane)| lane.counted == lane.memory()),
            "memory of a lane that did not change"
        );
        let running = |ours: bool| {
            let count =
                self.slots.iter().filter(|(s, slot)| slot.lane.is_some() && self.is_ours(**s) == ours);
            count.count()
        };
        assert_eq!((running(true), running(false)), (self.ours.into(), self.theirs.into()), "lanes that run");
        for (stream, slot) in &self.slots {
            let lane = slot.lane.map(|id| &self.lanes[&id]);
            let is_free = lane.is_none();
            assert!(lane.is_none_or(|lane| lane.stream == *stream && !lane.is_over()), "a lane's stream");
            assert_eq!(is_free && self.is_ours(*stream), self.free.contains(stream), "free streams of ours");
        }
        for lane in self.lanes.values() {
            let inbox = &lane.inbox;
            assert!(inbox.consumed <= inbox.received && inbox.received <= inbox.granted, "{inbox:?}");
            assert!(lane.is_gone || inbox.granted <= inbox.consumed + inbox.window as u64, "{inbox:?}");
            assert!(!lane.is_gone || inbox.window == 0, "{inbox:?}");
            assert!(lane.sending.sent <= lane.sending.limit, "{:?}", lane.sending);
        }
    }
}

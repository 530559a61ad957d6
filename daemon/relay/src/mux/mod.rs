//! Many connections on one association between two shims: each is a *channel*, a pair of streams of one number.
//!
//! A [`Mux`] is one end. Its driver owns the association: it hands over every message that came ([`Mux::on_message`]),
//! sends what the shared association has to say ([`Mux::next_out`]), and lets each channel's bytes flow through a
//! [`Relay`](crate::Relay) as it would with an association of its own, but for two things: a channel sends no more than the
//! peer has granted ([`Mux::send_room`]), and its orderly end is that both ends were announced, not a SHUTDOWN.
//!
//! An association has one receive window for all its streams, so a program that does not read would stop all others. The
//! driver therefore takes every message off the association at once, and the shared association bounds what waits for each program by
//! credit: a window per channel, which doubles when the sender has more to send and the program keeps up.
//!
//! Streams are used again. The first channel of a stream may begin another one when it has sent its last word and got the
//! peer's; numbers of generations tell what belongs to which. The end that began the association opens channels on odd
//! streams, the other on even ones, so that the two never meet. Stream 0 is for both ends' greetings.
//!
//! Refuses, by an error that means the end of the whole shared association, what a peer of this version never sends
//! ([`MuxFault`]). Invariants: what waits of one channel is at most its window; the sum of the windows is known
//! ([`Mux::windows`]); at most [`CHANNELS_MAX`] channels are opened by each end. `docs/shared-association.md` has the messages. Begin at
//! [`Mux::open`] and [`Mux::on_message`].

mod channel;
mod message;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use channel::{Channel, Look, Stage};
pub use channel::{WINDOW_LEAST, WINDOW_MAX, WINDOW_START};
pub use message::{CONTROL_MAX, Generation, Malformed, Message, Refusal, VERSION};

/// Channels that one end may have open at once.
pub const CHANNELS_MAX: u16 = 8_192;
/// Streams that a shared association needs in each direction.
pub const SHARED_STREAMS: u16 = 2 * CHANNELS_MAX + 1;
/// Messages that may wait to be sent: each channel has at most an opening, a word of credit and a last word at once, and what
/// came before may still wait.
const OUTBOX_MAX: usize = 8 * CHANNELS_MAX as usize;
/// Places that an outbox keeps once it is empty.
const OUTBOX_KEPT: usize = 64;

/// The stream of the greetings.
const GREETING: u16 = 0;

/// Which end of the association this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It began the association, and opens channels on odd streams.
    Initiator,
    /// It opens channels on even streams.
    Acceptor,
}

/// One end's name for a channel; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId(u64);

/// Event of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelEvent {
    /// A program of the peer's host connects: [`Mux::accept`] or [`Mux::refuse`] it.
    Offered {
        /// Its address.
        client: SocketAddr,
        /// Destination of the connection.
        server: SocketAddr,
    },
    /// The peer has accepted.
    Accepted,
    /// The peer has refused. The channel is over.
    Refused(Refusal),
    /// There is something to read.
    Readable,
    /// More may be sent, after [`Mux::on_stopped`].
    Writable,
    /// The peer has reset it; what came before may still be read.
    Reset,
}

/// Something read from a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// Bytes, never none.
    Data(Bytes),
    /// The peer's program has ended its sending. Nothing follows.
    End,
}

/// Why a shared association cannot go on: the peer sent what none of this version sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MuxFault {
    /// A message that cannot be read.
    #[error("stream {stream}: {what}")]
    Malformed {
        /// The channel on which it arrived.
        stream: u16,
        /// The fault.
        what: Malformed,
    },
    /// A message that has no place there and then.
    #[error("stream {stream}: unexpected {kind}")]
    Unexpected {
        /// The channel on which it arrived.
        stream: u16,
        /// Its kind.
        kind: &'static str,
    },
    /// More bytes than were granted.
    #[error("stream {stream}: more than the {granted} bytes that were granted")]
    Overrun {
        /// The channel on which they arrived.
        stream: u16,
        /// Bytes granted from the beginning of the connection.
        granted: u64,
    },
    /// A version of the messages that this end does not speak.
    #[error("the peer uses version {0} of the shared-association protocol, this end uses version {VERSION}")]
    Version(u8),
    /// The peer makes us say more than it listens to.
    #[error("{OUTBOX_MAX} messages wait for the peer")]
    Deaf,
}

/// Why a channel cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The peer has not greeted yet.
    #[error("the peer has not greeted yet")]
    NotReady,
    /// As many as the peer allows are open.
    #[error("the association carries {0} connections, its limit")]
    TooMany(u16),
    /// Addresses of two families.
    #[error("client and server have different address families")]
    Families,
}

/// A stream that was used.
#[derive(Debug, Default)]
struct Slot {
    generation: Generation,
    /// The channel that uses it now.
    channel: Option<ChannelId>,
}

/// One end of a shared association.
#[derive(Debug)]
pub struct Mux {
    side: Side,
    /// Number of channels that the peer allows us, once it has greeted.
    allowed: Option<u16>,
    slots: BTreeMap<u16, Slot>,
    /// Streams of ours that were used, and are free.
    free: BTreeSet<u16>,
    /// The next of our streams that was never used.
    fresh: u16,
    channels: BTreeMap<ChannelId, Channel>,
    last: u64,
    /// Channels that are not over, opened by us and by the peer.
    ours: u16,
    theirs: u16,
    outbox: VecDeque<(u16, Message)>,
    /// Channels whose peer is to hear what it was granted.
    credits: BTreeSet<ChannelId>,
    /// Channels whose peer has more to send than it may.
    stopped: BTreeSet<ChannelId>,
    /// Channels with bytes that share memory with other messages.
    sharing: Vec<ChannelId>,
    events: VecDeque<(ChannelId, ChannelEvent)>,
    windows: usize,
    spare: usize,
    /// Bytes that came and were not taken.
    waiting: usize,
    /// Bytes of memory that channels were last seen to take, and those whose part may have changed since.
    channels_memory: usize,
    changed: Vec<ChannelId>,
}

impl Mux {
    /// One end of an association that is up and has [`SHARED_STREAMS`] streams each way. The greeting is ready to be sent.
    pub fn new(side: Side) -> Mux {
        let hello = Message::Hello { version: VERSION, channels: CHANNELS_MAX };
        Mux {
            side,
            allowed: None,
            slots: BTreeMap::new(),
            free: BTreeSet::new(),
            fresh: if side == Side::Initiator { 1 } else { 2 },
            channels: BTreeMap::new(),
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
            channels_memory: 0,
            changed: Vec::new(),
        }
    }

    /// Reports whether the peer has greeted, so that channels may be opened.
    pub fn is_ready(&self) -> bool {
        self.allowed.is_some()
    }

    /// Channels that are not over, or not let go of.
    pub fn channels(&self) -> usize {
        self.channels.len()
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
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            self.channels_memory -= channel.counted;
            self.channels_memory += channel.count();
        }
        self.channels_memory + self.outbox.capacity() * size_of::<(u16, Message)>()
    }

    /// Says how many bytes [`windows`](Self::windows) may still grow. Each channel gets [`WINDOW_LEAST`] in any case.
    pub fn set_spare(&mut self, bytes: usize) {
        self.spare = bytes;
    }

    /// Opens a channel for a program's connection; [`ChannelEvent::Accepted`], `Refused` or `Reset` follows.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&mut self, client: SocketAddr, server: SocketAddr) -> Result<ChannelId, OpenError> {
        let allowed = self.allowed.ok_or(OpenError::NotReady)?.min(CHANNELS_MAX);
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

    /// Accepts an offered channel. One that is over by now is let be.
    pub fn accept(&mut self, id: ChannelId) {
        let window = self.window_of(id);
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if channel.stage == Stage::Offered && !channel.is_over() {
            channel.stage = Stage::Open;
            let message = Message::Accepted { generation: channel.generation, window };
            self.outbox.push_back((channel.stream, message));
        }
    }

    /// Refuses an offered channel, and forgets it.
    pub fn refuse(&mut self, id: ChannelId, reason: Refusal) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if channel.stage == Stage::Offered && !channel.is_over() {
            (channel.has_sent_end, channel.has_got_end) = (true, true);
            let message = Message::Refused { generation: channel.generation, reason };
            self.outbox.push_back((channel.stream, message));
            self.settle(id);
        }
        self.release(id);
    }

    /// Forgets a channel. One that is not over is reset. Later bytes are thrown away: its window counts no more, however late the peer
    /// answers.
    pub fn release(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id).filter(|channel| !channel.is_gone) else { return };
        self.waiting -= channel.waiting();
        channel.note_change(id, &mut self.changed);
        channel.is_gone = true;
        channel.inbox.clear();
        self.windows -= std::mem::take(&mut channel.inbox.window);
        if channel.is_over() {
            return self.remove(id);
        }
        channel.has_sent_end = true;
        self.outbox.push_back((channel.stream, Message::Reset { generation: channel.generation }));
        self.settle(id);
    }

    /// The next thing read from a channel.
    pub fn recv(&mut self, id: ChannelId) -> Option<Received> {
        let channel = self.channels.get_mut(&id)?;
        if let Some(bytes) = channel.inbox.pop() {
            channel.note_change(id, &mut self.changed);
            return Some(Received::Data(bytes));
        }
        std::mem::take(&mut channel.inbox.has_unread_end).then_some(Received::End)
    }

    /// The program of the channel does not take what came: that lets go of the memory that it shares with other messages.
    pub fn keep(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.inbox.keep();
            channel.note_change(id, &mut self.changed);
        }
    }

    /// Does so for channels whose bytes have waited since the last call, and names them: the driver may hold some of these bytes. To be
    /// called from time to time. Bytes can keep at most the arrivals between two calls from others' memory.
    pub fn keep_what_waits(&mut self) -> Vec<ChannelId> {
        let mut kept = Vec::new();
        self.sharing.retain(|id| {
            let Some(channel) = self.channels.get_mut(id) else { return false };
            let look = channel.inbox.look();
            channel.note_change(*id, &mut self.changed);
            if look == Look::Kept {
                kept.push(*id);
            }
            look == Look::Again
        });
        kept
    }

    /// The program took bytes that were read from the channel.
    pub fn on_consumed(&mut self, id: ChannelId, bytes: usize) {
        let Some(channel) = self.channels.get_mut(&id).filter(|channel| !channel.is_gone) else { return };
        let before = channel.waiting();
        if channel.inbox.consume(bytes) && channel.is_receiving() {
            self.credits.insert(id);
        }
        self.waiting -= before - channel.waiting();
        channel.note_change(id, &mut self.changed);
    }

    /// The stream on which a channel's bytes are sent.
    pub fn stream(&self, id: ChannelId) -> Option<u16> {
        self.channels.get(&id).map(|channel| channel.stream)
    }

    /// Bytes that the channel may send now.
    pub fn send_room(&self, id: ChannelId) -> usize {
        let sends = |channel: &&Channel| channel.stage == Stage::Open && !channel.has_sent_end;
        self.channels.get(&id).filter(sends).map_or(0, |channel| channel.sending.room())
    }

    /// The driver has sent bytes of the channel, within [`send_room`](Self::send_room), as a message of its own.
    pub fn on_data_sent(&mut self, id: ChannelId, bytes: usize) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.sending.sent += bytes as u64;
        }
    }

    /// The driver has sent the end of the channel's bytes.
    pub fn on_end_sent(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.has_sent_end = true;
            self.settle(id);
        }
    }

    /// The channel has bytes and no room to send them: the peer is told, and [`ChannelEvent::Writable`] follows.
    pub fn on_stopped(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let limit = channel.sending.limit;
        if channel.stage == Stage::Open && !channel.has_sent_end && channel.sending.stopped_at != Some(limit)
        {
            channel.sending.stopped_at = Some(limit);
            self.outbox
                .push_back((channel.stream, Message::Blocked { generation: channel.generation, limit }));
        }
    }

    /// Widens the windows of channels whose peer was stopped and whose program keeps up. To be called when programs have been
    /// given what came.
    pub fn widen_windows(&mut self) {
        while let Some(id) = self.stopped.pop_first() {
            let Some(channel) = self.channels.get_mut(&id).filter(|channel| channel.is_receiving()) else {
                continue;
            };
            let more = channel.inbox.widen(self.spare);
            self.windows += more;
            self.spare -= more;
            if more > 0 {
                self.credits.insert(id);
            }
        }
    }

    /// Returns the next message to send: stream, payload protocol identifier and bytes; the same until
    /// [`on_out_sent`](Self::on_out_sent). Ordered, and before any bytes of channels.
    pub fn next_out(&mut self) -> Option<(u16, u32, Bytes)> {
        if self.outbox.is_empty() {
            // A channel that has ended meanwhile needs none.
            let channel = loop {
                let id = self.credits.pop_first()?;
                if let Some(channel) = self.channels.get(&id).filter(|channel| channel.is_receiving()) {
                    break channel;
                }
            };
            let (generation, limit) = (channel.generation, channel.inbox.granted);
            self.outbox.push_back((channel.stream, Message::Credit { generation, limit }));
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
    pub fn poll_event(&mut self) -> Option<(ChannelId, ChannelEvent)> {
        self.events.pop_front()
    }

    /// A message came, in `pieces`; `is_whole` unless they are only a part of it.
    ///
    /// # Errors
    /// See [`MuxFault`]: the association is to be aborted, and every channel with it.
    pub fn on_message(
        &mut self,
        stream: u16,
        ppid: u32,
        pieces: impl IntoIterator<Item = Bytes>,
        is_whole: bool,
    ) -> Result<(), MuxFault> {
        if self.outbox.len() > OUTBOX_MAX {
            return Err(MuxFault::Deaf);
        }
        if ppid == crate::PPID_DATA {
            return pieces.into_iter().try_for_each(|piece| self.on_data(stream, piece));
        }
        let malformed = |what| MuxFault::Malformed { stream, what };
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

    fn on_control(&mut self, stream: u16, message: Message) -> Result<(), MuxFault> {
        match message {
            Message::Hello { version, channels } => self.on_hello(stream, version, channels),
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

    fn on_hello(&mut self, stream: u16, version: u8, channels: u16) -> Result<(), MuxFault> {
        if stream != GREETING || self.allowed.is_some() {
            return Err(MuxFault::Unexpected { stream, kind: "a greeting" });
        }
        if version != VERSION {
            return Err(MuxFault::Version(version));
        }
        self.allowed = Some(channels);
        Ok(())
    }

    fn on_open(
        &mut self,
        stream: u16,
        generation: Generation,
        window: u32,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<(), MuxFault> {
        let is_used =
            self.slots.get(&stream).is_some_and(|s| s.channel.is_some() || s.generation == generation);
        if stream == GREETING || self.is_ours(stream) || stream >= SHARED_STREAMS || is_used {
            return Err(MuxFault::Unexpected { stream, kind: "the opening of a connection" });
        }
        // Each stream has one channel, so there are never more than are allowed.
        self.theirs += 1;
        let id = self.begin(stream, generation, false);
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.sending.limit = u64::from(window);
        }
        self.events.push_back((id, ChannelEvent::Offered { client, server }));
        Ok(())
    }

    fn on_accepted(&mut self, stream: u16, generation: Generation, window: u32) -> Result<(), MuxFault> {
        let Some((id, channel)) = self.named(stream, generation, "an acceptance")? else { return Ok(()) };
        if channel.stage != Stage::Opening {
            return Err(MuxFault::Unexpected { stream, kind: "an acceptance" });
        }
        channel.stage = Stage::Open;
        channel.sending.limit = u64::from(window);
        if !channel.is_gone {
            self.events.push_back((id, ChannelEvent::Accepted));
        }
        Ok(())
    }

    fn on_refused(&mut self, stream: u16, generation: Generation, reason: Refusal) -> Result<(), MuxFault> {
        let Some((id, channel)) = self.named(stream, generation, "a refusal")? else { return Ok(()) };
        if channel.stage != Stage::Opening {
            return Err(MuxFault::Unexpected { stream, kind: "a refusal" });
        }
        (channel.has_sent_end, channel.has_got_end) = (true, true);
        if !channel.is_gone {
            self.events.push_back((id, ChannelEvent::Refused(reason)));
        }
        self.settle(id);
        Ok(())
    }

    fn on_data(&mut self, stream: u16, bytes: Bytes) -> Result<(), MuxFault> {
        let unexpected = MuxFault::Unexpected { stream, kind: "data" };
        let id = self.channel_on(stream).ok_or(unexpected)?;
        let Some(channel) = self.channels.get_mut(&id) else { return Err(unexpected) };
        if channel.stage != Stage::Open || channel.has_got_end {
            return Err(unexpected);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let length = bytes.len();
        if !channel.inbox.push(bytes) {
            return Err(MuxFault::Overrun { stream, granted: channel.inbox.granted });
        }
        if channel.is_gone {
            channel.inbox.clear();
        } else {
            if channel.inbox.begins_to_share() {
                self.sharing.push(id);
            }
            self.waiting += length;
            channel.note_change(id, &mut self.changed);
            self.events.push_back((id, ChannelEvent::Readable));
        }
        Ok(())
    }

    fn on_end(&mut self, stream: u16) -> Result<(), MuxFault> {
        let unexpected = MuxFault::Unexpected { stream, kind: "an end" };
        let id = self.channel_on(stream).ok_or(unexpected)?;
        let Some(channel) = self.channels.get_mut(&id) else { return Err(unexpected) };
        if channel.stage != Stage::Open || channel.has_got_end {
            return Err(unexpected);
        }
        channel.has_got_end = true;
        if !channel.is_gone {
            channel.inbox.has_unread_end = true;
            self.events.push_back((id, ChannelEvent::Readable));
        }
        self.settle(id);
        Ok(())
    }

    fn on_credit(&mut self, stream: u16, generation: Generation, limit: u64) -> Result<(), MuxFault> {
        let Some((id, channel)) = self.named(stream, generation, "credit")? else { return Ok(()) };
        channel.sending.limit = channel.sending.limit.max(limit);
        if !channel.is_gone && channel.sending.stopped_at.is_some_and(|stopped| stopped < limit) {
            channel.sending.stopped_at = None;
            self.events.push_back((id, ChannelEvent::Writable));
        }
        Ok(())
    }

    fn on_blocked(&mut self, stream: u16, generation: Generation) -> Result<(), MuxFault> {
        if let Some((id, channel)) = self.named(stream, generation, "a word of being stopped")?
            && channel.is_receiving()
        {
            self.stopped.insert(id);
        }
        Ok(())
    }

    fn on_reset(&mut self, stream: u16, generation: Generation) -> Result<(), MuxFault> {
        let Some((id, channel)) = self.named(stream, generation, "a reset")? else { return Ok(()) };
        channel.has_got_end = true;
        let answer = Message::Reset { generation: channel.generation };
        let is_first = !std::mem::replace(&mut channel.has_sent_end, true);
        if !channel.is_gone {
            self.events.push_back((id, ChannelEvent::Reset));
        }
        if is_first {
            self.outbox.push_back((stream, answer));
        }
        self.settle(id);
        Ok(())
    }

    /// The channel that a message on this stream means. None if it means an earlier one, which is over.
    fn named(
        &mut self,
        stream: u16,
        generation: Generation,
        kind: &'static str,
    ) -> Result<Option<(ChannelId, &mut Channel)>, MuxFault> {
        let slot = self.slots.get(&stream).ok_or(MuxFault::Unexpected { stream, kind })?;
        let Some(id) = slot.channel.filter(|_| slot.generation == generation) else { return Ok(None) };
        Ok(self.channels.get_mut(&id).map(|channel| (id, channel)))
    }

    fn channel_on(&self, stream: u16) -> Option<ChannelId> {
        self.slots.get(&stream)?.channel
    }

    fn is_ours(&self, stream: u16) -> bool {
        (stream % 2 == 1) == (self.side == Side::Initiator)
    }

    fn window_of(&self, id: ChannelId) -> u32 {
        let window = self.channels.get(&id).map_or(0, |channel| channel.inbox.window);
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    fn begin(&mut self, stream: u16, generation: Generation, is_ours: bool) -> ChannelId {
        self.last += 1;
        let id = ChannelId(self.last);
        let window = self.spare.clamp(WINDOW_LEAST, WINDOW_START);
        self.windows += window;
        self.spare = self.spare.saturating_sub(window);
        self.channels.insert(id, Channel::new(stream, generation, is_ours, window));
        self.slots.insert(stream, Slot { generation, channel: Some(id) });
        id
    }

    /// If the channel is over its stream is free, whoever still reads from it.
    fn settle(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get(&id).filter(|channel| channel.is_over()) else { return };
        let (stream, is_ours, is_gone) = (channel.stream, channel.is_ours, channel.is_gone);
        let Some(slot) = self.slots.get_mut(&stream).filter(|slot| slot.channel == Some(id)) else { return };
        slot.channel = None;
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

    fn remove(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.remove(&id) {
            self.windows -= channel.inbox.window;
            self.waiting -= channel.waiting();
            self.channels_memory -= channel.counted;
            self.credits.remove(&id);
            self.stopped.remove(&id);
        }
    }

    /// Recounts everything that is counted; panics if a count is wrong. For tests and fuzzing.
    pub fn check_invariants(&self) {
        let windows: usize = self.channels.values().map(|channel| channel.inbox.window).sum();
        assert_eq!(windows, self.windows, "the sum of the windows");
        let waiting: usize = self.channels.values().map(Channel::waiting).sum();
        assert_eq!(waiting, self.waiting, "bytes that wait");
        let memory: usize = self.channels.values().map(|channel| channel.counted).sum();
        assert_eq!(memory, self.channels_memory, "memory of channels");
        let mut unchanged = self.channels.iter().filter(|(id, _)| !self.changed.contains(id));
        assert!(
            unchanged.all(|(_, channel)| channel.counted == channel.memory()),
            "memory of a channel that did not change"
        );
        let running = |ours: bool| {
            let count =
                self.slots.iter().filter(|(s, slot)| slot.channel.is_some() && self.is_ours(**s) == ours);
            count.count()
        };
        assert_eq!(
            (running(true), running(false)),
            (self.ours.into(), self.theirs.into()),
            "channels that run"
        );
        for (stream, slot) in &self.slots {
            let channel = slot.channel.map(|id| &self.channels[&id]);
            let is_free = channel.is_none();
            assert!(
                channel.is_none_or(|channel| channel.stream == *stream && !channel.is_over()),
                "a channel's stream"
            );
            assert_eq!(is_free && self.is_ours(*stream), self.free.contains(stream), "free streams of ours");
        }
        for channel in self.channels.values() {
            let inbox = &channel.inbox;
            assert!(inbox.consumed <= inbox.received && inbox.received <= inbox.granted, "{inbox:?}");
            assert!(channel.is_gone || inbox.granted <= inbox.consumed + inbox.window as u64, "{inbox:?}");
            assert!(!channel.is_gone || inbox.window == 0, "{inbox:?}");
            assert!(channel.sending.sent <= channel.sending.limit, "{:?}", channel.sending);
        }
    }
}

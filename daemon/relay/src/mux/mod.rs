//! Carries many connections over one association between two shims. Each connection is a *channel*: a pair of streams with the same number.
//!
//! A [`Mux`] is one end. Its driver owns the association. The driver hands over every received message ([`Mux::on_message`]), and sends the
//! messages of the shared association ([`Mux::next_out`]). The driver moves the bytes of each channel through a [`Relay`](crate::Relay), as
//! on a separate association, with two differences. A channel sends no more than the peer has granted ([`Mux::send_room`]). A channel ends
//! in order when both sides have announced the end of their bytes, without a SHUTDOWN.
//!
//! An association has one receive window for all its streams, so one program that does not read would stop all other programs. The driver
//! therefore takes every message from the association at once. Credit limits the bytes that wait for each program: each channel has a
//! window. The window doubles if the sender has more data and the program keeps up.
//!
//! Streams are reused. A stream is free for another channel when its current channel is over: each end has sent END, RESET or REFUSED.
//! Generation numbers assign each message to the right channel. The end that began the association opens channels on odd streams, and the
//! other end opens channels on even streams. The two ends therefore never open channels on the same stream. Stream 0 carries the greetings
//! of both ends.
//!
//! A message that a peer of this version never sends is an error ([`MuxFault`]), which ends the whole shared association. Invariants:
//!
//! - The bytes that wait on one channel never exceed its window.
//! - The sum of all windows is known ([`Mux::windows`]).
//! - Each end has up to [`CHANNELS_MAX`] channels open.
//!
//! `docs/shared-association.md` describes the messages. Begin at [`Mux::open`] and [`Mux::on_message`].

mod channel;
mod message;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use channel::{Channel, Look, Stage};
pub use channel::{WINDOW_LEAST, WINDOW_MAX, WINDOW_START};
pub use message::{CONTROL_MAX, Generation, Malformed, Message, Refusal, VERSION};

/// Limit on the channels that one end may have open at once.
pub const CHANNELS_MAX: u16 = 8_192;
/// Number of streams that a shared association needs in each direction.
pub const SHARED_STREAMS: u16 = 2 * CHANNELS_MAX + 1;
/// Limit on the messages that wait to be sent. A channel usually has no more than one opening, one CREDIT, one BLOCKED and one last message
/// at a time. The limit is higher, because messages of earlier channels may still wait.
const OUTBOX_MAX: usize = 8 * CHANNELS_MAX as usize;
/// Capacity, in messages, that an outbox keeps once it is empty.
const OUTBOX_KEPT: usize = 64;

/// Stream of the greetings.
const GREETING: u16 = 0;

/// The role of this end in the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// This end began the association, and opens channels on odd streams.
    Initiator,
    /// This end accepted the association, and opens channels on even streams.
    Acceptor,
}

/// Identifier of a channel at one end; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId(u64);

/// Event of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelEvent {
    /// A program of the peer's host requests a connection. The driver must call [`Mux::accept`] or [`Mux::refuse`].
    Offered {
        /// Address of the client.
        client: SocketAddr,
        /// Destination of the connection.
        server: SocketAddr,
    },
    /// The peer has accepted the channel.
    Accepted,
    /// The peer has refused the channel, which is now over.
    Refused(Refusal),
    /// Bytes or the end can be read.
    Readable,
    /// More bytes may be sent, after [`Mux::on_stopped`].
    Writable,
    /// The peer has reset the channel. Bytes that arrived before can still be read.
    Reset,
}

/// Data or the end, read from a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// Bytes; never empty.
    Data(Bytes),
    /// The peer's program has ended its sending. Nothing follows.
    End,
}

/// Reason why a shared association must end: the peer sent something that this version never sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MuxFault {
    /// A message that cannot be decoded.
    #[error("stream {stream}: {what}")]
    Malformed {
        /// The stream on which the message arrived.
        stream: u16,
        /// The fault.
        what: Malformed,
    },
    /// A message that is not allowed on this stream or in this state.
    #[error("stream {stream}: unexpected {kind}")]
    Unexpected {
        /// The stream on which the message arrived.
        stream: u16,
        /// Kind of the message.
        kind: &'static str,
    },
    /// More bytes than were granted.
    #[error("stream {stream}: more than the {granted} bytes that were granted")]
    Overrun {
        /// The stream on which the bytes arrived.
        stream: u16,
        /// Number of bytes granted since the beginning of the connection.
        granted: u64,
    },
    /// A version of the messages that this end does not speak.
    #[error("the peer uses version {0} of the shared-association protocol, this end uses version {VERSION}")]
    Version(u8),
    /// The peer makes this end queue more messages than the peer takes.
    #[error("{OUTBOX_MAX} messages wait for the peer")]
    Deaf,
}

/// Reason why a channel cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The peer's greeting has not arrived yet.
    #[error("the peer has not greeted yet")]
    NotReady,
    /// The peer's limit on open channels is reached.
    #[error("the association carries {0} connections, its limit")]
    TooMany(u16),
    /// The addresses belong to two families.
    #[error("client and server have different address families")]
    Families,
}

/// A stream that has been used.
#[derive(Debug, Default)]
struct Slot {
    generation: Generation,
    /// The channel that currently uses the stream.
    channel: Option<ChannelId>,
}

/// One end of a shared association.
#[derive(Debug)]
pub struct Mux {
    side: Side,
    /// The peer's limit on the channels of this end, once the peer has greeted.
    allowed: Option<u16>,
    slots: BTreeMap<u16, Slot>,
    /// Streams of this end that have been used and are free.
    free: BTreeSet<u16>,
    /// This end's next stream that has never been used.
    fresh: u16,
    channels: BTreeMap<ChannelId, Channel>,
    last: u64,
    /// Number of channels that this end opened and that are not over.
    ours: u16,
    /// Number of channels that the peer opened and that are not over.
    theirs: u16,
    outbox: VecDeque<(u16, Message)>,
    /// Channels whose peer must be informed of new credit.
    credits: BTreeSet<ChannelId>,
    /// Channels whose peer has more data than credit.
    stopped: BTreeSet<ChannelId>,
    /// Channels with bytes that share memory with other messages.
    sharing: Vec<ChannelId>,
    events: VecDeque<(ChannelId, ChannelEvent)>,
    windows: usize,
    spare: usize,
    /// Number of received bytes that programs have not read.
    waiting: usize,
    /// Sum of the channels' memory at their last counts, in bytes.
    channels_memory: usize,
    /// Channels whose memory may have changed since their last count.
    changed: Vec<ChannelId>,
}

impl Mux {
    /// Creates one end of an association that is up and has [`SHARED_STREAMS`] streams each way. The greeting is ready to be sent.
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

    /// Reports whether the peer has greeted, so channels may be opened.
    pub fn is_ready(&self) -> bool {
        self.allowed.is_some()
    }

    /// Returns the number of channels. A channel counts until it is over and the driver has released it.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Returns the sum of all windows: the number of bytes that may wait here.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Returns the number of received bytes that programs have not read.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the memory that the peer makes this end use, in bytes. This memory holds the bytes that [wait](Self::waiting), here and at
    /// the driver, and messages that the peer does not accept.
    pub fn memory(&mut self) -> usize {
        for id in self.changed.drain(..) {
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            self.channels_memory -= channel.counted;
            self.channels_memory += channel.count();
        }
        self.channels_memory + self.outbox.capacity() * size_of::<(u16, Message)>()
    }

    /// Sets the number of bytes by which [`windows`](Self::windows) may still grow. Each channel gets at least [`WINDOW_LEAST`].
    pub fn set_spare(&mut self, bytes: usize) {
        self.spare = bytes;
    }

    /// Opens a channel for a program's connection. [`ChannelEvent::Accepted`], `Refused` or `Reset` follows.
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

    /// Accepts an offered channel. Does nothing if the channel is already over.
    pub fn accept(&mut self, id: ChannelId) {
        let window = self.window_of(id);
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if channel.stage == Stage::Offered && !channel.is_over() {
            channel.stage = Stage::Open;
            let message = Message::Accepted { generation: channel.generation, window };
            self.outbox.push_back((channel.stream, message));
        }
    }

    /// Refuses an offered channel, and releases it.
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

    /// Releases a channel, with a reset if it is not over. Bytes that arrive later are discarded. The channel's window no longer counts in
    /// [`windows`](Self::windows), even if the peer answers later.
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

    /// Returns the next data or the end, read from a channel.
    pub fn recv(&mut self, id: ChannelId) -> Option<Received> {
        let channel = self.channels.get_mut(&id)?;
        if let Some(bytes) = channel.inbox.pop() {
            channel.note_change(id, &mut self.changed);
            return Some(Received::Data(bytes));
        }
        std::mem::take(&mut channel.inbox.has_unread_end).then_some(Received::End)
    }

    /// Copies the channel's unread bytes, because its program does not read them. The copy releases the memory that the unread bytes share
    /// with other messages.
    pub fn keep(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.inbox.keep();
            channel.note_change(id, &mut self.changed);
        }
    }

    /// Copies the unread bytes of each channel whose bytes have waited since the last call. Returns these channels, because the driver may
    /// hold some of the bytes. The driver must call this function periodically. Bytes that are not copied then hold only the memory of
    /// messages that have arrived since the previous call.
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

    /// Notes that the program has taken bytes that were read from the channel.
    pub fn on_consumed(&mut self, id: ChannelId, bytes: usize) {
        let Some(channel) = self.channels.get_mut(&id).filter(|channel| !channel.is_gone) else { return };
        let before = channel.waiting();
        if channel.inbox.consume(bytes) && channel.is_receiving() {
            self.credits.insert(id);
        }
        self.waiting -= before - channel.waiting();
        channel.note_change(id, &mut self.changed);
    }

    /// Returns the stream of a channel's bytes.
    pub fn stream(&self, id: ChannelId) -> Option<u16> {
        self.channels.get(&id).map(|channel| channel.stream)
    }

    /// Returns the number of bytes that the channel may send now.
    pub fn send_room(&self, id: ChannelId) -> usize {
        let sends = |channel: &&Channel| channel.stage == Stage::Open && !channel.has_sent_end;
        self.channels.get(&id).filter(sends).map_or(0, |channel| channel.sending.room())
    }

    /// Notes that the driver has sent bytes of the channel as one message, within [`send_room`](Self::send_room).
    pub fn on_data_sent(&mut self, id: ChannelId, bytes: usize) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.sending.sent += bytes as u64;
        }
    }

    /// Notes that the driver has sent the end of the channel's bytes.
    pub fn on_end_sent(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.has_sent_end = true;
            self.settle(id);
        }
    }

    /// Notes that the channel has bytes but no room to send them. The peer is informed, and [`ChannelEvent::Writable`] follows.
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

    /// Widens the windows of channels whose peer was stopped and whose program keeps up. The driver must call this after it has given
    /// received bytes to the programs.
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

    /// Returns the next message to send: stream, payload protocol identifier and bytes. Returns the same message until
    /// [`on_out_sent`](Self::on_out_sent). The message must be sent in order, before any bytes of channels.
    pub fn next_out(&mut self) -> Option<(u16, u32, Bytes)> {
        if self.outbox.is_empty() {
            // A channel that has ended meanwhile needs no credit.
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

    /// Notes that the association has taken the message that [`next_out`](Self::next_out) returned.
    pub fn on_out_sent(&mut self) {
        self.outbox.pop_front();
        if self.outbox.is_empty() {
            self.outbox.shrink_to(OUTBOX_KEPT);
        }
    }

    /// Reports whether a message is ready to be sent.
    pub fn has_out(&self) -> bool {
        !self.outbox.is_empty() || !self.credits.is_empty()
    }

    /// Reports whether [`widen_windows`](Self::widen_windows) has work to do.
    pub fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<(ChannelId, ChannelEvent)> {
        self.events.pop_front()
    }

    /// Handles a received message in `pieces`. `is_whole` is false if `pieces` are only a part of the message.
    ///
    /// # Errors
    /// See [`MuxFault`]. The caller must abort the association with all its channels.
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
        // Each stream has one channel, so the number of streams also limits the peer's channels to `CHANNELS_MAX`.
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

    /// Returns the channel that a message on this stream addresses, or `None` if it addresses an earlier channel that is over.
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

    /// Frees the stream of the channel if the channel is over, even if its bytes have not all been read.
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

    /// Recounts all counts and panics if one is wrong. For tests and fuzzing.
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

//! A channel of a shared association: its stage, its credit for sending, and its unread bytes.
//!
//! Bytes beyond the granted credit are refused ([`Inbox::push`]). Begin at [`Channel`].

use bytes::Bytes;

use super::ChannelId;
use super::message::Generation;
use crate::pieces::{COPY_MAX, Pieces};

/// Initial window of a channel, in bytes.
pub const WINDOW_START: usize = 256 * 1024;
/// Minimum initial window, in bytes. It applies if the sum of all windows may grow by this number of bytes or less.
pub const WINDOW_LEAST: usize = 16 * 1024;
/// Limit on a channel's window, in bytes. It allows 1 Gbit/s over a round trip of 100 ms.
pub const WINDOW_MAX: usize = 16 << 20;

/// Progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// This end has requested the channel, and the peer has not answered.
    Opening,
    /// The peer has requested the channel, and the driver has not decided.
    Offered,
    /// Bytes may flow.
    Open,
}

/// A channel, which is one connection of a shared association.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) stream: u16,
    pub(super) generation: Generation,
    /// True if this end opened the channel.
    pub(super) is_ours: bool,
    pub(super) stage: Stage,
    /// True if END, RESET or REFUSED was sent or queued.
    pub(super) has_sent_end: bool,
    /// True if the peer's END, RESET or REFUSED has arrived.
    pub(super) has_got_end: bool,
    /// True if the driver has released the channel. Further data is then discarded.
    pub(super) is_gone: bool,
    pub(super) inbox: Inbox,
    /// Value of [`memory`](Self::memory) at the last count.
    pub(super) counted: usize,
    /// True if `counted` may be out of date.
    is_changed: bool,
    pub(super) sending: Sending,
}

impl Channel {
    pub(super) fn new(stream: u16, generation: Generation, is_ours: bool, window: usize) -> Channel {
        Channel {
            stream,
            generation,
            is_ours,
            stage: if is_ours { Stage::Opening } else { Stage::Offered },
            has_sent_end: false,
            has_got_end: false,
            is_gone: false,
            inbox: Inbox::new(window),
            counted: 0,
            is_changed: false,
            sending: Sending::default(),
        }
    }

    /// Reports whether both ends have sent their END, RESET or REFUSED.
    pub(super) fn is_over(&self) -> bool {
        self.has_sent_end && self.has_got_end
    }

    /// Returns the number of bytes that wait for the program.
    pub(super) fn waiting(&self) -> usize {
        if self.is_gone { 0 } else { self.inbox.unconsumed() as usize }
    }

    /// Returns the memory of the waiting bytes in bytes, without memory that they share with other messages.
    pub(super) fn memory(&self) -> usize {
        if self.is_gone { 0 } else { self.inbox.memory() }
    }

    /// Notes that [`counted`](Self::counted) may be out of date. Adds the channel to `changed` unless it is already there.
    pub(super) fn note_change(&mut self, id: ChannelId, changed: &mut Vec<ChannelId>) {
        if !std::mem::replace(&mut self.is_changed, true) {
            changed.push(id);
        }
    }

    /// Counts the memory again, and returns it.
    pub(super) fn count(&mut self) -> usize {
        (self.is_changed, self.counted) = (false, self.memory());
        self.counted
    }

    /// Reports whether the peer may still need credit.
    pub(super) fn is_receiving(&self) -> bool {
        self.stage == Stage::Open && !self.has_got_end && !self.is_gone
    }
}

/// Credit of this end for sending, in bytes.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub(super) sent: u64,
    pub(super) limit: u64,
    /// Limit at which the driver had to stop, as reported to the peer in BLOCKED.
    pub(super) stopped_at: Option<u64>,
}

impl Sending {
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.limit.saturating_sub(self.sent)).unwrap_or(usize::MAX)
    }
}

/// Outcome of [`Inbox::look`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// No bytes wait.
    Nothing,
    /// All bytes that waited at the last look have been read. Later bytes wait.
    Again,
    /// Bytes from before the last look still waited, so all waiting bytes were copied.
    Kept,
}

/// Unread bytes, and the credit of the peer.
///
/// Invariant: `granted` is never more than `consumed` plus `window`.
#[derive(Debug)]
pub(super) struct Inbox {
    pieces: Pieces,
    /// Value of `received` when the program last failed to keep up. Until the program has read this many bytes, arriving bytes are copied.
    slow_until: u64,
    /// Value of `received` at the last [`look`](Self::look), or 0 before the first one; `None` if no look is due.
    seen: Option<u64>,
    /// True if the peer's END has arrived and has not been read.
    pub(super) has_unread_end: bool,
    pub(super) received: u64,
    pub(super) consumed: u64,
    /// Credit granted to the peer, including credit not yet sent.
    pub(super) granted: u64,
    pub(super) window: usize,
    /// Value of `received` when the window last grew.
    widened_at: u64,
}

impl Inbox {
    fn new(window: usize) -> Inbox {
        Inbox {
            pieces: Pieces::default(),
            slow_until: 0,
            seen: None,
            has_unread_end: false,
            received: 0,
            consumed: 0,
            granted: window as u64,
            window,
            widened_at: 0,
        }
    }

    /// Stores received bytes. Returns false if they exceed the granted credit.
    pub(super) fn push(&mut self, piece: Bytes) -> bool {
        let received = self.received + piece.len() as u64;
        if received > self.granted {
            return false;
        }
        self.received = received;
        if self.consumed < self.slow_until {
            self.pieces.push_kept(&piece);
        } else {
            self.pieces.push_or_keep(piece);
        }
        true
    }

    /// Begins to observe bytes that share memory. Returns true if a [`look`](Self::look) is due from now on.
    pub(super) fn begins_to_share(&mut self) -> bool {
        let begins = self.seen.is_none() && self.consumed >= self.slow_until;
        if begins {
            self.seen = Some(0);
        }
        begins
    }

    /// Copies the unread bytes if some of them have waited since the last look.
    pub(super) fn look(&mut self) -> Look {
        let Some(seen) = self.seen.take() else { return Look::Nothing };
        if self.consumed == self.received {
            return Look::Nothing;
        }
        if self.consumed < seen {
            self.keep();
            return Look::Kept;
        }
        self.seen = Some(self.received);
        Look::Again
    }

    /// Copies the unread bytes, because the program does not read them.
    pub(super) fn keep(&mut self) {
        self.slow_until = self.received;
        self.pieces.keep();
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.pieces.pop()
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.has_unread_end = false;
    }

    /// Returns the memory of unread bytes here and at the driver. The driver holds the unread rest of one copied piece, and a separate list
    /// of pieces. This list may take more memory than this function counts, until the waiting bytes are copied.
    fn memory(&self) -> usize {
        let unconsumed = self.unconsumed() as usize;
        let at_driver = unconsumed.saturating_sub(self.pieces.bytes());
        let beside = if unconsumed > 0 { 2 * COPY_MAX } else { 0 };
        self.pieces.memory() + at_driver + beside
    }

    /// Returns the number of bytes that the program has not read.
    fn unconsumed(&self) -> u64 {
        self.received - self.consumed
    }

    /// Records bytes that the program has read. Returns true if the peer must get more credit: the granted credit exceeds the bytes read so
    /// far by half of the window or less.
    pub(super) fn consume(&mut self, bytes: usize) -> bool {
        self.consumed = (self.consumed + bytes as u64).min(self.received);
        let due = self.consumed + self.window as u64;
        let is_worth_telling = due.saturating_sub(self.granted) >= self.window as u64 / 2;
        if is_worth_telling {
            self.granted = due;
        }
        is_worth_telling
    }

    /// Handles a peer that has more data than credit. Doubles the window if half of it or less is unread, and half of it or more has
    /// arrived since the last growth. Adds no more than `spare` bytes. Returns the growth in bytes.
    pub(super) fn widen(&mut self, spare: usize) -> usize {
        let half = self.window as u64 / 2;
        if self.unconsumed() > half || self.received - self.widened_at < half {
            return 0;
        }
        let more = self.window.min(WINDOW_MAX - self.window).min(spare);
        // If the window does not grow, `consume` grants credit as the program reads. Credit that is not sent must not count as granted.
        if more > 0 {
            self.window += more;
            self.widened_at = self.received;
            self.granted = self.granted.max(self.consumed + self.window as u64);
        }
        more
    }
}

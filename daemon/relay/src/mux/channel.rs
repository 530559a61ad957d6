//! One connection on a shared association: how far it has come, what it may send, and what has come and was not read.
//!
//! Begin at [`Channel`].

use bytes::Bytes;

use super::ChannelId;
use super::message::Generation;
use crate::pieces::{COPY_MAX, Pieces};

/// Bytes that the peer may send at first on one connection.
pub const WINDOW_START: usize = 256 * 1024;
/// The same when little is to spare.
pub const WINDOW_LEAST: usize = 16 * 1024;
/// Bytes that may wait to be read of one connection at most: a gigabit over 100 ms.
pub const WINDOW_MAX: usize = 16 << 20;

/// Progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// We have asked the peer to open it.
    Opening,
    /// The peer asks, and the driver has not decided.
    Offered,
    /// Bytes may flow.
    Open,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) stream: u16,
    pub(super) generation: Generation,
    /// True if this end opened it.
    pub(super) is_ours: bool,
    pub(super) stage: Stage,
    /// END, RESET or REFUSED was sent, or is about to be.
    pub(super) has_sent_end: bool,
    /// The peer's END, RESET or REFUSED came.
    pub(super) has_got_end: bool,
    /// True if the driver has released it: further data is discarded.
    pub(super) is_gone: bool,
    pub(super) inbox: Inbox,
    /// Its [`memory`](Self::memory) as it was last counted.
    pub(super) counted: usize,
    /// True if that may have changed.
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

    /// Reports whether both ends have said their last word.
    pub(super) fn is_over(&self) -> bool {
        self.has_sent_end && self.has_got_end
    }

    /// Bytes that wait for the program to take them.
    pub(super) fn waiting(&self) -> usize {
        if self.is_gone { 0 } else { self.inbox.unconsumed() as usize }
    }

    /// Bytes of memory that they take, as far as they share none.
    pub(super) fn memory(&self) -> usize {
        if self.is_gone { 0 } else { self.inbox.memory() }
    }

    /// [`counted`](Self::counted) may be wrong from now on; `changed` has each channel once of which that holds.
    pub(super) fn note_change(&mut self, id: ChannelId, changed: &mut Vec<ChannelId>) {
        if !std::mem::replace(&mut self.is_changed, true) {
            changed.push(id);
        }
    }

    /// Counts the memory anew.
    pub(super) fn count(&mut self) -> usize {
        (self.is_changed, self.counted) = (false, self.memory());
        self.counted
    }

    /// Reports whether the peer is to hear of credit.
    pub(super) fn is_receiving(&self) -> bool {
        self.stage == Stage::Open && !self.has_got_end && !self.is_gone
    }
}

/// Credit of this end.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub(super) sent: u64,
    pub(super) limit: u64,
    /// The limit at which the driver was stopped, and the peer told so.
    pub(super) stopped_at: Option<u64>,
}

impl Sending {
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.limit.saturating_sub(self.sent)).unwrap_or(usize::MAX)
    }
}

/// The outcome of a look at bytes that share memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// None wait.
    Nothing,
    /// Those that waited at the last look were taken; others wait.
    Again,
    /// Some have waited since the last look. They were copied.
    Kept,
}

/// Unread bytes, and the credit of the peer.
///
/// Invariant: the peer is never granted more than what was consumed and the window.
#[derive(Debug)]
pub(super) struct Inbox {
    pieces: Pieces,
    /// The value of `received` when the program was last seen not to keep up: until it has taken so much, what comes will wait.
    slow_until: u64,
    /// The value of `received` at the last look at bytes that share memory, 0 before the first; none while no look is due.
    seen: Option<u64>,
    /// The peer's end came, and was not read.
    pub(super) has_unread_end: bool,
    pub(super) received: u64,
    pub(super) consumed: u64,
    /// Credit that the peer was granted, or is about to be.
    pub(super) granted: u64,
    pub(super) window: usize,
    /// The value of `received` when the window was last widened.
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

    /// Keeps bytes that came; false if they are more than was granted.
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

    /// Reports whether bytes share memory from now on, and are to be [looked at](Self::look).
    pub(super) fn begins_to_share(&mut self) -> bool {
        let begins = self.seen.is_none() && self.consumed >= self.slow_until;
        if begins {
            self.seen = Some(0);
        }
        begins
    }

    /// Sees whether bytes have waited since the last look.
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

    /// The program does not take what came.
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

    /// Some bytes may be at the driver: it has what is left of one copy, and a list of its own, which may be longer than is counted here
    /// until bytes that wait are copied.
    fn memory(&self) -> usize {
        let unconsumed = self.unconsumed() as usize;
        let at_driver = unconsumed.saturating_sub(self.pieces.bytes());
        let beside = if unconsumed > 0 { 2 * COPY_MAX } else { 0 };
        self.pieces.memory() + at_driver + beside
    }

    /// Bytes that the program has not taken.
    fn unconsumed(&self) -> u64 {
        self.received - self.consumed
    }

    /// The program took bytes; whether the peer is to be granted more, which is when half of the window is used up.
    pub(super) fn consume(&mut self, bytes: usize) -> bool {
        self.consumed = (self.consumed + bytes as u64).min(self.received);
        let due = self.consumed + self.window as u64;
        let is_worth_telling = due.saturating_sub(self.granted) >= self.window as u64 / 2;
        if is_worth_telling {
            self.granted = due;
        }
        is_worth_telling
    }

    /// The peer has more than it may send. The window doubles if the peer has used it and the program keeps up with it, by at most
    /// `spare` bytes; returns by how many it grew.
    pub(super) fn widen(&mut self, spare: usize) -> usize {
        let half = self.window as u64 / 2;
        if self.unconsumed() > half || self.received - self.widened_at < half {
            return 0;
        }
        let more = self.window.min(WINDOW_MAX - self.window).min(spare);
        // A window that stays is granted as it is read: what the peer does not hear of must not count as granted.
        if more > 0 {
            self.window += more;
            self.widened_at = self.received;
            self.granted = self.granted.max(self.consumed + self.window as u64);
        }
        more
    }
}

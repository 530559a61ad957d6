//! From TCP to the association: bytes cut into messages, then the end.
//!
//! Takes one read at a time: it asks for bytes only when all earlier ones were sent, so that a slow association
//! stops the TCP sender. Begin at [`Sender::next`].

use bytes::Bytes;

use crate::peer::{PPID_END, Peer};

/// Bytes read from TCP that may wait for the association: the driver reads at most so many at a time.
pub const UNSENT_MAX: usize = 64 * 1024;

/// A message for the association: ordered, on stream 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Payload protocol identifier.
    pub ppid: u32,
    /// The bytes; never empty.
    pub bytes: Bytes,
}

/// How far the application's own sending has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It may send more.
    Open,
    /// It has ended; the association was not told yet.
    Ending,
    /// The association was told.
    Ended,
}

/// The direction from TCP to the association.
#[derive(Debug)]
pub(crate) struct Sender {
    peer: Peer,
    state: State,
    unsent: Bytes,
}

impl Sender {
    pub(crate) fn new(peer: Peer) -> Sender {
        Sender { peer, state: State::Open, unsent: Bytes::new() }
    }

    /// Whether TCP should be read.
    pub(crate) fn wants_bytes(&self) -> bool {
        self.state == State::Open && self.unsent.is_empty()
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether a graceful close now means that something was not sent.
    pub(crate) fn is_cut_by_close(&self) -> bool {
        match self.peer {
            Peer::Shim => self.state != State::Ended,
            Peer::Native => !self.unsent.is_empty(),
        }
    }

    pub(crate) fn take(&mut self, bytes: Bytes) {
        debug_assert!(self.wants_bytes());
        self.unsent = bytes;
    }

    pub(crate) fn end(&mut self) {
        if self.state == State::Open {
            self.state = State::Ending;
        }
        self.end_natively();
    }

    /// The message to send next, of at most `fragment_size` bytes.
    pub(crate) fn next(&self, fragment_size: usize) -> Option<Outgoing> {
        if !self.unsent.is_empty() {
            let length = self.unsent.len().min(fragment_size.max(1));
            return Some(Outgoing { ppid: self.peer.data_ppid(), bytes: self.unsent.slice(..length) });
        }
        let told_by_message = self.peer == Peer::Shim && self.state == State::Ending;
        told_by_message.then(|| Outgoing { ppid: PPID_END, bytes: Bytes::from_static(&[0]) })
    }

    /// The message that [`next`](Self::next) gave was taken; it had `length` bytes.
    pub(crate) fn sent(&mut self, length: usize) {
        if self.unsent.is_empty() {
            self.state = State::Ended;
            return;
        }
        let _ = self.unsent.split_to(length.min(self.unsent.len()));
        self.end_natively();
    }

    /// A native peer is told by SHUTDOWN, which needs no message.
    fn end_natively(&mut self) {
        if self.peer == Peer::Native && self.state == State::Ending && self.unsent.is_empty() {
            self.state = State::Ended;
        }
    }
}

//! From TCP to the association: bytes cut into messages, or messages found among them, then the end.
//!
//! Takes one read at a time: it asks for bytes only when all earlier ones were sent, so that a slow association
//! stops the TCP sender. Begin at [`Sender::next`].

use std::collections::VecDeque;

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

/// Progress of the application's own sending.
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
    /// Bytes, or whole messages where these are wanted.
    unsent: VecDeque<Bytes>,
    sends_whole: bool,
}

impl Sender {
    /// `sends_whole`: what it is given are messages, each of which is to be sent as one.
    pub(crate) fn new(peer: Peer, sends_whole: bool) -> Sender {
        Sender { peer, state: State::Open, unsent: VecDeque::new(), sends_whole }
    }

    /// Reports whether TCP should be read.
    pub(crate) fn wants_bytes(&self) -> bool {
        self.state == State::Open && self.unsent.is_empty()
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.iter().map(Bytes::len).sum()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Reports whether a graceful close now means that something was not sent.
    pub(crate) fn is_cut_by_close(&self) -> bool {
        match self.peer {
            Peer::Shim => self.state != State::Ended,
            Peer::Native => !self.unsent.is_empty(),
        }
    }

    pub(crate) fn take(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.unsent.push_back(bytes);
        }
    }

    pub(crate) fn end(&mut self) {
        if self.state == State::Open {
            self.state = State::Ending;
        }
        self.end_natively();
    }

    /// The message to send next, of at most `fragment_size` bytes unless it is sent whole.
    pub(crate) fn next(&self, fragment_size: usize) -> Option<Outgoing> {
        if let Some(first) = self.unsent.front() {
            let length = if self.sends_whole { first.len() } else { first.len().min(fragment_size.max(1)) };
            return Some(Outgoing { ppid: self.peer.data_ppid(), bytes: first.slice(..length) });
        }
        let told_by_message = self.peer == Peer::Shim && self.state == State::Ending;
        told_by_message.then(|| Outgoing { ppid: PPID_END, bytes: Bytes::from_static(&[0]) })
    }

    /// The message that [`next`](Self::next) gave was taken; it had `length` bytes.
    pub(crate) fn sent(&mut self, length: usize) {
        let Some(first) = self.unsent.front_mut() else {
            self.state = State::Ended;
            return;
        };
        let _ = first.split_to(length.min(first.len()));
        if first.is_empty() {
            self.unsent.pop_front();
        }
        self.end_natively();
    }

    /// A native peer is told by SHUTDOWN, which needs no message.
    fn end_natively(&mut self) {
        if self.peer == Peer::Native && self.state == State::Ending && self.unsent.is_empty() {
            self.state = State::Ended;
        }
    }
}

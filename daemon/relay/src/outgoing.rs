//! The direction from TCP to the association: divides bytes into messages, or sends the messages that a framing has found. The end of the
//! bytes follows.
//!
//! The sender takes one read at a time. It requests bytes only when all earlier bytes were sent, so a slow association stops the TCP
//! sender. Begin at [`Sender::next`].

use std::collections::VecDeque;

use bytes::Bytes;

use crate::peer::{PPID_END, Peer};

/// Limit on the bytes read from TCP that wait for the association. One read of the driver takes no more than this number of bytes.
pub const UNSENT_MAX: usize = 64 * 1024;

/// A message for the association. It is sent in order, on stream 0 of a separate association or on the stream of the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Payload protocol identifier.
    pub ppid: u32,
    /// The bytes; never empty.
    pub bytes: Bytes,
}

/// Progress of the application's sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The application may send more.
    Open,
    /// The application has ended; the association has not been informed yet.
    Ending,
    /// The association has been informed.
    Ended,
}

/// The direction from TCP to the association.
#[derive(Debug)]
pub(crate) struct Sender {
    peer: Peer,
    state: State,
    /// Bytes, or whole messages if `sends_whole` is set.
    unsent: VecDeque<Bytes>,
    sends_whole: bool,
}

impl Sender {
    /// Creates the sender. With `sends_whole`, the sender gets whole messages, and sends each of them as one SCTP message.
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

    /// Reports whether bytes, or the end message to a shim, would remain unsent if the association closed gracefully now.
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

    /// Returns the message to send next. Without `sends_whole`, the message has up to `fragment_size` bytes.
    pub(crate) fn next(&self, fragment_size: usize) -> Option<Outgoing> {
        if let Some(first) = self.unsent.front() {
            let length = if self.sends_whole { first.len() } else { first.len().min(fragment_size.max(1)) };
            return Some(Outgoing { ppid: self.peer.data_ppid(), bytes: first.slice(..length) });
        }
        let told_by_message = self.peer == Peer::Shim && self.state == State::Ending;
        told_by_message.then(|| Outgoing { ppid: PPID_END, bytes: Bytes::from_static(&[0]) })
    }

    /// Notes that the association has taken the message of `length` bytes that [`next`](Self::next) returned.
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

    /// Ends the sending to a native peer. SHUTDOWN informs such a peer of the end, so no message is sent.
    fn end_natively(&mut self) {
        if self.peer == Peer::Native && self.state == State::Ending && self.unsent.is_empty() {
            self.state = State::Ended;
        }
    }
}

//! Common interface of all SCTP engines in the scenarios.

use std::time::Duration;

use bytes::Bytes;

/// Virtual time since the start of the scenario.
pub(crate) type Now = Duration;

/// Reliability of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    /// Abandoned after this number of retransmissions.
    Retransmissions(u16),
    /// Abandoned after this time.
    Lifetime(Duration),
}

/// A message to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) stream: u16,
    pub(crate) unordered: bool,
    pub(crate) effort: Effort,
    pub(crate) bytes: Bytes,
}

/// An end's view of its association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// Not started, or in the handshake.
    Opening,
    /// Up, or shutting down.
    Up,
    /// Ended by SHUTDOWN.
    Graceful,
    /// Ended by ABORT, or because the peer no longer answers.
    Broken,
}

/// Features that each engine requests if it supports them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) partial_reliability: bool,
    pub(crate) interleaving: bool,
    pub(crate) zero_checksum: bool,
    pub(crate) stream_reset: bool,
    /// Size of the receive buffer, in bytes.
    pub(crate) receive_buffer: u32,
}

/// An engine with up to one association.
pub(crate) trait Stack {
    fn connect(&mut self, now: Now);
    fn handle(&mut self, now: Now, packet: &[u8]);
    /// Returns the time at which [`tick`](Self::tick) is due, or `None` if no timer runs.
    fn timeout(&self) -> Option<Now>;
    fn tick(&mut self, now: Now);
    fn transmit(&mut self, now: Now) -> Vec<Vec<u8>>;
    /// Sends a message. Returns false if the engine cannot accept the message yet.
    fn send(&mut self, now: Now, message: &Message) -> bool;
    /// Returns the stream and the bytes of the next received message.
    fn recv(&mut self, now: Now) -> Option<(u16, Vec<u8>)>;
    /// Resets an outgoing stream.
    fn reset(&mut self, now: Now, stream: u16);
    fn shutdown(&mut self, now: Now);
    fn abort(&mut self, now: Now);
    fn end(&self) -> End;
}

/// Our engine, or one of the other engines. `docs/differences.md` identifies each engine by its
/// [`name`](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Ours,
    Dcsctp,
    SctpProto,
    RtcSctp,
}

impl Who {
    pub(crate) const OTHERS: [Who; 3] = [Who::Dcsctp, Who::SctpProto, Who::RtcSctp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Who::Ours => "ours",
            Who::Dcsctp => "dcsctp",
            Who::SctpProto => "sctp-proto",
            Who::RtcSctp => "rtc-sctp",
        }
    }

    pub(crate) fn stack(self, features: Features, seed: u8) -> Box<dyn Stack> {
        match self {
            Who::Ours => Box::new(crate::ours::Ours::new(features, seed)),
            Who::Dcsctp => Box::new(crate::dcsctp_stack::Dcsctp::new(features)),
            Who::SctpProto => Box::new(crate::webrtc::proto::Peer::new(features)),
            Who::RtcSctp => Box::new(crate::webrtc::rtc::Peer::new(features)),
        }
    }
}

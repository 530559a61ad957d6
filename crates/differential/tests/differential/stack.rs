//! What a scenario needs of an SCTP engine, whoever wrote it.

use std::time::Duration;

use bytes::Bytes;

/// Time since the beginning of the scenario.
pub(crate) type Now = Duration;

/// How far to go for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    /// Sent again so often at most.
    Retransmissions(u16),
    /// Given up after this.
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

/// How an end sees its association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// Not begun, or the handshake is under way.
    Opening,
    /// Up, or on its way down.
    Up,
    /// Over, by SHUTDOWN.
    Graceful,
    /// Over, by ABORT or for a loss of contact.
    Broken,
}

/// What all engines can be asked for, as far as they have it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) partial_reliability: bool,
    pub(crate) interleaving: bool,
    pub(crate) zero_checksum: bool,
    pub(crate) stream_reset: bool,
    /// Bytes.
    pub(crate) receive_buffer: u32,
}

/// An engine with at most one association.
pub(crate) trait Stack {
    fn connect(&mut self, now: Now);
    fn handle(&mut self, now: Now, packet: &[u8]);
    /// When [`tick`](Self::tick) is due.
    fn timeout(&self) -> Option<Now>;
    fn tick(&mut self, now: Now);
    fn transmit(&mut self, now: Now) -> Vec<Vec<u8>>;
    /// Hands a message over; false if there is no room yet.
    fn send(&mut self, now: Now, message: &Message) -> bool;
    /// The next message received: its stream and bytes.
    fn recv(&mut self, now: Now) -> Option<(u16, Vec<u8>)>;
    /// Has the numbers of an outgoing stream begin anew.
    fn reset(&mut self, now: Now, stream: u16);
    fn shutdown(&mut self, now: Now);
    fn abort(&mut self, now: Now);
    fn end(&self) -> End;
}

/// The engines of others, by the names they have in `docs/differences.md`, and ours.
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

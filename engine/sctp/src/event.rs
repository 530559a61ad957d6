//! Events from the engine to its driver, and inputs of the driver.

use std::time::Duration;

use base::Route;
use bytes::Bytes;
use smallvec::SmallVec;
use wire::{Cause, Ppid, StreamId};

use crate::endpoint::AssociationId;
use crate::extension::asconf::AddressChange;
use crate::extension::reconfig::{ReconfigOutcome, StreamDirection};
use crate::extension::send_buffer::PeerSendBuffer;
use crate::info::PathState;

/// An event of an association.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Event {
    /// A valid COOKIE ECHO of a peer has come. The association waits for [`accept`](crate::Endpoint::accept) or
    /// [`refuse`](crate::Endpoint::refuse). The COOKIE ACK is withheld until then.
    #[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
    Incoming {
        /// Route of the COOKIE ECHO.
        route: Route,
        /// Our SCTP port.
        local_port: u16,
        /// The peer's SCTP port.
        remote_port: u16,
        /// The peer's Adaptation Layer Indication.
        adaptation: Option<u32>,
    },
    /// The association is up. Data can flow in both directions.
    #[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
    Established {
        /// The path of the handshake.
        route: Route,
        /// The peer's Adaptation Layer Indication.
        adaptation: Option<u32>,
        /// Number of streams on which we may send.
        outbound_streams: u16,
        /// Number of streams on which the peer may send.
        inbound_streams: u16,
    },
    /// A message of the peer about keys ([`KEY_PPID`](crate::KEY_PPID)), if both ends have agreed on protection. The driver
    /// answers with [`send_key_message`](crate::Endpoint::send_key_message).
    KeyMessage {
        /// The message.
        message: Bytes,
        /// False if the message came in the clear, before keys were in use. Anyone may have sent it.
        sealed: bool,
    },
    /// Messages of the application can now be sent and received. All packets are sealed with the keys of this epoch, only
    /// sealed packets are accepted, and the caller knows the peer.
    Protected {
        /// The epoch.
        epoch: u64,
    },
    /// The caller should install new keys. The current keys have sealed a quarter of the permitted records, or have reached an
    /// age of 60 to 90 minutes.
    KeysWorn,
    /// [`recv`](crate::Endpoint::recv) has a message again, after it had none.
    Readable,
    /// The send buffer has room again, after [`send`](crate::Endpoint::send) refused a message or
    /// [`notify_when_writable`](crate::Endpoint::notify_when_writable) requested the event.
    Writable,
    /// A path changed its state.
    PathChanged {
        /// The path.
        route: Route,
        /// State of the path before.
        from: PathState,
        /// State of the path now.
        to: PathState,
        /// The cause.
        reason: PathReason,
    },
    /// New data now uses another path.
    PathSwitched {
        /// The path used until now.
        from: Route,
        /// The path used from now on.
        to: Route,
        /// The cause.
        reason: PathReason,
    },
    /// The MTU of a path has changed. Either smaller packets are sent from now on, or probes have shown that larger packets
    /// arrive (RFC 8899).
    PathMtu {
        /// The path.
        route: Route,
        /// MTU before, in bytes of an IP packet.
        from: u16,
        /// MTU now, in bytes of an IP packet.
        to: u16,
    },
    /// The peer's UDP port has changed, because a NAT on the path has changed it (RFC 6951). The answer to a heartbeat has
    /// confirmed the new port.
    PeerPort {
        /// The path until now.
        from: Route,
        /// The path from now on.
        to: Route,
    },
    /// The peer has answered a change of our addresses that the driver asked for (RFC 5061).
    AddressChange {
        /// The requested change.
        change: AddressChange,
        /// The peer's cause code if the peer refused the change (RFC 5061 section 4.3); `None` if the change is done. After a
        /// refusal, the address is used as before the request.
        refusal: Option<u16>,
    },
    /// The peer's addresses have changed at its request (RFC 5061).
    PeerAddressChange(AddressChange),
    /// Streams were reset (RFC 6525): their messages are numbered from 0 again. If a request of the driver has failed, the
    /// event reports the failure.
    StreamReset {
        /// Direction of the streams, seen from this end.
        direction: StreamDirection,
        /// The streams. An empty list means all streams.
        streams: Vec<StreamId>,
        /// The outcome.
        outcome: ReconfigOutcome,
    },
    /// All streams and the TSNs were reset (RFC 6525). If a request of the driver has failed, the event reports the failure.
    AssociationReset {
        /// The next TSN of this end.
        local_tsn: u32,
        /// The next TSN of the peer.
        remote_tsn: u32,
        /// The outcome.
        outcome: ReconfigOutcome,
    },
    /// Streams were added (RFC 6525). If a request of the driver has failed, the event reports the failure.
    StreamsChanged {
        /// Number of streams on which we may send now.
        outbound_streams: u16,
        /// Number of streams on which the peer may send now.
        inbound_streams: u16,
        /// The outcome.
        outcome: ReconfigOutcome,
    },
    /// The peer advertises a new state of its send buffer. The event occurs only if
    /// [advertisements](crate::AssociationConfig::advertisement) are on. The engine itself does not use the state.
    PeerSendBuffer(PeerSendBuffer),
    /// Messages were abandoned, as their [`Reliability`] permits.
    Abandoned {
        /// Number of abandoned messages without a sent part.
        unsent: u64,
        /// Number of abandoned messages with a sent part. The peer may have received some of them completely.
        sent: u64,
    },
    /// All messages given to [`send`](crate::Endpoint::send) are acknowledged or abandoned.
    /// [`notify_when_dry`](crate::Endpoint::notify_when_dry) requests this event.
    Dry,
    /// The peer has sent SHUTDOWN, and sends no more data. Data that arrived before the SHUTDOWN can still be read.
    PeerShutdown,
    /// The association has ended. Data that arrived before the end can still be read. Afterwards the driver must
    /// [`release`](crate::Endpoint::release) the association.
    Closed(CloseReason),
}

/// Reason for a change of a path's state, or for the move of data to another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum PathReason {
    /// The peer has answered on the path. As the reason for a move of data: other paths had failed, and the new path was the
    /// first on which the peer was heard.
    Answer,
    /// Data or a heartbeat was not answered within the retransmission timeout (RFC 9260 sections 8.2 and 8.3).
    Timeout,
    /// The path was silent while the peer answered on another path ([`Timing::doubts_silence`](crate::Timing::doubts_silence)).
    Silence,
    /// The path lost too much of its data.
    Loss {
        /// Percentage of chunks that were lost.
        percent: u64,
    },
    /// The path became slow.
    Delay {
        /// Time that the path would have needed to deliver its data in flight.
        delay: Duration,
    },
    /// ICMP reported that the peer cannot be reached on the path.
    Unreachable(Unreachable),
    /// This host could not send on the path, because the path's link, local address or route is gone.
    NoRoute,
    /// The driver reported that the link is down ([`set_local_link`](crate::Endpoint::set_local_link)).
    LinkDown,
    /// An address of the path was removed from the association (RFC 5061).
    AddressRemoved,
    /// The primary path has worked again for the required time ([`Timing::primary_return`](crate::Timing::primary_return)).
    PrimaryReturned,
    /// The path works, and the uses of its addresses rank it before the path used until now
    /// ([`AddressUse`](crate::AddressUse)).
    Preferred,
    /// Another path was made the primary one, by [`set_primary`](crate::Endpoint::set_primary) or at the peer's request.
    PrimaryChosen,
}

/// Reason for the end of an association.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum CloseReason {
    /// SHUTDOWN was completed: all data of both ends was delivered.
    Graceful,
    /// The peer sent ABORT.
    PeerAborted(AbortCause),
    /// This end has ended the association: the driver requested the end, or the peer violated the protocol. The peer gets an
    /// ABORT if it may have state of the association.
    Aborted(AbortCause),
    /// INIT or COOKIE ECHO was not answered.
    NoAnswer,
    /// The host that answered INIT already has this association with the same ports, by another of its addresses. The peer has
    /// no state of the attempt.
    SamePeer(AssociationId),
    /// Before the association was up, ICMP reported that the peer cannot be reached.
    Unreachable(Unreachable),
    /// The peer can no longer be reached. Either too many consecutive timeouts have occurred
    /// ([`association_max_retrans`](crate::Timing::association_max_retrans)), or ICMP has reported on the last working path
    /// that the protocol or port is unreachable.
    LostContact,
    /// The peer restarted and began a new association in place of this one.
    Restarted,
}

/// The error cause of an ABORT: the cause's code (RFC 9260 section 3.3.10), and its text if the cause has one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AbortCause {
    /// Cause code; 0 if the ABORT had no cause.
    pub code: u16,
    /// Upper Layer Abort Reason, or the text of a protocol violation. Received causes of other kinds have no text.
    pub reason: Bytes,
}

/// A message that was received, or that [`take_unsent`](crate::Endpoint::take_unsent) has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Stream of the message.
    pub stream: StreamId,
    /// Payload protocol identifier.
    pub ppid: Ppid,
    /// True if the message was sent unordered.
    pub unordered: bool,
    /// True for the beginning of the message. In a partial delivery (RFC 6458 section 6.1.7), it is false for the later parts.
    /// A message is delivered in parts if the receive window has no room for the whole message. The message may be longer than
    /// the window, much other data may wait behind a gap or a stream reset, or memory may be short.
    pub begin: bool,
    /// True for the end of the message.
    pub end: bool,
    /// True if the sender abandoned the message after parts of it were delivered. The part with this flag is the last one, and
    /// is empty. The driver should discard the earlier parts.
    pub aborted: bool,
    /// The bytes, in pieces that are as long as possible without copying. A piece shares memory with other pieces that were
    /// received at about the same time, and keeps this memory allocated. Data that is kept for long should be copied.
    pub pieces: SmallVec<[Bytes; 2]>,
}

impl Message {
    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Reports whether the message has no bytes. A received part is empty only if it is the last part of an aborted message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes in one piece. If the message has several pieces, the bytes are copied.
    pub fn into_bytes(mut self) -> Bytes {
        if self.pieces.len() == 1 {
            return self.pieces.remove(0);
        }
        self.pieces.concat().into()
    }
}

/// Options for sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SendOptions {
    /// True if the message is delivered without regard to the order of the stream.
    pub unordered: bool,
    /// Effort for the delivery. If [`Extension::PartialReliability`](crate::Extension::PartialReliability) was not negotiated,
    /// every message is delivered regardless of this setting.
    pub reliability: Reliability,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Effort for the delivery of a message before it is abandoned (RFC 3758, RFC 7496).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reliability {
    /// The message is never abandoned.
    #[default]
    Full,
    /// The message is abandoned when this time has passed since [`send`](crate::Endpoint::send). It is then neither sent nor
    /// retransmitted.
    Lifetime(Duration),
    /// The message is abandoned when the number of retransmissions of one of its chunks would exceed this number.
    Retransmissions(u32),
    /// The message is abandoned when a message with a lower number needs its room in the send buffer.
    Priority(u32),
}

/// A report by ICMP, or by the kernel itself, about a packet that we sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The packet could not be delivered.
    Unreachable(Unreachable),
    /// The packet has not left this host, and later packets on its route cannot leave either: the link or the address has gone.
    /// The quote of the packet must be complete.
    NoRoute,
    /// The packet is too long for the path, and the report gives the path's MTU. The given MTU is a hint. The engine uses it
    /// only after a probe of that size has been answered (RFC 8899 section 4.6.2).
    TooBig {
        /// MTU in bytes, IP header included.
        mtu: u16,
    },
    /// The answer to [`Transmit::asks_for_queue`](crate::Transmit::asks_for_queue). Nothing has failed, but packets are waiting
    /// in this host.
    LocalQueue {
        /// Waiting bytes, as the kernel counts them.
        bytes: usize,
    },
}

/// The unreachable destination. ICMP and ICMPv6 distinguish no other destinations that matter to SCTP (RFC 9260 section 10), so
/// a `match` may be exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The network or the host.
    Host,
    /// The protocol: the peer does not support SCTP.
    Protocol,
    /// The UDP port: no program listens for encapsulated SCTP.
    Port,
    /// A filter on the path rejects the packets.
    Prohibited,
}

impl AbortCause {
    /// Creates a cause with this code (RFC 9260 section 3.3.10) and the bytes that follow the code. Code 0 means an ABORT
    /// without a cause.
    pub fn new(code: u16, reason: impl Into<Bytes>) -> AbortCause {
        AbortCause { code, reason: reason.into() }
    }

    /// Creates a User-Initiated Abort (RFC 9260 section 3.3.10.12) with `reason`.
    pub fn user(reason: impl Into<Bytes>) -> AbortCause {
        AbortCause { code: Cause::UserInitiatedAbort(&[]).code(), reason: reason.into() }
    }

    /// Converts a received error cause.
    pub(crate) fn from_wire(cause: &Cause<'_>) -> AbortCause {
        let reason = match cause {
            Cause::UserInitiatedAbort(text) | Cause::ProtocolViolation(text) => Bytes::copy_from_slice(text),
            _ => Bytes::new(),
        };
        AbortCause { code: cause.code(), reason }
    }
}

//! Events from the engine to its caller, and the caller's input.

use std::time::Duration;

use base::Route;
use bytes::Bytes;
use smallvec::SmallVec;
use wire::{Cause, Ppid, StreamId};

use crate::extension::asconf::AddressChange;
use crate::extension::reconfig::{ReconfigOutcome, StreamDirection};
use crate::extension::send_buffer::PeerSendBuffer;
use crate::info::PathState;

/// Something that happened to an association.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Event {
    /// A peer's COOKIE ECHO was good: the association waits for [`accept`](crate::Endpoint::accept) or
    /// [`refuse`](crate::Endpoint::refuse). The COOKIE ACK is held back until then.
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
    /// The association is up: data flows both ways.
    #[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
    Established {
        /// The path that the handshake took.
        route: Route,
        /// The peer's Adaptation Layer Indication.
        adaptation: Option<u32>,
        /// Streams we may send on.
        outbound_streams: u16,
        /// Streams the peer may send on.
        inbound_streams: u16,
    },
    /// A message of the peer about keys, where protection is agreed on ([`KEY_PPID`](crate::KEY_PPID)). The caller answers by
    /// [`send_key_message`](crate::Endpoint::send_key_message).
    KeyMessage {
        /// The message.
        message: Bytes,
        /// False if it came in the clear, before there were keys: anybody may have sent it.
        sealed: bool,
    },
    /// All packets are sealed by the keys of this epoch, only sealed ones count, and the caller knows the peer: messages of the application
    /// pass.
    Protected {
        /// The epoch.
        epoch: u64,
    },
    /// The keys have sealed a quarter of what they may: new ones are due.
    KeysWorn,
    /// [`recv`](crate::Endpoint::recv) has something, after it had nothing.
    Readable,
    /// The send buffer has room again, after [`send`](crate::Endpoint::send) had refused.
    Writable,
    /// A path changed its state.
    PathChanged {
        /// Which path.
        route: Route,
        /// Its state before.
        from: PathState,
        /// Its state now.
        to: PathState,
        /// The cause.
        reason: PathReason,
    },
    /// New data now travels by another path.
    PathSwitched {
        /// The path used until now.
        from: Route,
        /// The path used from now on.
        to: Route,
        /// The cause.
        reason: PathReason,
    },
    /// The MTU of a path changed: smaller packets are sent from now on, or larger ones were proven to arrive (RFC 8899).
    PathMtu {
        /// Which path.
        route: Route,
        /// Bytes of IP packet before.
        from: u16,
        /// Bytes of IP packet now.
        to: u16,
    },
    /// The peer's UDP port is another now, as a heartbeat has proven (RFC 6951): a NAT between has changed it.
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
        /// The cause code by which the peer refused (RFC 5061 section 4.3); `None`: it is done. A refused address is in
        /// use as it was before.
        refusal: Option<u16>,
    },
    /// The peer's addresses have changed at its wish (RFC 5061).
    PeerAddressChange(AddressChange),
    /// Streams were reset (RFC 6525): their messages are numbered from 0 again. Or they were not, though the driver had
    /// wished it.
    StreamReset {
        /// Which way they go, seen from here.
        direction: StreamDirection,
        /// The streams; none means all.
        streams: Vec<StreamId>,
        /// The outcome.
        outcome: ReconfigOutcome,
    },
    /// All streams and the TSNs were reset (RFC 6525), or were not, though the driver had wished it.
    AssociationReset {
        /// The next TSN used here.
        local_tsn: u32,
        /// The next TSN used by the peer.
        remote_tsn: u32,
        /// The outcome.
        outcome: ReconfigOutcome,
    },
    /// Streams were added (RFC 6525), or were not, though the driver had wished it.
    StreamsChanged {
        /// Streams we may send on now.
        outbound_streams: u16,
        /// Streams the peer may send on now.
        inbound_streams: u16,
        /// The outcome.
        outcome: ReconfigOutcome,
    },
    /// The peer says something new of its send buffer. It changes nothing; only where advertisements are on.
    PeerSendBuffer(PeerSendBuffer),
    /// Messages were given up, as their [`Reliability`] says.
    Abandoned {
        /// Messages of which nothing had been sent.
        unsent: u64,
        /// Messages of which at least a part had been sent; the peer may have got some of them whole.
        sent: u64,
    },
    /// All that was handed to [`send`](crate::Endpoint::send) is acknowledged or given up, as
    /// [`notify_when_dry`](crate::Endpoint::notify_when_dry) asked to be told.
    Dry,
    /// The peer will send no more data (it sent SHUTDOWN); what it sent before can be read.
    PeerShutdown,
    /// The association is over. Data received before can still be read; then
    /// [`release`](crate::Endpoint::release) it.
    Closed(CloseReason),
}

/// Why a path changed its state, or data moved to another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum PathReason {
    /// The peer has answered on the path, or was heard there first after others had failed.
    Answer,
    /// Data or a heartbeat was not answered within the retransmission timeout (RFC 9260 sections 8.2 and 8.3).
    Timeout,
    /// The path was silent while the peer answered on another one ([`Timing::doubts_silence`](crate::Timing::doubts_silence)).
    Silence,
    /// The path lost too much of its data.
    Loss {
        /// Chunks of hundred that were lost.
        percent: u64,
    },
    /// The path became slow.
    Delay {
        /// Time in which it would have delivered its data in flight.
        delay: Duration,
    },
    /// ICMP said that nobody can be reached by the path.
    Unreachable(Unreachable),
    /// This host could not send by the path: its link, address or route is gone.
    NoRoute,
    /// The caller said that the link is down ([`set_local_link`](crate::Endpoint::set_local_link)).
    LinkDown,
    /// The path's address was taken out of the association (RFC 5061).
    AddressRemoved,
    /// The primary path works again, and has done so for long enough.
    PrimaryReturned,
    /// The path ranks before the other one by the uses of its addresses ([`AddressUse`](crate::AddressUse)), and works.
    Preferred,
    /// Another path was made the primary one: by [`set_primary`](crate::Endpoint::set_primary), or at the peer's request.
    PrimaryChosen,
}

/// Why an association ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum CloseReason {
    /// Orderly, by SHUTDOWN: all data of both sides was delivered.
    Graceful,
    /// The peer sent ABORT.
    PeerAborted(AbortCause),
    /// We sent ABORT: the driver's wish, or the peer broke the protocol.
    Aborted(AbortCause),
    /// No answer to INIT or COOKIE ECHO.
    NoAnswer,
    /// ICMP said that the peer cannot be reached, before the association was up.
    Unreachable(Unreachable),
    /// All paths failed.
    LostContact,
    /// The peer restarted and began a new association in place of this one.
    Restarted,
}

/// The error cause of an ABORT: its code (RFC 9260 section 3.3.10), and its text where it has one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AbortCause {
    /// Cause code; 0 when the ABORT had none.
    pub code: u16,
    /// Upper layer reason or protocol violation text.
    pub reason: Bytes,
}

/// A message, in or out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The stream it travelled on.
    pub stream: StreamId,
    /// Payload protocol identifier.
    pub ppid: Ppid,
    /// True if it was sent unordered.
    pub unordered: bool,
    /// True for the beginning of the message, false for the later parts of a partial delivery (RFC 6458 section 6.1.7). A
    /// message is delivered in parts if the receive window has no room for it: it is longer than the window, much other data
    /// waits behind a gap or a stream reset, or memory is short.
    pub begin: bool,
    /// True for the end of the message.
    pub end: bool,
    /// True if the sender abandoned the message after parts of it were delivered. This last part has no bytes, and the
    /// earlier ones should be discarded.
    pub aborted: bool,
    /// The bytes, in pieces that are as long as can be without copying. A piece holds on to memory that it shares with
    /// others received around the same time: copy what is to be kept for long.
    pub pieces: SmallVec<[Bytes; 2]>,
}

impl Message {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Reports whether there are no bytes; of what was received, true only of an aborted message's last part.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in one piece, copied if they are in several.
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
    /// Deliver without regard to the order of the stream.
    pub unordered: bool,
    /// Effort to make for the delivery. Without [`Extension::PartialReliability`](crate::Extension::PartialReliability)
    /// negotiated, every message is delivered whatever this says.
    pub reliability: Reliability,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Effort to make for the delivery of a message before it is abandoned (RFC 3758, RFC 7496).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reliability {
    /// As far as it takes.
    #[default]
    Full,
    /// Not sent, nor sent again, once this has passed since [`send`](crate::Endpoint::send).
    Lifetime(Duration),
    /// Each chunk is sent again at most this often.
    Retransmissions(u32),
    /// Given up when a message of a lesser number needs its room in the send buffer.
    Priority(u32),
}

/// A report by ICMP, or by the kernel itself, about a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The packet did not arrive.
    Unreachable(Unreachable),
    /// The packet, which must be quoted whole, has not left this host, nor have later ones by its way: the link or the address has gone.
    NoRoute,
    /// The packet is too long for the path, whose MTU (IP header included) is given. This is a hint: the size is used only
    /// after a probe of it was answered (RFC 8899 section 4.6.2).
    TooBig {
        /// Bytes, IP header included.
        mtu: u16,
    },
    /// The answer to [`Transmit::asks_for_queue`](crate::Transmit::asks_for_queue): nothing failed, but packets
    /// wait in this host before they leave it.
    LocalQueue {
        /// Bytes that wait, as the kernel counts them.
        bytes: usize,
    },
}

/// The unreachable destination. ICMP and ICMPv6 distinguish no others that matter to SCTP (RFC 9260 section 10), so a `match` may
/// be exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The network or host.
    Host,
    /// The protocol: the peer has no SCTP.
    Protocol,
    /// The (UDP) port: nobody listens for encapsulated SCTP.
    Port,
    /// A filter on the way forbids it.
    Prohibited,
}

impl AbortCause {
    /// A cause with this code (RFC 9260 section 3.3.10) and the bytes that follow it. Code 0 means an ABORT without a cause.
    pub fn new(code: u16, reason: impl Into<Bytes>) -> AbortCause {
        AbortCause { code, reason: reason.into() }
    }

    /// User-Initiated Abort (RFC 9260 section 3.3.10.12) with `reason`.
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

//! Events of the trace, and the counter that each one increments.

use std::time::Duration;

use base::{Ecn, Route};

use crate::info::{Counters, EndpointCounters, PathState, StateName};

/// An event of the trace. TSNs are the values on the wire. Lengths are in bytes; packet lengths exclude IP and UDP headers. A minor release
/// may add fields to variants, so patterns should end in `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TraceEvent {
    /// An association exists: its handshake has exchanged both verification tags.
    Begun {
        /// Our SCTP port.
        local_port: u16,
        /// The peer's SCTP port.
        remote_port: u16,
        /// Our verification tag.
        local_tag: u32,
        /// The peer's verification tag.
        peer_tag: u32,
        /// The first state of the association.
        state: StateName,
    },
    /// The association changed its state (RFC 9260 section 4).
    State {
        /// The state before.
        from: StateName,
        /// The state now.
        to: StateName,
    },
    /// A packet was dropped, or its request was refused.
    Dropped {
        /// The packet's route.
        route: Route,
        /// The reason.
        reason: DropReason,
    },
    /// Packets were written.
    Sent {
        /// Route of the packets.
        route: Route,
        /// Number of packets.
        packets: usize,
        /// Total length of the packets.
        bytes: usize,
        /// ECN codepoint of the packets.
        ecn: Ecn,
    },
    /// A packet arrived.
    Received {
        /// The path on which the packet is counted.
        route: Route,
        /// Length of the packet.
        bytes: usize,
        /// ECN codepoint of the packet.
        ecn: Ecn,
    },
    /// A DATA chunk arrived again.
    Duplicate {
        /// TSN of the chunk.
        tsn: u32,
    },
    /// A DATA chunk was dropped, because the receive buffer or the list of gaps had no room.
    NoRoom {
        /// TSN of the chunk.
        tsn: u32,
    },
    /// A SACK was written.
    SackSent {
        /// Cumulative TSN Ack.
        cumulative: u32,
        /// Number of Gap Ack Blocks.
        gaps: usize,
        /// Advertised Receiver Window Credit.
        a_rwnd: u32,
    },
    /// A SACK arrived.
    SackReceived {
        /// Cumulative TSN Ack.
        cumulative: u32,
        /// Number of Gap Ack Blocks.
        gaps: usize,
        /// Advertised Receiver Window Credit.
        a_rwnd: u32,
    },
    /// State of a path after an acknowledgement.
    Window {
        /// The path.
        route: Route,
        /// User bytes newly acknowledged.
        acknowledged: usize,
        /// User bytes newly declared lost.
        lost: usize,
        /// User bytes in flight.
        flight: usize,
        /// Congestion window.
        cwnd: usize,
        /// Slow-start threshold. Before the first loss, this is the largest value of the type.
        ssthresh: usize,
        /// Smoothed round-trip time.
        #[cfg_attr(feature = "serde", serde(rename = "srtt_us", serialize_with = "micros"))]
        srtt: Option<Duration>,
    },
    /// The reordering timer expired: chunks that were overtaken by chunks sent later count as lost (RFC 8985 section 6.3).
    ReorderingTimeout {
        /// The path that carried the lost chunks.
        route: Route,
        /// User bytes declared lost.
        lost: usize,
    },
    /// A DATA chunk was retransmitted.
    Retransmitted {
        /// The path of the retransmission.
        route: Route,
        /// TSN of the chunk.
        tsn: u32,
        /// True if the retransmission is a tail-loss probe (RFC 8985 section 7.3).
        is_probe: bool,
    },
    /// A DATA chunk was also written for an additional path (redundant scheduling).
    Copied {
        /// The additional path.
        route: Route,
        /// TSN of the chunk.
        tsn: u32,
    },
    /// Losses showed congestion: fast recovery began (RFC 9260 section 7.2.4).
    RecoveryBegan {
        /// The path.
        route: Route,
    },
    /// A fast recovery or a timeout proved needless, and its reduction of the window was undone.
    RecoveryUndone {
        /// The path.
        route: Route,
    },
    /// T3-rtx expired (RFC 9260 section 6.3.3), or a FORWARD TSN remained unanswered for one RTO.
    Timeout {
        /// The path.
        route: Route,
    },
    /// A tail-loss probe is due (RFC 8985 section 7).
    TailProbe {
        /// The path.
        route: Route,
    },
    /// A path was silent while the peer answered on another path. This counts as an error of the silent path.
    PathDoubted {
        /// The path.
        route: Route,
    },
    /// A path lost so much data that another path carries the data from now on.
    PathLossy {
        /// The path.
        route: Route,
        /// Lost share of the chunks on the path, in percent.
        percent: u64,
    },
    /// A path became so slow that another path carries the data from now on.
    PathSlow {
        /// The path.
        route: Route,
        /// Estimated time that the path needs to deliver its data in flight.
        delay: Duration,
    },
    /// A local link or address was lost while data was in flight over it. Before this data is retransmitted, the peer is asked which chunks
    /// are missing.
    FlightStranded {
        /// The path.
        route: Route,
        /// Number of user bytes in flight.
        bytes: usize,
    },
    /// The data in flight on a path was declared lost, and will be retransmitted.
    FlightGivenUp {
        /// The path.
        route: Route,
        /// User bytes that were in flight.
        bytes: usize,
    },
    /// A path changed its state (RFC 9260 section 8.2, RFC 7829).
    PathState {
        /// The path.
        route: Route,
        /// The state before.
        from: PathState,
        /// The state now.
        to: PathState,
    },
    /// New data moved to another path.
    PathSwitched {
        /// The path used until now.
        from: Route,
        /// The path used from now on.
        to: Route,
    },
    /// The MTU of a path grew (RFC 8899).
    MtuGrew {
        /// The path.
        route: Route,
        /// Size of an IP packet before, in bytes.
        from: u16,
        /// Size of an IP packet now, in bytes.
        to: u16,
    },
    /// The MTU of a path fell, because of an ICMP message or a black hole (RFC 8899 section 4.3).
    MtuShrank {
        /// The path.
        route: Route,
        /// Size of an IP packet before, in bytes.
        from: u16,
        /// Size of an IP packet now, in bytes.
        to: u16,
    },
    /// A packet that probes a path's MTU was written (RFC 8899).
    MtuProbe {
        /// The path.
        route: Route,
        /// Size of the IP packet, in bytes.
        size: u16,
    },
    /// A new UDP port of the peer was proven (RFC 6951).
    PortProven {
        /// The path with the old port.
        from: Route,
        /// The path with the new port.
        to: Route,
    },
    /// A packet with DATA arrived with the mark CE (RFC 3168).
    MarkedReceived {
        /// The packet's lowest TSN.
        tsn: u32,
    },
    /// An ECNE chunk arrived: a packet that we sent was marked.
    EchoReceived {
        /// The TSN in the chunk.
        tsn: u32,
    },
    /// A congestion window was reduced because of an ECN mark.
    MarkObeyed {
        /// The path.
        route: Route,
    },
    /// A congestion window was reduced, because the window's data waited in a queue of this host and not in the network.
    LocalQueueObeyed {
        /// The path.
        route: Route,
        /// Bytes in the queue of this host, as counted by the kernel.
        bytes: usize,
    },
    /// A message was abandoned (RFC 3758).
    Abandoned {
        /// Its stream.
        stream: u16,
        /// True if a part of it had been sent.
        was_begun: bool,
    },
    /// A FORWARD TSN or I-FORWARD-TSN chunk was written.
    ForwardSent {
        /// New Cumulative TSN.
        tsn: u32,
    },
    /// A FORWARD TSN or I-FORWARD-TSN chunk arrived and was not a duplicate.
    ForwardReceived {
        /// New Cumulative TSN.
        tsn: u32,
    },
    /// An AUTH chunk was verified (RFC 4895).
    AuthVerified,
    /// An AUTH chunk failed verification. It was dropped together with the chunks after it.
    AuthFailed,
    /// A chunk was dropped because it must be authenticated and was not.
    Unauthenticated {
        /// The chunk's type.
        chunk_type: u8,
    },
    /// A malformed chunk or a protocol violation was ignored: a shared key is in force, and the chunk was not authenticated.
    FaultIgnored,
    /// An ASCONF chunk is sent for the first time or again (RFC 5061).
    AsconfSent {
        /// The path.
        route: Route,
    },
    /// An ASCONF chunk arrived.
    AsconfReceived {
        /// Its serial number.
        serial: u32,
    },
    /// A request about streams is sent for the first time or again (RFC 6525).
    ReconfigSent {
        /// The path.
        route: Route,
    },
    /// A RE-CONFIG chunk arrived.
    ReconfigReceived,
    /// An advertisement of our send buffer was written.
    Advertised {
        /// User bytes in the buffer: bytes in flight plus bytes not yet sent.
        bytes: usize,
    },
    /// The peer's advertisement of its send buffer arrived.
    PeerAdvertised,
}

/// Reason for dropping a packet or refusing its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DropReason {
    /// It could not be parsed, or its checksum was wrong.
    Malformed,
    /// Its verification tag was wrong.
    BadTag,
    /// It belongs to no association.
    OutOfTheBlue,
    /// Its cookie was not signed by this endpoint, does not match the packet's ports or tag, or has a tag that now belongs to another
    /// association.
    BadCookie,
    /// Its cookie arrived too late.
    StaleCookie,
    /// Its cookie had already created an association.
    SpentCookie,
    /// Its COOKIE ECHO had to be authenticated, but was not, or failed verification.
    UnauthenticatedCookie,
    /// It was an INIT or INIT ACK of this host, reflected by another host.
    Reflected,
    /// The INITs exceeded [`Limits::inits`](crate::Limits::inits).
    InitsLimited,
    /// The answers to strays exceeded [`Limits::stray_answers`](crate::Limits::stray_answers).
    StraysLimited,
    /// The INIT was too short: the INIT ACK would have more than three times its length, or a keyed or encrypted association requires a
    /// longer INIT.
    InitTooShort,
    /// There were too many associations, or too little memory.
    OutOfResource,
    /// It was not sealed, but its association accepts only sealed packets.
    Unsealed,
    /// It was sealed with keys of an unknown epoch.
    NoKeys,
    /// It was sealed with other keys, or altered.
    Forged,
    /// It was a sealed packet that had arrived before, or that was too old for the check for duplicates.
    Replayed,
}

impl Counters {
    /// Increments the counter of an event, if the event has one.
    #[inline]
    pub(crate) fn count(&mut self, event: &TraceEvent) {
        let counter = match event {
            TraceEvent::Duplicate { .. } => &mut self.data_duplicate,
            TraceEvent::NoRoom { .. } => &mut self.data_dropped,
            TraceEvent::SackSent { .. } => &mut self.sacks_sent,
            TraceEvent::SackReceived { .. } => &mut self.sacks_received,
            TraceEvent::Retransmitted { .. } => &mut self.data_retransmitted,
            TraceEvent::Copied { .. } => &mut self.data_copied,
            TraceEvent::RecoveryBegan { .. } => &mut self.fast_recoveries,
            TraceEvent::RecoveryUndone { .. } => &mut self.undone_recoveries,
            TraceEvent::Timeout { .. } => &mut self.timeouts,
            TraceEvent::TailProbe { .. } => &mut self.tail_probes,
            TraceEvent::MtuShrank { .. } => &mut self.mtu_shrunk,
            TraceEvent::PortProven { .. } => &mut self.rebindings,
            TraceEvent::MarkedReceived { .. } => &mut self.ecn_marked_received,
            TraceEvent::EchoReceived { .. } => &mut self.ecn_echoes_received,
            TraceEvent::MarkObeyed { .. } => &mut self.ecn_reductions,
            TraceEvent::LocalQueueObeyed { .. } => &mut self.local_queue_reductions,
            TraceEvent::Abandoned { was_begun: false, .. } => &mut self.abandoned_unsent,
            TraceEvent::Abandoned { was_begun: true, .. } => &mut self.abandoned_sent,
            TraceEvent::ForwardSent { .. } => &mut self.forward_tsns_sent,
            TraceEvent::ForwardReceived { .. } => &mut self.forward_tsns_received,
            TraceEvent::AuthVerified => &mut self.auth_verified,
            TraceEvent::AuthFailed => &mut self.auth_failed,
            TraceEvent::Unauthenticated { .. } | TraceEvent::FaultIgnored => &mut self.unauthenticated,
            TraceEvent::AsconfSent { .. } => &mut self.asconfs_sent,
            TraceEvent::AsconfReceived { .. } => &mut self.asconfs_received,
            TraceEvent::ReconfigSent { .. } => &mut self.reconfigs_sent,
            TraceEvent::ReconfigReceived => &mut self.reconfigs_received,
            TraceEvent::Advertised { .. } => &mut self.advertisements_sent,
            TraceEvent::PeerAdvertised => &mut self.advertisements_received,
            TraceEvent::Begun { .. }
            | TraceEvent::State { .. }
            | TraceEvent::Dropped { .. }
            | TraceEvent::Sent { .. }
            | TraceEvent::Received { .. }
            | TraceEvent::Window { .. }
            | TraceEvent::ReorderingTimeout { .. }
            | TraceEvent::PathDoubted { .. }
            | TraceEvent::PathLossy { .. }
            | TraceEvent::PathSlow { .. }
            | TraceEvent::FlightGivenUp { .. }
            | TraceEvent::FlightStranded { .. }
            | TraceEvent::PathState { .. }
            | TraceEvent::PathSwitched { .. }
            | TraceEvent::MtuGrew { .. }
            | TraceEvent::MtuProbe { .. } => return,
        };
        *counter += 1;
    }
}

impl EndpointCounters {
    /// Increments the counter of a reason.
    pub(crate) fn count(&mut self, reason: DropReason) {
        let counter = match reason {
            DropReason::Malformed => &mut self.malformed,
            DropReason::BadTag => &mut self.bad_tag,
            DropReason::OutOfTheBlue => &mut self.out_of_the_blue,
            DropReason::BadCookie => &mut self.bad_cookies,
            DropReason::StaleCookie => &mut self.stale_cookies,
            DropReason::SpentCookie => &mut self.spent_cookies,
            DropReason::UnauthenticatedCookie => &mut self.unauthenticated_cookies,
            DropReason::Reflected => &mut self.reflected,
            DropReason::InitsLimited => &mut self.inits_limited,
            DropReason::StraysLimited => &mut self.strays_limited,
            DropReason::InitTooShort => &mut self.inits_too_short,
            DropReason::OutOfResource => &mut self.out_of_resource,
            DropReason::Unsealed => &mut self.unsealed,
            DropReason::NoKeys | DropReason::Forged => &mut self.not_opened,
            DropReason::Replayed => &mut self.replayed,
        };
        *counter += 1;
    }
}

#[cfg(feature = "serde")]
fn micros<S: serde::Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&value.map(|v| v.as_micros()), to)
}

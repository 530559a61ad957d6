//! Events that the trace records, and the counter that each moves.

use std::time::Duration;

use base::{Ecn, Route};

use crate::info::{Counters, EndpointCounters, PathState, StateName};

/// An event of the trace. TSNs are those on the wire. Lengths are in bytes; packet lengths exclude IP and UDP headers.
/// A minor release may add fields to variants: end patterns in `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TraceEvent {
    /// The handshake has told both ends' tags.
    Begun {
        /// Our SCTP port.
        local_port: u16,
        /// The peer's SCTP port.
        remote_port: u16,
        /// Our verification tag.
        local_tag: u32,
        /// The peer's verification tag.
        peer_tag: u32,
        /// The state that it begins in.
        state: StateName,
    },
    /// The association went from one state to another (RFC 9260 section 4).
    State {
        /// The state before.
        from: StateName,
        /// The state now.
        to: StateName,
    },
    /// A packet of no use was dropped.
    Dropped {
        /// The way it came.
        route: Route,
        /// Why.
        reason: DropReason,
    },
    /// Packets were written.
    Sent {
        /// The way they go.
        route: Route,
        /// Number of packets.
        packets: usize,
        /// Their length in all.
        bytes: usize,
        /// Their ECN codepoint.
        ecn: Ecn,
    },
    /// A packet came.
    Received {
        /// The path it counts for.
        route: Route,
        /// Its length.
        bytes: usize,
        /// Its ECN codepoint.
        ecn: Ecn,
    },
    /// A DATA chunk came that was there already.
    Duplicate {
        /// Its TSN.
        tsn: u32,
    },
    /// A DATA chunk came for which the receive buffer has no room.
    NoRoom {
        /// Its TSN.
        tsn: u32,
    },
    /// A SACK was written.
    SackSent {
        /// Cumulative TSN Ack.
        cumulative: u32,
        /// Gap Ack Blocks.
        gaps: usize,
        /// Advertised Receiver Window Credit.
        a_rwnd: u32,
    },
    /// A SACK came.
    SackReceived {
        /// Cumulative TSN Ack.
        cumulative: u32,
        /// Gap Ack Blocks.
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
        /// User bytes newly taken for lost.
        lost: usize,
        /// User bytes in flight.
        flight: usize,
        /// Congestion window.
        cwnd: usize,
        /// Slow-start threshold; the greatest number of all before the first loss.
        ssthresh: usize,
        /// Smoothed round-trip time.
        #[cfg_attr(feature = "serde", serde(rename = "srtt_us", serialize_with = "micros"))]
        srtt: Option<Duration>,
    },
    /// Chunks were overtaken, and waited for long enough (RFC 8985 section 6.3).
    ReorderingTimeout {
        /// The path they went by.
        route: Route,
        /// User bytes taken for lost.
        lost: usize,
    },
    /// A DATA chunk was written again.
    Retransmitted {
        /// The path it goes by now.
        route: Route,
        /// Its TSN.
        tsn: u32,
        /// True if it only provokes an answer (RFC 8985 section 7.3).
        is_probe: bool,
    },
    /// A DATA chunk was written for a further path (redundant scheduling).
    Copied {
        /// That path.
        route: Route,
        /// Its TSN.
        tsn: u32,
    },
    /// Losses showed congestion: fast recovery began (RFC 9260 section 7.2.4).
    RecoveryBegan {
        /// The path.
        route: Route,
    },
    /// A recovery or timeout proved needless and was taken back.
    RecoveryUndone {
        /// The path.
        route: Route,
    },
    /// T3-rtx expired (RFC 9260 section 6.3.3), or a FORWARD TSN had no answer for as long.
    Timeout {
        /// The path.
        route: Route,
    },
    /// A tail-loss probe is due (RFC 8985 section 7).
    TailProbe {
        /// The path.
        route: Route,
    },
    /// A path was silent while the peer answered by another: it counts a timeout.
    PathDoubted {
        /// The path.
        route: Route,
    },
    /// A path lost so much of its data that another carries that from now on.
    PathLossy {
        /// The path.
        route: Route,
        /// Chunks of hundred that were lost.
        percent: u64,
    },
    /// A path became so slow that another carries the data from now on.
    PathSlow {
        /// The path.
        route: Route,
        /// Delay until it expires.
        delay: Duration,
    },
    /// A link or an address of ours went with data in flight from there: what of that is lost is asked before it is sent again.
    FlightStranded {
        /// The path.
        route: Route,
        /// Number of bytes.
        bytes: usize,
    },
    /// The data in flight on a path was given up, and will be sent again.
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
    /// New data goes by another path.
    PathSwitched {
        /// The path until now.
        from: Route,
        /// The path from now on.
        to: Route,
    },
    /// The MTU of a path grew (RFC 8899).
    MtuGrew {
        /// The path.
        route: Route,
        /// Bytes of IP packet before.
        from: u16,
        /// Bytes of IP packet now.
        to: u16,
    },
    /// The MTU of a path fell: by ICMP, or as a black hole (RFC 8899 section 4.3).
    MtuShrank {
        /// The path.
        route: Route,
        /// Bytes of IP packet before.
        from: u16,
        /// Bytes of IP packet now.
        to: u16,
    },
    /// A probe of a path's MTU was written (RFC 8899).
    MtuProbe {
        /// The path.
        route: Route,
        /// Bytes of IP packet.
        size: u16,
    },
    /// A new UDP port of the peer was proven (RFC 6951).
    PortProven {
        /// The path with the old port.
        from: Route,
        /// The path with the new one.
        to: Route,
    },
    /// A packet with DATA came that was marked CE (RFC 3168).
    MarkedReceived {
        /// The packet's lowest TSN.
        tsn: u32,
    },
    /// ECNE came: a packet of ours was marked.
    EchoReceived {
        /// The TSN that it names.
        tsn: u32,
    },
    /// A window was reduced because of a mark.
    MarkObeyed {
        /// The path.
        route: Route,
    },
    /// A window was reduced because what it lets out only waits in this host.
    LocalQueueObeyed {
        /// The path.
        route: Route,
        /// Bytes that waited, as the kernel counts them.
        bytes: usize,
    },
    /// A message was given up (RFC 3758).
    Abandoned {
        /// Its stream.
        stream: u16,
        /// True if a part of it had been sent.
        was_begun: bool,
    },
    /// FORWARD TSN or I-FORWARD-TSN was written.
    ForwardSent {
        /// New Cumulative TSN.
        tsn: u32,
    },
    /// FORWARD TSN or I-FORWARD-TSN came and brought something new.
    ForwardReceived {
        /// New Cumulative TSN.
        tsn: u32,
    },
    /// An AUTH chunk was verified (RFC 4895).
    AuthVerified,
    /// An AUTH chunk was not verified; it was dropped with what followed.
    AuthFailed,
    /// A chunk that must be authenticated was not, and was dropped.
    Unauthenticated {
        /// The chunk's type.
        chunk_type: u8,
    },
    /// Something malformed, or against the protocol, was dropped: it was not authenticated, where a shared key is in force.
    FaultIgnored,
    /// ASCONF is sent, perhaps again (RFC 5061).
    AsconfSent {
        /// The path.
        route: Route,
    },
    /// ASCONF came.
    AsconfReceived {
        /// Its serial number.
        serial: u32,
    },
    /// A request about streams is sent, perhaps again (RFC 6525).
    ReconfigSent {
        /// The path.
        route: Route,
    },
    /// RE-CONFIG came.
    ReconfigReceived,
    /// An advertisement of our send buffer was written.
    Advertised {
        /// User bytes in it, in flight and not sent yet.
        bytes: usize,
    },
    /// The peer's advertisement of its send buffer came.
    PeerAdvertised,
}

/// Why a packet, or what it asked for, was of no use.
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
    /// Its cookie was not ours, or not for it.
    BadCookie,
    /// Its cookie came too late.
    StaleCookie,
    /// Its cookie had made an association before.
    SpentCookie,
    /// Its COOKIE ECHO had to be authenticated and was not, or wrongly.
    UnauthenticatedCookie,
    /// An INIT or INIT ACK of this host's own, sent back by another.
    Reflected,
    /// More INITs than [`Limits::inits`](crate::Limits::inits) allows.
    InitsLimited,
    /// More strays than [`Limits::stray_answers`](crate::Limits::stray_answers) allows to answer.
    StraysLimited,
    /// An INIT too short for an INIT ACK of at most three times its length.
    InitTooShort,
    /// Too many associations, or too little memory.
    OutOfResource,
    /// It was not sealed, and its association takes sealed packets only.
    Unsealed,
    /// It was sealed by keys of an epoch that are not there.
    NoKeys,
    /// It was sealed by other keys, or changed.
    Forged,
    /// A sealed packet that was there before, or is too old to tell.
    Replayed,
}

impl Counters {
    /// Counts what is noted, if it is counted.
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
    /// Counts a packet of no use.
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

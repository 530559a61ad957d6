//! Snapshot of an association for the application.

use std::time::Duration;

use base::Route;

use crate::config::{AddressUse, PathOptions};
use crate::extension::Extensions;
use crate::extension::send_buffer::PeerSendBuffer;

/// The state of an association: those of RFC 9260 section 4, and one between COOKIE ECHO and the driver's decision. The RFC has no
/// others, so a `match` may be exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum StateName {
    /// INIT sent.
    CookieWait,
    /// COOKIE ECHO sent.
    CookieEchoed,
    /// A good COOKIE ECHO came; the driver has not accepted yet.
    Accepting,
    /// Up.
    Established,
    /// Shutdown asked for; data is still outstanding.
    ShutdownPending,
    /// SHUTDOWN sent.
    ShutdownSent,
    /// SHUTDOWN received; data is still outstanding.
    ShutdownReceived,
    /// SHUTDOWN ACK sent.
    ShutdownAckSent,
    /// Over.
    Closed,
}

/// The state of a path. RFC 9260 and RFC 7829 have no other states, so a `match` may be exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum PathState {
    /// Not proven by a HEARTBEAT yet; carries no data (RFC 9260 section 5.4).
    Unconfirmed,
    /// In use or ready to be used.
    Active,
    /// Timeouts on it; not used while another is active (RFC 7829).
    PotentiallyFailed,
    /// Failed (RFC 9260 section 8.2).
    Inactive,
}

impl StateName {
    /// In RFC 9260's words.
    pub fn as_str(self) -> &'static str {
        match self {
            StateName::CookieWait => "COOKIE-WAIT",
            StateName::CookieEchoed => "COOKIE-ECHOED",
            StateName::Accepting => "ACCEPTING",
            StateName::Established => "ESTABLISHED",
            StateName::ShutdownPending => "SHUTDOWN-PENDING",
            StateName::ShutdownSent => "SHUTDOWN-SENT",
            StateName::ShutdownReceived => "SHUTDOWN-RECEIVED",
            StateName::ShutdownAckSent => "SHUTDOWN-ACK-SENT",
            StateName::Closed => "CLOSED",
        }
    }
}

impl PathState {
    /// As reports have it.
    pub fn as_str(self) -> &'static str {
        match self {
            PathState::Unconfirmed => "unconfirmed",
            PathState::Active => "active",
            PathState::PotentiallyFailed => "potentially_failed",
            PathState::Inactive => "inactive",
        }
    }
}

/// One path of an association.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathInfo {
    /// Addresses and carrier.
    pub route: Route,
    /// Its state.
    pub state: PathState,
    /// True if the peer has proved to be at its other end. One that has not may be inactive, too.
    pub confirmed: bool,
    /// True for the primary path.
    pub primary: bool,
    /// True if it carries new data.
    pub in_use: bool,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Congestion window in bytes.
    pub cwnd: usize,
    /// Slow-start threshold in bytes.
    pub ssthresh: usize,
    /// Bytes in flight.
    pub flight: usize,
    /// MTU in bytes, IP header included.
    pub mtu: u16,
    /// True if a probe of that length was answered. Before, it is only the MTU of this host's link.
    pub mtu_is_proven: bool,
    /// Probes of the path's MTU sent (RFC 8899).
    pub mtu_probes_sent: u64,
    /// Probes of the path's MTU that were not answered in time.
    pub mtu_probes_lost: u64,
    /// Settings of its own.
    pub options: PathOptions,
    /// The use of our address ([`set_local_uses`](crate::Endpoint::set_local_uses)).
    pub local_use: AddressUse,
    /// The use of the peer's address, as it has told.
    pub remote_use: AddressUse,
    /// Timeouts in a row.
    pub errors: u8,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes sent, SCTP headers included.
    pub bytes_sent: u64,
    /// Bytes received, SCTP headers included.
    pub bytes_received: u64,
    /// User bytes that left by this path first: its part of the association's data.
    pub new_data: u64,
    /// DATA chunks sent again.
    pub retransmissions: u64,
    /// T3 timeouts.
    pub timeouts: u64,
}

/// The limit on an association's sending. One of the two ends or the network between them is always the limit, so a `match` may be
/// exhaustive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LimitedBy {
    /// Nothing waits: its driver has given no more.
    Driver,
    /// The peer's receive window has no room for what is next.
    Receiver,
    /// The path: its congestion window, pacing, or what was lost and goes first.
    Network,
}

/// One association.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AssociationInfo {
    /// Its state.
    pub state: StateName,
    /// Our SCTP port.
    pub local_port: u16,
    /// The peer's SCTP port.
    pub remote_port: u16,
    /// Our verification tag.
    pub local_tag: u32,
    /// The peer's verification tag.
    pub peer_tag: u32,
    /// The peer's Adaptation Layer Indication.
    pub adaptation: Option<u32>,
    /// Extensions that both ends offered.
    pub extensions: Extensions,
    /// True if packets carry a checksum of zero (RFC 9653).
    pub zero_checksum: bool,
    /// Streams that we may send on.
    pub outbound_streams: u16,
    /// Streams that the peer may send on.
    pub inbound_streams: u16,
    /// The paths, in the order of their creation.
    pub paths: Vec<PathInfo>,
    /// Bytes given to `send` and not yet acknowledged.
    pub send_buffered: usize,
    /// Those of them that were never sent.
    pub send_waiting: usize,
    /// The current limit on its sending.
    pub limited_by: LimitedBy,
    /// Bytes received and not yet read.
    pub receive_buffered: usize,
    /// Bytes that the association takes in all: user data and what it takes to keep it, as the allocator gives them; rather
    /// too many than too few.
    pub memory: usize,
    /// The peer's receive window as we know it, in bytes.
    pub peer_rwnd: usize,
    /// The peer's last advertisement of its send buffer, if advertisements are enabled here.
    pub peer_send_buffer: Option<PeerSendBuffer>,
    /// Counters.
    pub counters: Counters,
}

/// Counters of an association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// User bytes acknowledged by the peer.
    pub bytes_acknowledged: u64,
    /// User bytes received, without duplicates.
    pub bytes_received: u64,
    /// DATA chunks sent, first time.
    pub data_sent: u64,
    /// DATA chunks sent again.
    pub data_retransmitted: u64,
    /// Copies of DATA chunks sent by further paths ([`PathScheduler::Redundant`](crate::PathScheduler::Redundant)).
    pub data_copied: u64,
    /// DATA chunks received, without duplicates.
    pub data_received: u64,
    /// DATA chunks received more than once.
    pub data_duplicate: u64,
    /// DATA chunks dropped for lack of receive buffer.
    pub data_dropped: u64,
    /// SACKs sent.
    pub sacks_sent: u64,
    /// SACKs received.
    pub sacks_received: u64,
    /// Messages given up before any part of them was sent (RFC 7496 section 4.4).
    pub abandoned_unsent: u64,
    /// Messages given up after a part of them was sent.
    pub abandoned_sent: u64,
    /// FORWARD TSNs and I-FORWARD-TSNs sent.
    pub forward_tsns_sent: u64,
    /// FORWARD TSNs and I-FORWARD-TSNs received that brought something new.
    pub forward_tsns_received: u64,
    /// Entries into fast recovery.
    pub fast_recoveries: u64,
    /// T3 timeouts.
    pub timeouts: u64,
    /// Packets whose AUTH chunk was verified.
    pub auth_verified: u64,
    /// AUTH chunks dropped, with what followed: wrong HMAC, unknown key or algorithm, or a second one in a packet.
    pub auth_failed: u64,
    /// ASCONFs sent, again ones included.
    pub asconfs_sent: u64,
    /// ASCONFs received in time, again ones included.
    pub asconfs_received: u64,
    /// Requests about streams (RE-CONFIG) sent, again ones included.
    pub reconfigs_sent: u64,
    /// RE-CONFIGs received, again ones included.
    pub reconfigs_received: u64,
    /// Advertisements of our send buffer sent.
    pub advertisements_sent: u64,
    /// Advertisements of the peer's send buffer received.
    pub advertisements_received: u64,
    /// Chunks dropped because they must be authenticated and were not, malformed ones included where a shared key is in force.
    pub unauthenticated: u64,
    /// Times that the MTU of a path proved smaller than what was sent: by ICMP, or as a black hole (RFC 8899 section 4.3).
    pub mtu_shrunk: u64,
    /// Times that a new UDP port of the peer was proven (RFC 6951).
    pub rebindings: u64,
    /// Packets with DATA received that were marked for congestion (CE, RFC 3168).
    pub ecn_marked_received: u64,
    /// ECNEs received: packets of ours were marked.
    pub ecn_echoes_received: u64,
    /// Reductions of a window because of marks.
    pub ecn_reductions: u64,
    /// Reductions of a window because what it let out only waited in this host
    /// ([`PathError::LocalQueue`](crate::PathError::LocalQueue)).
    pub local_queue_reductions: u64,
    /// Tail-loss probes sent.
    pub tail_probes: u64,
    /// Recoveries and timeouts that proved needless, and were taken back.
    pub undone_recoveries: u64,
}

/// Counters of an endpoint, besides those of its associations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// Packets that could not be parsed, or whose checksum was wrong.
    pub malformed: u64,
    /// Packets whose verification tag was wrong.
    pub bad_tag: u64,
    /// Packets of no association.
    pub out_of_the_blue: u64,
    /// INITs received.
    pub inits_received: u64,
    /// COOKIE ECHOs whose MAC or content was wrong.
    pub bad_cookies: u64,
    /// COOKIE ECHOs that had to be authenticated and were not, or wrongly.
    pub unauthenticated_cookies: u64,
    /// INITs and INIT ACKs of this host's own that another sent back.
    pub reflected: u64,
    /// COOKIE ECHOs that came too late.
    pub stale_cookies: u64,
    /// Replies dropped because too many were waiting.
    pub replies_dropped: u64,
    /// INITs dropped beyond [`Limits::inits`](crate::Limits::inits).
    pub inits_limited: u64,
    /// Answers to strays not sent beyond [`Limits::stray_answers`](crate::Limits::stray_answers).
    pub strays_limited: u64,
    /// COOKIE ECHOs whose cookie had made an association before, which is over.
    pub spent_cookies: u64,
    /// Associations refused because there were too many, or memory was short.
    pub out_of_resource: u64,
    /// Records of a trace that were not polled in time, and went.
    pub trace_lost: u64,
    /// Bytes that all associations hold, as they were last counted: at the end of their turns, or when much had changed.
    pub memory: usize,
    /// INITs too short for an INIT ACK of at most three times their length.
    pub inits_too_short: u64,
    /// Packets that were not sealed, for associations that take sealed ones only.
    pub unsealed: u64,
    /// Sealed packets that no keys open.
    pub not_opened: u64,
    /// Sealed packets that were there before, or are too old to tell.
    pub replayed: u64,
}

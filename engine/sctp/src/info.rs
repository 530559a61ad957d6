//! Snapshots of an association and of an endpoint for the application.

use std::time::Duration;

use base::Route;

use crate::config::{AddressUse, PathOptions};
use crate::extension::Extensions;
use crate::extension::send_buffer::PeerSendBuffer;

/// State of an association: a state of RFC 9260 section 4, or [`Accepting`](StateName::Accepting). No other states exist, so a
/// `match` may be exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum StateName {
    /// INIT sent.
    CookieWait,
    /// COOKIE ECHO sent.
    CookieEchoed,
    /// A valid COOKIE ECHO has arrived, and the driver has not yet accepted the association.
    Accepting,
    /// The handshake is complete.
    Established,
    /// This end has requested a shutdown; data is still outstanding.
    ShutdownPending,
    /// SHUTDOWN sent.
    ShutdownSent,
    /// SHUTDOWN received; data is still outstanding.
    ShutdownReceived,
    /// SHUTDOWN ACK sent.
    ShutdownAckSent,
    /// The association has ended.
    Closed,
}

/// State of a path. RFC 9260 and RFC 7829 have no other states, so a `match` may be exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum PathState {
    /// No HEARTBEAT has proven the path yet, so it carries no data (RFC 9260 section 5.4).
    Unconfirmed,
    /// The path carries data, or is ready to carry data.
    Active,
    /// The path has missed answers, loses too much or is too slow. It carries no data while another path is active (RFC 7829).
    PotentiallyFailed,
    /// The path has failed (RFC 9260 section 8.2).
    Inactive,
}

impl StateName {
    /// Returns the name in capital letters, as RFC 9260 spells names of states.
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
    /// Returns the name that reports use, in lower case with underscores.
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
    /// Addresses and carrier of the path.
    pub route: Route,
    /// State of the path.
    pub state: PathState,
    /// True if the peer has proven that it is at the remote address. If false, the state is
    /// [`Unconfirmed`](PathState::Unconfirmed) or [`Inactive`](PathState::Inactive).
    pub confirmed: bool,
    /// True for the primary path.
    pub primary: bool,
    /// True if the path carries new data.
    pub in_use: bool,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Congestion window in bytes.
    pub cwnd: usize,
    /// Slow-start threshold in bytes; `usize::MAX` if the path has no threshold yet.
    pub ssthresh: usize,
    /// User bytes in flight.
    pub flight: usize,
    /// MTU in bytes, IP header included.
    pub mtu: u16,
    /// True if packets of `mtu` bytes are known to reach the peer. If false, `mtu` is an assumption: initially the MTU of this
    /// host's link (1500 or less), or a smaller size after a black hole.
    pub mtu_is_proven: bool,
    /// Number of probes of the path's MTU that were sent (RFC 8899).
    pub mtu_probes_sent: u64,
    /// Number of probes of the path's MTU that were not answered in time, or that ICMP reported as too long.
    pub mtu_probes_lost: u64,
    /// The path's own settings.
    pub options: PathOptions,
    /// The use of our address ([`set_local_uses`](crate::Endpoint::set_local_uses)).
    pub local_use: AddressUse,
    /// The use of the peer's address, as the peer has announced it.
    pub remote_use: AddressUse,
    /// Number of consecutive timeouts. Verdicts of too much loss or delay also count.
    pub errors: u8,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes sent, including SCTP headers.
    pub bytes_sent: u64,
    /// Bytes received, including SCTP headers.
    pub bytes_received: u64,
    /// User bytes whose first transmission used this path: the path's part of the association's data.
    pub new_data: u64,
    /// Number of DATA chunks retransmitted on this path.
    pub retransmissions: u64,
    /// Expiries of T3-rtx.
    pub timeouts: u64,
}

/// Current limit on an association's sending. No limit exists other than this end, the peer and the network, so a `match` may be
/// exhaustive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LimitedBy {
    /// The driver: no data waits to be sent.
    Driver,
    /// The peer: its receive window has no room for the next chunk.
    Receiver,
    /// The path: its congestion window, its pacing, or lost data that must be retransmitted first.
    Network,
}

/// Snapshot of one association.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AssociationInfo {
    /// State of the association.
    pub state: StateName,
    /// Our SCTP port.
    pub local_port: u16,
    /// The peer's SCTP port.
    pub remote_port: u16,
    /// Our verification tag.
    pub local_tag: u32,
    /// The peer's verification tag.
    pub peer_tag: u32,
    /// Adaptation Layer Indication that the peer has sent, if any.
    pub adaptation: Option<u32>,
    /// Extensions that both ends have offered.
    pub extensions: Extensions,
    /// True if packets of this end have a checksum of zero (RFC 9653). Under protection, only sealed data over UDP has it.
    pub zero_checksum: bool,
    /// Number of streams on which we may send.
    pub outbound_streams: u16,
    /// Number of streams on which the peer may send.
    pub inbound_streams: u16,
    /// The paths, in the order of their creation.
    pub paths: Vec<PathInfo>,
    /// Bytes that were given to `send` and are not yet acknowledged.
    pub send_buffered: usize,
    /// Bytes of `send_buffered` that have never been sent.
    pub send_waiting: usize,
    /// Current limit on sending.
    pub limited_by: LimitedBy,
    /// Bytes that were received and are not yet read.
    pub receive_buffered: usize,
    /// Estimated memory of the association in bytes: user data and its bookkeeping, in the block sizes of the allocator. The
    /// estimate tends to exceed the true value.
    pub memory: usize,
    /// Bytes for which the peer's receive window has room, beyond the data in flight.
    pub peer_rwnd: usize,
    /// The peer's last advertisement of its send buffer, if any has arrived and advertisements are enabled here.
    pub peer_send_buffer: Option<PeerSendBuffer>,
    /// Counters of the association.
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
    /// DATA chunks sent for the first time.
    pub data_sent: u64,
    /// DATA chunks retransmitted.
    pub data_retransmitted: u64,
    /// Copies of DATA chunks sent on further paths ([`PathScheduler::Redundant`](crate::PathScheduler::Redundant)).
    pub data_copied: u64,
    /// DATA chunks received, without duplicates.
    pub data_received: u64,
    /// Duplicate DATA chunks received.
    pub data_duplicate: u64,
    /// DATA chunks dropped because there was no room for their data, or for one more gap among the received TSNs.
    pub data_dropped: u64,
    /// SACKs sent.
    pub sacks_sent: u64,
    /// SACKs received.
    pub sacks_received: u64,
    /// Messages abandoned before any part of them was sent (RFC 7496 section 4.4).
    pub abandoned_unsent: u64,
    /// Messages abandoned after a part of them was sent.
    pub abandoned_sent: u64,
    /// FORWARD TSNs and I-FORWARD-TSNs sent.
    pub forward_tsns_sent: u64,
    /// FORWARD TSNs and I-FORWARD-TSNs received that moved the cumulative TSN.
    pub forward_tsns_received: u64,
    /// Entries into fast recovery.
    pub fast_recoveries: u64,
    /// Expiries of T3-rtx.
    pub timeouts: u64,
    /// Packets whose AUTH chunk was verified.
    pub auth_verified: u64,
    /// AUTH chunks dropped because the HMAC was wrong, the key or algorithm was unknown, or the packet had two AUTH chunks. The
    /// chunks that follow such an AUTH chunk in its packet are dropped too.
    pub auth_failed: u64,
    /// ASCONFs sent, including retransmissions.
    pub asconfs_sent: u64,
    /// ASCONFs received in a state of the association that answers ASCONFs. Repeated and outdated ASCONFs count too.
    pub asconfs_received: u64,
    /// RE-CONFIGs sent with requests about streams, including retransmissions.
    pub reconfigs_sent: u64,
    /// RE-CONFIGs received, including repeated ones.
    pub reconfigs_received: u64,
    /// Advertisements of our send buffer sent.
    pub advertisements_sent: u64,
    /// Advertisements of the peer's send buffer received.
    pub advertisements_received: u64,
    /// Chunks dropped because they lacked a required authentication. If a shared key is in force, faulty unsigned chunks count
    /// too. They do not end the association, because a third party may have sent them.
    pub unauthenticated: u64,
    /// Number of times that a path's MTU proved smaller than the packets sent. The proof was an ICMP error or a black hole (RFC
    /// 8899 section 4.3).
    pub mtu_shrunk: u64,
    /// Changes of the peer's UDP port to a new, proven port (RFC 6951).
    pub rebindings: u64,
    /// Packets received that contained DATA and had a congestion mark (CE, RFC 3168).
    pub ecn_marked_received: u64,
    /// ECNE chunks received. An ECNE chunk reports a congestion mark on our packets.
    pub ecn_echoes_received: u64,
    /// Reductions of a congestion window because of congestion marks.
    pub ecn_reductions: u64,
    /// Reductions of a congestion window because a larger window only lengthened a queue in this host
    /// ([`PathError::LocalQueue`](crate::PathError::LocalQueue)).
    pub local_queue_reductions: u64,
    /// Tail-loss probes sent. A chunk of a silent path that is repeated on another path counts too.
    pub tail_probes: u64,
    /// Recoveries and timeouts that proved needless, and whose window reduction was undone.
    pub undone_recoveries: u64,
}

/// Counters of an endpoint, in addition to the counters of its associations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// Packets that could not be parsed, or that had a wrong checksum.
    pub malformed: u64,
    /// Packets with a wrong verification tag.
    pub bad_tag: u64,
    /// Packets that belong to no association.
    pub out_of_the_blue: u64,
    /// INITs received.
    pub inits_received: u64,
    /// COOKIE ECHOs with a wrong MAC or wrong content.
    pub bad_cookies: u64,
    /// COOKIE ECHOs without the required authentication, or with a wrong authentication.
    pub unauthenticated_cookies: u64,
    /// INITs and INIT ACKs of this host that came back from another address.
    pub reflected: u64,
    /// COOKIE ECHOs that arrived after the lifetime of their cookie.
    pub stale_cookies: u64,
    /// Replies dropped because too many replies waited to be sent.
    pub replies_dropped: u64,
    /// INITs dropped because of [`Limits::inits`](crate::Limits::inits).
    pub inits_limited: u64,
    /// Suppressed answers to packets out of the blue, over the limit [`Limits::stray_answers`](crate::Limits::stray_answers).
    pub strays_limited: u64,
    /// COOKIE ECHOs whose cookie had already created an association that has ended.
    pub spent_cookies: u64,
    /// Associations refused because too many existed, or memory was short.
    pub out_of_resource: u64,
    /// Trace records that newer records replaced before they were polled.
    pub trace_lost: u64,
    /// Bytes that all associations held at the last count. The value may lag behind small changes.
    pub memory: usize,
    /// INITs dropped because the INIT ACK would have been more than three times as long as the INIT.
    pub inits_too_short: u64,
    /// Packets that were not sealed, but were addressed to an association that accepts only sealed packets.
    pub unsealed: u64,
    /// Sealed packets that no key could open.
    pub not_opened: u64,
    /// Sealed packets that had arrived before, or were too old for a check whether they had arrived before.
    pub replayed: u64,
}

//! Status of the daemon: connections, associations, paths, listeners, fallbacks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rules::UnixMs;
use serde::{Deserialize, Serialize};

use crate::{
    AddressUse, Confinement, FallbackReason, HostKeyText, KnownBy, LinkBytes, LinkCap, PathChangeCount,
    PathEvent, PeerLink, PendingChange, ShimState,
};

/// Status of the daemon.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process ID.
    pub pid: u32,
    /// Seconds since the daemon's start.
    pub uptime_s: u64,
    /// Time of the daemon's start, in milliseconds since 1970.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// SCTP is enabled (setting `enable`).
    pub enabled: bool,
    /// Counters since the daemon's start.
    pub counters: Counters,
    /// Durations of the packet loop's turns, during which packets wait.
    #[serde(default)]
    pub turns: TurnTimes,
    /// Connections that are carried over SCTP or wait for it.
    pub connections: Vec<Connection>,
    /// Associations with peers.
    pub associations: Vec<Association>,
    /// Carriers of SCTP packets.
    #[serde(default)]
    pub carriers: Vec<OpenCarrier>,
    /// Listeners of this host that other hosts can reach over TCP. Listeners in the state LISTEN can also be reached over SCTP.
    pub listeners: Vec<Listener>,
    /// The latest connections that did not use SCTP although the rules allowed it, latest first.
    pub recent_fallbacks: Vec<Fallback>,
    /// Counts, since the daemon's start, of connections that did not use SCTP although the rules allowed it, by kind of reason.
    #[serde(default)]
    pub fallbacks: Vec<FallbackCount>,
    /// Numbers of path changes since the start, by kind and reason.
    #[serde(default)]
    pub path_changes: Vec<PathChangeCount>,
    /// This host's links to the peers of its associations.
    #[serde(default)]
    pub links: Vec<PeerLink>,
    /// Bytes that each link of this host has carried since the start.
    #[serde(default)]
    pub link_bytes: Vec<LinkBytes>,
    /// The traffic of this host's links with a cap, in the current month.
    #[serde(default)]
    pub link_caps: Vec<LinkCap>,
    /// The latest changes of links and paths, latest first.
    #[serde(default)]
    pub recent_events: Vec<PathEvent>,
    /// New connections use TCP, because the daemon will be stopped.
    #[serde(default)]
    pub draining: bool,
    /// Restrictions on the daemon's worker since its set-up.
    #[serde(default)]
    pub confinement: Confinement,
    /// Settings whose configured value waits for a restart.
    #[serde(default)]
    pub pending: Vec<PendingChange>,
}

/// Number of connections that did not use SCTP for a reason of this kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FallbackCount {
    /// Kind of the reason, from [`FallbackReason::kind`].
    pub reason: String,
    /// Number of connections.
    pub count: u64,
}

/// Durations of the packet loop's turns since the daemon's start. Packets and new connections wait during a turn.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TurnTimes {
    /// Upper bounds of the buckets of a histogram, in microseconds; the last bucket has no bound.
    pub bounds_us: Vec<u64>,
    /// Number of turns in each bucket, without the turns in lower buckets.
    pub counts: Vec<u64>,
    /// Total time of all turns, in microseconds.
    pub sum_us: u64,
}

/// Counters since the daemon's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Connections of local programs that the daemon examined.
    pub connects_seen: u64,
    /// Connections of local programs that were carried over SCTP.
    pub connects_sctp: u64,
    /// Connections of local programs that the rules allowed to use SCTP, but that did not use SCTP. They fell back to TCP, or failed
    /// because SCTP or a key is required.
    pub connects_fallback: u64,
    /// Connections of local programs that the rules kept on TCP.
    pub connects_by_rule_tcp: u64,
    /// Connections of local programs that the rules allowed to use SCTP, but that used TCP at once. Their destinations are cached as not
    /// supporting SCTP.
    #[serde(default)]
    pub connects_learned_tcp: u64,
    /// Connections of local programs that were carried over a shared association.
    #[serde(default)]
    pub connects_shared: u64,
    /// Shared associations that were established.
    #[serde(default)]
    pub shared_associations: u64,
    /// Connections of peers that were delivered to local listeners.
    pub accepts: u64,
    /// Connections of peers that were refused, for example because no rule allows them or no program listens.
    pub accepts_refused: u64,
    /// Attempts of peers to begin an association without the key that this host shares with them (setting `peer_keys`).
    #[serde(default)]
    pub wrong_keys: u64,
    /// Encrypted associations that were established.
    #[serde(default)]
    pub encrypted: u64,
    /// Associations with an address at which the known key was not found: the peer has another key, or none.
    #[serde(default)]
    pub changed_peers: u64,
    /// Associations that ended because the hosts did not agree on keys.
    #[serde(default)]
    pub failed_keys: u64,
    /// Bytes that were taken from local programs and acknowledged by peers.
    pub bytes_sent: u64,
    /// Bytes that were delivered to local programs.
    pub bytes_received: u64,
    /// Number of times that the data of an association moved to another path.
    pub path_switches: u64,
}

/// Role of this host in a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A local program opened the connection.
    Client,
    /// A local program accepted the connection.
    Server,
}

/// Transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Via {
    /// SCTP in UDP (RFC 6951).
    #[serde(rename = "sctp-udp")]
    SctpUdp,
    /// SCTP over IP protocol 132.
    #[serde(rename = "sctp")]
    Sctp,
    /// Plain TCP.
    #[serde(rename = "tcp")]
    Tcp,
}

/// One connection of a local program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Number that the daemon has given the connection.
    pub id: u64,
    /// Role of this host in the connection.
    pub role: Role,
    /// The program's own address.
    pub local: SocketAddr,
    /// The peer's address, as the program sees it.
    pub peer: SocketAddr,
    /// Shim state of the connection.
    pub state: ShimState,
    /// Its transport.
    pub carrier: Via,
    /// Reason why the connection uses TCP; `None` if it does not use TCP.
    pub fallback: Option<FallbackReason>,
    /// Bytes from the local program to the peer.
    pub bytes_sent: u64,
    /// Bytes from the peer to the local program.
    pub bytes_received: u64,
    /// Open directions of the connection.
    pub open: Direction,
    /// Seconds since the connection began.
    pub age_s: u64,
    /// Number of the connection's association ([`Association::id`]), if any.
    pub association: Option<u64>,
}

/// Open directions of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both directions.
    Both,
    /// Only the direction towards the peer is open. The peer has closed its own direction.
    Sending,
    /// Only the direction towards the local program is open. The program has closed its own direction.
    Receiving,
    /// Neither direction. Data in flight is still being delivered.
    Closing,
}

/// One association with a peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Association {
    /// Number that the daemon has given the association.
    pub id: u64,
    /// State in the words of RFC 9260: COOKIE-WAIT, ESTABLISHED and so on.
    pub state: String,
    /// The peer's address with which the association began; 0.0.0.0 if an older daemon does not report it.
    #[serde(default = "unspecified")]
    pub peer: IpAddr,
    /// Shim state: HIDDEN if this host began the association, NATIVE if the peer began it.
    #[serde(default)]
    pub shim: ShimState,
    /// This host's SCTP port.
    pub local_port: u16,
    /// The peer's SCTP port.
    pub peer_port: u16,
    /// The peer uses sctpify. Other peers do not support half-close.
    pub peer_is_sctpify: bool,
    /// Seconds since the association began.
    pub age_s: u64,
    /// Bytes of user data that the peer has acknowledged.
    pub bytes_sent: u64,
    /// Bytes of user data received.
    pub bytes_received: u64,
    /// Number of DATA chunks that were sent again.
    pub retransmissions: u64,
    /// Bytes of user data that wait to be sent or acknowledged.
    pub queued_bytes: u64,
    /// The peer's receiver window, in bytes.
    pub peer_window_bytes: u64,
    /// Number of connections that share the association now; `None` if it is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_by: Option<u64>,
    /// Encryption of the association; `None` if its packets are in the clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// Paths of the association; the primary path comes first.
    pub paths: Vec<Path>,
}

/// Returns the placeholder for an unknown address.
pub(crate) const fn unspecified() -> IpAddr {
    IpAddr::V4(Ipv4Addr::UNSPECIFIED)
}

/// Encryption of an association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Encryption {
    /// The peer's proven key.
    pub peer: HostKeyText,
    /// Local name of the peer, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The way in which the key became known; `None` if it is not the key of a known peer.
    pub by: Option<KnownBy>,
    /// Time when the peer's key became known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_since: Option<UnixMs>,
    /// Epoch of the keys: 3 at first, and one more after each renewal.
    pub epoch: u64,
    /// Six words that people compare (`sctpify pair`). The words differ between the ends if an attacker is between the hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

/// The state of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// The path works, and can carry data.
    Active,
    /// The path has failed, and heartbeats probe it.
    Inactive,
    /// No heartbeat has confirmed the path yet, so it carries no data.
    Unconfirmed,
    /// The path missed an answer, loses too many packets, or is too slow. Heartbeats probe it, and data uses another path (RFC 7829).
    PotentiallyFailed,
}

/// One path of an association.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Path {
    /// This host's address; `None` while the kernel chooses it.
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: IpAddr,
    /// Encapsulation of its packets.
    pub carrier: Via,
    /// The peer's UDP port, if the carrier is UDP.
    pub udp_port: Option<u16>,
    /// State of the path.
    pub state: PathState,
    /// The path is the primary path.
    pub primary: bool,
    /// The path carries new data now.
    pub in_use: bool,
    /// Smoothed round-trip time, in microseconds; `None` before the first measurement.
    pub srtt_us: Option<u64>,
    /// Retransmission timeout, in milliseconds.
    pub rto_ms: u64,
    /// Congestion window, in bytes.
    pub cwnd_bytes: u64,
    /// Bytes sent and not yet acknowledged.
    pub flight_bytes: u64,
    /// Bytes of user data sent over this path, without retransmissions.
    pub data_sent_bytes: u64,
    /// Size of the largest packet on the path, in bytes.
    pub mtu_bytes: u32,
    /// Number of consecutive errors.
    pub errors: u32,
    /// Interface of the path on this host; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The operator's name for the link, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Use of this host's address, from the policy of its link.
    #[serde(default)]
    pub local_use: AddressUse,
    /// Use of the peer's address, as the peer has reported it.
    #[serde(default)]
    pub remote_use: AddressUse,
    /// Bytes of SCTP packets that were sent over the path.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Bytes of SCTP packets that were received over the path.
    #[serde(default)]
    pub received_bytes: u64,
    /// Seconds since data last moved to or from this path; `None` if it never moved.
    pub last_switch_s: Option<u64>,
}

/// A carrier that the settings enable, open or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenCarrier {
    /// Encapsulation of the carrier's packets.
    pub carrier: Via,
    /// UDP port of the carrier, if it is UDP.
    pub udp_port: Option<u16>,
    /// Reason why the carrier is not open; `None` if it is open. The daemon retries every few seconds.
    pub problem: Option<String>,
}

/// A listener of this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listener {
    /// Address to which the listener is bound.
    pub address: SocketAddr,
    /// Shim state of the listener.
    pub state: ShimState,
    /// Reason for the state: a rule, a default policy, a request or an obstacle. An obstacle prevents SCTP although the rules allow it.
    pub because: String,
}

/// A connection that did not use SCTP although the rules allowed it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fallback {
    /// Time of the fallback, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// The connection's destination.
    pub destination: SocketAddr,
    /// Time for which the connection's SYN was held, in microseconds.
    pub held_us: u64,
    /// Shim state of the connection since the fallback.
    #[serde(default)]
    pub state: ShimState,
    /// Reason for the fallback.
    pub reason: FallbackReason,
}

/// The paths of all associations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathsReport {
    /// The associations with their paths.
    pub associations: Vec<Association>,
}

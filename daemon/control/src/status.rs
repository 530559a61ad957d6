//! Status of the daemon: connections, associations, paths, listeners, fallbacks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rules::UnixMs;
use serde::{Deserialize, Serialize};

use crate::{
    AddressUse, Confinement, FallbackReason, HostKeyText, KnownBy, LinkBytes, PathChangeCount, PathEvent,
    PeerLink, PendingChange, ShimState,
};

/// Status of the daemon.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Seconds since the daemon's start.
    pub uptime_s: u64,
    /// Time of the daemon's start, in milliseconds since 1970.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// The global switch.
    pub enabled: bool,
    /// Sums since the start.
    pub counters: Counters,
    /// Durations of the packet loop's turns, during which packets wait.
    #[serde(default)]
    pub turns: TurnTimes,
    /// Connections that are carried over SCTP or wait for it.
    pub connections: Vec<Connection>,
    /// Associations with peers.
    pub associations: Vec<Association>,
    /// Encapsulations of SCTP packets.
    #[serde(default)]
    pub carriers: Vec<OpenCarrier>,
    /// Listeners of this host that other hosts reach over TCP; over SCTP they reach those in state LISTEN.
    pub listeners: Vec<Listener>,
    /// The last connections that the rules allowed and that did not use SCTP, latest first.
    pub recent_fallbacks: Vec<Fallback>,
    /// Number of connections since the start that the rules allowed and that did not use SCTP, by kind of reason.
    #[serde(default)]
    pub fallbacks: Vec<FallbackCount>,
    /// Changes of paths since the start, by kind and reason.
    #[serde(default)]
    pub path_changes: Vec<PathChangeCount>,
    /// This host's links to the peers of its associations.
    #[serde(default)]
    pub links: Vec<PeerLink>,
    /// Bytes by each link of this host since the start.
    #[serde(default)]
    pub link_bytes: Vec<LinkBytes>,
    /// The last changes of links and paths, latest first.
    #[serde(default)]
    pub recent_events: Vec<PathEvent>,
    /// New connections are left to TCP because the daemon is about to be stopped.
    #[serde(default)]
    pub draining: bool,
    /// Privileges that the daemon has given up since its set-up.
    #[serde(default)]
    pub confinement: Confinement,
    /// Settings whose configured value waits for a restart.
    #[serde(default)]
    pub pending: Vec<PendingChange>,
}

/// Number of connections that did not use SCTP for a reason of this kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FallbackCount {
    /// Kind of the reason, as in [`Fallback`].
    pub reason: String,
    /// Number of connections.
    pub count: u64,
}

/// Durations of the packet loop's turns since the daemon started: packets and new connections wait during a turn.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TurnTimes {
    /// Upper bounds of the buckets of a histogram, in microseconds; the last bucket has none.
    pub bounds_us: Vec<u64>,
    /// Number of turns in each bucket, not cumulative.
    pub counts: Vec<u64>,
    /// Time of all turns together, in microseconds.
    pub sum_us: u64,
}

/// Sums since the daemon started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Connections of local programs that the daemon examined.
    pub connects_seen: u64,
    /// Connections of local programs that were carried over SCTP.
    pub connects_sctp: u64,
    /// Connections of local programs that the rules allowed and that fell back to TCP, or failed because SCTP or a key is required.
    pub connects_fallback: u64,
    /// Connections of local programs that the rules kept on TCP.
    pub connects_by_rule_tcp: u64,
    /// Connections of local programs that the rules allowed and that used TCP at once: their destination is cached as not supporting
    /// SCTP.
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
    /// Connections of peers that were refused, by rule or because nothing listens.
    pub accepts_refused: u64,
    /// Attempts of peers to begin an association without this host's shared key for them (setting `peer_keys`).
    #[serde(default)]
    pub wrong_keys: u64,
    /// Encrypted associations that were established.
    #[serde(default)]
    pub encrypted: u64,
    /// Associations with an address that had another key than the known one, or no key any more.
    #[serde(default)]
    pub changed_peers: u64,
    /// Associations that ended because the hosts did not agree on keys.
    #[serde(default)]
    pub failed_keys: u64,
    /// Bytes taken from local programs and acknowledged by peers.
    pub bytes_sent: u64,
    /// Bytes given to local programs.
    pub bytes_received: u64,
    /// Number of times that data of an association moved to another path.
    pub path_switches: u64,
}

/// The end of the connection that is on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A local program connected.
    Client,
    /// A local program accepted.
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
    /// The daemon's number for it.
    pub id: u64,
    /// The end on this host.
    pub role: Role,
    /// The program's own address.
    pub local: SocketAddr,
    /// The peer's address, as the program sees it.
    pub peer: SocketAddr,
    /// Its shim state.
    pub state: ShimState,
    /// Its transport.
    pub carrier: Via,
    /// The reason why it is carried over TCP, if it is.
    pub fallback: Option<FallbackReason>,
    /// Bytes from the local program to the peer.
    pub bytes_sent: u64,
    /// Bytes from the peer to the local program.
    pub bytes_received: u64,
    /// Its open directions.
    pub open: Direction,
    /// Seconds since it began.
    pub age_s: u64,
    /// Number of its association ([`Association::id`]).
    pub association: Option<u64>,
}

/// Open directions of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both.
    Both,
    /// Only towards the peer, which has closed its own direction.
    Sending,
    /// Only towards the local program, which has closed its own direction.
    Receiving,
    /// None: data in flight is being delivered.
    Closing,
}

/// One association with a peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Association {
    /// The daemon's number for it.
    pub id: u64,
    /// Its state in RFC 9260's words: COOKIE-WAIT, ESTABLISHED and so on.
    pub state: String,
    /// The peer's address with which it began; 0.0.0.0 if an older daemon does not report it.
    #[serde(default = "unspecified")]
    pub peer: IpAddr,
    /// Its shim state: HIDDEN if this host began it, NATIVE if the peer did.
    #[serde(default)]
    pub shim: ShimState,
    /// This host's SCTP port.
    pub local_port: u16,
    /// The peer's SCTP port.
    pub peer_port: u16,
    /// The peer uses sctpify; if not, half-close is not possible.
    pub peer_is_sctpify: bool,
    /// Seconds since it began.
    pub age_s: u64,
    /// Bytes of user data that the peer has acknowledged.
    pub bytes_sent: u64,
    /// Bytes of user data received.
    pub bytes_received: u64,
    /// DATA chunks sent again.
    pub retransmissions: u64,
    /// Bytes of user data that wait to be sent or acknowledged.
    pub queued_bytes: u64,
    /// The peer's receiver window, in bytes.
    pub peer_window_bytes: u64,
    /// Number of connections that share it now; none if it is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_by: Option<u64>,
    /// Its encryption; none if its packets are in the clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// Its paths; the primary first.
    pub paths: Vec<Path>,
}

/// Returns the address that stands for an unknown one.
pub(crate) const fn unspecified() -> IpAddr {
    IpAddr::V4(Ipv4Addr::UNSPECIFIED)
}

/// Encryption of an association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Encryption {
    /// The peer's proven key.
    pub peer: HostKeyText,
    /// The peer's name here, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The way in which the key became known; none if it is not the key of a known peer.
    pub by: Option<KnownBy>,
    /// Time of the first connection to the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_since: Option<UnixMs>,
    /// The epoch of the keys: 3 at first, and one more after each renewal.
    pub epoch: u64,
    /// Six words, which differ between the ends if an attacker is between them. People compare them (`sctpify pair`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

/// The state of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// Carries data, or could.
    Active,
    /// Failed; probed by heartbeats.
    Inactive,
    /// Not proven by a heartbeat yet; carries no data.
    Unconfirmed,
    /// Missed an answer, loses too much or is too slow; it is probed, and data uses another path (RFC 7829).
    PotentiallyFailed,
}

/// One path of an association.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Path {
    /// This host's address; none while the kernel chooses it.
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: IpAddr,
    /// Encapsulation of its packets.
    pub carrier: Via,
    /// The peer's UDP port, if the carrier is UDP.
    pub udp_port: Option<u16>,
    /// Its state.
    pub state: PathState,
    /// It is the primary path.
    pub primary: bool,
    /// It carries new data now.
    pub in_use: bool,
    /// Smoothed round-trip time in microseconds, once measured.
    pub srtt_us: Option<u64>,
    /// Retransmission time-out in milliseconds.
    pub rto_ms: u64,
    /// Congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Bytes sent and not yet acknowledged.
    pub flight_bytes: u64,
    /// Bytes of user data sent over this path, without retransmissions.
    pub data_sent_bytes: u64,
    /// Largest packet, in bytes.
    pub mtu_bytes: u32,
    /// Consecutive errors.
    pub errors: u32,
    /// Its interface on this host; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The name that the operator has given its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Use of this host's address, by the policy of its link.
    #[serde(default)]
    pub local_use: AddressUse,
    /// Use of the peer's address, as the peer has reported it.
    #[serde(default)]
    pub remote_use: AddressUse,
    /// Bytes of SCTP packets sent over it.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Bytes of SCTP packets received over it.
    #[serde(default)]
    pub received_bytes: u64,
    /// Seconds since data last moved to or away from this path; none if it never did.
    pub last_switch_s: Option<u64>,
}

/// A carrier that the settings enable, open or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenCarrier {
    /// Its encapsulation.
    pub carrier: Via,
    /// Its UDP port, if it is UDP.
    pub udp_port: Option<u16>,
    /// The reason why it is not open; the daemon retries every few seconds.
    pub problem: Option<String>,
}

/// A listener of this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listener {
    /// The address it is bound to.
    pub address: SocketAddr,
    /// Its shim state.
    pub state: ShimState,
    /// The rule, default or request behind its state, or the obstacle to SCTP if the rules allow SCTP.
    pub because: String,
}

/// One connection that the rules allowed and that did not use SCTP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fallback {
    /// Time in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// The connection's destination.
    pub destination: SocketAddr,
    /// Time for which its SYN was held, in microseconds.
    pub held_us: u64,
    /// Its shim state since then.
    #[serde(default)]
    pub state: ShimState,
    /// The reason.
    pub reason: FallbackReason,
}

/// The paths of all associations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathsReport {
    /// The associations with their paths.
    pub associations: Vec<Association>,
}

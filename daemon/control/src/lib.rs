//! The protocol of the control socket, and the files of the daemon.
//!
//! Requests and responses are JSON objects, one per line: a [`Request`], then its [`Response`]. Both contain `"schema": 1`. The name of a
//! numeric field includes the unit. A request with an unknown field or another schema is refused. A reader of responses ignores unknown
//! fields, so fields can be added within a schema.
//!
//! The daemon refuses requests longer than [`ops::MAX_REQUEST_BYTES`], or longer than [`ops::MAX_ORDER_BYTES`] from a user who may change
//! the rules. A client refuses responses longer than [`ops::MAX_RESPONSE_BYTES`]. Unknown configuration keys are refused. Invariant: a file
//! is replaced as a whole or stays unchanged.
//!
//! Begin with [`Request`]. A client uses [`Client`], and the daemon answers with [`serve`].

#![forbid(unsafe_code)]

mod args;
mod bench;
mod client;
mod config;
mod confinement;
mod doctor;
mod entries;
mod explain;
mod files;
mod frame;
mod known_peers;
mod learned;
mod link;
mod link_history;
mod metrics;
mod metrics_listener;
mod path_event;
mod peer_keys;
mod reason;
mod request;
mod response;
mod secret_file;
mod setting;
mod shim;
mod status;
mod traffic_file;
mod trial;

pub use args::{DEFAULT_CONFIG, DEFAULT_CONTROL, DEFAULT_STATE_DIR, DaemonArgs};
pub use args::{HOST_KEY_FILE_NAME, LEARNED_FILE_NAME, PEERS_FILE_NAME, RULES_FILE_NAME};
pub use bench::{BenchReport, BenchRow, Transport};
pub use client::{Client, ClientError};
pub use config::{ConfigError, default_config_text, parse_config, print_config, set_in_config};
pub use confinement::{Confinement, Measure};
pub use doctor::{Check, DoctorReport, Level, LinkTest, OwnAddress, PingReport, RoundTrips};
pub use explain::{Explanation, PastAttempt, Verdict};
pub use files::{FileError, load_config, load_rules, save_rules, save_setting};
pub use frame::{read_request, read_response, serve, write_request, write_response};
pub use known_peers::{ADDRESSES_MAX, PEERS_MAX, load_peers, parse_peers, print_peers, save_peers};
pub use known_peers::{
    AddError, HostKeyText, KnownBy, KnownPeer, KnownPeers, KnownPeersError, NoHostKey, Recognition, WrongPeer,
};
pub use learned::{LearnedRow, LearnedState, load_learned, parse_learned, print_learned, save_learned};
pub use link::{AddressUse, AtCap, LinkBytes, LinkCap, LinkState, LinkSum, PeerLink, links_of};
pub use link_history::{
    LinkHistories, LinkHistory, LinkReading, Samples, load_history, parse_history, print_history,
    save_history,
};
pub use metrics::metrics;
pub use metrics_listener::bind_metrics;
pub use path_event::{PathChange, PathChangeCount, PathEnds, PathEvent, PathReason};
pub use peer_keys::{PeerKey, PeerKeyError, parse_peer_keys, read_peer_keys};
pub use reason::{EncryptionFault, FallbackReason, KeyFault, Requirement};
pub use request::{Request, RuleSelector};
pub use response::{
    Added, DefaultPolicy, Done, ErrorCode, EventsReport, HistoryReport, HostKeyReport, PeersReport,
};
pub use response::{Refusal, Response, RuleRow, RulesReport};
pub use secret_file::SecretFileError;
pub use setting::{PendingChange, SettingRow, SettingsReport};
pub use shim::{ShimState, ShimStep};
pub use status::{
    Association, Connection, Counters, Direction, Encryption, Fallback, FallbackCount, Listener, OpenCarrier,
    Path, PathState, PathsReport, TurnTimes,
};
pub use status::{Role, Status, Via};
pub use traffic_file::{load_traffic, parse_traffic, print_traffic, save_traffic};
pub use trial::{bind_page, try_setting, udp_port_problem};

/// Address of the daemon's end of the only link in the network namespace of `sctpify run`. If the host's name server listens on the host's
/// loopback, the command reaches the name server at this address.
pub const STAND_IN_NAME_SERVER: std::net::Ipv4Addr = std::net::Ipv4Addr::new(169, 254, 132, 2);

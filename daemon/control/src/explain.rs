//! Explanation of the daemon's decision on a connection.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use ops::LimitedBy;

use crate::{Fallback, FallbackReason, LearnedRow};

/// The daemon's decision on a connection to one address and port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The destination.
    pub address: IpAddr,
    /// TCP port of the destination.
    pub port: u16,
    /// The transport that would be tried.
    pub verdict: Verdict,
    /// Rule or default policy that decides, as text for people.
    pub because: String,
    /// Reason for plain TCP; `None` if SCTP would be tried.
    pub reason: Option<FallbackReason>,
    /// Entry of the capability cache for the destination or its host, if any.
    #[serde(default)]
    pub learned: Option<LearnedRow>,
    /// Current number of connections to the destination over SCTP.
    pub connections: usize,
    /// Number of established connections to the destination over SCTP, for each cause that limits the sending rate.
    #[serde(default)]
    pub limited_by: BTreeMap<LimitedBy, usize>,
    /// Bytes that wait to be sent for the first time, in the associations of the connections to the destination.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Outcomes of the latest connections to the destination, latest first.
    pub past: Vec<PastAttempt>,
    /// Further notes for people, such as "this peer does not support half-close".
    pub notes: Vec<String>,
}

/// The transport that would be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// SCTP; TCP if the peer does not answer in time.
    SctpThenTcp,
    /// SCTP; an error if the peer does not answer in time, because a rule requires SCTP.
    SctpOnly,
    /// Plain TCP at once.
    Tcp,
}

/// Outcome of one connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum PastAttempt {
    /// The connection was carried over SCTP.
    Sctp {
        /// Start of the connection, in milliseconds since 1970.
        when_unix_ms: u64,
        /// Duration of the set-up, in microseconds.
        setup_us: u64,
    },
    /// The connection fell back to TCP.
    Tcp(Fallback),
}

//! Explanation of the daemon's decision on a connection.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use ops::LimitedBy;

use crate::{Fallback, FallbackReason, LearnedRow};

/// The daemon's decision on a connection to one address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The destination.
    pub address: IpAddr,
    /// Its TCP port.
    pub port: u16,
    /// The transport that would be tried.
    pub verdict: Verdict,
    /// The rule or default that decides, for people.
    pub because: String,
    /// The reason, if it would be TCP.
    pub reason: Option<FallbackReason>,
    /// The entry of the capability cache for it or for its host, if any.
    #[serde(default)]
    pub learned: Option<LearnedRow>,
    /// Current number of connections to it over SCTP.
    pub connections: usize,
    /// Current limits on the sending of established ones: the number of connections by limit.
    #[serde(default)]
    pub limited_by: BTreeMap<LimitedBy, usize>,
    /// Bytes that wait on their associations and were never sent.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Outcomes of the last connections to it, latest first.
    pub past: Vec<PastAttempt>,
    /// Further notes for people: "this peer does not support half-close".
    pub notes: Vec<String>,
}

/// The transport that would be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// SCTP, and TCP if the peer does not answer in time.
    SctpThenTcp,
    /// SCTP, and an error if the peer does not answer in time: a rule requires it.
    SctpOnly,
    /// Plain TCP at once.
    Tcp,
}

/// Outcome of one connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum PastAttempt {
    /// It was carried over SCTP.
    Sctp {
        /// Start, in milliseconds since 1970.
        when_unix_ms: u64,
        /// Duration of the set-up, in microseconds.
        setup_us: u64,
    },
    /// It fell back to TCP.
    Tcp(Fallback),
}

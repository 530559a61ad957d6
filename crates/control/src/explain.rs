//! What would happen to a connection, and why.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Fallback, FallbackReason, LearnedRow, LimitedBy};

/// What the daemon would do with a connection to one address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The destination.
    pub address: IpAddr,
    /// Its TCP port.
    pub port: u16,
    /// What would be tried.
    pub verdict: Verdict,
    /// Which rule or default says so, for people.
    pub because: String,
    /// Why it would be TCP, if it would.
    pub reason: Option<FallbackReason>,
    /// What was learned of it, or of its host; none if nothing was.
    #[serde(default)]
    pub learned: Option<LearnedRow>,
    /// How many connections to it ride SCTP now.
    pub connections: usize,
    /// What keeps those of them that are up from sending more now: how many are limited by what.
    #[serde(default)]
    pub limited_by: BTreeMap<LimitedBy, usize>,
    /// Bytes that wait on their associations and were never sent.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// What happened to the last connections to it, latest first.
    pub past: Vec<PastAttempt>,
    /// More to know, for people: "half-close is not possible with this peer".
    pub notes: Vec<String>,
}

/// What would be tried.
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

/// What happened to one connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum PastAttempt {
    /// It rode SCTP.
    Sctp {
        /// When it began, in milliseconds since 1970.
        when_unix_ms: u64,
        /// How long the set-up took, in microseconds.
        setup_us: u64,
    },
    /// It fell back to TCP.
    Tcp(Fallback),
}

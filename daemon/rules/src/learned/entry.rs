//! Capability cache entry of one destination. Begin with [`LearnedEntry::on_failure`].

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::LearnPolicy;
use crate::usage::{Failure, Outcome, UnixMs, Usage};

/// Failures this close together count as one: many connections at once see the same lost packets.
const BURST_MS: u64 = 1_000;
/// Time for which a success protects a destination from being disabled by one failure.
const TRUST_MS: u64 = 86_400_000;

/// Entry of a host, or of one of its ports where that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LearnedEntry {
    /// The host.
    pub host: IpAddr,
    /// The port; none for the host as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The last port that a connection went to; probes use it.
    pub asked_port: u16,
    /// Connections and their outcomes.
    #[serde(rename = "tally")]
    pub usage: Usage,
    /// Time of the last connection that was carried over SCTP.
    #[serde(default, rename = "worked_unix_ms", skip_serializing_if = "Option::is_none")]
    pub worked: Option<UnixMs>,
    /// Other addresses at which it was reachable, the latest last; at most [`OTHERS_MAX`](super::OTHERS_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<IpAddr>,
    /// Number of consecutive failures since the last success or enabling; failures within [`BURST_MS`] count once.
    #[serde(default)]
    pub failures_in_row: u32,
    /// Time of the last of these failures.
    #[serde(default, rename = "failed_unix_ms")]
    pub failed: UnixMs,
    /// Duration of its last disabling, in milliseconds; zero if it never was disabled, or has worked since.
    #[serde(default)]
    pub hold_ms: u64,
    /// Start, end and reason of disabling; none if SCTP is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// Time of the last evidence from an attempt or a probe.
    #[serde(default, rename = "judged_unix_ms")]
    pub judged: UnixMs,
    /// A connection was kept on TCP since the last attempt: a probe is worth its packets.
    #[serde(default)]
    pub wanted: bool,
    /// A probe is under way.
    #[serde(skip)]
    pub probing: bool,
}

/// The reason and the duration for which a destination is kept on TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Disabled {
    /// Outcome of the last attempt or probe.
    pub failure: Failure,
    /// Time when it was first found.
    #[serde(rename = "since_unix_ms")]
    pub since: UnixMs,
    /// Time from which it may be probed.
    #[serde(rename = "until_unix_ms")]
    pub until: UnixMs,
}

impl LearnedEntry {
    pub(super) fn new(host: IpAddr, port: Option<u16>, asked_port: u16) -> LearnedEntry {
        LearnedEntry {
            host,
            port,
            asked_port,
            usage: Usage::default(),
            worked: None,
            others: Vec::new(),
            failures_in_row: 0,
            failed: UnixMs::default(),
            hold_ms: 0,
            disabled: None,
            judged: UnixMs::default(),
            wanted: false,
            probing: false,
        }
    }

    /// Reports whether it is disabled and its time has expired. An end further ahead than the duration of disabling counts as
    /// expired: the clock was set back.
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.disabled.is_some_and(|d| now >= d.until || d.until.since(now) > self.hold_ms)
    }

    /// Returns the time of its last use: the order in which a full table forgets.
    pub(super) fn last_used(&self) -> UnixMs {
        self.usage.last_call.unwrap_or_default()
    }

    /// Replaces this entry with the one of another machine for the same destination, if its evidence is later; returns whether it did.
    /// Keeps the counts and `others` of this machine: connections go to those addresses, so no other machine may set them.
    pub(super) fn take_over(&mut self, other: LearnedEntry) -> bool {
        let is_newer = other.judged > self.judged;
        if is_newer {
            let own = std::mem::replace(self, other);
            (self.usage, self.others) = (own.usage, own.others);
            (self.wanted, self.probing) = (own.wanted, own.probing);
            self.worked = self.worked.max(own.worked);
        }
        is_newer
    }

    /// Handles a connection that was carried over SCTP, and counts it.
    pub(super) fn on_success(&mut self, now: UnixMs, rtt_us: Option<u64>) {
        self.usage.count(now, Outcome::Sctp { rtt_us });
        self.worked = Some(now);
        self.enable(now);
        self.hold_ms = 0;
    }

    /// Handles a failed connection, which the caller counts. Disables the destination if it is not known to have worked, or has
    /// failed too often in a row.
    pub(super) fn on_failure(&mut self, now: UnixMs, failure: Failure, policy: &LearnPolicy) {
        if self.disabled.is_some() {
            // A connection that began earlier.
            return;
        }
        let is_same_burst = self.failures_in_row > 0 && now.since(self.failed) < BURST_MS;
        if !is_same_burst {
            self.failures_in_row = self.failures_in_row.saturating_add(1);
            (self.failed, self.judged) = (now, now);
        }
        let has_worked = self.worked.is_some_and(|worked| now.since(worked) < TRUST_MS);
        if self.failures_in_row >= if has_worked { policy.failures } else { 1 } {
            self.disable(now, failure, policy);
        }
    }

    /// Disables it: first for `policy.hold_ms`, then for twice the previous duration, up to `policy.longest_hold_ms()`.
    pub(super) fn disable(&mut self, now: UnixMs, failure: Failure, policy: &LearnPolicy) {
        self.hold_ms = self.hold_ms.saturating_mul(2).clamp(policy.hold_ms, policy.longest_hold_ms());
        let since = self.disabled.map_or(now, |d| d.since);
        self.disabled = Some(Disabled { failure, since, until: now.plus(self.hold_ms) });
        self.judged = now;
        self.wanted = false;
        self.probing = false;
    }

    /// Enables SCTP again. The duration of disabling is remembered until a connection has been carried over SCTP.
    pub(super) fn enable(&mut self, now: UnixMs) {
        self.judged = now;
        self.disabled = None;
        self.failures_in_row = 0;
        self.wanted = false;
        self.probing = false;
    }
}

//! Defines the capability cache's entry of one destination. Begin with [`LearnedEntry::on_failure`].

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::LearnPolicy;
use crate::usage::{Failure, Outcome, UnixMs, Usage};

/// Time in milliseconds within which failures count as one, because simultaneous connections see the same lost packets.
const BURST_MS: u64 = 1_000;
/// Time in milliseconds for which a success keeps one failure from disabling a destination.
const TRUST_MS: u64 = 86_400_000;

/// Entry of a host, or of one of its ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LearnedEntry {
    /// The host.
    pub host: IpAddr,
    /// The port; `None` for the whole host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Port of the last connection. Probes use it.
    pub asked_port: u16,
    /// Connections and their outcomes.
    #[serde(rename = "tally")]
    pub usage: Usage,
    /// Time of the last connection that was carried over SCTP.
    #[serde(default, rename = "worked_unix_ms", skip_serializing_if = "Option::is_none")]
    pub worked: Option<UnixMs>,
    /// Other addresses at which the host was reachable, the latest one last; up to [`OTHERS_MAX`](super::OTHERS_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<IpAddr>,
    /// Number of consecutive failures since the last success or enabling. Failures within [`BURST_MS`] count once.
    #[serde(default)]
    pub failures_in_row: u32,
    /// Time of the last failure that was counted in `failures_in_row`.
    #[serde(default, rename = "failed_unix_ms")]
    pub failed: UnixMs,
    /// Duration of the last disabling, in milliseconds. Zero if the destination has not been disabled since its last connection
    /// over SCTP.
    #[serde(default)]
    pub hold_ms: u64,
    /// Start, end and reason of disabling; `None` if SCTP is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// Time of the last evidence from an attempt or a probe.
    #[serde(default, rename = "judged_unix_ms")]
    pub judged: UnixMs,
    /// A connection has been kept on TCP since the last attempt, so a probe is worth its packets.
    #[serde(default)]
    pub wanted: bool,
    /// A probe is in progress.
    #[serde(skip)]
    pub probing: bool,
}

/// Reason for which a destination is kept on TCP, with the start and the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Disabled {
    /// Failure of the last attempt or probe.
    pub failure: Failure,
    /// Time at which the destination was disabled first.
    #[serde(rename = "since_unix_ms")]
    pub since: UnixMs,
    /// Time from which the destination may be probed.
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

    /// Reports whether the destination is disabled and its time has expired. An end that is further ahead than `hold_ms` also
    /// counts as expired, because the clock was set back.
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.disabled.is_some_and(|d| now >= d.until || d.until.since(now) > self.hold_ms)
    }

    /// Returns the time of the last use. A full table forgets the least recently used entry first.
    pub(super) fn last_used(&self) -> UnixMs {
        self.usage.last_call.unwrap_or_default()
    }

    /// Replaces this entry with another machine's entry for the same destination, if that one has later evidence. Reports
    /// whether it did. Keeps this machine's counts and `others`: connections go to those addresses, so no other machine may set
    /// them.
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

    /// Handles a failed connection. The caller counts it. Disables the destination after `policy.failures` consecutive
    /// failures, or after the first one if the destination has not worked within [`TRUST_MS`].
    pub(super) fn on_failure(&mut self, now: UnixMs, failure: Failure, policy: &LearnPolicy) {
        if self.disabled.is_some() {
            // The connection began before the destination was disabled.
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

    /// Disables the destination, first for `policy.hold_ms`, then for twice the previous duration, up to
    /// `policy.longest_hold_ms()`.
    pub(super) fn disable(&mut self, now: UnixMs, failure: Failure, policy: &LearnPolicy) {
        self.hold_ms = self.hold_ms.saturating_mul(2).clamp(policy.hold_ms, policy.longest_hold_ms());
        let since = self.disabled.map_or(now, |d| d.since);
        self.disabled = Some(Disabled { failure, since, until: now.plus(self.hold_ms) });
        self.judged = now;
        self.wanted = false;
        self.probing = false;
    }

    /// Enables SCTP again. The duration of the last disabling is kept until a connection has been carried over SCTP.
    pub(super) fn enable(&mut self, now: UnixMs) {
        self.judged = now;
        self.disabled = None;
        self.failures_in_row = 0;
        self.wanted = false;
        self.probing = false;
    }
}

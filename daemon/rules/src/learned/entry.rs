//! Defines the learned table's entry for one destination. Begin with [`LearnedEntry::on_failure`].

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::LearnPolicy;
use crate::usage::{Failure, Outcome, UnixMs, Usage};

/// Time in milliseconds within which several failures count as one, because simultaneous connections see the same lost packets.
const BURST_MS: u64 = 1_000;
/// Time in milliseconds after a success in which a single failure does not disable the destination.
const TRUST_MS: u64 = 86_400_000;

/// Entry of the learned table: for a whole host, or for one of the host's ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LearnedEntry {
    /// The host.
    pub host: IpAddr,
    /// The port; `None` for the whole host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Port of the last connection. Probes use this port.
    pub asked_port: u16,
    /// Counts of connections and of their outcomes.
    #[serde(rename = "tally")]
    pub usage: Usage,
    /// Time of the last connection that was carried over SCTP.
    #[serde(default, rename = "worked_unix_ms", skip_serializing_if = "Option::is_none")]
    pub worked: Option<UnixMs>,
    /// Other addresses at which this host was reachable, the latest one last; up to [`OTHERS_MAX`](super::OTHERS_MAX)
    /// addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<IpAddr>,
    /// Number of consecutive failures since the destination last worked or was enabled. Failures within [`BURST_MS`] count as
    /// one.
    #[serde(default)]
    pub failures_in_row: u32,
    /// Time of the last failure that was counted in `failures_in_row`.
    #[serde(default, rename = "failed_unix_ms")]
    pub failed: UnixMs,
    /// Duration of the last disabling, in milliseconds. It is zero if the destination has not been disabled since the last
    /// connection that was carried over SCTP.
    #[serde(default)]
    pub hold_ms: u64,
    /// Start, end and reason of the present disabling; `None` if the destination is tried over SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// Time of the last evidence from an attempt or a probe.
    #[serde(default, rename = "judged_unix_ms")]
    pub judged: UnixMs,
    /// A connection has been kept on TCP since the last attempt, so a probe would be useful.
    #[serde(default)]
    pub wanted: bool,
    /// A probe is in progress.
    #[serde(skip)]
    pub probing: bool,
}

/// Reason why a destination is kept on TCP, with the start and the end of this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Disabled {
    /// Failure of the last attempt or probe.
    pub failure: Failure,
    /// Time at which the destination was disabled. Failed probes since then do not change this time.
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

    /// Reports whether the destination is disabled and the duration of the disabling has expired. An end that is more than
    /// `hold_ms` ahead also counts as expired, because the clock must have been set back.
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.disabled.is_some_and(|d| now >= d.until || d.until.since(now) > self.hold_ms)
    }

    /// Returns the time of the last use. A full table first forgets the entry that has not been used for the longest time.
    pub(super) fn last_used(&self) -> UnixMs {
        self.usage.last_call.unwrap_or_default()
    }

    /// Replaces this entry with another machine's entry for the same destination, if the other entry has later evidence.
    /// Reports whether the entry was replaced. Keeps this machine's counts and `others`. Connections go to the addresses in
    /// `others`, so no other machine may set them.
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

    /// Handles a connection that was carried over SCTP, and counts the connection.
    pub(super) fn on_success(&mut self, now: UnixMs, rtt_us: Option<u64>) {
        self.usage.count(now, Outcome::Sctp { rtt_us });
        self.worked = Some(now);
        self.enable(now);
        self.hold_ms = 0;
    }

    /// Handles a failed connection. The caller must count the connection. If the destination has worked within [`TRUST_MS`],
    /// disables it after `policy.failures` consecutive failures. Otherwise, disables it after the first failure.
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

    /// Disables the destination. The first disabling lasts `policy.hold_ms`. Each further disabling lasts twice as long as the
    /// previous one, up to `policy.longest_hold_ms()`.
    pub(super) fn disable(&mut self, now: UnixMs, failure: Failure, policy: &LearnPolicy) {
        self.hold_ms = self.hold_ms.saturating_mul(2).clamp(policy.hold_ms, policy.longest_hold_ms());
        let since = self.disabled.map_or(now, |d| d.since);
        self.disabled = Some(Disabled { failure, since, until: now.plus(self.hold_ms) });
        self.judged = now;
        self.wanted = false;
        self.probing = false;
    }

    /// Enables SCTP again. `hold_ms` keeps its value until a connection has been carried over SCTP.
    pub(super) fn enable(&mut self, now: UnixMs) {
        self.judged = now;
        self.disabled = None;
        self.failures_in_row = 0;
        self.wanted = false;
        self.probing = false;
    }
}

//! Remembers destinations that do not support SCTP, so connections to them are plain TCP at once.
//!
//! This is the table of the paper "TCP-to-SCTP Translation using Dynamic Rules-table": a destination that fails moves from
//! remote-enable to remote-disable. The destination is disabled for a time that doubles with each failure, up to a limit. If a
//! connection to the destination was requested during this time, the destination is probed afterwards. Connections stay TCP
//! until a probe is answered, so no application waits for a destination that is known to have failed. Evidence about the host
//! (no answer, ICMP) disables the host. Evidence about a port (a refusal, a failed handshake) disables only this port. A
//! destination that has worked within a day is disabled only after several consecutive failures.
//!
//! The table holds up to [`MAX_LEARNED`] entries. A full table first forgets the least recently used entry. The table refuses
//! addresses that cannot be the destination of a connection. It reads no clock and uses no randomness. Invariants: a port has
//! an entry only after a failure that concerned this port alone. The table enables no connection that a rule disables. The
//! caller must vouch for the evidence: local timeouts, and packets with this host's verification tag.
//!
//! Begin with [`LearnedTable::call`].

mod entry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

pub use entry::{Disabled, LearnedEntry};

use crate::usage::{Failure, Outcome, UnixMs, Usage};
use crate::{Settings, normalise};

/// Limit on the entries of the table.
pub const MAX_LEARNED: usize = 4096;

/// Limit on the remembered other addresses of a host.
pub const OTHERS_MAX: usize = 8;

/// Limit on the duration of disabling in an entry that is read from a file, in milliseconds. It is the maximum of the setting
/// `learned_hold_max_s`.
const HOLD_LIMIT_MS: u64 = 604_800_000;

/// Settings of the table's learning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LearnPolicy {
    /// Number of consecutive failures, at least 1, that disable a destination which has worked within a day.
    pub failures: u32,
    /// Duration of the first disabling, in milliseconds.
    pub hold_ms: u64,
    /// Limit on the duration of disabling, in milliseconds.
    pub hold_max_ms: u64,
}

impl LearnPolicy {
    /// Takes the policy from the settings.
    pub fn of(settings: &Settings) -> LearnPolicy {
        LearnPolicy {
            failures: settings.learned_failures,
            hold_ms: u64::from(settings.learned_hold_s) * 1000,
            hold_max_ms: u64::from(settings.learned_hold_max_s) * 1000,
        }
    }

    const fn longest_hold_ms(&self) -> u64 {
        if self.hold_max_ms > self.hold_ms { self.hold_max_ms } else { self.hold_ms }
    }
}

/// Capability cache of the destinations of this host's connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LearnedTable {
    /// Entries by host and port. The entry of a whole host precedes its ports, because `None` sorts first.
    entries: BTreeMap<(IpAddr, Option<u16>), LearnedEntry>,
    is_changed: bool,
}

impl LearnedTable {
    /// Notes the start of a connection to `to`. If the connection must be plain TCP at once, counts the connection and returns
    /// the entry that states the reason.
    pub fn call(&mut self, now: UnixMs, to: SocketAddr) -> Option<&LearnedEntry> {
        let key = self.verdict(to)?;
        self.is_changed = true;
        let host = (key.0, None);
        if key != host
            && let Some(entry) = self.entries.get_mut(&host)
        {
            entry.usage.count(now, Outcome::KeptOnTcp);
        }
        let entry = self.entries.get_mut(&key)?;
        entry.usage.count(now, Outcome::KeptOnTcp);
        entry.asked_port = to.port();
        entry.wanted = true;
        Some(entry)
    }

    /// Returns the entry that would keep a connection to `to` on TCP, if any. Counts nothing.
    pub fn explain(&self, to: SocketAddr) -> Option<&LearnedEntry> {
        self.verdict(to).and_then(|key| self.entries.get(&key))
    }

    /// Returns the entry of a host as a whole.
    pub fn host(&self, host: IpAddr) -> Option<&LearnedEntry> {
        self.entries.get(&(normalise(host), None))
    }

    /// Notes that a path to the address `other` of a host was confirmed. Has no effect on a host without an entry.
    pub fn note_address(&mut self, host: IpAddr, other: IpAddr) {
        let (host, other) = (normalise(host), normalise(other));
        let Some(entry) = self.entries.get_mut(&(host, None)) else { return };
        if host != other && is_destination(other) && !entry.others.contains(&other) {
            entry.others.push(other);
            keep_last(&mut entry.others);
            self.is_changed = true;
        }
    }

    /// Returns the other addresses at which a host was reached, the latest one last.
    pub fn others(&self, host: IpAddr) -> &[IpAddr] {
        self.host(host).map_or(&[], |entry| &entry.others)
    }

    fn verdict(&self, to: SocketAddr) -> Option<(IpAddr, Option<u16>)> {
        let host = normalise(to.ip());
        let keys = [(host, None), (host, Some(to.port()))];
        keys.into_iter().find(|key| self.entries.get(key).is_some_and(|entry| entry.disabled.is_some()))
    }

    /// Notes that a connection to `to` is carried over SCTP. `rtt_us` is the time from INIT to INIT ACK, in microseconds.
    pub fn on_success(&mut self, now: UnixMs, to: SocketAddr, rtt_us: Option<u64>) {
        let host = normalise(to.ip());
        self.entries.remove(&(host, Some(to.port())));
        if let Some(entry) = self.entry(host, None, to.port()) {
            entry.on_success(now, rtt_us);
        }
    }

    /// Notes that a connection to `to` fell back to TCP.
    pub fn on_failure(&mut self, now: UnixMs, to: SocketAddr, failure: Failure, policy: &LearnPolicy) {
        let host = normalise(to.ip());
        let Some(entry) = self.entry(host, None, to.port()) else { return };
        entry.usage.count(now, Outcome::Tcp(Some(failure)));
        if failure.is_of_host() {
            entry.on_failure(now, failure, policy);
            return;
        }
        // A host that answers an INIT supports SCTP.
        entry.enable(now);
        let worked = entry.worked;
        if let Some(entry) = self.entry(host, Some(to.port()), to.port()) {
            entry.usage.count(now, Outcome::Tcp(Some(failure)));
            entry.worked = entry.worked.or(worked);
            entry.on_failure(now, failure, policy);
        }
    }

    /// Returns a destination that must be probed, if any: connections to it were requested, and its disabling has expired. The
    /// destination counts as being probed until [`LearnedTable::on_probe`] reports the result.
    pub fn next_probe(&mut self, now: UnixMs) -> Option<SocketAddr> {
        let is_due = |entry: &&mut LearnedEntry| entry.wanted && !entry.probing && entry.is_expired(now);
        let entry = self.entries.values_mut().find(is_due)?;
        entry.probing = true;
        Some(SocketAddr::new(entry.host, entry.asked_port))
    }

    /// Notes the result of a probe of `to`: the time to the INIT ACK in microseconds, or the cause of the failure. An answer
    /// after `patience_us` or more also counts as a failure, because connections do not wait that long. If the entry was
    /// forgotten during the probe, the result has no effect.
    pub fn on_probe(
        &mut self,
        now: UnixMs,
        to: SocketAddr,
        outcome: Result<u64, Failure>,
        patience_us: u64,
        policy: &LearnPolicy,
    ) {
        let host = normalise(to.ip());
        let keys = [(host, None), (host, Some(to.port()))];
        let Some(key) = keys.into_iter().find(|key| self.entries.get(key).is_some_and(|e| e.probing)) else {
            return;
        };
        self.is_changed = true;
        let outcome = match outcome {
            Ok(rtt_us) if rtt_us >= patience_us => Err(Failure::TooSlow),
            other => other,
        };
        let is_port_only = matches!(outcome, Err(failure) if !failure.is_of_host() && key.1.is_none());
        let Some(entry) = self.entries.get_mut(&key) else { return };
        match outcome {
            Ok(rtt_us) => {
                entry.usage.rtt_us = Some(rtt_us);
                entry.enable(now);
            }
            Err(_) if is_port_only => entry.enable(now),
            Err(failure) => entry.disable(now, failure, policy),
        }
        if let Err(failure) = outcome
            && is_port_only
            && let Some(entry) = self.entry(host, Some(to.port()), to.port())
        {
            entry.disable(now, failure, policy);
        }
    }

    /// Forgets a host and its ports. Returns the number of removed entries.
    pub fn forget(&mut self, host: IpAddr) -> usize {
        let host = normalise(host);
        self.retain(|entry| entry.host != host)
    }

    /// Forgets everything. Returns the number of removed entries.
    pub fn clear(&mut self) -> usize {
        self.retain(|_| false)
    }

    fn retain(&mut self, keep: impl Fn(&LearnedEntry) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, entry| keep(entry));
        self.is_changed |= self.entries.len() < before;
        before - self.entries.len()
    }

    /// Returns all entries in the order of addresses. The entry of a host precedes the entries of its ports.
    pub fn iter(&self) -> impl Iterator<Item = &LearnedEntry> {
        self.entries.values()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a saved entry, in place of an existing entry for the same destination. Returns false if the saved entry is invalid.
    pub fn restore(&mut self, mut entry: LearnedEntry) -> bool {
        entry.host = normalise(entry.host);
        entry.probing = false;
        entry.hold_ms = entry.hold_ms.min(HOLD_LIMIT_MS);
        entry.others.retain(|other| is_destination(*other));
        keep_last(&mut entry.others);
        if !is_destination(entry.host) || entry.asked_port == 0 || entry.port == Some(0) {
            return false;
        }
        let key = (entry.host, entry.port);
        if !self.entries.contains_key(&key) {
            self.make_room();
        }
        self.entries.insert(key, entry);
        true
    }

    /// Adds another host's entry if it has later evidence than this table's entry. Returns false if the entry was not added.
    /// Evidence that is dated in the future counts as present evidence. The field `others` is never taken from another host.
    pub fn merge(&mut self, now: UnixMs, mut entry: LearnedEntry) -> bool {
        entry.judged = entry.judged.min(now);
        let key = (normalise(entry.host), entry.port);
        let Some(mut merged) = self.entries.get(&key).cloned() else {
            (entry.usage, entry.wanted, entry.others) = (Usage::default(), false, Vec::new());
            return self.restore(entry);
        };
        merged.take_over(entry) && self.restore_probing(merged)
    }

    /// Replaces an existing entry with `entry`, including the field `probing`, which `restore` would clear.
    fn restore_probing(&mut self, entry: LearnedEntry) -> bool {
        let (key, probing) = ((normalise(entry.host), entry.port), entry.probing);
        let is_taken = self.restore(entry);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.probing = probing;
        }
        self.is_changed |= is_taken;
        is_taken
    }

    /// Forgets one destination: a whole host without its ports, or one port.
    pub fn forget_one(&mut self, host: IpAddr, port: Option<u16>) {
        self.is_changed |= self.entries.remove(&(normalise(host), port)).is_some();
    }

    /// Reports whether any entry has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns the entry of a destination. Creates the entry if it is missing. Returns `None` if the address cannot be a
    /// destination.
    fn entry(&mut self, host: IpAddr, port: Option<u16>, asked_port: u16) -> Option<&mut LearnedEntry> {
        if !is_destination(host) {
            return None;
        }
        self.is_changed = true;
        if !self.entries.contains_key(&(host, port)) {
            self.make_room();
        }
        let made = || LearnedEntry::new(host, port, asked_port);
        let entry = self.entries.entry((host, port)).or_insert_with(made);
        entry.asked_port = asked_port;
        Some(entry)
    }

    fn make_room(&mut self) {
        if self.entries.len() < MAX_LEARNED {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_used()).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.entries.remove(&key);
        }
    }
}

/// Removes the oldest addresses beyond [`OTHERS_MAX`].
fn keep_last(others: &mut Vec<IpAddr>) {
    others.drain(..others.len().saturating_sub(OTHERS_MAX));
}

/// Reports whether this address can be the destination of a connection to another host.
fn is_destination(host: IpAddr) -> bool {
    !host.is_unspecified() && !host.is_multicast() && !host.is_loopback()
}

//! Records the latest connection attempts of local programs for `status` and `explain`. Also counts events since the daemon's
//! start, and limits the rates of log lines.
//!
//! Invariant: up to [`KEPT`] attempts are kept. A further attempt replaces the oldest one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::Discriminant;
use std::net::{IpAddr, SocketAddr};

use base::{Route, Time};
use control::{Counters, Fallback, FallbackCount, FallbackReason, PastAttempt, ShimState};
use sctp::AssociationId;

use crate::clock::unix_ms;
use crate::link_bytes::{Bytes, LinkBytes};
use crate::log_rate::LogRate;
use crate::shared::Ends;

/// Limit on the recorded attempts.
const KEPT: usize = 512;
/// Limit on the paths of one association for which the time of the last switch is recorded.
const PATHS_KEPT: usize = 16;
/// Limit on the past attempts that `explain` shows.
const EXPLAINED: usize = 5;
/// Limit on the connections without SCTP that `status` shows.
const SHOWN: usize = 32;

/// The latest attempts, newest first, and the totals since the daemon's start.
#[derive(Default)]
pub(crate) struct History {
    attempts: VecDeque<(SocketAddr, PastAttempt)>,
    last_switches: LastSwitches,
    counters: Counters,
    /// Number of connections that fell back or were refused, by kind of reason.
    fallbacks: BTreeMap<&'static str, u64>,
    link_bytes: LinkBytes,
    /// Rates of log lines about connections that fell back or were refused, by kind of reason.
    fallback_lines: HashMap<Discriminant<FallbackReason>, LogRate>,
    /// Rates of other log lines, by subject.
    lines: BTreeMap<Line, LogRate>,
}

/// Subject of log lines that a peer or a local program can cause in any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Connections of programs whose data contains no valid message, although the rule has a framing.
    Framing,
    /// Refused connections from peers.
    Refusal,
    /// Local programs that gave no answer to a connection.
    Unanswered,
    /// Events of shared associations.
    Shared,
    /// Peers that violate the protocol of shared associations.
    Fault,
    /// Peers with a wrong key.
    WrongKey,
    /// Failed key handshakes.
    Keys,
    /// Keys of new peers. The daemon learns such keys only from connections that this host has opened.
    NewPeer,
    /// Peers whose key has changed.
    ChangedPeer,
    /// Changes of paths.
    Path,
    /// Changes of peers' UDP ports.
    Port,
    /// Changes of peers' addresses.
    Address,
    /// Peers' answers to this host's ASCONF chunks, which request changes of this host's addresses.
    Answer,
}

/// An occurrence that [`Counters`] counts.
#[derive(Clone, Copy)]
pub(crate) enum Occurrence {
    ConnectSeen,
    ConnectByRuleTcp,
    ConnectLearnedTcp,
    ConnectShared,
    SharedAssociation,
    Accept,
    AcceptRefused,
    WrongKey,
    Encrypted,
    ChangedPeer,
    FailedKeys,
}

impl History {
    pub(crate) fn count(&mut self, occurrence: Occurrence) {
        let counters = &mut self.counters;
        *match occurrence {
            Occurrence::ConnectSeen => &mut counters.connects_seen,
            Occurrence::ConnectByRuleTcp => &mut counters.connects_by_rule_tcp,
            Occurrence::ConnectLearnedTcp => &mut counters.connects_learned_tcp,
            Occurrence::ConnectShared => &mut counters.connects_shared,
            Occurrence::SharedAssociation => &mut counters.shared_associations,
            Occurrence::Accept => &mut counters.accepts,
            Occurrence::AcceptRefused => &mut counters.accepts_refused,
            Occurrence::WrongKey => &mut counters.wrong_keys,
            Occurrence::Encrypted => &mut counters.encrypted,
            Occurrence::ChangedPeer => &mut counters.changed_peers,
            Occurrence::FailedKeys => &mut counters.failed_keys,
        } += 1;
    }

    /// Counts connections that the kernel let pass as plain TCP because of the rules or the default policy.
    pub(crate) fn count_passed(&mut self, connects: u64) {
        self.counters.connects_seen += connects;
        self.counters.connects_by_rule_tcp += connects;
    }

    /// Counts bytes that local programs sent and received over SCTP.
    pub(crate) fn count_bytes(&mut self, sent: u64, received: u64) {
        self.counters.bytes_sent += sent;
        self.counters.bytes_received += received;
    }

    pub(crate) const fn counters(&self) -> Counters {
        self.counters
    }

    /// Decides whether a line on this subject may be logged now. If so, returns the number of lines that were left out since the
    /// last logged line; otherwise returns `None`.
    pub(crate) fn admit(&mut self, line: Line, now: Time) -> Option<u64> {
        self.lines.entry(line).or_default().admit(now)
    }

    /// Records a connection over SCTP. Its setup took `setup_us` microseconds.
    pub(crate) fn succeeded(&mut self, destination: SocketAddr, setup_us: u64) {
        self.counters.connects_sctp += 1;
        self.remember(destination, PastAttempt::Sctp { when_unix_ms: unix_ms(), setup_us });
    }

    /// Records a connection that does not use SCTP although the rules allow SCTP. The connection becomes plain TCP. If the reason
    /// is [`FallbackReason::Required`], the connection is refused instead. Its SYN was held for `held_us` microseconds.
    pub(crate) fn fell_back(
        &mut self,
        now: Time,
        destination: SocketAddr,
        held_us: u64,
        state: ShimState,
        reason: FallbackReason,
    ) {
        self.counters.connects_fallback += 1;
        *self.fallbacks.entry(reason.kind()).or_default() += 1;
        let what = if matches!(reason, FallbackReason::Required { .. }) { "refused" } else { "plain TCP" };
        let lines = self.fallback_lines.entry(std::mem::discriminant(&reason)).or_default();
        if let Some(left_out) = lines.admit(now) {
            tracing::info!(%destination, held_us, %reason, left_out, "{what}");
        }
        let fallback = Fallback { when_unix_ms: unix_ms(), destination, held_us, state, reason };
        self.remember(destination, PastAttempt::Tcp(fallback));
    }

    /// Returns up to [`EXPLAINED`] attempts to this destination, newest first.
    pub(crate) fn of(&self, destination: SocketAddr) -> Vec<PastAttempt> {
        let same = self.attempts.iter().filter(|(to, _)| *to == destination);
        same.take(EXPLAINED).map(|(_, attempt)| attempt.clone()).collect()
    }

    /// Returns up to [`SHOWN`] of the latest connections that fell back or were refused, newest first.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let fallbacks = self.attempts.iter().filter_map(|(_, attempt)| match attempt {
            PastAttempt::Tcp(fallback) => Some(fallback.clone()),
            PastAttempt::Sctp { .. } => None,
        });
        fallbacks.take(SHOWN).collect()
    }

    /// Returns the numbers of connections that fell back or were refused since the daemon's start, by kind of reason.
    pub(crate) fn fallback_counts(&self) -> Vec<FallbackCount> {
        let count =
            |(kind, count): (&&str, &u64)| FallbackCount { reason: (*kind).to_owned(), count: *count };
        self.fallbacks.iter().map(count).collect()
    }

    /// Counts the bytes that an association exchanged with a peer on one path over this interface. Called when the association
    /// ends.
    pub(crate) fn count_link(&mut self, peer: IpAddr, interface: Option<String>, bytes: Bytes) {
        self.link_bytes.add(peer, interface, bytes);
    }

    /// Returns the bytes of associations that have ended, by link and by peer.
    pub(crate) fn link_bytes(&self) -> &LinkBytes {
        &self.link_bytes
    }

    /// Records that an association's data moved from one path to another.
    pub(crate) fn switched(&mut self, now: Time, association: AssociationId, from: &Route, to: &Route) {
        self.last_switches.note(association, from, to, now);
        self.counters.path_switches += 1;
    }

    /// Returns the time of the last switch to or from this path of an association, if any.
    pub(crate) fn last_switch(&self, association: AssociationId, route: &Route) -> Option<Time> {
        self.last_switches.of(association, route)
    }

    /// Forgets the switches of an association that no longer exists.
    pub(crate) fn forget(&mut self, association: AssociationId) {
        self.last_switches.0.remove(&association);
    }

    fn remember(&mut self, destination: SocketAddr, attempt: PastAttempt) {
        self.attempts.truncate(KEPT - 1);
        self.attempts.push_front((destination, attempt));
    }
}

/// Times of the last switch to or from each path of the existing associations. Up to [`PATHS_KEPT`] paths are kept for each
/// association.
#[derive(Default)]
struct LastSwitches(BTreeMap<AssociationId, VecDeque<(Ends, Time)>>);

impl LastSwitches {
    /// Records that the association's data moved from one path to another.
    fn note(&mut self, association: AssociationId, from: &Route, to: &Route, now: Time) {
        let paths = self.0.entry(association).or_default();
        for ends in [from, to].map(Ends::of) {
            paths.retain(|(known, _)| *known != ends);
            paths.push_front((ends, now));
        }
        paths.truncate(PATHS_KEPT);
    }

    /// Returns the time of the last switch to or from this path, if any.
    fn of(&self, association: AssociationId, route: &Route) -> Option<Time> {
        let paths = self.0.get(&association)?;
        paths.iter().find(|(ends, _)| *ends == Ends::of(route)).map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_attempt_comes_first_and_old_ones_go() {
        let mut history = History::default();
        let to: SocketAddr = ([10, 0, 0, 1], 80).into();
        for held_us in 0..2 * KEPT as u64 {
            history.fell_back(Time::default(), to, held_us, ShimState::Ready, FallbackReason::DaemonStopping);
        }
        assert_eq!(history.attempts.len(), KEPT);
        assert_eq!(history.fallbacks()[0].held_us, 2 * KEPT as u64 - 1);
        assert_eq!(history.of(([10, 0, 0, 2], 80).into()), []);
    }
}

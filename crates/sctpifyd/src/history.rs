//! Records the latest connection attempts for `status` and `explain`.
//!
//! Invariant: at most [`KEPT`] attempts are kept; the oldest are dropped first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::Discriminant;
use std::net::SocketAddr;

use base::{Route, Time};
use control::{Counters, Fallback, FallbackReason, PastAttempt, ShimState, Switch};
use sctp::AssociationId;

use crate::clock::unix_ms;
use crate::log_rate::LogRate;
use crate::shared::Ends;

/// Limit on the recorded attempts.
const KEPT: usize = 512;
/// Limit on the paths of one association whose last switch is recorded.
const PATHS_KEPT: usize = 16;
/// Limit on the past attempts that `explain` shows.
const EXPLAINED: usize = 5;
/// Limit on the fallbacks, and on the switches, that `status` shows.
const SHOWN: usize = 32;

/// The latest attempts, newest first, and the totals.
#[derive(Default)]
pub(crate) struct History {
    attempts: VecDeque<(SocketAddr, PastAttempt)>,
    switches: VecDeque<Switch>,
    pub(crate) counters: Counters,
    /// Log lines about connections that do not use SCTP, by kind of reason.
    fallback_lines: HashMap<Discriminant<FallbackReason>, LogRate>,
    /// Log lines about programs that send no messages where a rule expects some.
    pub(crate) framing_lines: LogRate,
    /// Log lines about refused connections from peers.
    pub(crate) refusal_lines: LogRate,
    /// Log lines about connections to local programs that nothing answers.
    pub(crate) unanswered_lines: LogRate,
    /// Log lines about shared associations.
    pub(crate) shared_lines: LogRate,
    /// Log lines about peers that violate the protocol of shared associations.
    pub(crate) fault_lines: LogRate,
    /// Log lines about peers with a wrong key.
    pub(crate) wrong_key_lines: LogRate,
    /// Log lines about path switches, which a peer can cause at will.
    pub(crate) switch_lines: LogRate,
    /// Log lines about UDP ports of peers.
    pub(crate) port_lines: LogRate,
    /// Log lines about addresses of peers.
    pub(crate) address_lines: LogRate,
    /// Log lines about peers' answers to changes of our addresses.
    pub(crate) answer_lines: LogRate,
}

impl History {
    /// Records a connection that uses SCTP after `setup_us` microseconds.
    pub(crate) fn succeeded(&mut self, destination: SocketAddr, setup_us: u64) {
        self.counters.connects_sctp += 1;
        self.remember(destination, PastAttempt::Sctp { when_unix_ms: unix_ms(), setup_us });
    }

    /// Records a connection that is plain TCP although the rules allowed SCTP.
    pub(crate) fn fell_back(
        &mut self,
        now: Time,
        destination: SocketAddr,
        held_us: u64,
        state: ShimState,
        reason: FallbackReason,
    ) {
        self.counters.connects_fallback += 1;
        let what = if matches!(reason, FallbackReason::Required { .. }) { "refused" } else { "plain TCP" };
        let lines = self.fallback_lines.entry(std::mem::discriminant(&reason)).or_default();
        if let Some(left_out) = lines.admit(now) {
            tracing::info!(%destination, held_us, %reason, left_out, "{what}");
        }
        let fallback = Fallback { when_unix_ms: unix_ms(), destination, held_us, state, reason };
        self.remember(destination, PastAttempt::Tcp(fallback));
    }

    /// Returns the latest attempts to this destination, newest first.
    pub(crate) fn of(&self, destination: SocketAddr) -> Vec<PastAttempt> {
        let same = self.attempts.iter().filter(|(to, _)| *to == destination);
        same.take(EXPLAINED).map(|(_, attempt)| attempt.clone()).collect()
    }

    /// Returns the latest fallbacks, newest first.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let fallbacks = self.attempts.iter().filter_map(|(_, attempt)| match attempt {
            PastAttempt::Tcp(fallback) => Some(fallback.clone()),
            PastAttempt::Sctp { .. } => None,
        });
        fallbacks.take(SHOWN).collect()
    }

    /// Records that data of an association switched paths.
    pub(crate) fn switched(&mut self, association: Option<u64>, from: &Route, to: &Route) {
        self.counters.path_switches += 1;
        self.switches.truncate(SHOWN - 1);
        let local = |route: &Route| Some(route.local).filter(|ip| !ip.is_unspecified());
        self.switches.push_front(Switch {
            when_unix_ms: unix_ms(),
            association,
            from_local: local(from),
            from_remote: from.remote,
            to_local: local(to),
            to_remote: to.remote,
        });
    }

    /// Returns the latest switches, newest first.
    pub(crate) fn switches(&self) -> Vec<Switch> {
        self.switches.iter().copied().collect()
    }

    fn remember(&mut self, destination: SocketAddr, attempt: PastAttempt) {
        self.attempts.truncate(KEPT - 1);
        self.attempts.push_front((destination, attempt));
    }
}

/// The time of the last switch to or from each path of the existing associations.
#[derive(Default)]
pub(crate) struct LastSwitches(BTreeMap<AssociationId, VecDeque<(Ends, Time)>>);

impl LastSwitches {
    /// Records that data of the association switched paths.
    pub(crate) fn note(&mut self, association: AssociationId, from: &Route, to: &Route, now: Time) {
        let paths = self.0.entry(association).or_default();
        for ends in [from, to].map(Ends::of) {
            paths.retain(|(known, _)| *known != ends);
            paths.push_front((ends, now));
        }
        paths.truncate(PATHS_KEPT);
    }

    /// Returns the time of the last switch to or from this path, if any.
    pub(crate) fn of(&self, association: AssociationId, route: &Route) -> Option<Time> {
        let paths = self.0.get(&association)?;
        paths.iter().find(|(ends, _)| *ends == Ends::of(route)).map(|(_, at)| *at)
    }

    /// Forgets an association that no longer exists.
    pub(crate) fn forget(&mut self, association: AssociationId) {
        self.0.remove(&association);
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

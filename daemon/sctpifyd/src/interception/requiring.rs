//! Enforces rules that require SCTP: the kernel refuses plain TCP to the destinations of these rules even if this process
//! fails.
//!
//! The kernel's firewall rules follow each change of the rules before the requester gets its answer ([`super::holding`]). Other
//! programs may remove the firewall rules. Each periodic check of the event loop restores removed rules, and retries changes
//! that the kernel refused. Invariant: the kernel refuses exactly the plain TCP that the rules forbid, or the log contains the
//! error.

use std::io;

use intercept::Guard;
use rules::Guarded;

use super::Interception;
use crate::rules_store::RulesStore;

impl Interception {
    /// Removes the firewall rules that an earlier, killed daemon may have left. Does nothing if a rule requires SCTP.
    pub(crate) fn forget_old_guard(&mut self, rules: &RulesStore) {
        if rules.lock().guarded().is_empty()
            && let Err(error) = self.interceptor.guard(&[])
        {
            tracing::warn!(%error, "connections that an earlier daemon refused may still be refused");
        }
    }

    /// Updates the kernel's copy of the rules, and restores firewall rules that other programs have removed. Changes that the
    /// kernel refuses are retried later.
    ///
    /// # Errors
    /// Returns the kernel's errors, which are also logged here.
    pub(crate) fn follow_required(&mut self, rules: &RulesStore) -> io::Result<()> {
        let wanted = rules.lock().guarded();
        let outcome = if wanted == self.guarded {
            self.interceptor.restore_guard()
        } else {
            let guards: Vec<Guard> = wanted.iter().map(guard).collect();
            self.interceptor.guard(&guards).map(|()| {
                self.guarded = wanted;
                false
            })
        };
        match &outcome {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!("the firewall rules of rules with --require were removed; they are restored")
            }
            Err(error) => {
                tracing::error!(%error, "rules with --require: plain TCP is not refused by the kernel");
            }
        }
        outcome.map(drop)
    }
}

fn guard(guarded: &Guarded) -> Guard {
    Guard {
        network: guarded.address.map(|net| (net.address(), net.prefix_len())),
        ports: guarded.ports.map(rules::PortRange::ends),
        is_refused: guarded.is_refused,
    }
}

//! Rules that require SCTP: the kernel refuses plain TCP to their destinations even if this process fails.
//!
//! The kernel follows each change of the rules before the requester gets its answer ([`super::holding`]). Others may remove our
//! rules from the kernel: each beat of the loop checks for that, and retries what the kernel did not take. Invariant: the kernel
//! refuses exactly what the rules say, or the log says why not.

use std::io;

use intercept::Guard;
use rules::Guarded;

use super::Interception;
use crate::rules_store::RulesStore;

impl Interception {
    /// Removes the guard that a killed daemon may have left, if no rule requires one.
    pub(crate) fn forget_old_guard(&mut self, rules: &RulesStore) {
        if rules.lock().guarded().is_empty()
            && let Err(error) = self.interceptor.guard(&[])
        {
            tracing::warn!(%error, "connections that an earlier daemon refused may still be refused");
        }
    }

    /// Updates the kernel with changes, and restores what others have removed. Rules that it refuses are retried later.
    ///
    /// # Errors
    /// Those of the kernel, which are logged here.
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

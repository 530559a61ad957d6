//! Rules that require SCTP: the kernel refuses plain TCP to their destinations even if this process fails.
//!
//! The kernel follows each change of the rules before the requester gets its answer ([`crate::holding`]). Others may remove our
//! rules from the kernel: each beat of the loop checks for that, and retries what the kernel did not take. Invariant: the kernel
//! refuses exactly what the rules say, or the log says why not.

use std::io;
use std::net::SocketAddr;

use control::FallbackReason;
use intercept::Guard;
use rules::{Chain, Guarded};

use crate::shard::Shard;

impl Shard {
    /// Removes the guard that a killed daemon may have left, if no rule requires one.
    pub(crate) fn forget_old_guard(&mut self) {
        if self.rules.lock().guarded().is_empty()
            && let Err(error) = self.interceptor.guard(&[])
        {
            tracing::warn!(%error, "what an earlier daemon refused may still be refused");
        }
    }

    /// Updates the kernel with changes, and restores what others have removed. Rules that it refuses are retried later.
    ///
    /// # Errors
    /// Those of the kernel, which are logged here.
    pub(crate) fn follow_required(&mut self) -> io::Result<()> {
        let wanted = self.rules.lock().guarded();
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
            Ok(true) => tracing::warn!(
                "somebody removed the firewall rules of rules with --require: they are there again"
            ),
            Err(error) => {
                tracing::error!(%error, "rules with --require: plain TCP is not refused by the kernel");
            }
        }
        outcome.map(drop)
    }

    /// Reports whether a rule requires that connections there are carried over SCTP.
    pub(crate) fn is_required(&self, to: SocketAddr) -> bool {
        self.rules.lock().explain(Chain::Remote, to.ip(), to.port()).is_required()
    }

    /// Returns the reason to report: where SCTP is required, the connection is refused.
    pub(crate) fn told(&self, to: SocketAddr, reason: FallbackReason) -> FallbackReason {
        if self.is_required(to) { FallbackReason::Required { cause: Box::new(reason) } } else { reason }
    }
}

fn guard(guarded: &Guarded) -> Guard {
    Guard {
        network: guarded.address.map(|net| (net.address(), net.prefix_len())),
        ports: guarded.ports.map(rules::PortRange::ends),
        is_refused: guarded.is_refused,
    }
}

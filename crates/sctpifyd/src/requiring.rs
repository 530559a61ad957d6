//! Rules that require SCTP: plain TCP to their destinations is refused by the kernel, whatever becomes of this process.
//!
//! The kernel follows each change of the rules before whoever asked for it is told ([`crate::holding`]). Others may remove what
//! we gave the kernel: that is looked at with each beat of the loop, and what the kernel would not take is given to it again.
//! Invariant: what the kernel refuses is what the rules say, or the log says why not.

use std::io;
use std::net::SocketAddr;

use control::FallbackReason;
use intercept::Guard;
use rules::{Chain, Guarded};

use crate::shard::Shard;

impl Shard {
    /// At the start: what a killed daemon left, the rules may not say any more.
    pub(crate) fn forget_old_guard(&mut self) {
        if self.rules.lock().guarded().is_empty()
            && let Err(error) = self.interceptor.guard(&[])
        {
            tracing::warn!(%error, "what an earlier daemon refused may still be refused");
        }
    }

    /// Gives the kernel what has changed, and what others have removed. Rules that it refuses are given to it again later.
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

    /// Reports whether a rule requires that connections there ride SCTP.
    pub(crate) fn is_required(&self, to: SocketAddr) -> bool {
        self.rules.lock().explain(Chain::Remote, to.ip(), to.port()).is_required()
    }

    /// The reason as it is told: where SCTP is required the connection is refused.
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

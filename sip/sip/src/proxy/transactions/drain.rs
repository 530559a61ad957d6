//! Graceful shutdown of a proxy, which accepts no new work and lets pending work finish.
//!
//! While the proxy drains, REGISTERs and other requests outside of dialogs get 503 with Retry-After, and leave no state. Requests that
//! belong to existing work are served as usual: requests within dialogs, ACK, CANCEL and retransmissions. Requests from other proxies for
//! one of our flows are also served, because only this proxy can reach the user agent over the flow.
//!
//! Work is pending in these cases:
//!
//! - a request to this proxy, or its copy at a next hop, has no final response;
//! - the ACK for a rejected INVITE has not arrived;
//! - the ACK for an accepted INVITE was not forwarded.
//!
//! A transaction that only waits for retransmissions (timers D, I, J and K) is not pending. Invariant: `left` contains all pending work.
//! Begin with [`Transactions::begin_drain`].

use super::Transactions;
use crate::proxy::Id;

/// The pending work.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Numbers of transactions, the newest last. Some may have ended.
    left: Vec<Id>,
}

impl Drain {
    pub(super) fn new(mut left: Vec<Id>) -> Drain {
        left.sort_unstable();
        Drain { left }
    }

    /// Adds a new transaction to the pending work.
    pub(super) fn note_begun(&mut self, id: Id) {
        self.left.push(id);
    }

    /// Reports whether no work is pending. Forgets transactions that have ended.
    fn is_done(&mut self, is_under_way: impl Fn(Id) -> bool) -> bool {
        while self.left.pop_if(|id| !is_under_way(*id)).is_some() {}
        self.left.is_empty()
    }
}

impl Transactions {
    /// Begins draining. All existing transactions, and all transactions that begin later, are then watched for pending work.
    pub(in crate::proxy) fn begin_drain(&mut self) {
        if self.drain.is_none() {
            self.drain = Some(Drain::new(self.servers.keys().chain(self.clients.keys()).copied().collect()));
        }
    }

    pub(in crate::proxy) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Reports whether the proxy drains and no work is pending.
    pub(in crate::proxy) fn is_drained(&mut self) -> bool {
        let Some(mut drain) = self.drain.take() else { return false };
        let is_drained = drain.is_done(|id| self.is_under_way(id));
        self.drain = Some(drain);
        is_drained
    }

    /// Returns the number of pending transactions, or `None` if the proxy does not drain.
    pub(in crate::proxy) fn left(&self) -> Option<usize> {
        let drain = self.drain.as_ref()?;
        Some(drain.left.iter().filter(|id| self.is_under_way(**id)).count())
    }

    /// Returns the server transactions without a final response, and forgets all pending work.
    pub(in crate::proxy) fn cut_off(&mut self) -> Vec<Id> {
        let mut left = self.drain.as_mut().map(|drain| std::mem::take(&mut drain.left)).unwrap_or_default();
        left.retain(|id| self.servers.get(id).is_some_and(|server| server.is_pending()));
        left
    }

    fn is_under_way(&self, id: Id) -> bool {
        match (self.servers.get(&id), self.clients.get(&id)) {
            (Some(server), _) if server.is_accepted() => self.unacknowledged.contains(&server.ack_key()),
            (Some(server), _) => server.is_pending() || server.awaits_ack(),
            (None, Some(client)) => client.is_pending(),
            (None, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_done_when_every_pending_transaction_has_ended() {
        let mut drain = Drain::new(vec![2, 1]);
        drain.note_begun(3);
        assert!(!drain.is_done(|id| id == 1));
        assert_eq!(drain.left, [1]);
        assert!(drain.is_done(|_| false));
        drain.note_begun(4);
        assert!(!drain.is_done(|_| true));
    }
}

//! Graceful shutdown of a proxy: it accepts no new work, and lets pending work finish.
//!
//! While it drains, out-of-dialog requests get 503 with Retry-After, and leave no state; requests that belong to existing work
//! (within dialogs, ACK, CANCEL, retransmissions) are served as usual. So are requests that other proxies which share our users send
//! for a flow of ours, because only we can reach its user agent. Work is pending while somebody waits for it: a request
//! without its final response, here or at a next hop, a rejected INVITE whose ACK has not arrived, or an accepted one whose ACK has not
//! passed. A transaction that only waits for retransmissions (timers D, I, J and K) is not. Invariant: `left` has all pending work. Begin
//! with [`Proxy::begin_drain`].

use base::Time;

use super::{Id, Proxy};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::message::{Message, Method};

/// The rejection of new work while draining, and of work that did not finish in time.
pub(super) const ENDING: Fault = Fault { status: 503, reason: "Proxy Is Stopping" };

/// The pending work.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Transactions, the newest last; some may have ended.
    left: Vec<Id>,
}

impl Proxy {
    /// Begins draining: no new work is accepted.
    pub fn begin_drain(&mut self) {
        if self.drain.is_none() {
            let mut left: Vec<Id> = self.servers.keys().chain(self.clients.keys()).copied().collect();
            left.sort_unstable();
            self.drain = Some(Drain { left });
        }
    }

    /// Reports whether the proxy drains and no work is pending.
    pub fn is_drained(&mut self) -> bool {
        let Some(mut drain) = self.drain.take() else { return false };
        while drain.left.pop_if(|id| !self.is_under_way(*id)).is_some() {}
        let is_drained = drain.left.is_empty();
        self.drain = Some(drain);
        is_drained
    }

    /// Returns the number of pending transactions; `None` unless it drains.
    pub fn transactions_left(&self) -> Option<usize> {
        let drain = self.drain.as_ref()?;
        Some(drain.left.iter().filter(|id| self.is_under_way(**id)).count())
    }

    /// Ends all pending work at once: requests get 503, and ringing is cancelled (RFC 3261 section 16.10). Returns the number of those
    /// requests.
    pub fn cut_off(&mut self, now: Time) -> usize {
        self.begin_drain();
        let left = self.drain.as_mut().map(|drain| std::mem::take(&mut drain.left)).unwrap_or_default();
        let mut requests = 0;
        for id in left {
            let Some(server) = self.servers.get(&id).filter(|server| server.machine.is_pending()) else {
                continue;
            };
            let request = server.request.as_ref();
            if request.is_some_and(|request| request.method() == Some(&Method::Invite)) {
                self.cancel_branches(now, id);
            }
            self.refuse(now, id, ENDING);
            requests += 1;
        }
        requests
    }

    /// Reports whether a request must be rejected because it begins new work.
    pub(super) fn is_too_late(&self, request: &Message, known: &Essentials) -> bool {
        let begins = match known.cseq.method {
            Method::Cancel => false,
            Method::Register => true,
            _ => known.to_tag.is_none(),
        };
        begins && self.drain.is_some() && !self.flows.leads_by_flow(&self.config, request)
    }

    /// Makes the drain wait for a new transaction, too.
    pub(super) fn note_begun(&mut self, id: Id) {
        if let Some(drain) = &mut self.drain {
            drain.left.push(id);
        }
    }

    fn is_under_way(&self, id: Id) -> bool {
        match (self.servers.get(&id), self.clients.get(&id)) {
            (Some(server), _) if server.machine.is_accepted() => {
                self.unacknowledged.contains(&server.ack_key())
            }
            (Some(server), _) => server.machine.is_pending() || server.machine.awaits_ack(),
            (None, Some(client)) => client.machine.is_pending(),
            (None, None) => false,
        }
    }
}

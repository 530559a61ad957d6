//! The end of a proxy, begun in time: nothing new is taken, and what is under way comes to its end.
//!
//! While it drains, requests that begin something get 503 with Retry-After, and nothing is kept of them; what belongs to something that has
//! begun (within dialogs, ACK, CANCEL, what comes again) is served as ever. So are requests that other proxies which share our users send
//! for a flow of ours, as whoever has that is reached by nobody else. Under way is what somebody waits for: a request
//! without its final response, here or at a next hop, a refusal of an INVITE whose ACK has not come, and an accepted one whose ACK has not
//! passed. A transaction that only waits for repetitions (timers D, I, J and K) is not. Invariant: `left` has all that is under way. Begin
//! with [`Proxy::begin_drain`].

use base::Time;

use super::{Id, Proxy};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::message::{Message, Method};

/// The refusal of what would begin now, and of what has not ended in time.
pub(super) const ENDING: Fault = Fault { status: 503, reason: "Proxy Is Stopping" };

/// What has to end before the proxy may.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Transactions, the newest last; some of them have ended.
    left: Vec<Id>,
}

impl Proxy {
    /// From now on nothing new is taken.
    pub fn begin_drain(&mut self) {
        if self.drain.is_none() {
            let mut left: Vec<Id> = self.servers.keys().chain(self.clients.keys()).copied().collect();
            left.sort_unstable();
            self.drain = Some(Drain { left });
        }
    }

    /// Whether nothing is under way any more, once it drains.
    pub fn is_drained(&mut self) -> bool {
        let Some(mut drain) = self.drain.take() else { return false };
        while drain.left.pop_if(|id| !self.is_under_way(*id)).is_some() {}
        let is_drained = drain.left.is_empty();
        self.drain = Some(drain);
        is_drained
    }

    /// Transactions that are under way; `None` unless it drains.
    pub fn transactions_left(&self) -> Option<usize> {
        let drain = self.drain.as_ref()?;
        Some(drain.left.iter().filter(|id| self.is_under_way(**id)).count())
    }

    /// Ends at once what is under way: requests get 503, whoever rings is told to stop (RFC 3261 section 16.10). How many requests those were.
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

    /// Whether a request is refused because it would begin something.
    pub(super) fn is_too_late(&self, request: &Message, known: &Essentials) -> bool {
        let begins = match known.cseq.method {
            Method::Cancel => false,
            Method::Register => true,
            _ => known.to_tag.is_none(),
        };
        begins && self.drain.is_some() && !self.leads_by_flow(request)
    }

    /// A transaction has begun: the end waits for it, too.
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

//! Forwards a request (RFC 3261 section 16.6). The most preferred targets are tried first. Less preferred targets are tried after all more
//! preferred targets have rejected the request. If a hop cannot be reached, the target's next hop is tried (RFC 3263 section 4.3). If a
//! message that is too large for UDP cannot be sent over TCP, UDP is tried (RFC 3261 section 18.1.1).
//!
//! A server transaction keeps its [`Plan`] while it may need further attempts. Invariants: no attempt begins after a branch has
//! succeeded, a 6xx has arrived, or the request was cancelled. No hop is tried twice. Begin with [`Stateful::forward`].

use super::Stateful;
use crate::message::Method;
use crate::proxy::Id;
use crate::proxy::asked::Asked;
use crate::proxy::copies::{Copier, may_make_dialog};
use crate::proxy::plan::Plan;
use crate::proxy::target::Target;
use crate::proxy::transactions::Departure;
use crate::transport::Hop;

impl Stateful<'_> {
    /// Forwards a request to its most preferred targets in parallel. The other targets follow after the most preferred targets have all
    /// rejected the request. Before the first copy of an INVITE, its sender gets 100.
    pub(in crate::proxy) fn forward(&mut self, asked: Asked, targets: Vec<Target>) {
        let Asked { server, from, request, known, .. } = &asked;
        // If the request waited for a name or for the store, 100 was already sent.
        let is_told = self.transactions.server(*server).is_some_and(|server| server.last().is_some());
        if known.cseq.method == Method::Invite && !is_told {
            self.reply(*server, 100, "Trying", Vec::new());
        }
        if may_make_dialog(&known.cseq.method)
            && let Some(server) = self.transactions.server_mut(*server)
        {
            let hops = targets.iter().flat_map(Target::hops);
            let callees_max = 2 * self.config.limits.branches;
            server.set_leg(self.dialogs.note(self.now, *from, request, known, hops, callees_max));
        }
        self.attempt(Plan::new(asked, targets));
    }

    /// Forwards a request to one of our flows, as another proxy has requested. The other proxy has authenticated the caller if its
    /// settings require authentication.
    pub(in crate::proxy) fn follow_flow(&mut self, asked: Asked, flow: Hop) {
        if let Some(server) = self.transactions.server_mut(asked.server) {
            server.context_mut().note_flow();
        }
        let target = Target::by_flow(asked.request.request_uri(), flow);
        self.forward(asked, vec![target]);
    }

    /// Tries the next group of targets of a plan.
    fn attempt(&mut self, mut plan: Plan) {
        let targets = plan.next_group();
        let mut is_needed = plan.has_more();
        for target in targets {
            is_needed |= self.start_branch(plan.asked(), target);
        }
        if let Some(server) = self.transactions.server_mut(plan.asked().server).filter(|_| is_needed) {
            server.context_mut().keep_plan(Box::new(plan));
        }
    }

    /// Tries the next group of targets after all attempts so far were rejected. Returns false if no further group exists.
    pub(super) fn attempt_next(&mut self, id: Id) -> bool {
        let server = self.transactions.server_mut(id);
        let Some(plan) = server.and_then(|server| server.context_mut().take_plan_with_more()) else {
            return false;
        };
        self.attempt(*plan);
        true
    }

    /// Sends one copy. Returns true if the target has alternative hops.
    fn start_branch(&mut self, asked: &Asked, mut target: Target) -> bool {
        let (id, branch) = self.transactions.new_branch(&asked.mark);
        let copier = Copier::new(self.config, self.marks);
        let copy =
            copier.copy_within_udp_limit(&asked.request, &asked.known, asked.from, &mut target, &branch);
        let has_more = target.has_more();
        let departure = Departure {
            server: Some(asked.server),
            is_invite: asked.known.cseq.method == Method::Invite,
            hop: target.verified_hop(),
            request: copy,
            branch,
            target: has_more.then(|| Box::new(target)),
        };
        self.transactions.start_client(self.now, self.config.timers, id, departure, self.outbox);
        has_more
    }

    /// Sends the request of a failed branch to the next hop of the branch's target, in a new branch. Returns false if no further hop
    /// exists.
    pub(super) fn try_next_hop(&mut self, id: Id) -> bool {
        let Some(client) = self.transactions.client_mut(id) else { return false };
        let (Some(server), Some(mut target)) = (client.server(), client.take_target()) else { return false };
        let plan = self.transactions.server_mut(server).and_then(|server| server.context_mut().take_plan());
        let Some(plan) = plan else { return false };
        if !target.move_on() {
            return false;
        }
        self.start_branch(plan.asked(), *target);
        if let Some(server) = self.transactions.server_mut(server) {
            server.context_mut().keep_plan(plan);
        }
        true
    }
}

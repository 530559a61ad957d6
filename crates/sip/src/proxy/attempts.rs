//! Serial attempts: contacts of lower preference once those before them have rejected the request (RFC 3261 section 16.6, serial
//! forking), contacts beyond the Max-Breadth (RFC 5393 section 5.3.3), and the next hop if one cannot be
//! reached (RFC 3263 section 4.3; section 18.1.1 for a message that is too large for UDP).
//!
//! A server transaction keeps its [`Plan`] while it may need it. Invariants: no new attempt begins once a branch has succeeded, 6xx has
//! come or the request was cancelled; no hop is tried twice. Begin with [`Proxy::forward`].

use std::collections::VecDeque;

use base::Time;

use super::forward::may_make_dialog;
use super::route::Asked;
use super::target::{Target, share};
use super::{Id, Proxy};
use crate::essentials::Essentials;
use crate::message::{Message, Method};
use crate::transaction::Kind;
use crate::transport::{Hop, Transport};

/// Longer requests use TCP instead of UDP: "larger than 1300 bytes and the path MTU is unknown" (RFC 3261 section 18.1.1).
const UDP_MAX: usize = 1300;

/// The request to copy, and the targets not yet tried.
#[derive(Debug)]
pub(super) struct Plan {
    asked: Asked,
    /// Groups of targets that are tried in parallel, the most preferred group first.
    later: VecDeque<Vec<Target>>,
}

impl Proxy {
    /// Forwards a request to its most preferred targets in parallel; to the others once all of those have rejected it.
    pub(super) fn forward(&mut self, now: Time, asked: Asked, targets: Vec<Target>) {
        let Asked { server, from, request, known, .. } = &asked;
        if may_make_dialog(&known.cseq.method) {
            let fallback = |target: &Target| target.fallback.as_ref().map(|((hop, _), _)| *hop);
            let hops =
                targets.iter().flat_map(|t| t.alternates.iter().copied().chain([t.hop]).chain(fallback(t)));
            self.note_dialog(now, *server, *from, request, known, hops);
        }
        let later = groups(targets, asked.known.max_breadth);
        self.attempt(now, Plan { asked, later });
    }

    /// Tries the next group of a plan.
    fn attempt(&mut self, now: Time, mut plan: Plan) {
        let mut is_needed = plan.later.len() > 1;
        let mut targets = plan.later.pop_front().unwrap_or_default();
        share(&mut targets, plan.asked.known.max_breadth);
        for target in targets {
            is_needed |= self.start_branch(now, &plan.asked, target);
        }
        if let Some(server) = self.servers.get_mut(&plan.asked.server).filter(|_| is_needed) {
            server.plan = Some(Box::new(plan));
        }
    }

    /// Begins the next group once all attempts so far were rejected; returns true if there was one.
    pub(super) fn attempt_next(&mut self, now: Time, id: Id) -> bool {
        let Some(server) = self.servers.get_mut(&id) else { return false };
        let Some(plan) = server.plan.take_if(|plan| !plan.later.is_empty()) else { return false };
        self.attempt(now, *plan);
        true
    }

    /// Sends one copy; returns true if the target has alternative hops.
    fn start_branch(&mut self, now: Time, asked: &Asked, mut target: Target) -> bool {
        let id = self.new_id();
        let branch = format!("z9hG4bK{id:x}.{}.{}", self.token(), asked.mark);
        let copy = self.fitting_copy(&asked.request, &asked.known, asked.from, &mut target, &branch);
        let kind = Kind {
            is_invite: asked.known.cseq.method == Method::Invite,
            is_reliable: target.hop.transport.is_reliable(),
        };
        self.start_client(now, id, kind, Some(asked.server), target.verified_hop(), copy, branch);
        let has_more = target.has_more();
        if let Some(client) = self.clients.get_mut(&id).filter(|_| has_more) {
            client.target = Some(Box::new(target));
        }
        has_more
    }

    /// Builds the copy for a target, which switches to TCP if the copy is too long for UDP (section 18.1.1).
    pub(super) fn fitting_copy(
        &self,
        request: &Message,
        known: &Essentials,
        from: Hop,
        target: &mut Target,
        branch: &str,
    ) -> Message {
        let copy = self.copy_for(request, known, from, target, branch);
        let Some(hop) = (copy.length() > UDP_MAX).then(|| self.without_udp(target)).flatten() else {
            return copy;
        };
        // "If a response is not received … [TCP] the request … retried over UDP", if the connection attempt failed.
        target.alternates.insert(0, target.hop);
        (target.hop, target.is_settled) = (hop, true);
        self.copy_for(request, known, from, target, branch)
    }

    fn without_udp(&self, target: &Target) -> Option<Hop> {
        let Hop { transport, address, .. } = target.hop;
        if transport != Transport::Udp || target.is_settled {
            return None;
        }
        let listener = self.config.listener_for(Transport::Tcp, address.is_ipv4()).ok()?;
        Some(Hop { listener, transport: Transport::Tcp, address, connection: None })
    }

    /// Restarts a branch that reached nobody at its next hop; returns true if there was one.
    pub(super) fn try_next_hop(&mut self, now: Time, id: Id) -> bool {
        let Some(client) = self.clients.get_mut(&id).filter(|client| !client.wants_cancel) else {
            return false;
        };
        let (Some(server), Some(mut target)) = (client.server, client.target.take()) else { return false };
        let plan = self.servers.get_mut(&server).and_then(|server| server.plan.take());
        let Some(plan) = plan else { return false };
        if !target.move_on() {
            return false;
        }
        self.start_branch(now, &plan.asked, *target);
        if let Some(server) = self.servers.get_mut(&server) {
            server.plan = Some(plan);
        }
        true
    }
}

/// Groups targets "in decreasing order of q-values" (section 16.6): equal ones in parallel, up to the breadth.
fn groups(mut targets: Vec<Target>, breadth: u8) -> VecDeque<Vec<Target>> {
    let fits = |group: &[Target], target: &Target| {
        group[0].preference == target.preference && group.len() < usize::from(breadth)
    };
    targets.sort_by_key(|target| std::cmp::Reverse(target.preference));
    let mut groups: VecDeque<Vec<Target>> = VecDeque::new();
    for target in targets {
        match groups.back_mut() {
            Some(group) if fits(group, &target) => group.push(target),
            _ => groups.push_back(vec![target]),
        }
    }
    groups
}

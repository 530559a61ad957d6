//! Serial attempts: contacts of lower preference once those before them have rejected the request (RFC 3261 section 16.6, serial
//! forking), contacts beyond the Max-Breadth (RFC 5393 section 5.3.3), and the next hop if one cannot be
//! reached (RFC 3263 section 4.3; section 18.1.1 for a message that is too large for UDP).
//!
//! A server transaction keeps its [`Plan`] while it may need it. Invariants: no new attempt begins once a branch has succeeded, 6xx has
//! come or the request was cancelled; no hop is tried twice. Begin with [`Proxy::forward`].

use std::collections::VecDeque;

use base::Time;

use super::copies::{Copier, may_make_dialog};
use super::outbox::{Outgoing, Output};
use super::route::Asked;
use super::target::{Target, VerifiedHop, groups, share};
use super::{Client, Id, Proxy, dialog_number};
use crate::address::Address;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::transaction::{self, Kind};

/// The request to copy, and the targets not yet tried.
#[derive(Debug)]
pub(super) struct Plan {
    asked: Asked,
    /// Groups of targets that are tried in parallel, the most preferred group first.
    later: VecDeque<Vec<Target>>,
}

impl Proxy {
    /// Forwards a request to its most preferred targets in parallel; to the others once all of those have rejected it. The sender of an
    /// INVITE gets 100 first.
    pub(super) fn forward(&mut self, now: Time, asked: Asked, targets: Vec<Target>) {
        let Asked { server, from, request, known, .. } = &asked;
        // One that waited for a name has sent its 100 already.
        let is_told = self.servers.get(server).is_some_and(|server| server.last.is_some());
        if known.cseq.method == Method::Invite && !is_told {
            self.reply(now, *server, 100, "Trying", Vec::new());
        }
        if may_make_dialog(&known.cseq.method) {
            let hops = targets.iter().flat_map(Target::hops);
            let callees_max = 2 * self.config.limits.branches;
            if let Some(server) = self.servers.get_mut(server) {
                server.leg = self.dialogs.note(now, *from, request, known, hops, callees_max);
            }
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
        let copier = Copier::new(&self.config, &self.marks);
        let copy = copier.fitting_copy(&asked.request, &asked.known, asked.from, &mut target, &branch);
        let kind = Kind {
            is_invite: asked.known.cseq.method == Method::Invite,
            is_reliable: target.hop().transport.is_reliable(),
        };
        self.start_client(now, id, kind, Some(asked.server), target.verified_hop(), copy, branch);
        let has_more = target.has_more();
        if let Some(client) = self.clients.get_mut(&id).filter(|_| has_more) {
            client.target = Some(Box::new(target));
        }
        has_more
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one client transaction")]
    pub(super) fn start_client(
        &mut self,
        now: Time,
        id: Id,
        kind: Kind,
        server: Option<Id>,
        (hop, domain): VerifiedHop,
        request: Message,
        branch: String,
    ) {
        let bytes = request.to_bytes();
        let dialog = request.first(Name::CallId).map_or(0, |call_id| dialog_number(call_id));
        let is_proxied_invite = kind.is_invite && server.is_some();
        let is_new = server.is_some() && is_outside_of_dialogs(&request);
        let mut client = Client {
            machine: transaction::Client::start(kind, self.config.timers, now),
            server,
            hop,
            domain: domain.clone(),
            dialog,
            branch: branch.into_bytes().into(),
            request: Some(request),
            bytes: bytes.clone(),
            target: None,
            cancel: None,
            wants_cancel: false,
            timer_c: if is_proxied_invite { now + self.config.timers.c } else { Time::NEVER },
            wake: Time::NEVER,
            charge: self.memory_budget.charge(0),
        };
        client.charge.set(client.weight());
        self.clients.insert(id, Box::new(client));
        self.note_begun(id);
        if let Some(server) = server.and_then(|server| self.servers.get_mut(&server)) {
            server.branches.push(id);
            server.open += 1;
        }
        let message = Outgoing { hop, domain, bytes, on_failure: Some(id), dialog, is_new };
        self.outbox.push(Output::Send(message));
        self.schedule_client(id);
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

fn is_outside_of_dialogs(request: &Message) -> bool {
    let to = request.first(Name::To).and_then(|to| Address::parse(to).ok());
    to.is_some_and(|to| to.tag().is_none())
}

//! Routes the ACK for a 2xx, which belongs to no transaction (RFC 3261 sections 13.2.2.4 and 16.11), and retries at the next hop on
//! failure.
//!
//! An ACK gets no response; the only possible feedback is that it could not be sent. Its alternative hops are kept while that may
//! still happen. Invariant: no more than [`super::ProxyLimits::transactions`] are kept, within the budget in bytes, each as long as a
//! transaction may wait for an answer. Begin with [`Proxy::forward_ack`].

use std::cmp::Reverse;

use base::Time;

use super::copies::Copier;
use super::dialogs::Leg;
use super::loops::is_loop;
use super::memory_budget::{Charge, TRANSACTION, weight};
use super::names::{UNRESOLVED, Waiting};
use super::outbox::Event;
use super::own_routes::take_own_routes;
use super::route::RELAYING_DENIED;
use super::target::{Target, share};
use super::{Id, Mode, Proxy, Sleeper, dialog_number};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::Message;
use crate::transport::Hop;
use crate::uri::Uri;

/// An ACK to forward, with the facts found about it so far.
#[derive(Clone, Debug)]
pub(super) struct Ack {
    from: Hop,
    /// The request without the Routes that lead here.
    request: Message,
    known: Essentials,
    /// The dialog for which one of our own Routes was marked.
    leg: Option<Leg>,
    mark: String,
}

/// An ACK that was sent and has alternative hops.
#[derive(Debug)]
pub(super) struct SentAck {
    ack: Ack,
    target: Target,
    /// The charge for its bytes.
    _charge: Charge,
}

impl Proxy {
    /// Forwards an ACK according to its Routes and Request-URI, unless it is for a rejection of ours: "a stateless UAS MUST ignore ACK
    /// requests" (section 8.2.7).
    pub(super) fn forward_ack(&mut self, now: Time, from: Hop, mut request: Message, known: Essentials) {
        if self.tags.is_for_own_refusal(&known) {
            return;
        }
        if self.config.mode == Mode::Redirect {
            self.outbox.count(Event::Dropped);
            return;
        }
        let mark = self.loops.mark(&request, &known);
        let may_go_on = known.max_forwards > 0 && !is_loop(&self.config, &request, &mark);
        match take_own_routes(&self.config, &self.marks, &self.flows, &mut request, &known) {
            Ok(taken) if may_go_on => {
                self.route_ack(now, Ack { from, request, known, leg: taken.leg, mark });
            }
            _ => self.outbox.count(Event::Dropped),
        }
    }

    /// Finds its targets and sends it to them, or waits for a name lookup.
    pub(super) fn route_ack(&mut self, now: Time, ack: Ack) {
        let gone = match self.ack_targets(now, &ack) {
            Ok(mut targets) => {
                targets.truncate(ack.known.max_breadth.into());
                share(&mut targets, ack.known.max_breadth);
                let found = !targets.is_empty();
                targets.into_iter().for_each(|target| self.send_ack(now, &ack, target));
                found
            }
            Err(fault) => fault == UNRESOLVED && self.wait_with_ack(ack).is_ok(),
        };
        if !gone {
            self.outbox.count(Event::Dropped);
        }
    }

    /// Queues an ACK whose next hop is an unresolved name.
    fn wait_with_ack(&mut self, ack: Ack) -> Result<(), Fault> {
        let lookup = self.names.lookup_for(&ack.request)?;
        self.names.wait(lookup, Waiting::Ack(ack), &mut self.outbox);
        Ok(())
    }

    fn ack_targets(&mut self, now: Time, ack: &Ack) -> Result<Vec<Target>, Fault> {
        let Ack { from, request, known, leg, .. } = ack;
        let uri = Uri::parse(request.request_uri())?;
        if request.first(Name::Route).is_none() && self.config.is_ours(&uri) {
            return Ok(self.routing(now).registered_targets(&self.config.user_of(&uri)));
        }
        // An ACK cannot be challenged, so outside of a dialog there is no way on.
        let leg = leg.as_ref().ok_or(RELAYING_DENIED)?;
        Ok(vec![self.target_within(now, leg, *from, request, known)?])
    }

    fn send_ack(&mut self, now: Time, ack: &Ack, mut target: Target) {
        let branch = format!("z9hG4bK0.{}.{}", self.token(), ack.mark);
        // ACK creates no dialog: the source hop does not matter to its copies.
        let copier = Copier::new(&self.config, &self.marks);
        let copy = copier.fitting_copy(&ack.request, &ack.known, target.hop(), &mut target, &branch);
        let (hop, domain) = target.verified_hop();
        let id = self.keep_ack(now, ack, target);
        let dialog = dialog_number(&ack.known.call_id);
        self.unacknowledged.remove(&(dialog, ack.known.cseq.number));
        self.outbox.send((hop, domain), copy.to_bytes(), id, dialog);
    }

    /// Keeps an ACK that has alternative hops, and returns its number.
    fn keep_ack(&mut self, now: Time, ack: &Ack, target: Target) -> Option<Id> {
        let bytes = TRANSACTION + weight(&ack.request);
        let is_full = self.acks.len() >= self.config.limits.transactions || !self.has_room(bytes);
        if !target.has_more() || is_full {
            return None;
        }
        let _charge = self.memory_budget.charge(bytes);
        let id = self.new_id();
        self.acks.insert(id, SentAck { ack: ack.clone(), target, _charge });
        self.wakes.push(Reverse((now + self.config.timers.long(), Sleeper::Ack(id))));
        Some(id)
    }

    /// Sends an ACK that could not be sent to its next hop; does nothing for other messages.
    pub(super) fn send_ack_elsewhere(&mut self, now: Time, id: Id) {
        let Some(SentAck { ack, mut target, .. }) = self.acks.remove(&id) else { return };
        if target.move_on() {
            self.send_ack(now, &ack, target);
        }
    }
}

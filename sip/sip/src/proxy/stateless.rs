//! Forwards messages without a transaction (RFC 3261 section 16.11). In stateless mode, this module forwards all messages. In the
//! stateful and redirect modes, this module sends the rejections that leave no state, and handles the ACK for a 2xx.
//!
//! The Via of a stateless proxy contains the source of the request, which a stateful proxy would keep ([`super::stateless_via`]). A
//! request goes to one target, which depends only on the request and the registered bindings. If the request is lost, its sender
//! retransmits it. A REGISTER, or another request to the proxy itself, is answered in a server transaction, as in the stateful mode.
//! Begin at [`Proxy::pass_on`] and [`Proxy::pass_response`].
//!
//! The ACK for a 2xx (section 13.2.2.4) gets no response. The only feedback is the driver's report that the ACK could not be sent. The
//! ACK's alternative hops are kept while such a report can still arrive. Begin at [`Proxy::forward_ack`].

use base::Time;

use super::asked::Ack;
use super::copies::Copier;
use super::lookup::UNRESOLVED;
use super::loops::is_loop;
use super::matching::response_hop;
use super::names::Waiting;
use super::outbox::Event;
use super::own_routes::{Taken, take_own_routes};
use super::refusal::{RELAYING_DENIED, Refusal, bad_extensions};
use super::target::{Target, share};
use super::{Id, Mode, Proxy, ProxyConfig, dialog_number};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::uri::Uri;
use crate::via::Via;

/// Reason why a request is not forwarded.
enum Stays {
    /// The request is for the proxy itself: a REGISTER, or a request without a user, such as OPTIONS.
    Ours,
    /// The request is rejected.
    Refused(Refusal),
}

impl From<Fault> for Stays {
    fn from(fault: Fault) -> Stays {
        Stays::Refused(fault.into())
    }
}

impl Proxy {
    /// Forwards or rejects a request. Returns false if the request is for the proxy itself. Rejections leave no state. An ACK that cannot
    /// be forwarded is dropped, and the result is true.
    pub(super) fn pass_on(
        &mut self,
        now: Time,
        from: Hop,
        via: &Via<'_>,
        request: &Message,
        known: &Essentials,
    ) -> bool {
        let is_ack = known.cseq.method == Method::Ack;
        if is_ack && self.tags.is_for_own_refusal(known) {
            return true;
        }
        let (back, value) = response_hop(from, via);
        match self.hop_on(now, from, request, known) {
            Ok((mut onward, mut target, mark)) => {
                self.outbox.count(Event::Request);
                let branch = self.stateless_via.branch(via, request, known, &mark, back);
                onward.replace_first(Name::Via, &value);
                let copier = Copier::new(&self.config, &self.marks);
                let copy = copier.copy_within_udp_limit(&onward, known, from, &mut target, &branch);
                self.outbox.send(target.verified_hop(), copy.to_bytes(), None, dialog_number(&known.call_id));
                true
            }
            Err(Stays::Ours) => is_ack,
            Err(Stays::Refused(..)) if is_ack => {
                self.outbox.count(Event::Dropped);
                true
            }
            Err(Stays::Refused(refusal)) => {
                self.outbox.count(Event::Response(refusal.fault.status));
                self.refuse_statelessly(back, request, &value, refusal);
                true
            }
        }
    }

    /// Rejects a request without keeping state. `via` is the request's first Via value, with `received` and `rport` filled in.
    pub(super) fn refuse_statelessly(&mut self, hop: Hop, request: &Message, via: &[u8], refusal: Refusal) {
        let Refusal { fault, fields } = refusal;
        let mut response = self.tags.response(request, fault.status, fault.reason);
        response.replace_first(Name::Via, via);
        response.headers.extend(fields);
        if fault.status == 503 {
            let seconds = self.config.limits.retry_after.to_string();
            response.push(Header::new(Name::RetryAfter, &seconds));
        }
        let dialog = request.first(Name::CallId).map_or(0, |call_id| dialog_number(call_id));
        self.outbox.send_back(hop, response.to_bytes(), dialog);
    }

    /// Checks a request, and finds its single target (sections 16.3 and 16.5).
    fn hop_on(
        &mut self,
        now: Time,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<(Message, Target, String), Stays> {
        let mut onward = request.clone();
        let Taken { leg, .. } = take_own_routes(&self.config, &self.marks, &self.flows, &mut onward, known)?;
        let uri = Uri::parse(onward.request_uri())?;
        let is_for_user = onward.first(Name::Route).is_none() && self.config.is_ours(&uri);
        if is_for_user && (known.cseq.method == Method::Register || uri.user.is_none()) {
            return Err(Stays::Ours);
        }
        if known.max_forwards == 0 {
            return Err(Fault { status: 483, reason: "Too Many Hops" }.into());
        }
        if known.max_breadth == 0 {
            return Err(Fault { status: 440, reason: "Max-Breadth Exceeded" }.into());
        }
        let mark = self.loops.mark_without_to_tag(request, known);
        if is_loop(&self.config, request, &mark) {
            return Err(Fault { status: 482, reason: "Loop Detected" }.into());
        }
        if request.first(Name::ProxyRequire).is_some() {
            return Err(Stays::Refused(bad_extensions(request)));
        }
        let mut target = match leg {
            _ if is_for_user => self.one_target(now, &uri)?,
            Some(leg) => self.target_within(now, &leg, from, &onward, known)?,
            None => {
                self.config.check_relay(&onward, &uri)?;
                self.routing(now).target_outside(&onward)?
            }
        };
        share(std::slice::from_mut(&mut target), known.max_breadth);
        Ok((onward, target, mark))
    }

    /// Returns the contact with the highest q. Among contacts with equal q, returns the contact whose URI comes first in byte order.
    /// Section 16.11: "MUST choose one and only one target from the target set". Each retransmission must get the same target.
    fn one_target(&self, now: Time, uri: &Uri<'_>) -> Result<Target, Fault> {
        let user = self.config.user_of(uri);
        let routing = self.routing(now);
        let targets = routing.targets_for(uri, routing.registered_targets(&user));
        let key = |target: &Target| (std::cmp::Reverse(target.preference()), target.uri().clone());
        targets.into_iter().min_by_key(key).ok_or_else(|| self.config.nobody_there(&user))
    }

    /// Forwards a response to the source of its request. Our Via contains this source, and is removed. Returns false if the first Via is
    /// not ours, or no further Via exists.
    pub(super) fn pass_response(&mut self, mut response: Message, known: &Essentials) -> bool {
        let Ok(via) = Via::parse(&known.via) else { return false };
        let Some(hop) = self.stateless_via.source_of(&self.config, &via) else { return false };
        response.pop_first(Name::Via);
        if response.first(Name::Via).is_none() {
            return false;
        }
        self.outbox.count(Event::Response(response.status()));
        self.outbox.send_back(hop, response.to_bytes(), dialog_number(&known.call_id));
        true
    }

    /// Forwards an ACK according to its Routes and Request-URI. An ACK for our own rejection is ignored: "a stateless UAS MUST ignore ACK
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

    /// Finds the targets of an ACK, and sends the ACK to each of them. If the next hop is an unresolved name, the ACK waits for the
    /// lookup.
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
        // An ACK cannot be challenged, so an ACK outside of a dialog is not relayed.
        let leg = leg.as_ref().ok_or(RELAYING_DENIED)?;
        Ok(vec![self.target_within(now, leg, *from, request, known)?])
    }

    fn send_ack(&mut self, now: Time, ack: &Ack, mut target: Target) {
        let branch = self.transactions.branch_of_ack(&ack.mark);
        // The source hop matters only for Record-Route. An ACK gets no Record-Route, so any hop can stand for its source.
        let copier = Copier::new(&self.config, &self.marks);
        let copy = copier.copy_within_udp_limit(&ack.request, &ack.known, target.hop(), &mut target, &branch);
        let hop = target.verified_hop();
        let ProxyConfig { timers, limits, .. } = &self.config;
        let id = self.transactions.keep_ack(now, *timers, limits, ack, target);
        let dialog = dialog_number(&ack.known.call_id);
        self.transactions.note_ack(dialog, ack.known.cseq.number);
        self.outbox.send(hop, copy.to_bytes(), id, dialog);
    }

    /// Sends an ACK to its next alternative hop after a failure to send it. Does nothing if `id` is not the number of a kept ACK.
    pub(super) fn send_ack_elsewhere(&mut self, now: Time, id: Id) {
        let Some((ack, mut target)) = self.transactions.take_ack(id) else { return };
        if target.move_on() {
            self.send_ack(now, &ack, target);
        }
    }
}

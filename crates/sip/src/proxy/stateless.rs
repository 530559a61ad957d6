//! A stateless proxy (RFC 3261 section 16.11): it forwards requests and responses one by one, without keeping state.
//!
//! Our Via carries the state that a stateful proxy keeps ([`super::stateless_via`]). A request goes to one target, which depends only on
//! the request and the registered bindings; its sender retransmits it if it is lost. REGISTER and requests to the proxy itself are
//! answered as usual. Begin at [`Proxy::pass_on`] and [`Proxy::pass_response`].

use base::Time;

use super::copies::Copier;
use super::inbound::{bad_extensions, response_hop};
use super::loops::is_loop;
use super::outbox::Event;
use super::own_routes::{Taken, take_own_routes};
use super::route::RELAYING_DENIED;
use super::target::{Target, share};
use super::{Proxy, dialog_number};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::uri::Uri;
use crate::via::Via;

/// The reason why a request is not forwarded.
enum Stays {
    /// It is for the proxy itself: a REGISTER, or OPTIONS.
    Ours,
    /// It is rejected, with these fields.
    Refused(Fault, Vec<Header>),
}

impl From<Fault> for Stays {
    fn from(fault: Fault) -> Stays {
        Stays::Refused(fault, Vec::new())
    }
}

impl Proxy {
    /// Forwards a request; returns false if it is for the proxy itself. Rejections leave no state, and an ACK gets none.
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
                let copy = copier.fitting_copy(&onward, known, from, &mut target, &branch);
                let (hop, domain) = target.verified_hop();
                self.outbox.send((hop, domain), copy.to_bytes(), None, dialog_number(&known.call_id));
                true
            }
            Err(Stays::Ours) => is_ack,
            Err(Stays::Refused(..)) if is_ack => {
                self.outbox.count(Event::Dropped);
                true
            }
            Err(Stays::Refused(fault, fields)) => {
                self.outbox.count(Event::Response(fault.status));
                self.refuse_statelessly_with(back, request, &value, fault, fields);
                true
            }
        }
    }

    /// Finds the single target: sections 16.3 and 16.5.
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
            let refusal = bad_extensions(request);
            return Err(Stays::Refused(refusal.fault, refusal.fields));
        }
        let mut target = match leg {
            _ if is_for_user => self.one_target(now, &uri)?,
            Some(leg) => self.target_within(now, &leg, from, &onward, known)?,
            None if self.config.may_relay(&onward, &uri) => self.routing(now).target_outside(&onward)?,
            None => return Err(RELAYING_DENIED.into()),
        };
        share(std::slice::from_mut(&mut target), known.max_breadth);
        Ok((onward, target, mark))
    }

    /// "MUST choose one and only one target from the target set", the same for each retransmission: the contact that the user prefers,
    /// among equal ones the first by URI.
    fn one_target(&self, now: Time, uri: &Uri<'_>) -> Result<Target, Fault> {
        let user = self.config.user_of(uri);
        let routing = self.routing(now);
        let targets = routing.targets_for(uri, routing.registered_targets(&user));
        let key = |target: &Target| (std::cmp::Reverse(target.preference()), target.uri().clone());
        targets.into_iter().min_by_key(key).ok_or_else(|| self.config.nobody_there(&user))
    }

    /// Forwards a response to the source of its request, as recorded in the Via that is removed; returns false if it matches no request
    /// that was forwarded.
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
}

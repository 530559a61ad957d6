//! A stateless proxy (RFC 3261 section 16.11): requests and responses are passed on, one by one, and nothing is kept of them.
//!
//! The state that a stateful proxy keeps stands in our Via here, which comes back with each response: where the request came from, with a
//! MAC ([`PARAM`]). The branch is made from what repetitions of a request have in common, as have its CANCEL and the ACK for its
//! refusal, so that the next hop sees them as such. A request goes to one place, which depends on nothing but the request and on who is
//! registered; whoever sent it repeats it if it is lost. REGISTER and what is for ourselves is answered as ever. Begin at
//! [`Proxy::pass_on`] and [`Proxy::pass_response`].

use base::Time;
use hmac::Mac;

use super::flows::{derived, keyed};
use super::inbound::{bad_extensions, response_hop, server_key};
use super::route::{RELAYING_DENIED, Taken};
use super::target::Target;
use super::{Proxy, dialog_number, marks};
use crate::digest::hex;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::uri::Uri;
use crate::via::Via;

/// How branches of this proxy begin when nothing is kept of them.
const BRANCH: &str = "z9hG4bKs";
/// The Via parameter that says where a request came from; no RFC has it.
const PARAM: &str = "source";
/// Bytes of the branch's hash.
const HASH: usize = 16;

/// A request that is not passed on.
enum Stays {
    /// It is for ourselves: a REGISTER, or a question what we can do.
    Ours,
    /// It is refused, with these fields.
    Refused(Fault, Vec<Header>),
}

impl From<Fault> for Stays {
    fn from(fault: Fault) -> Stays {
        Stays::Refused(fault, Vec::new())
    }
}

impl Proxy {
    /// Passes a request on; false if it is for ourselves. Refusals are sent without anything being kept, and an ACK gets none.
    pub(super) fn pass_on(
        &mut self,
        now: Time,
        from: Hop,
        via: &Via<'_>,
        request: &Message,
        known: &Essentials,
    ) -> bool {
        let is_ack = known.cseq.method == Method::Ack;
        if is_ack && self.is_for_own_refusal(known) {
            return true;
        }
        let (back, value) = response_hop(from, via);
        match self.way_on(now, from, request, known) {
            Ok((mut onward, mut target, mark)) => {
                self.counters.requests += 1;
                let branch = self.stateless_branch(via, request, known);
                let source = hex(&self.token_of(back, &self.source_secret));
                onward.replace_first(Name::Via, &value);
                // The rest of our Via, behind the branch.
                let branch = format!("{branch}.{mark};{PARAM}={source}");
                let copy = self.fitting_copy(&onward, known, from, &mut target, &branch);
                let (hop, domain) = target.way();
                self.send_to(hop, domain, copy.to_bytes(), None, dialog_number(&known.call_id));
                true
            }
            Err(Stays::Ours) => is_ack,
            Err(Stays::Refused(..)) if is_ack => {
                self.counters.dropped += 1;
                true
            }
            Err(Stays::Refused(fault, fields)) => {
                self.counters.responses[usize::from(fault.status / 100).clamp(1, 6) - 1] += 1;
                self.refuse_statelessly_with(back, request, &value, fault, fields);
                true
            }
        }
    }

    /// Section 16.3 and 16.5 for one place.
    fn way_on(
        &mut self,
        now: Time,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<(Message, Target, String), Stays> {
        let mut onward = request.clone();
        let Taken { leg, .. } = self.take_own_routes(&mut onward, known)?;
        let uri = Uri::parse(onward.request_uri())?;
        let is_for_user = onward.first(Name::Route).is_none() && self.is_ours(&uri);
        if is_for_user && (known.cseq.method == Method::Register || uri.user.is_none()) {
            return Err(Stays::Ours);
        }
        if known.max_forwards == 0 {
            return Err(Fault { status: 483, reason: "Too Many Hops" }.into());
        }
        if known.max_breadth == 0 {
            return Err(Fault { status: 440, reason: "Max-Breadth Exceeded" }.into());
        }
        let mark = self.loop_mark_without_to_tag(request, known);
        if self.is_loop(request, &mark) {
            return Err(Fault { status: 482, reason: "Loop Detected" }.into());
        }
        if request.first(Name::ProxyRequire).is_some() {
            let refusal = bad_extensions(request);
            return Err(Stays::Refused(refusal.fault, refusal.fields));
        }
        let mut target = match leg {
            _ if is_for_user => self.one_place(now, &uri)?,
            Some(leg) => self.target_within(now, &leg, from, &onward, known)?,
            None if self.may_relay(&onward, &uri) => self.target_outside(now, &onward, &uri)?,
            None => return Err(RELAYING_DENIED.into()),
        };
        target.breadth = known.max_breadth;
        Ok((onward, target, mark))
    }

    /// "MUST choose one and only one target from the target set", the same for each repetition: the place that the user prefers, of those
    /// alike the first by its URI.
    fn one_place(&self, now: Time, uri: &Uri<'_>) -> Result<Target, Fault> {
        let user = self.user_of(uri);
        let targets = self.targets_for(uri, self.registered_targets(&user, now));
        let key = |target: &Target| (std::cmp::Reverse(target.preference), target.uri.clone());
        targets.into_iter().min_by_key(key).ok_or_else(|| self.nobody_there(&user))
    }

    /// The same for all that has the same transaction: section 16.11 has it made from the received branch, where that is unique.
    fn stateless_branch(&self, via: &Via<'_>, request: &Message, known: &Essentials) -> String {
        let mut mac = keyed(&derived(&self.dialog_secret, "branches"));
        mac.update(&server_key(request, known, via, &Method::Invite));
        format!("{BRANCH}{}", hex(&mac.finalize().into_bytes()[..HASH]))
    }

    /// Passes a response back to where its request came from, by our own word in the Via that is taken off; false if it is of no request
    /// that was passed on.
    pub(super) fn pass_response(&mut self, mut response: Message, known: &Essentials) -> bool {
        let Ok(via) = Via::parse(&known.via) else { return false };
        let is_ours = self.is_our_via(&via) && via.branch().is_some_and(|b| b.starts_with(BRANCH.as_bytes()));
        let token = via.param(PARAM).flatten().and_then(marks::bytes_of).filter(|_| is_ours);
        let Some(Ok(hop)) = token.map(|token| self.hop_in(token, &self.source_secret)) else { return false };
        response.pop_first(Name::Via);
        if response.first(Name::Via).is_none() {
            return false;
        }
        self.counters.responses[usize::from(response.status() / 100).clamp(1, 6) - 1] += 1;
        self.send(hop, response.to_bytes(), None, dialog_number(&known.call_id));
        true
    }
}

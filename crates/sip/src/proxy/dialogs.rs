//! Dialogs created through this proxy: the list for `sctpify-sip dialogs`, and the permitted targets of requests within one.
//!
//! A dialog is identified by what its mark in Record-Route covers: its Call-ID and its caller's tag ([`Leg`]). It is recorded when the
//! request that creates it is forwarded, and forgotten when that request is rejected, when BYE was answered, when it was silent for
//! [`IDLE_MAX`], or when [`super::ProxyLimits::dialogs`] newer ones need its place. Invariant: `order` contains each dialog once, the
//! most recently active at its end.
//!
//! Either end may name any address as its Contact, and so direct our messages anywhere. So a request within a dialog goes only to
//! addresses that took part in creating the dialog, to addresses that our users are registered from, to configured next hops, and to
//! [`super::ProxyConfig::relay_networks`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use base::Time;

use super::performance::SessionEnd;
use super::target::Target;
use super::{Id, Proxy};
use crate::address::Address;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::uri::Uri;
use crate::via::parse_ip;

/// Time after which a silent dialog is forgotten: as long as the longest registration, and hence the longest subscription.
const IDLE_MAX: Duration = Duration::from_secs(86_400);
/// Limit on dialogs that one request may create by forking, for telling BYEs apart.
const ANSWERS_MAX: usize = 16;
/// The rejection of a request to an address unrelated to its dialog.
const NOT_OF_THIS_DIALOG: Fault = Fault { status: 403, reason: "Address Has No Part In This Dialog" };

/// The identity of a dialog: Call-ID and the caller's tag.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leg(Box<[u8]>);

impl Leg {
    pub(super) fn new(call_id: &[u8], caller_tag: &[u8]) -> Leg {
        // A Call-ID contains no zero byte.
        Leg([call_id, &[0], caller_tag].concat().into())
    }
}

/// A user agent that talks to us directly, with no other proxy between.
#[derive(Clone, PartialEq, Eq, Debug)]
struct End {
    /// The URI of its Contact: the Request-URI of requests to it.
    contact: Box<[u8]>,
    /// The hop its messages come from.
    flow: Hop,
}

impl End {
    /// Returns the hop to it if that differs from its Contact: its connection while there is one; its source address if it
    /// asks for that (`ob`, RFC 5626 section 5.3), or if it does not know its own address behind a NAT.
    fn hop(&self) -> Option<Hop> {
        let uri = Uri::parse(&self.contact).ok()?;
        let is_elsewhere = parse_ip(uri.host).is_some_and(|ip| ip != self.flow.address.ip());
        if is_elsewhere || uri.param("ob").is_some() {
            return Some(self.flow);
        }
        self.flow.connection?;
        let port = uri.port.unwrap_or(self.flow.transport.default_port());
        Some(Hop { address: (self.flow.address.ip(), port).into(), ..self.flow })
    }
}

/// One dialog, or several created by a forked request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dialog {
    /// Its Call-ID.
    pub call_id: Box<[u8]>,
    /// The caller, as in From.
    pub from: Box<[u8]>,
    /// The callee, as in To.
    pub to: Box<[u8]>,
    /// True if INVITE created it; otherwise it is a subscription.
    pub is_call: bool,
    /// The source of its first request.
    pub caller: Hop,
    /// The destinations of that request.
    pub callees: Vec<Hop>,
    /// Arrival time of that request.
    pub began: Time,
    /// Arrival time of the first 2xx; `None`: it is ringing.
    pub answered: Option<Time>,
    /// Tags of the callees that answered.
    answers: Vec<Box<[u8]>>,
    /// The ends that talk to us directly: the caller, then the callee.
    ends: [Option<End>; 2],
    /// Time of its last request.
    heard: Time,
    number: u64,
}

impl Dialog {
    /// Returns its sequence number: greater than that of all dialogs that were active before it.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// All known dialogs.
#[derive(Debug, Default)]
pub(super) struct Dialogs {
    known: HashMap<Leg, Dialog>,
    order: BTreeMap<u64, Leg>,
    next_number: u64,
    max: usize,
}

impl Dialogs {
    /// Creates an empty table for at most `max` dialogs.
    pub(super) fn new(max: usize) -> Dialogs {
        Dialogs { max, ..Dialogs::default() }
    }

    /// Changes the limit, for future dialogs.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    fn begin(&mut self, leg: &Leg, dialog: Dialog) {
        while self.order.len() >= self.max.max(1) {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.known.remove(&oldest);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.order.insert(number, leg.clone());
        self.known.insert(leg.clone(), Dialog { number, ..dialog });
    }

    fn touch(&mut self, leg: &Leg, now: Time) {
        let Some(dialog) = self.known.get_mut(leg) else { return };
        self.order.remove(&dialog.number);
        (dialog.number, dialog.heard) = (self.next_number, now);
        self.order.insert(dialog.number, leg.clone());
        self.next_number += 1;
    }

    fn remove(&mut self, leg: &Leg) {
        if let Some(dialog) = self.known.remove(leg) {
            self.order.remove(&dialog.number);
        }
    }

    /// Forgets dialogs that were silent for too long.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((_, leg)) = self.order.first_key_value() {
            if self.known.get(leg).is_some_and(|dialog| dialog.heard + IDLE_MAX > now) {
                return;
            }
            let leg = leg.clone();
            self.order.pop_first();
            self.known.remove(&leg);
        }
    }
}

impl Proxy {
    /// Returns known dialogs, the most recently active first; those after the one of a given number ([`Dialog::number`]), if any.
    pub fn dialogs(&self, after: Option<u64>) -> impl Iterator<Item = &Dialog> {
        let order = self.dialogs.order.range(..after.unwrap_or(u64::MAX)).rev();
        order.filter_map(|(_, leg)| self.dialogs.known.get(leg))
    }

    /// Returns the number of known dialogs.
    pub fn dialog_count(&self) -> usize {
        self.dialogs.known.len()
    }

    /// Records the destinations of a request that may create a dialog; requests within a dialog add nothing.
    pub(super) fn note_dialog(
        &mut self,
        now: Time,
        server: Id,
        from: Hop,
        request: &Message,
        known: &Essentials,
        to: impl Iterator<Item = Hop>,
    ) {
        if known.to_tag.is_some() {
            return;
        }
        let leg = Leg::new(&known.call_id, known.from_tag.as_deref().unwrap_or_default());
        let Some(server) = self.servers.get_mut(&server) else { return };
        server.leg = Some(leg.clone());
        if let Some(dialog) = self.dialogs.known.get_mut(&leg) {
            // The same request again, with credentials or to the next group of targets.
            dialog.callees.extend(to);
            dialog.callees.truncate(2 * self.config.limits.branches);
            self.dialogs.touch(&leg, now);
            return;
        }
        let value = |name| request.first(name).map(|value| value[..].into()).unwrap_or_default();
        let dialog = Dialog {
            call_id: known.call_id[..].into(),
            from: value(Name::From),
            to: value(Name::To),
            is_call: known.cseq.method == Method::Invite,
            caller: from,
            callees: to.collect(),
            began: now,
            answered: None,
            answers: Vec::new(),
            ends: [end_of(from, request), None],
            heard: now,
            number: 0,
        };
        self.dialogs.begin(&leg, dialog);
    }

    /// Records the hop of a response that creates a dialog; if it comes from the callee itself, its Contact is recorded too.
    pub(super) fn learn_callee(&mut self, server: Id, from: Hop, response: &Message) {
        let recorded =
            response.elements(Name::RecordRoute).next().and_then(|route| Address::parse(route).ok());
        let is_ours =
            recorded.is_none_or(|route| Uri::parse(route.uri).is_ok_and(|uri| self.config.is_ours(&uri)));
        let leg = self.servers.get(&server).and_then(|server| server.leg.as_ref());
        let Some(dialog) = leg.filter(|_| is_ours).and_then(|leg| self.dialogs.known.get_mut(leg)) else {
            return;
        };
        if let Some(contact) = contact_of(response) {
            dialog.ends[1] = Some(End { contact, flow: from });
        }
    }

    /// Returns the target of a request within a dialog: the flow of an end that talks to us directly, otherwise Route or Request-URI.
    pub(super) fn target_within(
        &mut self,
        now: Time,
        leg: &Leg,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<Target, Fault> {
        self.dialogs.touch(leg, now);
        let is_caller = *leg == Leg::new(&known.call_id, known.from_tag.as_deref().unwrap_or_default());
        let mut flow = None;
        if let Some(dialog) = self.dialogs.known.get_mut(leg) {
            let [own, other] = if is_caller { [0, 1] } else { [1, 0] };
            // The Contact of a target refresh request such as re-INVITE (RFC 3261 section 12.2).
            if let Some(end) = end_of(from, request) {
                dialog.ends[own] = Some(end);
            }
            let is_last_hop = request.first(Name::Route).is_none();
            let other = dialog.ends[other].as_ref().filter(|_| is_last_hop);
            flow = other.filter(|end| *end.contact == *request.request_uri()).and_then(End::hop);
        }
        let mut target = match flow {
            Some(hop) => Target::by_flow(request.request_uri(), hop),
            None => self.routing(now).target_outside(request)?,
        };
        target.retain_alternates(|hop| self.may_send_within(leg, hop));
        if self.may_send_within(leg, target.hop()) { Ok(target) } else { Err(NOT_OF_THIS_DIALOG) }
    }

    /// Handles the final response to the request that created `leg`; `to_tag` is the responder's.
    pub(super) fn on_dialog_answer(&mut self, now: Time, leg: &Leg, status: u16, to_tag: Option<&[u8]>) {
        let Some(dialog) = self.dialogs.known.get_mut(leg) else { return };
        if status < 300 {
            dialog.answered.get_or_insert(now);
            let tag: Box<[u8]> = to_tag.unwrap_or_default().into();
            if !dialog.answers.contains(&tag) && dialog.answers.len() < ANSWERS_MAX {
                dialog.answers.push(tag);
            }
        } else if dialog.answered.is_none() {
            self.dialogs.remove(leg);
        }
    }

    /// Handles the final response to BYE: the dialog has ended, unless credentials were demanded or the like (RFC 3261 section 15.1.1).
    pub(super) fn on_bye_answer(&mut self, now: Time, status: u16, known: &Essentials, server: Option<Id>) {
        let came = server.and_then(|server| self.servers.get(&server)).map(|server| server.measured.began());
        let end = match status {
            200..=299 => came.map(SessionEnd::By),
            408 => Some(SessionEnd::Unheard),
            481 => None,
            _ => return,
        };
        self.end_by_bye(now, known, end);
    }

    /// Records that a BYE reached nobody: "no response at all" (section 15.1.1), or no route to the other end. Its sender regards the
    /// session as ended since it sent the BYE, and will not repeat it.
    pub(super) fn note_undelivered_bye(&mut self, now: Time, server: Id) {
        let request = self.servers.get(&server).and_then(|server| server.request.as_ref());
        let bye = request.filter(|request| request.method() == Some(&Method::Bye));
        if let Some(Ok(known)) = bye.map(Essentials::of) {
            self.end_by_bye(now, &known, Some(SessionEnd::Unheard));
        }
    }

    fn end_by_bye(&mut self, now: Time, known: &Essentials, end: Option<SessionEnd>) {
        let tags = [&known.from_tag, &known.to_tag].map(|tag| tag.as_deref().unwrap_or_default());
        for (caller, callee) in [(tags[0], tags[1]), (tags[1], tags[0])] {
            let leg = Leg::new(&known.call_id, caller);
            let Some(dialog) = self.dialogs.known.get_mut(&leg) else { continue };
            dialog.answers.retain(|answer| **answer != *callee);
            if dialog.answers.is_empty() {
                let answered = dialog.answered.filter(|_| dialog.is_call);
                self.dialogs.remove(&leg);
                if let (Some(answered), Some(end)) = (answered, end) {
                    self.outbox.performance_mut().note_session(now, answered, end);
                }
            }
        }
    }

    /// Reports whether a request of this dialog may be sent there.
    fn may_send_within(&self, leg: &Leg, to: Hop) -> bool {
        let address = to.address.ip();
        let has_part = |dialog: &Dialog| {
            dialog.caller.address.ip() == address
                || dialog.callees.iter().any(|callee| callee.address.ip() == address)
        };
        self.dialogs.known.get(leg).is_some_and(has_part)
            || self.routing(Time::ZERO).is_known_address(address)
    }
}

/// Returns the sender of a request that has passed no other proxy, if it has a Contact.
fn end_of(from: Hop, request: &Message) -> Option<End> {
    let is_direct = request.elements(Name::Via).count() == 1;
    contact_of(request).filter(|_| is_direct).map(|contact| End { contact, flow: from })
}

fn contact_of(message: &Message) -> Option<Box<[u8]>> {
    let contact = message.elements(Name::Contact).next()?;
    Some(Address::parse(contact).ok()?.uri.into())
}

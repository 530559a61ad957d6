//! Dialogs that were begun through this proxy: what `sctpify-sip dialogs` lists, and where requests within one may go.
//!
//! A dialog is known by what its mark in Record-Route covers: its Call-ID and its caller's tag ([`Leg`]). It is noted when the request
//! that makes it is sent on, and forgotten when that request is refused, when BYE was answered, when it was silent for [`IDLE_MAX`],
//! or when [`super::ProxyLimits::dialogs`] newer ones need its place. Invariant: `order` has each dialog once, the one heard of last
//! at its end.
//!
//! Either end may name any address as its Contact, and would have us send there whatever it likes. So a request within a
//! dialog goes only to addresses from which, or to which, the dialog was made, to those that our users are registered from, to configured
//! next hops, and to [`super::ProxyConfig::relay_networks`].

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use base::Time;
use bytes::Bytes;

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

/// How long a dialog may be silent: the longest registration, and so the longest subscription, is as long.
const IDLE_MAX: Duration = Duration::from_secs(86_400);
/// Dialogs that one request may make by being forked, as far as BYEs are told apart.
const ANSWERS_MAX: usize = 16;
/// The refusal of a request to an address that has nothing to do with its dialog.
const NOT_OF_THIS_DIALOG: Fault = Fault { status: 403, reason: "Address Has No Part In This Dialog" };

/// What the requests of a dialog have in common: Call-ID and the tag of who began it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leg(Box<[u8]>);

impl Leg {
    pub(super) fn new(call_id: &[u8], caller_tag: &[u8]) -> Leg {
        // No Call-ID has a zero.
        Leg([call_id, &[0], caller_tag].concat().into())
    }
}

/// One who speaks to us directly, without another proxy between.
#[derive(Clone, PartialEq, Eq, Debug)]
struct End {
    /// The URI of its Contact: the Request-URI of those who send to it.
    contact: Box<[u8]>,
    /// How its messages come.
    flow: Hop,
}

impl End {
    /// The way to it, if that is not what its Contact says: by its connection while there is one; back to where it comes from if it
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

/// One dialog, or several that a forked request made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dialog {
    /// Its Call-ID.
    pub call_id: Box<[u8]>,
    /// The caller, as From has it.
    pub from: Box<[u8]>,
    /// The callee, as To has it.
    pub to: Box<[u8]>,
    /// Whether INVITE made it; else it is a subscription.
    pub is_call: bool,
    /// How its first request came.
    pub caller: Hop,
    /// Where that went.
    pub callees: Vec<Hop>,
    /// When that came.
    pub began: Time,
    /// When a 2xx came; `None`: it rings.
    pub answered: Option<Time>,
    /// Tags of those who answered.
    answers: Vec<Box<[u8]>>,
    /// How those are reached that speak to us directly: the caller, then the callee.
    ends: [Option<End>; 2],
    /// When a request of it came last.
    heard: Time,
    number: u64,
}

impl Dialog {
    /// Its place among the others: greater than that of all that were heard of before it.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Dialogs {
    known: HashMap<Leg, Dialog>,
    order: BTreeMap<u64, Leg>,
    next_number: u64,
    max: usize,
}

impl Dialogs {
    /// None yet, and no more than this.
    pub(super) fn new(max: usize) -> Dialogs {
        Dialogs { max, ..Dialogs::default() }
    }

    /// Another bound, for dialogs to come.
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

    /// Forgets those that were silent for too long.
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
    /// Dialogs that are known, the one heard of last first; those that follow the one of a number ([`Dialog::number`]), if given.
    pub fn dialogs(&self, after: Option<u64>) -> impl Iterator<Item = &Dialog> {
        let order = self.dialogs.order.range(..after.unwrap_or(u64::MAX)).rev();
        order.filter_map(|(_, leg)| self.dialogs.known.get(leg))
    }

    /// How many there are.
    pub fn dialog_count(&self) -> usize {
        self.dialogs.known.len()
    }

    /// A request that may make a dialog goes to these; within one nothing new is learned.
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
            // The same request again, with credentials, or to those who are asked next.
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

    /// A response that makes a dialog came by this hop; if it comes from the callee itself its Contact is how to reach it.
    pub(super) fn learn_callee(&mut self, server: Id, from: Hop, response: &Message) {
        let recorded =
            response.elements(Name::RecordRoute).next().and_then(|route| Address::parse(route).ok());
        let is_ours = recorded.is_none_or(|route| Uri::parse(route.uri).is_ok_and(|uri| self.is_ours(&uri)));
        let leg = self.servers.get(&server).and_then(|server| server.leg.as_ref());
        let Some(dialog) = leg.filter(|_| is_ours).and_then(|leg| self.dialogs.known.get_mut(leg)) else {
            return;
        };
        if let Some(contact) = contact_of(response) {
            dialog.ends[1] = Some(End { contact, flow: from });
        }
    }

    /// Where a request within a dialog goes: to an end that speaks to us by the way it does, else where Route or Request-URI say.
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
            // Of a target refresh request, as re-INVITE is one (RFC 3261 section 12.2).
            if let Some(end) = end_of(from, request) {
                dialog.ends[own] = Some(end);
            }
            let is_last_hop = request.first(Name::Route).is_none();
            let other = dialog.ends[other].as_ref().filter(|_| is_last_hop);
            flow = other.filter(|end| *end.contact == *request.request_uri()).and_then(End::hop);
        }
        let uri = Bytes::copy_from_slice(request.request_uri());
        let mut target = match flow {
            Some(hop) => Target { is_settled: true, ..Target::new(uri, hop, None) },
            None => self.target_outside(now, request, &Uri::parse(request.request_uri())?)?,
        };
        target.alternates.retain(|hop| self.may_send_within(leg, *hop));
        if self.may_send_within(leg, target.hop) { Ok(target) } else { Err(NOT_OF_THIS_DIALOG) }
    }

    /// The request that `leg` is of has its final response; `to_tag` is whose.
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

    /// BYE has its final response: the dialog is over, but for a demand for credentials and the like (RFC 3261 section 15.1.1).
    pub(super) fn on_bye_answer(&mut self, now: Time, status: u16, known: &Essentials, server: Option<Id>) {
        let came = server.and_then(|server| self.servers.get(&server)).map(|server| server.measured.began);
        let end = match status {
            200..=299 => came.map(SessionEnd::By),
            408 => Some(SessionEnd::Unheard),
            481 => None,
            _ => return,
        };
        self.end_by_bye(now, known, end);
    }

    /// A BYE has reached nobody: "no response at all" (section 15.1.1), or no way to its other end. Its session is over for its sender
    /// since it was sent, and nobody will say so again.
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
                    self.performance.note_session(now, answered, end);
                }
            }
        }
    }

    /// Whether a request of this dialog may be sent there.
    fn may_send_within(&self, leg: &Leg, to: Hop) -> bool {
        let address = to.address.ip();
        let has_part = |dialog: &Dialog| {
            dialog.caller.address.ip() == address
                || dialog.callees.iter().any(|callee| callee.address.ip() == address)
        };
        self.dialogs.known.get(leg).is_some_and(has_part) || self.is_known_place(address)
    }

    fn is_known_place(&self, address: IpAddr) -> bool {
        self.config.relay_networks.iter().any(|network| network.contains(address))
            || self.config.next_hops.iter().any(|hop| hop.address.ip() == address)
            || self.location.is_registered_from(address)
    }
}

/// Who sent a request that has been through no other proxy, if it says where it is.
fn end_of(from: Hop, request: &Message) -> Option<End> {
    let is_direct = request.elements(Name::Via).count() == 1;
    contact_of(request).filter(|_| is_direct).map(|contact| End { contact, flow: from })
}

fn contact_of(message: &Message) -> Option<Box<[u8]>> {
    let contact = message.elements(Name::Contact).next()?;
    Some(Address::parse(contact).ok()?.uri.into())
}

//! Table of the dialogs that were created through this proxy. `sctpify-sip dialogs` lists them. The table also limits the targets of
//! requests within dialogs.
//!
//! The Call-ID and the caller's tag identify a dialog ([`Leg`]). The mark in our Record-Route authenticates both. A dialog is recorded
//! when the request that creates it is forwarded. It is forgotten in these cases:
//!
//! - the request that created it is rejected;
//! - a BYE was answered with 2xx, 408 or 481, or reached no user agent;
//! - the dialog was silent for [`IDLE_MAX`];
//! - the limit [`super::ProxyLimits::dialogs`] is reached, and all other dialogs were active more recently.
//!
//! Invariant: `order` contains each dialog once, with the most recently active dialog at its end.
//!
//! A user agent can put any address into its Contact, and could direct our messages to any host in this way. A request within a dialog
//! therefore goes only to these addresses:
//!
//! - addresses that took part in creating the dialog;
//! - addresses from which our users are registered;
//! - configured next hops;
//! - [`super::ProxyConfig::relay_networks`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use base::Time;

use super::ProxyConfig;
use super::leg::Leg;
use super::performance::{Performance, SessionEnd};
use super::routing::Routing;
use super::target::Target;
use crate::address::Address;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::uri::Uri;
use crate::via::parse_ip;

/// Time after which a silent dialog is forgotten. The value equals the default maximum lifetime of a registration. Subscribers are expected
/// to refresh their subscriptions within this time.
const IDLE_MAX: Duration = Duration::from_secs(86_400);
/// Limit on the callees' tags that are recorded for one forked request. The tag in a BYE shows which of the dialogs ends.
const ANSWERS_MAX: usize = 16;
/// The rejection of a request within a dialog to an address that is not permitted for this dialog.
const NOT_OF_THIS_DIALOG: Fault = Fault { status: 403, reason: "Destination Not Part Of This Dialog" };

/// A user agent that exchanges messages with us directly, without another proxy in between.
#[derive(Clone, PartialEq, Eq, Debug)]
struct End {
    /// URI of the user agent's Contact. This URI is the Request-URI of requests to the user agent.
    contact: Box<[u8]>,
    /// Hop from which the user agent's messages arrive.
    flow: Hop,
}

impl End {
    /// Returns the hop to the user agent, or `None` if requests must go to the address in its Contact. The result is the flow if the
    /// Contact has another IP address than the source (NAT), or the parameter `ob` (RFC 5626 section 5.3). Otherwise, the result is the
    /// existing connection with the Contact's port, if a connection exists.
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

/// A dialog, or all dialogs that one forked request created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dialog {
    /// The Call-ID.
    pub call_id: Box<[u8]>,
    /// The caller: value of From.
    pub from: Box<[u8]>,
    /// The callee: value of To.
    pub to: Box<[u8]>,
    /// True if INVITE created the dialog. Otherwise the dialog is a subscription.
    pub is_call: bool,
    /// Source of the request that created the dialog.
    pub caller: Hop,
    /// Destinations of the request that created the dialog.
    pub callees: Vec<Hop>,
    /// Arrival time of the request that created the dialog.
    pub began: Time,
    /// Arrival time of the first 2xx, or `None` before that.
    pub answered: Option<Time>,
    /// Tags of the callees that answered.
    answers: Vec<Box<[u8]>>,
    /// The ends that exchange messages with us directly: first the caller, then the callee.
    ends: [Option<End>; 2],
    /// Time of the dialog's last request.
    heard: Time,
    number: u64,
}

impl Dialog {
    /// Returns the dialog's sequence number. A dialog gets a new, highest number with each request. Dialogs in the order of their numbers
    /// are therefore in the order of their last activity.
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
    /// Creates an empty table for up to `max` dialogs.
    pub(super) fn new(max: usize) -> Dialogs {
        Dialogs { max, ..Dialogs::default() }
    }

    /// Sets the limit for future dialogs.
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

    /// Returns known dialogs, the most recently active first. If `after` is given, begins after the dialog with this number.
    pub(super) fn list(&self, after: Option<u64>) -> impl Iterator<Item = &Dialog> {
        let order = self.order.range(..after.unwrap_or(u64::MAX)).rev();
        order.filter_map(|(_, leg)| self.known.get(leg))
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Records the destinations of a request that may create a dialog, and returns the dialog. If the dialog is already known, the
    /// destinations are added, up to `callees_max` in total. Returns `None` for a request within a dialog.
    pub(super) fn note(
        &mut self,
        now: Time,
        from: Hop,
        request: &Message,
        known: &Essentials,
        to: impl Iterator<Item = Hop>,
        callees_max: usize,
    ) -> Option<Leg> {
        if known.to_tag.is_some() {
            return None;
        }
        let leg = Leg::new(&known.call_id, known.from_tag.as_deref().unwrap_or_default());
        if let Some(dialog) = self.known.get_mut(&leg) {
            // The same request has arrived again, with credentials after a challenge, or from a proxy behind us (a spiral).
            dialog.callees.extend(to);
            dialog.callees.truncate(callees_max);
            self.touch(&leg, now);
            return Some(leg);
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
        self.begin(&leg, dialog);
        Some(leg)
    }

    /// Records the callee's Contact and hop from a response that creates a dialog. Does nothing if the response came through another
    /// proxy that recorded its route.
    pub(super) fn learn_callee(&mut self, config: &ProxyConfig, leg: &Leg, from: Hop, response: &Message) {
        let recorded =
            response.elements(Name::RecordRoute).next().and_then(|route| Address::parse(route).ok());
        let is_ours =
            recorded.is_none_or(|route| Uri::parse(route.uri).is_ok_and(|uri| config.is_ours(&uri)));
        let Some(dialog) = self.known.get_mut(leg).filter(|_| is_ours) else { return };
        if let Some(contact) = contact_of(response) {
            dialog.ends[1] = Some(End { contact, flow: from });
        }
    }

    /// Returns the target of a request within a dialog. If no Route is left, and the Request-URI is the Contact of an end that exchanges
    /// messages with us directly, [`End::hop`] decides. Otherwise the target follows from Route or the Request-URI. Fails if the target's
    /// address is not permitted for this dialog.
    pub(super) fn target_within(
        &mut self,
        routing: &Routing<'_>,
        leg: &Leg,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<Target, Fault> {
        self.touch(leg, routing.now());
        let is_caller = *leg == Leg::new(&known.call_id, known.from_tag.as_deref().unwrap_or_default());
        let mut flow = None;
        if let Some(dialog) = self.known.get_mut(leg) {
            let [own, other] = if is_caller { [0, 1] } else { [1, 0] };
            // A target refresh request, such as re-INVITE, can change the sender's Contact (RFC 3261 section 12.2).
            if let Some(end) = end_of(from, request) {
                dialog.ends[own] = Some(end);
            }
            let is_last_hop = request.first(Name::Route).is_none();
            let other = dialog.ends[other].as_ref().filter(|_| is_last_hop);
            flow = other.filter(|end| *end.contact == *request.request_uri()).and_then(End::hop);
        }
        let mut target = match flow {
            Some(hop) => Target::by_flow(request.request_uri(), hop),
            None => routing.target_outside(request)?,
        };
        target.retain_alternates(|hop| self.may_send_within(routing, leg, hop));
        if self.may_send_within(routing, leg, target.hop()) { Ok(target) } else { Err(NOT_OF_THIS_DIALOG) }
    }

    /// Reports whether a request within this dialog may be sent to this hop.
    fn may_send_within(&self, routing: &Routing<'_>, leg: &Leg, to: Hop) -> bool {
        let address = to.address.ip();
        let has_part = |dialog: &Dialog| {
            dialog.caller.address.ip() == address
                || dialog.callees.iter().any(|callee| callee.address.ip() == address)
        };
        self.known.get(leg).is_some_and(has_part) || routing.is_known_address(address)
    }

    /// Handles the final response to the request that created `leg`. `to_tag` is the responder's tag.
    pub(super) fn on_answer(&mut self, now: Time, leg: &Leg, status: u16, to_tag: Option<&[u8]>) {
        let Some(dialog) = self.known.get_mut(leg) else { return };
        if status < 300 {
            dialog.answered.get_or_insert(now);
            let tag: Box<[u8]> = to_tag.unwrap_or_default().into();
            if !dialog.answers.contains(&tag) && dialog.answers.len() < ANSWERS_MAX {
                dialog.answers.push(tag);
            }
        } else if dialog.answered.is_none() {
            self.remove(leg);
        }
    }

    /// Handles a response to a BYE. `came` is the arrival time of the BYE. The statuses 2xx, 408 and 481 end the dialog (RFC 3261 section
    /// 15.1.1). With any other status, such as a challenge, the dialog continues.
    pub(super) fn on_bye_answer(
        &mut self,
        now: Time,
        status: u16,
        known: &Essentials,
        came: Option<Time>,
        performance: &mut Performance,
    ) {
        let end = match status {
            200..=299 => came.map(SessionEnd::By),
            408 => Some(SessionEnd::Unheard),
            481 => None,
            _ => return,
        };
        self.end_by_bye(now, known, end, performance);
    }

    /// Handles a request that reached no user agent. The request got "no response at all" (section 15.1.1), or no route to the other end
    /// exists. If the request is a BYE, its dialog ends, because the sender of the BYE considers the session ended and sends no further
    /// BYE.
    pub(super) fn note_undelivered(&mut self, now: Time, request: &Message, performance: &mut Performance) {
        let bye = Some(request).filter(|request| request.method() == Some(&Method::Bye));
        if let Some(Ok(known)) = bye.map(Essentials::of) {
            self.end_by_bye(now, &known, Some(SessionEnd::Unheard), performance);
        }
    }

    fn end_by_bye(
        &mut self,
        now: Time,
        known: &Essentials,
        end: Option<SessionEnd>,
        performance: &mut Performance,
    ) {
        let tags = [&known.from_tag, &known.to_tag].map(|tag| tag.as_deref().unwrap_or_default());
        for (caller, callee) in [(tags[0], tags[1]), (tags[1], tags[0])] {
            let leg = Leg::new(&known.call_id, caller);
            let Some(dialog) = self.known.get_mut(&leg) else { continue };
            dialog.answers.retain(|answer| **answer != *callee);
            if dialog.answers.is_empty() {
                let answered = dialog.answered.filter(|_| dialog.is_call);
                self.remove(&leg);
                if let (Some(answered), Some(end)) = (answered, end) {
                    performance.note_session(now, answered, end);
                }
            }
        }
    }
}

/// Returns the sender of a request. Returns `None` if the request came through another proxy, or has no Contact.
fn end_of(from: Hop, request: &Message) -> Option<End> {
    let is_direct = request.elements(Name::Via).count() == 1;
    contact_of(request).filter(|_| is_direct).map(|contact| End { contact, flow: from })
}

fn contact_of(message: &Message) -> Option<Box<[u8]>> {
    let contact = message.elements(Name::Contact).next()?;
    Some(Address::parse(contact).ok()?.uri.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{Knowledge, config, hop, request};

    const INVITE: &str = "INVITE sip:callee@example.org\nContact: <sip:caller@10.0.0.1>";

    fn known(request: &Message, from: &str, to: Option<&str>) -> Essentials {
        let tag = |tag: &str| tag.to_owned().into();
        let known = Essentials::of(request).unwrap();
        Essentials { from_tag: Some(tag(from)), to_tag: to.map(tag), ..known }
    }

    /// Returns a table with one dialog, from 192.0.2.7 to 192.0.2.8.
    fn dialogs() -> (Dialogs, Leg) {
        let mut dialogs = Dialogs::new(10);
        let leg = note(&mut dialogs, Time::ZERO, "caller");
        (dialogs, leg)
    }

    fn note(dialogs: &mut Dialogs, now: Time, caller: &str) -> Leg {
        let request = request(INVITE);
        let known = known(&request, caller, None);
        let to = [hop("192.0.2.8:5060")].into_iter();
        dialogs.note(now, hop("192.0.2.7:5062"), &request, &known, to, 32).unwrap()
    }

    fn bye(dialogs: &mut Dialogs, callee: &str, status: u16) -> Performance {
        let request = request("BYE sip:callee@192.0.2.8");
        let known = known(&request, "caller", Some(callee));
        let mut performance = Performance::default();
        let now = Time::from_millis(5000);
        dialogs.on_bye_answer(now, status, &known, Some(now), &mut performance);
        performance
    }

    #[test]
    fn a_rejected_dialog_is_forgotten_and_an_answered_one_is_not() {
        let (mut dialogs, leg) = dialogs();
        dialogs.on_answer(Time::ZERO, &leg, 200, Some(b"callee"));
        dialogs.on_answer(Time::ZERO, &leg, 486, Some(b"other"));
        assert_eq!(dialogs.len(), 1);
        let (mut dialogs, leg) = self::dialogs();
        dialogs.on_answer(Time::ZERO, &leg, 486, Some(b"callee"));
        assert_eq!(dialogs.len(), 0);
    }

    #[test]
    fn a_forked_dialog_ends_when_every_callee_has_accepted_a_bye() {
        let (mut dialogs, leg) = dialogs();
        dialogs.on_answer(Time::ZERO, &leg, 200, Some(b"one"));
        dialogs.on_answer(Time::ZERO, &leg, 200, Some(b"two"));
        let sessions =
            |performance: Performance| performance.session_duration.successful.counts().iter().sum::<u64>();
        assert_eq!((sessions(bye(&mut dialogs, "one", 200)), dialogs.len()), (0, 1));
        assert_eq!((sessions(bye(&mut dialogs, "two", 401)), dialogs.len()), (0, 1));
        assert_eq!((sessions(bye(&mut dialogs, "two", 200)), dialogs.len()), (1, 0));
    }

    #[test]
    fn a_dialog_beyond_the_limit_replaces_the_one_silent_longest() {
        let mut dialogs = Dialogs::new(2);
        let [first, second] = ["first", "second"].map(|caller| note(&mut dialogs, Time::ZERO, caller));
        note(&mut dialogs, Time::ZERO, "first");
        let third = note(&mut dialogs, Time::ZERO, "third");
        let kept: Vec<_> = [first, second, third].iter().map(|leg| dialogs.known.contains_key(leg)).collect();
        assert_eq!(kept, [true, false, true]);
    }

    #[test]
    fn a_silent_dialog_expires() {
        let (mut dialogs, _) = dialogs();
        dialogs.expire(Time::ZERO + (IDLE_MAX - Duration::from_millis(1)));
        assert_eq!(dialogs.len(), 1);
        dialogs.expire(Time::ZERO + IDLE_MAX);
        assert_eq!(dialogs.len(), 0);
    }

    #[test]
    fn a_request_within_a_dialog_goes_only_to_addresses_of_the_other_end() {
        let (mut dialogs, leg) = dialogs();
        let knowledge = Knowledge::default();
        let routing = knowledge.routing(Time::ZERO);
        let mut target = |text: &str| {
            let request = request(text);
            let known = known(&request, "callee", Some("caller"));
            let target = dialogs.target_within(&routing, &leg, hop("192.0.2.8:5060"), &request, &known);
            target.map(|target| target.hop())
        };
        assert_eq!(target("BYE sip:caller@10.0.0.1"), Ok(hop("192.0.2.7:5062")), "behind a NAT");
        assert_eq!(target("BYE sip:caller@192.0.2.7:5099"), Ok(hop("192.0.2.7:5099")));
        assert_eq!(target("BYE sip:caller@192.0.2.99"), Err(NOT_OF_THIS_DIALOG));
    }

    #[test]
    fn a_callee_behind_another_proxy_is_not_reached_directly() {
        let learned = |record: &str| {
            let (mut dialogs, leg) = dialogs();
            let text = format!("INVITE sip:a\nContact: <sip:callee@192.0.2.8>\nRecord-Route: {record}");
            dialogs.learn_callee(&config(), &leg, hop("192.0.2.8:5060"), &request(&text));
            dialogs.known[&leg].ends[1].is_some()
        };
        assert!(learned("<sip:192.0.2.1;lr>"));
        assert!(!learned("<sip:192.0.2.9;lr>, <sip:192.0.2.1;lr>"));
    }
}

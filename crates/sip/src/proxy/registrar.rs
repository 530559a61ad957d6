//! REGISTER (RFC 3261 section 10.3, RFC 3327, RFC 5626).
//!
//! A request's contacts are accepted all together or not at all. Begin with [`Proxy::register`].

use std::time::Duration;

use base::Time;

use super::outbox::Event;
use super::{Id, Output, Proxy};
use crate::address::Address;
use crate::cursor::{number, split_list};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::location::{Binding, Change, Full};
use crate::message::Message;
use crate::transport::Hop;
use crate::uri::{Scheme, Uri};

/// A contact in a REGISTER, with its requested lifetime.
struct Wish {
    binding: Binding,
    lifetime: Duration,
}

/// A REGISTER for one of our users.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) id: Id,
    pub(super) from: Hop,
    pub(super) request: Message,
    pub(super) known: Essentials,
    /// Its address-of-record.
    pub(super) user: String,
}

/// The decision on a valid REGISTER.
pub(super) enum Decision {
    /// 423: with this minimum.
    TooBrief(Duration),
    /// The changes; none if it is only a query.
    Changes(Vec<Change>),
}

impl Proxy {
    /// Answers a REGISTER for one of our domains.
    pub(super) fn register(
        &mut self,
        now: Time,
        id: Id,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<(), Fault> {
        let to = request.first(Name::To).ok_or(Fault::bad("To Is Missing"))?;
        let uri = Uri::parse(Address::parse(to)?.uri)?;
        if uri.scheme == Scheme::Other || !self.config.is_ours(&uri) || uri.user.is_none() {
            // Step 5: "the address-of-record … is not valid for the domain in the Request-URI".
            return Err(Fault { status: 404, reason: "Nobody Of That Name" });
        }
        let user = self.config.user_of(&uri);
        let forgotten = self.location.expire(&user, now);
        self.note_expired(forgotten);
        let asked = Registration { id, from, request: request.clone(), known: known.clone(), user };
        if self.config.is_shared() {
            return self.register_shared(now, asked);
        }
        let bindings: Vec<&Binding> = self.location.of(&asked.user, now).collect();
        match self.decide(now, &asked, &bindings)? {
            Decision::TooBrief(min) => self.answer_too_brief(now, id, min),
            Decision::Changes(changes) => {
                for change in changes {
                    self.location.apply(&change);
                    self.outbox.push(Output::Store(change));
                }
                let contacts = contacts(now, self.location.of(&asked.user, now));
                self.answer_registration(now, &asked, contacts);
            }
        }
        Ok(())
    }

    /// Tells the store of its own about expired bindings; a shared store expires them itself.
    pub(super) fn note_expired(&mut self, changes: Vec<Change>) {
        if !self.config.is_shared() {
            changes.into_iter().for_each(|change| self.outbox.push(Output::Store(change)));
        }
    }

    /// Returns the changes of a REGISTER to its user's unexpired bindings.
    pub(super) fn decide(
        &self,
        now: Time,
        asked: &Registration,
        bindings: &[&Binding],
    ) -> Result<Decision, Fault> {
        let Registration { from, request, known, user, .. } = asked;
        if request.elements(Name::Contact).any(|contact| contact == b"*") {
            return Ok(Decision::Changes(remove_all(request, known, user, bindings)?));
        }
        let wishes = self.wishes(now, *from, request, known)?;
        match self.too_short(&wishes) {
            Some(min) => Ok(Decision::TooBrief(min)),
            None => Ok(Decision::Changes(self.changes_for(user, bindings, wishes)?)),
        }
    }

    pub(super) fn answer_too_brief(&mut self, now: Time, id: Id, min: Duration) {
        let value = min.as_secs().to_string();
        self.reply(now, id, 423, "Interval Too Brief", |response| {
            response.push(Header::new(Name::MinExpires, &value));
        });
    }

    fn wishes(
        &self,
        now: Time,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<Vec<Wish>, Fault> {
        let default = request.first(Name::Expires).and_then(|value| number(value));
        let default = default.map_or(self.config.expiry.default, Duration::from_secs);
        let path: Vec<Box<[u8]>> = request.elements(Name::Path).map(Into::into).collect();
        for value in &path {
            Uri::parse(Address::parse(value)?.uri)?;
        }
        let mut wishes = Vec::new();
        for header in request.all(Name::Contact) {
            for element in split_list(&header.value) {
                let contact = Address::parse(element)?;
                Uri::parse(contact.uri)?;
                let asked = contact.param("expires").flatten().and_then(number).map(Duration::from_secs);
                let lifetime = asked.unwrap_or(default).min(self.config.expiry.max);
                let binding = Binding {
                    uri: contact.uri.into(),
                    expires: now + lifetime,
                    call_id: known.call_id[..].into(),
                    cseq: known.cseq.number,
                    path: path.clone(),
                    instance: instance_of(&contact),
                    q: preference_of(&contact)?,
                    flow: from,
                    through: self.config.is_shared().then(|| self.flows.route(&self.config, from)).flatten(),
                };
                wishes.push(Wish { binding, lifetime });
            }
        }
        Ok(wishes)
    }

    /// Returns the minimum lifetime if a contact's is shorter and not zero (step 7).
    fn too_short(&self, wishes: &[Wish]) -> Option<Duration> {
        let min = self.config.expiry.min;
        wishes.iter().any(|wish| wish.lifetime < min && wish.lifetime > Duration::ZERO).then_some(min)
    }

    fn changes_for(
        &self,
        user: &str,
        bindings: &[&Binding],
        wishes: Vec<Wish>,
    ) -> Result<Vec<Change>, Fault> {
        let mut count = bindings.len();
        let mut changes = Vec::with_capacity(wishes.len());
        for Wish { binding, lifetime } in wishes {
            let old = bindings.iter().find(|old| old.is_same(&binding));
            if let Some(old) = old {
                check_order(old, &binding.call_id, binding.cseq)?;
            }
            let user = user.to_owned();
            match old {
                Some(old) if lifetime.is_zero() => {
                    changes.push(Change::Remove { user, uri: old.uri.clone() });
                }
                None if lifetime.is_zero() => {}
                Some(old) => {
                    // The same instance at another address: the store identifies bindings by their URI.
                    if old.uri != binding.uri {
                        changes.push(Change::Remove { user: user.clone(), uri: old.uri.clone() });
                    }
                    changes.push(Change::Put { user, binding });
                }
                None => {
                    count += 1;
                    changes.push(Change::Put { user, binding });
                }
            }
        }
        match self.location.has_room(user, count) {
            Ok(()) => Ok(changes),
            Err(Full::Contacts) => Err(Fault { status: 403, reason: "Too Many Contacts" }),
            Err(Full::Users) => Err(Fault { status: 503, reason: "Too Many Users" }),
        }
    }

    /// Sends 200 with all contacts (step 8), the accepted Path (RFC 3327 section 5.3), and `outbound` if the connection is kept for
    /// calls (RFC 5626 section 6).
    pub(super) fn answer_registration(&mut self, now: Time, asked: &Registration, contacts: Vec<Vec<u8>>) {
        self.outbox.count(Event::Registration);
        let path: Vec<Header> = asked.request.all(Name::Path).cloned().collect();
        let is_by_outbound = is_by_outbound(asked);
        self.reply(now, asked.id, 200, "OK", |response| {
            for contact in contacts {
                response.push(Header::of_bytes(Name::Contact, &contact));
            }
            path.into_iter().for_each(|header| response.push(header));
            if is_by_outbound {
                response.push(Header::new(Name::Require, "outbound"));
            }
        });
    }
}

/// Formats bindings for the Contact of a 200, with their remaining lifetimes.
pub(super) fn contacts<'a>(now: Time, bindings: impl Iterator<Item = &'a Binding>) -> Vec<Vec<u8>> {
    let contact = |binding: &Binding| {
        let left = binding.expires.since(now).as_secs();
        [b"<", &binding.uri[..], format!(">;expires={left}").as_bytes()].concat()
    };
    bindings.map(contact).collect()
}

/// Handles `Contact: *` (step 6): valid only alone and with Expires of zero.
fn remove_all(
    request: &Message,
    known: &Essentials,
    user: &str,
    bindings: &[&Binding],
) -> Result<Vec<Change>, Fault> {
    let expires = request.first(Name::Expires).and_then(|value| number(value));
    if request.elements(Name::Contact).count() != 1 || expires != Some(0) {
        return Err(Fault::bad("Contact * Needs Expires 0 And Nothing Beside It"));
    }
    let removal = |binding: &&Binding| {
        check_order(binding, &known.call_id, known.cseq.number)?;
        Ok(Change::Remove { user: user.to_owned(), uri: binding.uri.clone() })
    };
    bindings.iter().map(removal).collect()
}

/// Step 7: a request with the same Call-ID must be newer than the one that made the binding.
fn check_order(old: &Binding, call_id: &[u8], cseq: u32) -> Result<(), Fault> {
    if *old.call_id == *call_id && cseq <= old.cseq {
        return Err(Fault { status: 500, reason: "Out Of Order" });
    }
    Ok(())
}

/// Parses `q` in thousandths: "0" or "1" with up to three decimal places (RFC 3261 section 25.1); 1000 if absent.
fn preference_of(contact: &Address<'_>) -> Result<u16, Fault> {
    let Some(q) = contact.param("q") else { return Ok(1000) };
    let wrong = Fault::bad("q Is Malformed");
    let text = q.and_then(|q| std::str::from_utf8(q).ok()).ok_or(wrong)?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit());
    let thousandths = format!("{part:0<3}").parse::<u16>().ok().filter(|_| is_number).ok_or(wrong)?;
    match (whole, thousandths) {
        ("0", part) => Ok(part),
        ("1", 0) => Ok(1000),
        _ => Err(wrong),
    }
}

/// Reports whether a user agent that asks for outbound is told to keep its flow alive, and to register again once it is gone: only with a
/// direct connection. Over UDP it would use STUN for that, which we do not support.
fn is_by_outbound(asked: &Registration) -> bool {
    let Registration { from, request, .. } = asked;
    let is_direct = from.connection.is_some() && request.elements(Name::Via).count() == 1;
    let mut options = request.elements(Name::Supported);
    let mut contacts = request.elements(Name::Contact).filter_map(|contact| Address::parse(contact).ok());
    is_direct
        && options.any(|option| option.eq_ignore_ascii_case(b"outbound"))
        && contacts.any(|contact| instance_of(&contact).is_some())
}

/// Returns `+sip.instance` and `reg-id` together (RFC 5626 section 6); one without the other is ignored.
fn instance_of(contact: &Address<'_>) -> Option<Box<[u8]>> {
    let (instance, flow) = (contact.param("+sip.instance").flatten()?, contact.param("reg-id").flatten()?);
    Some([instance, b";", flow].concat().into())
}

//! The decision on a REGISTER (RFC 3261 section 10.3, RFC 3327, RFC 5626): the changes to the user's bindings, and the response.
//!
//! Begin with [`decide`].

use std::time::Duration;

use base::Time;

use crate::address::Address;
use crate::cursor::{number, split_list};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::location::{Binding, Change, Full, Location};
use crate::message::Message;
use crate::proxy::flows::Flows;
use crate::proxy::{Id, ProxyConfig};
use crate::transport::Hop;
use crate::uri::{Scheme, Uri};

/// A contact in a REGISTER, with its requested lifetime.
struct Wish {
    binding: Binding,
    lifetime: Duration,
}

/// A REGISTER for one of our users.
#[derive(Debug)]
pub(in crate::proxy) struct Registration {
    /// The REGISTER's server transaction.
    id: Id,
    from: Hop,
    request: Message,
    known: Essentials,
    /// The user's address-of-record.
    user: String,
}

impl Registration {
    /// Checks that a REGISTER is for one of our users.
    pub(in crate::proxy) fn of(
        config: &ProxyConfig,
        id: Id,
        from: Hop,
        request: &Message,
        known: &Essentials,
    ) -> Result<Registration, Fault> {
        let to = request.first(Name::To).ok_or(Fault::bad("To Is Missing"))?;
        let uri = Uri::parse(Address::parse(to)?.uri)?;
        if uri.scheme == Scheme::Other || !config.is_ours(&uri) || uri.user.is_none() {
            // Step 5: "the address-of-record … is not valid for the domain in the Request-URI".
            return Err(Fault { status: 404, reason: "No Such User" });
        }
        let user = config.user_of(&uri);
        Ok(Registration { id, from, request: request.clone(), known: known.clone(), user })
    }

    /// Returns the number of the REGISTER's server transaction.
    pub(in crate::proxy) fn id(&self) -> Id {
        self.id
    }

    /// Returns the user's address-of-record.
    pub(super) fn user(&self) -> &str {
        &self.user
    }
}

/// The response to a REGISTER.
#[derive(Debug)]
pub(in crate::proxy) struct Answer {
    pub(in crate::proxy) status: u16,
    pub(in crate::proxy) reason: &'static str,
    pub(in crate::proxy) fields: Vec<Header>,
}

/// The decision on a valid REGISTER.
pub(super) enum Decision {
    /// A 423 with the minimum lifetime.
    TooBrief(Answer),
    /// The changes. A REGISTER without Contact only queries the bindings, and causes no changes.
    Changes(Vec<Change>),
}

/// Returns the decision on a REGISTER. `bindings` are the user's bindings that have not expired.
pub(super) fn decide(
    now: Time,
    config: &ProxyConfig,
    flows: &Flows,
    location: &Location,
    asked: &Registration,
    bindings: &[&Binding],
) -> Result<Decision, Fault> {
    let Registration { from, request, known, user, .. } = asked;
    if request.elements(Name::Contact).any(|contact| contact == b"*") {
        return Ok(Decision::Changes(remove_all(request, known, user, bindings)?));
    }
    let wishes = wishes(now, config, flows, *from, request, known)?;
    if let Some(min) = too_short(config, &wishes) {
        let fields = vec![Header::new(Name::MinExpires, &min.as_secs().to_string())];
        return Ok(Decision::TooBrief(Answer { status: 423, reason: "Interval Too Brief", fields }));
    }
    Ok(Decision::Changes(changes_for(location, user, bindings, wishes)?))
}

/// Returns a 200 with all contacts (step 8) and the accepted Path (RFC 3327 section 5.3). If requests to the user agent will use the
/// connection of the REGISTER, the response contains `Require: outbound` (RFC 5626 section 6).
pub(super) fn accept<'a>(
    now: Time,
    asked: &Registration,
    bindings: impl Iterator<Item = &'a Binding>,
) -> Answer {
    let contact = |binding: &Binding| {
        let left = binding.expires.since(now).as_secs();
        let value = [b"<", &binding.uri[..], format!(">;expires={left}").as_bytes()].concat();
        Header::of_bytes(Name::Contact, &value)
    };
    let mut fields: Vec<Header> = bindings.map(contact).collect();
    fields.extend(asked.request.all(Name::Path).cloned());
    if is_by_outbound(asked) {
        fields.push(Header::new(Name::Require, "outbound"));
    }
    Answer { status: 200, reason: "OK", fields }
}

fn wishes(
    now: Time,
    config: &ProxyConfig,
    flows: &Flows,
    from: Hop,
    request: &Message,
    known: &Essentials,
) -> Result<Vec<Wish>, Fault> {
    let default = request.first(Name::Expires).and_then(|value| number(value));
    let default = default.map_or(config.expiry.default, Duration::from_secs);
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
            let lifetime = asked.unwrap_or(default).min(config.expiry.max);
            let binding = Binding {
                uri: contact.uri.into(),
                expires: now + lifetime,
                call_id: known.call_id[..].into(),
                cseq: known.cseq.number,
                path: path.clone(),
                instance: instance_of(&contact),
                q: preference_of(&contact)?,
                flow: from,
                through: config.is_shared().then(|| flows.route(config, from)).flatten(),
            };
            wishes.push(Wish { binding, lifetime });
        }
    }
    Ok(wishes)
}

/// Returns the minimum lifetime if a contact requests a lifetime below this minimum (step 7). A requested lifetime of zero is permitted.
fn too_short(config: &ProxyConfig, wishes: &[Wish]) -> Option<Duration> {
    let min = config.expiry.min;
    wishes.iter().any(|wish| wish.lifetime < min && wish.lifetime > Duration::ZERO).then_some(min)
}

fn changes_for(
    location: &Location,
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
                // The user agent registers with another contact URI. The store identifies bindings by URI, so the binding with the old URI
                // must be removed.
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
    match location.has_room(user, count) {
        Ok(()) => Ok(changes),
        Err(Full::Contacts) => Err(Fault { status: 403, reason: "Too Many Contacts" }),
        Err(Full::Users) => Err(Fault { status: 503, reason: "Too Many Users" }),
    }
}

/// Handles `Contact: *` (step 6). The asterisk must be the only contact, and Expires must be zero.
fn remove_all(
    request: &Message,
    known: &Essentials,
    user: &str,
    bindings: &[&Binding],
) -> Result<Vec<Change>, Fault> {
    let expires = request.first(Name::Expires).and_then(|value| number(value));
    if request.elements(Name::Contact).count() != 1 || expires != Some(0) {
        return Err(Fault::bad("Contact * Requires Expires 0 And No Other Contact"));
    }
    let removal = |binding: &&Binding| {
        check_order(binding, &known.call_id, known.cseq.number)?;
        Ok(Change::Remove { user: user.to_owned(), uri: binding.uri.clone() })
    };
    bindings.iter().map(removal).collect()
}

/// Checks the order of requests (step 7). If a request has the same Call-ID as the binding `old`, its CSeq must be higher.
fn check_order(old: &Binding, call_id: &[u8], cseq: u32) -> Result<(), Fault> {
    if *old.call_id == *call_id && cseq <= old.cseq {
        return Err(Fault { status: 500, reason: "Out Of Order" });
    }
    Ok(())
}

/// Returns `q` in thousandths, or 1000 if `q` is absent. The value of `q` begins with 0 or 1, and has up to three decimal places
/// (RFC 3261 section 25.1).
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

/// Reports whether the response requires `outbound`. With `outbound`, the user agent keeps its flow alive, and registers again after a loss
/// of the flow. The response requires `outbound` if the user agent supports it, has a direct connection, and gives an instance and a
/// `reg-id`. Over UDP, keep-alives need STUN, which this proxy does not support.
fn is_by_outbound(asked: &Registration) -> bool {
    let Registration { from, request, .. } = asked;
    let is_direct = from.connection.is_some() && request.elements(Name::Via).count() == 1;
    let mut options = request.elements(Name::Supported);
    let mut contacts = request.elements(Name::Contact).filter_map(|contact| Address::parse(contact).ok());
    is_direct
        && options.any(|option| option.eq_ignore_ascii_case(b"outbound"))
        && contacts.any(|contact| instance_of(&contact).is_some())
}

/// Returns `+sip.instance` and `reg-id` together (RFC 5626 section 6). If one of the two parameters is missing, the other is ignored.
fn instance_of(contact: &Address<'_>) -> Option<Box<[u8]>> {
    let (instance, flow) = (contact.param("+sip.instance").flatten()?, contact.param("reg-id").flatten()?);
    Some([instance, b";", flow].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::LocationLimits;
    use crate::proxy::testing::{Knowledge, hop, request};

    fn registration(fields: &str, cseq: u32) -> Registration {
        let request = request(&format!("REGISTER sip:example.org\n{fields}"));
        let mut known = Essentials::of(&request).unwrap();
        known.cseq.number = cseq;
        Registration::of(&Knowledge::default().config, 1, hop("192.0.2.7:5060"), &request, &known).unwrap()
    }

    fn decided(location: &Location, fields: &str, cseq: u32) -> Result<Decision, Fault> {
        let Knowledge { config, flows, .. } = Knowledge::default();
        let bindings: Vec<&Binding> = location.of("callee@example.org", Time::ZERO).collect();
        decide(Time::ZERO, &config, &flows, location, &registration(fields, cseq), &bindings)
    }

    /// Applies the changes that a REGISTER requests, and returns the number of contacts.
    fn apply(location: &mut Location, fields: &str, cseq: u32) -> Result<usize, Fault> {
        let Decision::Changes(changes) = decided(location, fields, cseq)? else { panic!("too brief") };
        changes.iter().for_each(|change| location.apply(change));
        Ok(location.contacts())
    }

    #[test]
    fn a_registration_is_made_refreshed_and_removed_in_the_order_of_its_requests() {
        let mut location = Location::new(LocationLimits::default());
        assert_eq!(apply(&mut location, "Contact: <sip:a@192.0.2.7>", 1), Ok(1));
        assert_eq!(apply(&mut location, "Contact: <sip:a@192.0.2.7>", 2), Ok(1));
        let late = apply(&mut location, "Contact: <sip:a@192.0.2.7>", 2);
        assert_eq!(late.map_err(|fault| fault.reason), Err("Out Of Order"));
        assert_eq!(apply(&mut location, "Contact: <sip:a@192.0.2.7>;expires=0", 3), Ok(0));
    }

    #[test]
    fn contact_star_removes_all_bindings_only_with_expires_zero() {
        let mut location = Location::new(LocationLimits::default());
        apply(&mut location, "Contact: <sip:a@192.0.2.7>, <sip:b@192.0.2.7>", 1).unwrap();
        assert_eq!(apply(&mut location, "Contact: *", 2).unwrap_err().status, 400);
        assert_eq!(apply(&mut location, "Contact: *\nExpires: 0", 3), Ok(0));
    }

    #[test]
    fn an_instance_at_another_address_replaces_its_binding() {
        let mut location = Location::new(LocationLimits::default());
        let contact = |host| format!("Contact: <sip:a@{host}>;+sip.instance=\"<urn:1>\";reg-id=1");
        apply(&mut location, &contact("192.0.2.7"), 1).unwrap();
        assert_eq!(apply(&mut location, &contact("192.0.2.8"), 2), Ok(1));
        let uris: Vec<_> = location.of("callee@example.org", Time::ZERO).map(|b| b.uri.clone()).collect();
        assert_eq!(uris, [b"sip:a@192.0.2.8"[..].into()]);
    }

    #[test]
    fn a_lifetime_below_the_minimum_is_refused_with_the_minimum() {
        let location = Location::new(LocationLimits::default());
        let decision = decided(&location, "Contact: <sip:a@192.0.2.7>;expires=59", 1).unwrap();
        let Decision::TooBrief(answer) = decision else { panic!("accepted") };
        assert_eq!((answer.status, &answer.fields[0].value[..]), (423, &b"60"[..]));
    }

    #[test]
    fn too_many_contacts_are_refused_together() {
        let location = Location::new(LocationLimits { contacts: 1, users: 1 });
        let two = decided(&location, "Contact: <sip:a@192.0.2.7>, <sip:b@192.0.2.7>", 1);
        assert_eq!(two.err().map(|fault| fault.reason), Some("Too Many Contacts"));
    }

    #[test]
    fn a_q_value_above_1_or_with_over_three_decimals_is_refused() {
        let q = |q: &str| preference_of(&Address::parse(format!("<sip:a>;q={q}").as_bytes()).unwrap());
        assert_eq!([q("0.7"), q("0.25"), q("1"), q("1.000")], [Ok(700), Ok(250), Ok(1000), Ok(1000)]);
        assert!([q("1.1"), q("0.1234"), q("2"), q("x")].iter().all(Result::is_err));
    }
}

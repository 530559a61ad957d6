//! The fields that every message must have (RFC 3261 section 8.1.1), parsed once.

use bytes::Bytes;

use crate::address::Address;
use crate::cursor::{Cursor, is_space, number};
use crate::fault::Fault;
use crate::header::Name;
use crate::message::{Message, Method};
use crate::via::Via;

/// Max-Forwards of a message that does not have this field (RFC 3261 section 16.6, step 3).
pub(crate) const MAX_FORWARDS: u8 = 70;

/// Max-Breadth of a message without this field (RFC 5393 section 5.3.3). Larger values in messages are reduced to this value.
pub(crate) const MAX_BREADTH: u8 = 60;

/// The CSeq field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CSeq {
    /// The sequence number, less than 2³¹.
    pub number: u32,
    /// The method.
    pub method: Method,
}

/// The fields that identify a message's transaction and dialog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Essentials {
    /// Value of the first Via as received. Its syntax is valid.
    pub via: Bytes,
    /// Value of Call-ID.
    pub call_id: Bytes,
    /// Number and method in CSeq.
    pub cseq: CSeq,
    /// Tag of From. RFC 2543 clients may omit it.
    pub from_tag: Option<Bytes>,
    /// Tag of To, if present.
    pub to_tag: Option<Bytes>,
    /// Max-Forwards, or 70 if the field is absent.
    pub max_forwards: u8,
    /// Max-Breadth, which limits the concurrent copies of a request. If the field is absent or exceeds 60, the value is 60.
    pub max_breadth: u8,
}

impl Essentials {
    /// Parses the fields of [`Essentials`] in a message.
    ///
    /// # Errors
    /// Returns [`Message::fault`] if the message has one. Otherwise returns 400 if a field is missing, repeated or malformed, or if the
    /// method in CSeq differs from the method of the request.
    pub fn of(message: &Message) -> Result<Essentials, Fault> {
        if let Some(fault) = message.fault {
            return Err(fault);
        }
        let via = first_via(message)?;
        let from = Address::parse(single(message, Name::From, "Missing Or Repeated From")?)?.tag();
        let to = Address::parse(single(message, Name::To, "Missing Or Repeated To")?)?.tag();
        let call_id = single(message, Name::CallId, "Missing Or Repeated Call-ID")?;
        if call_id.is_empty() || call_id.iter().any(|&b| is_space(b)) {
            return Err(Fault::bad("Call-ID Is Malformed"));
        }
        let cseq = CSeq::parse(single(message, Name::CSeq, "Missing Or Repeated CSeq")?)?;
        // RFC 4475 sections 3.1.2.17 and 3.1.2.18 require a rejection if the methods differ.
        if message.method().is_some_and(|method| *method != cseq.method) {
            return Err(Fault::bad("CSeq Names Another Method"));
        }
        Ok(Essentials {
            via,
            call_id: call_id.clone(),
            from_tag: from.map(Bytes::copy_from_slice),
            to_tag: to.map(Bytes::copy_from_slice),
            max_forwards: max_forwards(message)?,
            max_breadth: max_breadth(message)?,
            cseq,
        })
    }
}

/// Returns the first Via value. Fails if any Via value is malformed.
fn first_via(message: &Message) -> Result<Bytes, Fault> {
    let mut first = None;
    for header in message.all(Name::Via) {
        for element in crate::cursor::split_list(&header.value) {
            Via::parse(element)?;
            first.get_or_insert_with(|| header.value.slice_ref(element));
        }
    }
    first.ok_or(Fault::bad("Via Is Missing"))
}

/// Returns the value of a field that must be present exactly once.
fn single<'a>(message: &'a Message, name: Name, fault: &'static str) -> Result<&'a Bytes, Fault> {
    let mut all = message.all(name);
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(&one.value),
        _ => Err(Fault::bad(fault)),
    }
}

fn max_forwards(message: &Message) -> Result<u8, Fault> {
    let mut all = message.all(Name::MaxForwards);
    match (all.next(), all.next()) {
        (None, _) => Ok(MAX_FORWARDS),
        (Some(one), None) => {
            number(&one.value).and_then(|n| u8::try_from(n).ok()).ok_or(Fault::bad("Invalid Max-Forwards"))
        }
        _ => Err(Fault::bad("Repeated Max-Forwards")),
    }
}

fn max_breadth(message: &Message) -> Result<u8, Fault> {
    let Some(value) = message.first(Name::MaxBreadth) else { return Ok(MAX_BREADTH) };
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Fault::bad("Invalid Max-Breadth"));
    }
    let breadth = number(value).and_then(|n| u8::try_from(n).ok());
    Ok(breadth.unwrap_or(MAX_BREADTH).min(MAX_BREADTH))
}

impl CSeq {
    /// Parses the value of a CSeq field.
    ///
    /// # Errors
    /// Returns 400 if the value is not a number below 2³¹ followed by a method.
    pub fn parse(value: &Bytes) -> Result<CSeq, Fault> {
        const BAD: Fault = Fault::bad("CSeq Is Malformed");
        let mut cursor = Cursor::new(value);
        let digits = cursor.take_while(|b| b.is_ascii_digit());
        let number =
            number(digits).and_then(|n| u32::try_from(n).ok()).filter(|&n| n < 1 << 31).ok_or(BAD)?;
        if !cursor.rest.first().is_some_and(|&b| is_space(b)) {
            return Err(BAD);
        }
        cursor.skip_space();
        let method = cursor.token().filter(|_| cursor.rest.is_empty()).ok_or(BAD)?;
        Ok(CSeq { number, method: Method::from_bytes(value.slice_ref(method)) })
    }
}

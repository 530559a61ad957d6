//! The parameters of RE-CONFIG, [RFC 6525 section 4](https://www.rfc-editor.org/rfc/rfc6525.html#section-4).
//!
//! ```text
//! Outgoing SSN Reset (13)           Incoming SSN Reset (14)
//! +-------------------------------+ +-------------------------------+
//! | Request Sequence Number       | | Request Sequence Number       |
//! | Response Sequence Number      | | Stream Numbers, 16 bits each  |
//! | Sender's Last Assigned TSN    | +-------------------------------+
//! | Stream Numbers, 16 bits each  | SSN/TSN Reset (15)
//! +-------------------------------+ +-------------------------------+
//!                                   | Request Sequence Number       |
//! Response (16)                     +-------------------------------+
//! +-------------------------------+ Add Outgoing (17), Incoming (18)
//! | Response Sequence Number      | +-------------------------------+
//! | Result                        | | Request Sequence Number       |
//! | Sender's Next TSN (optional)  | | New Streams   | Reserved      |
//! | Receiver's Next TSN (optional)| +-------------------------------+
//! +-------------------------------+
//! ```

use super::{Parameter, types};
use crate::list::List;
use crate::reader::Reader;
use crate::tlv::Tlv;
use crate::writer::{NoRoom, Writer};
use crate::{RequestSn, StreamId, Tsn};

/// Result of a re-configuration request (RFC 6525 section 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReconfigResult {
    /// 0: the request has nothing to change.
    NothingToDo,
    /// 1: the change is done.
    Performed,
    /// 2: the request is refused.
    Denied,
    /// 3: a stream number is wrong.
    WrongSsn,
    /// 4: another request is in progress.
    RequestInProgress,
    /// 5: the request's number is wrong.
    BadSequenceNumber,
    /// 6: the request is in progress, and its sender must ask again.
    InProgress,
    /// Any other result.
    Other(u32),
}

impl From<u32> for ReconfigResult {
    fn from(value: u32) -> ReconfigResult {
        match value {
            0 => ReconfigResult::NothingToDo,
            1 => ReconfigResult::Performed,
            2 => ReconfigResult::Denied,
            3 => ReconfigResult::WrongSsn,
            4 => ReconfigResult::RequestInProgress,
            5 => ReconfigResult::BadSequenceNumber,
            6 => ReconfigResult::InProgress,
            other => ReconfigResult::Other(other),
        }
    }
}

impl From<ReconfigResult> for u32 {
    fn from(result: ReconfigResult) -> u32 {
        match result {
            ReconfigResult::NothingToDo => 0,
            ReconfigResult::Performed => 1,
            ReconfigResult::Denied => 2,
            ReconfigResult::WrongSsn => 3,
            ReconfigResult::RequestInProgress => 4,
            ReconfigResult::BadSequenceNumber => 5,
            ReconfigResult::InProgress => 6,
            ReconfigResult::Other(other) => other,
        }
    }
}

/// Reads one of the six parameters of RE-CONFIG. Returns `None` if its length is wrong.
//= rfc6525#4.1-1 4.2-1 4.3-1 4.4-1 4.4-2 4.5-1 4.5-2 4.6-1
pub(super) fn read<'a>(tlv: &Tlv<'a>) -> Option<Parameter<'a>> {
    let mut value = Reader::new(tlv.value);
    let first = value.u32()?;
    let request = RequestSn(first);
    Some(match tlv.kind {
        types::OUTGOING_SSN_RESET => Parameter::OutgoingSsnReset {
            request,
            response: RequestSn(value.u32()?),
            last_tsn: Tsn(value.u32()?),
            streams: List::from_wire(value.rest())?,
        },
        types::INCOMING_SSN_RESET => {
            Parameter::IncomingSsnReset { request, streams: List::from_wire(value.rest())? }
        }
        types::SSN_TSN_RESET => value.rest().is_empty().then_some(Parameter::SsnTsnReset { request })?,
        types::RECONFIG_RESPONSE => Parameter::ReconfigResponse {
            response: request,
            result: value.u32()?.into(),
            next_tsns: next_tsns(value)?,
        },
        types::ADD_OUTGOING_STREAMS => {
            Parameter::AddOutgoingStreams { request, new_streams: new_streams(value)? }
        }
        types::ADD_INCOMING_STREAMS => {
            Parameter::AddIncomingStreams { request, new_streams: new_streams(value)? }
        }
        _ => return None,
    })
}

/// Reads the two optional TSNs, which are both present or both missing. Returns `Some(None)` if they are
/// missing. The length "MUST be 12 if the optional fields are not present and 20 otherwise" (section 4.4).
fn next_tsns(mut value: Reader<'_>) -> Option<Option<(Tsn, Tsn)>> {
    if value.rest().is_empty() {
        return Some(None);
    }
    let both = (Tsn(value.u32()?), Tsn(value.u32()?));
    value.rest().is_empty().then_some(Some(both))
}

/// Reads a number of streams and two reserved octets.
fn new_streams(mut value: Reader<'_>) -> Option<u16> {
    let (number, _reserved) = (value.u16()?, value.u16()?);
    value.rest().is_empty().then_some(number)
}

pub(super) fn write_streams(
    ptype: u16,
    numbers: &[u32],
    streams: List<'_, StreamId>,
    out: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    out.tlv(ptype, |out| {
        numbers.iter().try_for_each(|number| out.u32(*number))?;
        streams.write(out)
    })
}

pub(super) fn write_response(
    response: RequestSn,
    result: ReconfigResult,
    next_tsns: Option<(Tsn, Tsn)>,
    out: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    out.tlv(types::RECONFIG_RESPONSE, |out| {
        out.u32(response.0)?;
        out.u32(result.into())?;
        let Some((sender, receiver)) = next_tsns else { return Ok(()) };
        out.u32(sender.0)?;
        out.u32(receiver.0)
    })
}

pub(super) fn write_add(
    ptype: u16,
    request: RequestSn,
    new_streams: u16,
    out: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    out.tlv(ptype, |out| {
        out.u32(request.0)?;
        out.u16(new_streams)?;
        out.u16(0)
    })
}

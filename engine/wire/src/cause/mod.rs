//! Error causes of ABORT and ERROR
//! ([RFC 9260 section 3.3.10](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.10),
//! [RFC 5061 section 4.3](https://www.rfc-editor.org/rfc/rfc5061.html#section-4.3),
//! [RFC 4895 section 4.1](https://www.rfc-editor.org/rfc/rfc4895.html#section-4.1)).
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |          Cause Code           |         Cause Length          |
//! +-------------------------------+-------------------------------+
//! |                  Cause-Specific Information                   |
//! +---------------------------------------------------------------+
//! ```
//!
//! A value that is too short for its code is refused. Quoted parameters and chunks are not parsed: the value holds their octets. Begin with
//! [`Cause`].

mod list;
#[cfg(test)]
mod tests;

pub use list::{Causes, CausesIter};

use crate::list::List;
use crate::reader::Reader;
use crate::tlv::{Tlv, TlvError};
use crate::writer::{NoRoom, Writer};
use crate::{StreamId, Tsn};

/// An error cause, received or to be sent. A `match` may list all variants without a wildcard, as for [`Chunk`](crate::Chunk).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
//= rfc4895#4.1-1
pub enum Cause<'a> {
    /// 1: DATA for a stream that does not exist (RFC 9260 section 3.3.10.1).
    InvalidStreamIdentifier {
        /// The stream.
        stream: StreamId,
    },
    /// 2: missing parameters of an INIT or INIT ACK (section 3.3.10.2).
    MissingMandatoryParameter {
        /// The types of the missing parameters.
        missing: List<'a, u16>,
    },
    /// 3: a cookie that arrived after its expiry (section 3.3.10.3).
    StaleCookie {
        /// Time since the expiry, in microseconds.
        staleness: u32,
    },
    /// 4: the sender lacks resources for the association (section 3.3.10.4).
    OutOfResource,
    /// 5: an unusable address of the INIT, quoted as a whole parameter (section 3.3.10.5).
    UnresolvableAddress(&'a [u8]),
    /// 6: an unrecognised chunk with its header (section 3.3.10.6).
    UnrecognizedChunkType(&'a [u8]),
    /// 7: a mandatory parameter with an invalid value (section 3.3.10.7).
    InvalidMandatoryParameter,
    /// 8: the unrecognised parameters of an INIT ACK, quoted as whole parameters (section 3.3.10.8).
    UnrecognizedParameters(&'a [u8]),
    /// 9: DATA without user data (section 3.3.10.9).
    NoUserData {
        /// TSN of the DATA chunk.
        tsn: Tsn,
    },
    /// 10: a COOKIE ECHO while the association is closing (section 3.3.10.10).
    CookieReceivedWhileShuttingDown,
    /// 11: a restart that would add addresses. The value quotes the parameters of these addresses (section 3.3.10.11).
    RestartWithNewAddresses(&'a [u8]),
    /// 12: the program of the sender aborted the association. The value is the program's reason (section 3.3.10.12).
    UserInitiatedAbort(&'a [u8]),
    /// 13: a violation of the protocol. The value may hold additional information (section 3.3.10.13).
    ProtocolViolation(&'a [u8]),
    /// 100: the sender requires protection by DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk section 4.3.1).
    MissingDtlsSupport,
    /// 101: the two ends have no method of key management in common (section 4.3.2 of the same draft).
    NoCommonKeyManagement,
    /// 102: both ends chose the same tie breaker (section 4.3.3 of the same draft).
    KeyTieBreakerCollision,
    /// 103: the roles of the two ends in key management do not match (section 4.3.4 of the same draft).
    IncompatibleKeyRoles,
    /// 0xa0: a request to delete the last address, quoted as a whole parameter (RFC 5061 section 4.3.1).
    DeleteLastRemainingAddress(&'a [u8]),
    /// 0xa1: a request that the receiver refuses because it lacks resources, quoted as a whole parameter (RFC 5061 section 4.3.2).
    RefusedDueToResourceShortage(&'a [u8]),
    /// 0xa2: a request to delete the address from which the request itself was sent, quoted as a whole parameter (RFC 5061 section 4.3.3).
    DeleteSourceAddress(&'a [u8]),
    /// 0xa3: an ASCONF-ACK without a matching request (RFC 5061 section 4.3.4).
    IllegalAsconfAck,
    /// 0xa4: a request for a change that the receiver does not allow, quoted as a whole parameter (RFC 5061 section 4.3.5).
    RefusedNoAuthorization(&'a [u8]),
    /// 0x105: an AUTH chunk with an HMAC that the sender of the cause does not support (RFC 4895 section 4.1).
    UnsupportedHmacIdentifier {
        /// Identifier of the HMAC in the AUTH chunk.
        hmac_id: u16,
    },
    /// Any other cause.
    Unknown {
        /// The cause code.
        code: u16,
        /// The cause-specific information.
        value: &'a [u8],
    },
}

/// Reasons why an error cause cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CauseError {
    /// The length field is invalid.
    #[error("error cause: {0}")]
    Frame(#[from] TlvError),
    /// The value is too short for the cause code.
    #[error("error cause {code:#06x} has {length} octets, which its code does not allow")]
    Length {
        /// The cause code.
        code: u16,
        /// Length of the cause including its header, in octets.
        length: usize,
    },
}

impl<'a> Cause<'a> {
    fn parse(tlv: Tlv<'a>) -> Result<Cause<'a>, CauseError> {
        let length = CauseError::Length { code: tlv.kind, length: tlv.bytes.len() };
        Self::read(tlv.kind, tlv.value).ok_or(length)
    }

    /// Reads the value of a cause. Returns `None` if the value is too short.
    fn read(code: u16, value: &'a [u8]) -> Option<Cause<'a>> {
        let mut reader = Reader::new(value);
        Some(match code {
            1 => Cause::InvalidStreamIdentifier { stream: StreamId(reader.u16()?) },
            2 => Cause::MissingMandatoryParameter { missing: read_missing(reader)? },
            3 => Cause::StaleCookie { staleness: reader.u32()? },
            4 => Cause::OutOfResource,
            5 => Cause::UnresolvableAddress(value),
            6 => Cause::UnrecognizedChunkType(value),
            7 => Cause::InvalidMandatoryParameter,
            8 => Cause::UnrecognizedParameters(value),
            9 => Cause::NoUserData { tsn: Tsn(reader.u32()?) },
            10 => Cause::CookieReceivedWhileShuttingDown,
            11 => Cause::RestartWithNewAddresses(value),
            12 => Cause::UserInitiatedAbort(value),
            13 => Cause::ProtocolViolation(value),
            100 => Cause::MissingDtlsSupport,
            101 => Cause::NoCommonKeyManagement,
            102 => Cause::KeyTieBreakerCollision,
            103 => Cause::IncompatibleKeyRoles,
            0xa0 => Cause::DeleteLastRemainingAddress(value),
            0xa1 => Cause::RefusedDueToResourceShortage(value),
            0xa2 => Cause::DeleteSourceAddress(value),
            0xa3 => Cause::IllegalAsconfAck,
            0xa4 => Cause::RefusedNoAuthorization(value),
            0x105 => Cause::UnsupportedHmacIdentifier { hmac_id: reader.u16()? },
            code => Cause::Unknown { code, value },
        })
    }

    /// Returns the cause code.
    pub const fn code(&self) -> u16 {
        match self {
            Cause::InvalidStreamIdentifier { .. } => 1,
            Cause::MissingMandatoryParameter { .. } => 2,
            Cause::StaleCookie { .. } => 3,
            Cause::OutOfResource => 4,
            Cause::UnresolvableAddress(_) => 5,
            Cause::UnrecognizedChunkType(_) => 6,
            Cause::InvalidMandatoryParameter => 7,
            Cause::UnrecognizedParameters(_) => 8,
            Cause::NoUserData { .. } => 9,
            Cause::CookieReceivedWhileShuttingDown => 10,
            Cause::RestartWithNewAddresses(_) => 11,
            Cause::UserInitiatedAbort(_) => 12,
            Cause::ProtocolViolation(_) => 13,
            Cause::MissingDtlsSupport => 100,
            Cause::NoCommonKeyManagement => 101,
            Cause::KeyTieBreakerCollision => 102,
            Cause::IncompatibleKeyRoles => 103,
            Cause::DeleteLastRemainingAddress(_) => 0xa0,
            Cause::RefusedDueToResourceShortage(_) => 0xa1,
            Cause::DeleteSourceAddress(_) => 0xa2,
            Cause::IllegalAsconfAck => 0xa3,
            Cause::RefusedNoAuthorization(_) => 0xa4,
            Cause::UnsupportedHmacIdentifier { .. } => 0x105,
            Cause::Unknown { code, .. } => *code,
        }
    }

    /// Writes the cause's header and information, without padding.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if the cause does not fit. The buffer may then hold a part of the cause.
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.tlv(self.code(), |out| match *self {
            Cause::InvalidStreamIdentifier { stream } => {
                out.u16(stream.0)?;
                out.u16(0)
            }
            Cause::MissingMandatoryParameter { missing } => {
                out.u32(missing.len().try_into().map_err(|_| NoRoom)?)?;
                missing.write(out)
            }
            Cause::StaleCookie { staleness } => out.u32(staleness),
            Cause::NoUserData { tsn } => out.u32(tsn.0),
            Cause::UnsupportedHmacIdentifier { hmac_id } => out.u16(hmac_id),
            Cause::OutOfResource
            | Cause::InvalidMandatoryParameter
            | Cause::CookieReceivedWhileShuttingDown
            | Cause::MissingDtlsSupport
            | Cause::NoCommonKeyManagement
            | Cause::KeyTieBreakerCollision
            | Cause::IncompatibleKeyRoles
            | Cause::IllegalAsconfAck => Ok(()),
            Cause::UnresolvableAddress(value)
            | Cause::UnrecognizedChunkType(value)
            | Cause::UnrecognizedParameters(value)
            | Cause::RestartWithNewAddresses(value)
            | Cause::UserInitiatedAbort(value)
            | Cause::ProtocolViolation(value)
            | Cause::DeleteLastRemainingAddress(value)
            | Cause::RefusedDueToResourceShortage(value)
            | Cause::DeleteSourceAddress(value)
            | Cause::RefusedNoAuthorization(value)
            | Cause::Unknown { value, .. } => out.bytes(value),
        })
    }
}

/// Reads a count, and then that number of parameter types.
fn read_missing<'a>(mut value: Reader<'a>) -> Option<List<'a, u16>> {
    let count = usize::try_from(value.u32()?).ok()?;
    List::from_wire(value.bytes(count.checked_mul(2)?)?)
}

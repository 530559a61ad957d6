//! Parameters of INIT, INIT ACK, HEARTBEAT, ASCONF, ASCONF-ACK and RE-CONFIG
//! ([RFC 9260 section 3.2.1](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.2.1) and its extensions).
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |        Parameter Type         |       Parameter Length        |
//! +-------------------------------+-------------------------------+
//! |                        Parameter Value                        |
//! +---------------------------------------------------------------+
//! ```
//!
//! Any parameter can be read in any chunk. The caller checks whether the parameter is allowed in the chunk.
//! A value whose length does not suit its type is refused. Some types ignore octets after their last field.
//! Begin with [`Parameter`].

mod address;
mod list;
mod reconfig;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use address::{read_address, write_address};
pub use list::{Parameters, ParametersIter};
pub use reconfig::ReconfigResult;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cause::Causes;
use crate::list::List;
use crate::reader::Reader;
use crate::tlv::{Tlv, TlvError};
use crate::writer::{NoRoom, Writer};
use crate::{RequestSn, StreamId, Tsn};

/// A parameter, received or to be sent. A `match` may list all variants without a wildcard, as for
/// [`Chunk`](crate::Chunk).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
//= rfc9260#3.2.1-4
//= rfc4820#4-1
//= rfc4895#3.1-1 3.2-1 3.3-2
//= rfc9260#3.2.1-4
pub enum Parameter<'a> {
    /// Information of a HEARTBEAT's sender (RFC 9260 section 3.3.5).
    HeartbeatInfo(&'a [u8]),
    /// An IPv4 address of the sender (section 3.3.2.1.1).
    Ipv4Address(Ipv4Addr),
    /// An IPv6 address of the sender (section 3.3.2.1.2).
    Ipv6Address(Ipv6Addr),
    /// The cookie that the client must return (section 3.3.3.1.1).
    StateCookie(&'a [u8]),
    /// An unrecognised parameter of the INIT: type, length and value (section 3.3.3.1.2).
    UnrecognizedParameter(&'a [u8]),
    /// Extension of the cookie's lifetime, in milliseconds (section 3.3.2.1.3).
    CookiePreservative(u32),
    /// A host name, which is deprecated (section 3.3.2.1.4).
    HostName(&'a [u8]),
    /// Address types that the sender can reach, as parameter types: 5 is IPv4, and 6 is IPv6
    /// (section 3.3.2.1.5).
    SupportedAddressTypes(List<'a, u16>),
    /// Reset of the sender's outgoing streams. An empty list means all streams (RFC 6525 section 4.1).
    OutgoingSsnReset {
        /// Number of this request.
        request: RequestSn,
        /// Number of the peer's Incoming SSN Reset that this request answers. If this request answers no
        /// other request, the field is the number of the peer's next expected request, minus one.
        response: RequestSn,
        /// The last TSN sent before the reset.
        last_tsn: Tsn,
        /// The streams.
        streams: List<'a, StreamId>,
    },
    /// Request to the peer to reset its outgoing streams. An empty list means all streams
    /// (RFC 6525 section 4.2).
    IncomingSsnReset {
        /// Number of this request.
        request: RequestSn,
        /// The streams.
        streams: List<'a, StreamId>,
    },
    /// Reset of all streams and TSNs (RFC 6525 section 4.3).
    SsnTsnReset {
        /// Number of this request.
        request: RequestSn,
    },
    /// Answer to a request (RFC 6525 section 4.4).
    ReconfigResponse {
        /// Number of the request that this response answers.
        response: RequestSn,
        /// Result of the request.
        result: ReconfigResult,
        /// Next TSN of the response's sender, and of its receiver. Only the response to an SSN/TSN reset has
        /// these two TSNs.
        next_tsns: Option<(Tsn, Tsn)>,
    },
    /// Request of the sender to add outgoing streams (RFC 6525 section 4.5).
    AddOutgoingStreams {
        /// Number of this request.
        request: RequestSn,
        /// Number of additional streams.
        new_streams: u16,
    },
    /// Request to the peer to add streams on which the peer sends (RFC 6525 section 4.6).
    AddIncomingStreams {
        /// Number of this request.
        request: RequestSn,
        /// Number of additional streams.
        new_streams: u16,
    },
    /// The sender reacts to congestion marks (reserved in RFC 9260 section 3.3.2).
    EcnCapable,
    /// The sender accepts a checksum of zero (RFC 9653 section 4).
    ZeroChecksumAcceptable {
        /// Identifier of the error detection method that replaces the checksum.
        edmid: u32,
    },
    /// Random number for AUTH keys (RFC 4895 section 3.1).
    Random(&'a [u8]),
    /// Chunk types that the peer must authenticate, one octet each (RFC 4895 section 3.2).
    ChunkList(&'a [u8]),
    /// HMAC identifiers that the sender accepts, best first (RFC 4895 section 3.3).
    RequestedHmac(List<'a, u16>),
    /// Padding that lengthens an INIT. Only its length is kept (RFC 4820 section 4).
    Padding {
        /// Octets of padding data.
        len: usize,
    },
    /// The sender can protect packets with DTLS chunks (draft-ietf-tsvwg-sctp-dtls-chunk section 4.1).
    DtlsKeyManagement {
        /// A random number. If two INITs cross, the handshake with the smaller number continues.
        tie_breaker: u32,
        /// The roles that the sender can take.
        roles: KeyRoles,
        /// Methods of key management, one octet each, best first.
        methods: &'a [u8],
    },
    /// Chunk types of the extensions that the sender supports, one octet each (RFC 5061 section 4.2.7).
    SupportedExtensions(&'a [u8]),
    /// The sender understands FORWARD TSN (RFC 3758 section 3.1).
    ForwardTsnSupported,
    /// Request to add an address. 0.0.0.0 or :: means the packet's source (RFC 5061 section 4.2.1).
    AddIp {
        /// Correlation ID: the answer to a request repeats the request's number.
        correlation: u32,
        /// The address.
        address: IpAddr,
    },
    /// Request to delete an address. 0.0.0.0 or :: means all addresses except the packet's source
    /// (RFC 5061 section 4.2.2).
    DelIp {
        /// Correlation ID: the answer to a request repeats the request's number.
        correlation: u32,
        /// The address.
        address: IpAddr,
    },
    /// Refusal of a change (RFC 5061 section 4.2.3).
    ErrorCause {
        /// Correlation ID: the answer to a request repeats the request's number.
        correlation: u32,
        /// Reasons for the refusal.
        causes: Causes<'a>,
    },
    /// Request to the peer to send to this address from now on (RFC 5061 section 4.2.4).
    SetPrimary {
        /// Correlation ID: the answer to a request repeats the request's number.
        correlation: u32,
        /// The address.
        address: IpAddr,
    },
    /// Request to the peer to use one of the sender's addresses with this rank. This parameter belongs to
    /// this project and is not in RFC 5061.
    AddressUse {
        /// Correlation ID: the answer to a request repeats the request's number.
        correlation: u32,
        /// The address.
        address: IpAddr,
        /// Rank among the sender's addresses. 0 is preferred to 1, and 1 is preferred to 2.
        rank: u8,
        /// Number of the sender's link that has the address, or 0 if the sender does not report the link.
        link: u8,
        /// Interval of heartbeats to the address, in milliseconds. 0 selects the receiver's own interval.
        heartbeat_ms: u32,
    },
    /// Acceptance of a change (RFC 5061 section 4.2.5).
    SuccessIndication {
        /// Correlation ID: the answer to a request repeats the request's number.
        correlation: u32,
    },
    /// Code of the sender's upper layer, for the peer's upper layer (RFC 5061 section 4.2.6).
    AdaptationLayerIndication(u32),
    /// Any other parameter type.
    Unknown {
        /// The parameter type. [`crate::UnrecognizedAction::for_parameter`] returns the action that the type
        /// requests.
        ptype: u16,
        /// The parameter value.
        value: &'a [u8],
    },
}

/// The roles in key management that an end can take, and its ability to restart under protection
/// (draft-ietf-tsvwg-sctp-dtls-chunk section 4.1). Reserved bits are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyRoles {
    /// R bit: true if the end can restart under protection.
    pub restart: bool,
    /// S bit: true if the end can be the server.
    pub server: bool,
    /// C bit: true if the end can be the client.
    pub client: bool,
}

impl KeyRoles {
    fn from_bits(bits: u8) -> KeyRoles {
        KeyRoles { restart: bits & 4 != 0, server: bits & 2 != 0, client: bits & 1 != 0 }
    }

    fn to_bits(self) -> u8 {
        u8::from(self.restart) << 2 | u8::from(self.server) << 1 | u8::from(self.client)
    }
}

/// Reasons why a parameter cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The length field is invalid.
    #[error("parameter: {0}")]
    Frame(#[from] TlvError),
    /// The length does not suit the parameter type.
    #[error("parameter {ptype:#06x} has {length} octets, which its type does not allow")]
    Length {
        /// The parameter type.
        ptype: u16,
        /// Length of the parameter with its header, in octets.
        length: usize,
    },
    /// The chunk or parameter requires another type in this place.
    #[error("parameter {ptype:#06x} where its chunk or parameter needs another")]
    Unexpected {
        /// The parameter type that was found.
        ptype: u16,
    },
}

impl ParameterError {
    fn length(tlv: &Tlv<'_>) -> ParameterError {
        ParameterError::Length { ptype: tlv.kind, length: tlv.bytes.len() }
    }
}

impl<'a> Parameter<'a> {
    pub(crate) fn parse(tlv: Tlv<'a>) -> Result<Parameter<'a>, ParameterError> {
        match tlv.kind {
            types::IPV4_ADDRESS | types::IPV6_ADDRESS => read_address(tlv).map(Parameter::from),
            types::ADD_IP => address::read_change(tlv)
                .map(|(correlation, address)| Parameter::AddIp { correlation, address }),
            types::DEL_IP => address::read_change(tlv)
                .map(|(correlation, address)| Parameter::DelIp { correlation, address }),
            types::SET_PRIMARY => address::read_change(tlv)
                .map(|(correlation, address)| Parameter::SetPrimary { correlation, address }),
            types::ADDRESS_USE => address::read_use(tlv),
            _ => Self::parse_plain(&tlv).ok_or_else(|| ParameterError::length(&tlv)),
        }
    }

    /// Reads a parameter without an address inside. Returns `None` if the length is wrong.
    fn parse_plain(tlv: &Tlv<'a>) -> Option<Parameter<'a>> {
        let value = tlv.value;
        let mut reader = Reader::new(value);
        Some(match tlv.kind {
            types::HEARTBEAT_INFO => Parameter::HeartbeatInfo(value),
            types::STATE_COOKIE => Parameter::StateCookie(value),
            types::UNRECOGNIZED_PARAMETER => Parameter::UnrecognizedParameter(value),
            types::COOKIE_PRESERVATIVE => Parameter::CookiePreservative(reader.u32()?),
            types::HOST_NAME => Parameter::HostName(value),
            types::SUPPORTED_ADDRESS_TYPES => Parameter::SupportedAddressTypes(List::from_wire(value)?),
            types::OUTGOING_SSN_RESET..=types::ADD_INCOMING_STREAMS => reconfig::read(tlv)?,
            types::ECN_CAPABLE => Parameter::EcnCapable,
            types::ZERO_CHECKSUM_ACCEPTABLE => Parameter::ZeroChecksumAcceptable { edmid: reader.u32()? },
            types::RANDOM => Parameter::Random(value),
            types::CHUNK_LIST => Parameter::ChunkList(value),
            types::REQUESTED_HMAC => Parameter::RequestedHmac(List::from_wire(value)?),
            types::PADDING => Parameter::Padding { len: value.len() },
            types::DTLS_KEY_MANAGEMENT => Parameter::DtlsKeyManagement {
                tie_breaker: reader.u32()?,
                roles: reader.array().map(|[bits]| KeyRoles::from_bits(bits))?,
                methods: Some(reader.rest()).filter(|methods| !methods.is_empty())?,
            },
            types::SUPPORTED_EXTENSIONS => Parameter::SupportedExtensions(value),
            types::FORWARD_TSN_SUPPORTED => Parameter::ForwardTsnSupported,
            types::ERROR_CAUSE => {
                Parameter::ErrorCause { correlation: reader.u32()?, causes: Causes::from_wire(reader.rest()) }
            }
            types::SUCCESS_INDICATION => Parameter::SuccessIndication { correlation: reader.u32()? },
            types::ADAPTATION_LAYER_INDICATION => Parameter::AdaptationLayerIndication(reader.u32()?),
            ptype => Parameter::Unknown { ptype, value },
        })
    }

    /// Returns the parameter type as a number.
    pub const fn ptype(&self) -> u16 {
        match self {
            Parameter::HeartbeatInfo(_) => types::HEARTBEAT_INFO,
            Parameter::Ipv4Address(_) => types::IPV4_ADDRESS,
            Parameter::Ipv6Address(_) => types::IPV6_ADDRESS,
            Parameter::StateCookie(_) => types::STATE_COOKIE,
            Parameter::UnrecognizedParameter(_) => types::UNRECOGNIZED_PARAMETER,
            Parameter::CookiePreservative(_) => types::COOKIE_PRESERVATIVE,
            Parameter::HostName(_) => types::HOST_NAME,
            Parameter::SupportedAddressTypes(_) => types::SUPPORTED_ADDRESS_TYPES,
            Parameter::OutgoingSsnReset { .. } => types::OUTGOING_SSN_RESET,
            Parameter::IncomingSsnReset { .. } => types::INCOMING_SSN_RESET,
            Parameter::SsnTsnReset { .. } => types::SSN_TSN_RESET,
            Parameter::ReconfigResponse { .. } => types::RECONFIG_RESPONSE,
            Parameter::AddOutgoingStreams { .. } => types::ADD_OUTGOING_STREAMS,
            Parameter::AddIncomingStreams { .. } => types::ADD_INCOMING_STREAMS,
            Parameter::EcnCapable => types::ECN_CAPABLE,
            Parameter::ZeroChecksumAcceptable { .. } => types::ZERO_CHECKSUM_ACCEPTABLE,
            Parameter::Random(_) => types::RANDOM,
            Parameter::ChunkList(_) => types::CHUNK_LIST,
            Parameter::RequestedHmac(_) => types::REQUESTED_HMAC,
            Parameter::Padding { .. } => types::PADDING,
            Parameter::DtlsKeyManagement { .. } => types::DTLS_KEY_MANAGEMENT,
            Parameter::SupportedExtensions(_) => types::SUPPORTED_EXTENSIONS,
            Parameter::ForwardTsnSupported => types::FORWARD_TSN_SUPPORTED,
            Parameter::AddIp { .. } => types::ADD_IP,
            Parameter::DelIp { .. } => types::DEL_IP,
            Parameter::ErrorCause { .. } => types::ERROR_CAUSE,
            Parameter::SetPrimary { .. } => types::SET_PRIMARY,
            Parameter::AddressUse { .. } => types::ADDRESS_USE,
            Parameter::SuccessIndication { .. } => types::SUCCESS_INDICATION,
            Parameter::AdaptationLayerIndication(_) => types::ADAPTATION_LAYER_INDICATION,
            Parameter::Unknown { ptype, .. } => *ptype,
        }
    }

    /// Writes the parameter's header and value, without padding.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if the parameter does not fit. The buffer may then hold a part of the parameter.
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        let ptype = self.ptype();
        match *self {
            Parameter::Ipv4Address(address) => write_address(address.into(), out),
            Parameter::Ipv6Address(address) => write_address(address.into(), out),
            Parameter::AddIp { correlation, address }
            | Parameter::DelIp { correlation, address }
            | Parameter::SetPrimary { correlation, address } => {
                address::write_change(ptype, correlation, address, out)
            }
            Parameter::AddressUse { correlation, address, rank, link, heartbeat_ms } => {
                address::write_use(correlation, address, (rank, link, heartbeat_ms), out)
            }
            Parameter::OutgoingSsnReset { request, response, last_tsn, streams } => {
                reconfig::write_streams(ptype, &[request.0, response.0, last_tsn.0], streams, out)
            }
            Parameter::IncomingSsnReset { request, streams } => {
                reconfig::write_streams(ptype, &[request.0], streams, out)
            }
            Parameter::ReconfigResponse { response, result, next_tsns } => {
                reconfig::write_response(response, result, next_tsns, out)
            }
            Parameter::AddOutgoingStreams { request, new_streams }
            | Parameter::AddIncomingStreams { request, new_streams } => {
                reconfig::write_add(ptype, request, new_streams, out)
            }
            _ => out.tlv(ptype, |out| self.write_plain(out)),
        }
    }

    /// Writes the value of a parameter that [`Parameter::write`] does not handle itself.
    fn write_plain(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        match *self {
            Parameter::HeartbeatInfo(value)
            | Parameter::StateCookie(value)
            | Parameter::UnrecognizedParameter(value)
            | Parameter::HostName(value)
            | Parameter::Random(value)
            | Parameter::ChunkList(value)
            | Parameter::SupportedExtensions(value)
            | Parameter::Unknown { value, .. } => out.bytes(value),
            Parameter::CookiePreservative(number)
            | Parameter::ZeroChecksumAcceptable { edmid: number }
            | Parameter::SuccessIndication { correlation: number }
            | Parameter::AdaptationLayerIndication(number) => out.u32(number),
            Parameter::SsnTsnReset { request } => out.u32(request.0),
            Parameter::SupportedAddressTypes(list) | Parameter::RequestedHmac(list) => list.write(out),
            Parameter::Padding { len } => out.zeros(len),
            Parameter::DtlsKeyManagement { tie_breaker, roles, methods } => {
                out.u32(tie_breaker)?;
                out.bytes(&[roles.to_bits()])?;
                out.bytes(methods)
            }
            Parameter::ErrorCause { correlation, causes } => {
                out.u32(correlation)?;
                causes.write(out)
            }
            _ => Ok(()),
        }
    }
}

impl From<IpAddr> for Parameter<'_> {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Parameter::Ipv4Address(address),
            IpAddr::V6(address) => Parameter::Ipv6Address(address),
        }
    }
}

//! Address parameters ([RFC 9260 section 3.3.2.1](https://www.rfc-editor.org/rfc/rfc9260.html#section-3.3.2.1)), also as a part of the
//! parameters of [RFC 5061 section 4.2](https://www.rfc-editor.org/rfc/rfc5061.html#section-4.2).
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |       Type = 5 (6)            |     Length = 8 (20)           |
//! +-------------------------------+-------------------------------+
//! |                 IPv4 (IPv6) Address                           |
//! +---------------------------------------------------------------+
//! ```

use std::net::IpAddr;

use super::types::{IPV4_ADDRESS, IPV6_ADDRESS};
use super::{Parameter, ParameterError, types};
use crate::reader::Reader;
use crate::tlv::{Tlv, Tlvs};
use crate::writer::{NoRoom, Writer};

/// Reads an address parameter. Any other parameter is an error.
pub(crate) fn read_address(tlv: Tlv<'_>) -> Result<IpAddr, ParameterError> {
    let length = ParameterError::length(&tlv);
    match tlv.kind {
        IPV4_ADDRESS => <[u8; 4]>::try_from(tlv.value).map(IpAddr::from).map_err(|_| length),
        IPV6_ADDRESS => <[u8; 16]>::try_from(tlv.value).map(IpAddr::from).map_err(|_| length),
        ptype => Err(ParameterError::Unexpected { ptype }),
    }
}

pub(crate) fn write_address(address: IpAddr, out: &mut Writer<'_>) -> Result<(), NoRoom> {
    match address {
        IpAddr::V4(v4) => out.tlv(types::IPV4_ADDRESS, |out| out.bytes(&v4.octets())),
        IpAddr::V6(v6) => out.tlv(types::IPV6_ADDRESS, |out| out.bytes(&v6.octets())),
    }
}

/// Reads the correlation identifier and the address of an Add IP, Delete IP or Set Primary parameter.
pub(super) fn read_change(tlv: Tlv<'_>) -> Result<(u32, IpAddr), ParameterError> {
    let length = ParameterError::length(&tlv);
    let mut value = Reader::new(tlv.value);
    let correlation = value.u32().ok_or(length)?;
    let address = Tlvs::new(value.rest()).next().ok_or(length)??;
    Ok((correlation, read_address(address)?))
}

pub(super) fn write_change(
    ptype: u16,
    correlation: u32,
    address: IpAddr,
    out: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    out.tlv(ptype, |out| {
        out.u32(correlation)?;
        write_address(address, out)
    })
}

/// Reads an address-use parameter. Its fields are correlation identifier, rank, link number, two reserved octets, heartbeat interval in
/// milliseconds, and address.
pub(super) fn read_use<'a>(tlv: Tlv<'_>) -> Result<Parameter<'a>, ParameterError> {
    let length = ParameterError::length(&tlv);
    let mut value = Reader::new(tlv.value);
    let correlation = value.u32().ok_or(length)?;
    let [rank, link, ..] = value.array::<4>().ok_or(length)?;
    let heartbeat_ms = value.u32().ok_or(length)?;
    let address = Tlvs::new(value.rest()).next().ok_or(length)??;
    Ok(Parameter::AddressUse { correlation, address: read_address(address)?, rank, link, heartbeat_ms })
}

pub(super) fn write_use(
    correlation: u32,
    address: IpAddr,
    (rank, link, heartbeat_ms): (u8, u8, u32),
    out: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    out.tlv(types::ADDRESS_USE, |out| {
        out.u32(correlation)?;
        out.bytes(&[rank, link, 0, 0])?;
        out.u32(heartbeat_ms)?;
        write_address(address, out)
    })
}

//! Decoding of the values of socket options.

use std::net::SocketAddr;

use sockproto::abi::{SOL_SCTP, option};
use sockproto::read_addresses;

use crate::Errno;

/// Longest interval that an option may set, in milliseconds: one hour.
const INTERVAL_MAX: u32 = 3_600_000;

/// The bytes of an option's value, as the program has passed them.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a>(pub(crate) &'a [u8]);

impl Given<'_> {
    pub(crate) fn exactly(self, length: usize) -> Result<Self, Errno> {
        if self.0.len() == length { Ok(self) } else { Err(libc::EINVAL) }
    }

    pub(crate) fn at_least(self, length: usize) -> Result<Self, Errno> {
        if self.0.len() >= length { Ok(self) } else { Err(libc::EINVAL) }
    }

    pub(crate) fn short(self, at: usize) -> u16 {
        self.0.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
    }

    pub(crate) fn long(self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    /// Returns the identifier of the association that an option names. Returns `None` for options without an identifier.
    pub(crate) fn association(self, level: i32, name: i32) -> Option<i32> {
        let at = match name {
            _ if level != SOL_SCTP => return None,
            option::DEFAULT_SEND_PARAM => 28,
            option::DEFAULT_SNDINFO => 12,
            option::RTOINFO
            | option::ASSOCINFO
            | option::PRIMARY_ADDR
            | option::PEER_ADDR_PARAMS
            | option::STATUS => 0,
            option::GET_PEER_ADDR_INFO | option::DELAYED_SACK | option::CONTEXT | option::EVENT => 0,
            option::REMOTE_UDP_ENCAPS_PORT | option::GET_PEER_ADDRS | option::GET_LOCAL_ADDRS => 0,
            option::MAXSEG | option::MAX_BURST if self.0.len() >= 8 => 0,
            _ => return None,
        };
        Some(self.long(at).cast_signed())
    }

    pub(crate) fn int(self) -> Result<i32, Errno> {
        self.at_least(4).map(|given| given.long(0).cast_signed())
    }

    /// Returns the address at offset `at`. Returns `None` for invalid bytes and for the wildcard address.
    pub(crate) fn address(self, at: usize) -> Option<SocketAddr> {
        let address = read_addresses(self.0.get(at..)?).next()?.ok()?;
        (!address.ip().is_unspecified()).then_some(address)
    }
}

/// Returns an interval in milliseconds. Returns `None` for 0, because 0 leaves the current value unchanged.
///
/// # Errors
/// `EINVAL` for an interval above one hour.
pub(crate) fn interval(ms: u32) -> Result<Option<u32>, Errno> {
    match ms {
        0 => Ok(None),
        1..=INTERVAL_MAX => Ok(Some(ms)),
        _ => Err(libc::EINVAL),
    }
}

//! Selection of the associations of a one-to-many socket to which an option applies (RFC 6458 section 7.2).

use sctp::Endpoint;
use sockproto::abi::{SOL_SCTP, option};

use crate::option_value::Given;
use crate::{Errno, SocketKey, Sockets};

/// The reserved identifiers `SCTP_FUTURE_ASSOC`, `SCTP_CURRENT_ASSOC` and `SCTP_ALL_ASSOC`.
const FUTURE: i32 = 0;
const CURRENT: i32 = 1;
const ALL: i32 = 2;

impl Sockets {
    /// Returns the sockets for which an option must be set. For a one-to-many socket, these are the socket itself, its members, or both.
    ///
    /// # Errors
    /// `EINVAL` for an unknown identifier.
    pub(crate) fn targets(
        &self,
        engine: &Endpoint,
        key: SocketKey,
        (level, name): (i32, i32),
        given: Given<'_>,
    ) -> Result<Vec<SocketKey>, Errno> {
        if !self.is_one_to_many(key) || (level, name) == (SOL_SCTP, option::AUTOCLOSE) {
            return Ok(vec![key]);
        }
        let members = || self.get(key).map(|socket| socket.members.keys());
        let with_members = || members().map(|members| std::iter::once(key).chain(members).collect());
        let Some(id) = given.association(level, name) else { return with_members() };
        match id {
            FUTURE => Ok(vec![self.with_address(engine, key, name, given).unwrap_or(key)]),
            CURRENT => members(),
            ALL => with_members(),
            _ => Ok(vec![self.member_by_id(key, id).ok_or(libc::EINVAL)?]),
        }
    }

    /// Returns the member whose peer has the address that an option names.
    fn with_address(
        &self,
        engine: &Endpoint,
        key: SocketKey,
        name: i32,
        given: Given<'_>,
    ) -> Option<SocketKey> {
        match name {
            option::PEER_ADDR_PARAMS | option::PRIMARY_ADDR | option::GET_PEER_ADDR_INFO => {
                self.member_to(engine, key, given.address(4)?)
            }
            _ => None,
        }
    }

    /// Returns the socket whose option must be read. For a one-to-many socket, this is the socket itself, or one member.
    ///
    /// # Errors
    /// `EINVAL` for an unknown identifier.
    pub(crate) fn source(
        &self,
        engine: &Endpoint,
        key: SocketKey,
        (level, name): (i32, i32),
        given: Given<'_>,
    ) -> Result<SocketKey, Errno> {
        match given.association(level, name) {
            Some(FUTURE) if self.is_one_to_many(key) => {
                Ok(self.with_address(engine, key, name, given).unwrap_or(key))
            }
            Some(id) if self.is_one_to_many(key) => self.member_by_id(key, id).ok_or(libc::EINVAL),
            _ => Ok(key),
        }
    }
}
